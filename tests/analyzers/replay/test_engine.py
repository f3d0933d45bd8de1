"""Programs run again, worked out by hand."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.replay.engine import places, run
from analyzers.replay.model import LARGE, LOADS, SMALL, TALKING, Lists
from analyzers.replay.tasks import tasks
from tests.analyzers.replay.programs import US, Program, replayed, spans
from tests.support.builder import Builder


def dependent(first: int = 7) -> Program:
    """K of 40 µs; L is launched to begin before it ends, and does, 30 µs after it began; then M."""
    program = Program()
    program.kernel("K", 7, call=0, start=first, end=first + 40)
    program.kernel("L", 7, call=10, start=first + 30, end=first + 60)
    program.kernel("M", 7, call=20, start=first + 61, end=first + 70)
    return program


def test_a_kernel_that_begins_before_the_one_before_it_ends_follows_its_start() -> None:
    trace = dependent().trace()
    assert replayed(trace) == {"K": [(7, 47)], "L": [(37, 67)], "M": [(68, 77)]}
    found = tasks(trace)
    assert found.units.beside.tolist() == [-1, 0, -1]
    longer = np.array([60.0, 30.0, 9.0]) * US
    times = run(replace(found, units=replace(found.units, transfer_ns=longer)))
    assert spans(trace, found, times) == {"K": [(7, 67)], "L": [(37, 67)], "M": [(68, 77)]}, "K takes 20 µs longer"
    late = replace(found.calls, before_ns=np.array([20, 0, 0]) * US + found.calls.before_ns)
    times = run(replace(found, calls=late))
    assert spans(trace, found, times) == {"K": [(27, 67)], "L": [(57, 87)], "M": [(88, 97)]}, "K is launched 20 later"
    late = replace(found.calls, before_ns=np.array([0, 40, 0]) * US + found.calls.before_ns)
    times = run(replace(found, calls=late))
    (begin, _), *_ = spans(trace, found, times)["L"]
    assert begin == 57, "L is submitted at 55, behind K's start and its end: it starts 2 µs after its launch"


def test_one_on_another_stream_by_a_change_follows_nothing() -> None:
    trace = dependent().trace()
    found = tasks(trace)
    moved = replace(found, units=replace(found.units, previous=np.array([-1, -1, 1])))
    assert spans(trace, moved, run(moved))["L"] == [(17, 47)], "2 µs after its launch at 10 has returned at 15"


def two_streams() -> Program:
    """K of 100 µs from 7 to 107, and L of 40 µs beside it from 27 to 67."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.kernel("L", 9, call=20, start=27, end=67)
    return program


def test_units_are_slowed_by_the_last_load_beside_them() -> None:
    """K of 100 µs starts at 7, L of 40 at 27, M of 20 at 57. K goes at half its pace beside L, at a fifth beside M.

    K has done 20 by 27, 15 more by 57, 4 more by 77, when M is over; the 61 left take 122 beside L, which is over at
    67, or 61 alone.
    """
    program = two_streams()
    program.kernel("M", 11, call=50, start=57, end=77)
    trace = program.trace()
    found = tasks(trace)
    loads = np.array([LARGE, SMALL, TALKING])
    slower = np.zeros((3, len(LOADS)))
    slower[0, [SMALL, TALKING]] = 0.5, 0.8
    times = run(replace(found, occupancy=replace(found.occupancy, load=loads)), slower)
    assert spans(trace, found, times) == {"K": [(7, 138)], "L": [(27, 67)], "M": [(57, 77)]}
    loads = np.array([LARGE, TALKING, SMALL])  # at a fifth from 27 to 67, then at half its pace to 77: 67 are left
    times = run(replace(found, occupancy=replace(found.occupancy, load=loads)), slower)
    assert spans(trace, found, times)["K"] == [(7, 144)]


def test_a_call_follows_the_one_of_another_thread_that_handed_over() -> None:
    """B's thread makes its first call 15 µs after A's returned, and does so if A is launched 30 µs later."""
    program = Program()
    program.kernel("A", 7, call=0, start=7, end=12)
    with program.rank.on_thread(2):
        program.kernel("B", 9, call=20, start=27, end=40)
    trace = program.trace()
    found = tasks(trace)
    late = replace(found.calls, before_ns=found.calls.before_ns + np.array([30, 0]) * US)
    assert spans(trace, found, run(replace(found, calls=late))) == {"A": [(37, 42)], "B": [(57, 70)]}


def test_a_launch_for_a_full_queue_waits_for_a_place() -> None:
    """With one place L's launch goes on when the second K starts, at 109; M is launched 15 µs after it returned."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.kernel("K", 7, call=10, start=109, end=209)
    program.kernel("L", 7, call=20, start=211, end=220)
    program.kernel("M", 9, call=40, start=47, end=50)
    trace = program.trace()
    found = tasks(trace)
    times = run(replace(found, queue=1))
    assert times.call_end.tolist() == [5 * US, 15 * US, 114 * US, 134 * US]
    assert spans(trace, found, times)["M"] == [(136, 139)]


def test_what_waits_for_a_late_rank_slows_others_as_such() -> None:
    """Rank 0 waits from 7 to 37 and transfers to 57. K, there from 17, loses a tenth meanwhile, and then a half.

    It has done 18 µs by 37 and 10 more by 57; 72 are left.
    """
    both = Builder()
    for number, call in ((0, 0), (1, 30)):
        program = Program(both, number)
        wait = 30 * US if number == 0 else 0
        program.kernel("ncclDevKernel_AllReduce", 9, call=call, start=call + 7, end=57, collective=0, wait_ns=wait)
        if number == 0:
            program.kernel("K", 7, call=10, start=17, end=117)
    trace = both.trace()
    found = tasks(trace)
    slower = np.zeros((3, len(LOADS)))
    slower[found.units.collective < 0] = [0, 0.1, 0, 0, 0.5]
    assert spans(trace, found, run(found, slower))["K"] == [(17, 129)]


def test_a_collective_waits_for_its_last_rank_and_goes_on_as_its_slowest() -> None:
    """Rank 1 comes 30 µs later; K runs beside the transfer on rank 0 alone, and slows it on both."""
    both = Builder()
    for number, call, kernel in ((0, 0, True), (1, 30, False)):
        program = Program(both, number)
        wait = 30 * US if number == 0 else 0
        program.kernel("ncclDevKernel_AllReduce", 9, call=call, start=call + 7, end=57, collective=0, wait_ns=wait)
        if kernel:
            program.kernel("K", 7, call=10, start=17, end=117)
    trace = both.trace()
    found = tasks(trace)
    assert found.units.transfer_ns[found.units.collective == 0].tolist() == [20 * US, 20 * US]
    slower = np.where(found.units.collective == 0, 0.5, 0.0)
    times = run(found, np.repeat(slower[:, None], len(LOADS), axis=1))
    of_both = found.units.collective == 0
    assert times.unit_began[of_both].tolist() == [37 * US, 37 * US]
    assert times.unit_end[of_both].tolist() == [77 * US, 77 * US]


def test_no_room_holds_a_unit_until_what_fills_the_gpu_drains() -> None:
    trace = two_streams().trace()
    found = tasks(trace)
    room = replace(
        found.occupancy,
        limits=np.array([[2048, 32, 65536, 100_000]]),
        needed=np.array([[1024, 1, 0, 0], [1024, 1, 0, 0]]),
        taken=np.array([[2048, 2, 0, 0], [1024, 1, 0, 0]]),
        fills=np.array([True, False]),
        until=np.array([0.5, 1.0]),  # K's last blocks begin halfway
    )
    held = replace(found, occupancy=room, units=replace(found.units, room_ns=np.array([US, US])))
    assert spans(trace, held, run(held)) == {"K": [(7, 107)], "L": [(58, 98)]}
    full = replace(room, rest=np.array([[1025, 1, 0, 0], [0, 0, 0, 0]]))  # they leave no room for L
    assert spans(trace, held, run(replace(held, occupancy=full))) == {"K": [(7, 107)], "L": [(108, 148)]}
    few = replace(room, taken=np.array([[1024, 1, 0, 0], [1024, 1, 0, 0]]))  # L would fit, but blocks of K wait
    assert spans(trace, held, run(replace(held, occupancy=few))) == {"K": [(7, 107)], "L": [(58, 98)]}


def test_room_is_given_in_the_order_of_release() -> None:
    """Behind K, which fills the GPU until 107, wait L and M; L begins 5 µs after there is room, M would after 1.

    M, released later, does not begin before L. Together they don't fit: M waits for L's end, and 1 µs.
    """
    program = two_streams()
    program.kernel("M", 11, call=40, start=47, end=67)
    trace = program.trace()
    found = tasks(trace)
    room = replace(
        found.occupancy,
        limits=np.array([[2048, 32, 65536, 100_000]]),
        needed=np.tile([1024, 1, 0, 0], (3, 1)),
        taken=np.tile([2048, 2, 0, 0], (3, 1)),
        fills=np.array([True, False, False]),
        until=np.ones(3),
    )
    held = replace(found, occupancy=room, units=replace(found.units, room_ns=np.array([US, 5 * US, US])))
    assert spans(trace, held, run(held)) == {"K": [(7, 107)], "L": [(112, 152)], "M": [(153, 173)]}


def test_of_two_that_may_begin_at_once_the_one_released_first_does() -> None:
    """Behind K, which fills the GPU until 107: M of stream 11, released at 27, then L of stream 9, released at 47."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.kernel("M", 11, call=20, start=27, end=67)
    program.kernel("L", 9, call=40, start=47, end=67)
    trace = program.trace()
    found = tasks(trace)
    occupancy = replace(
        found.occupancy,
        limits=np.array([[2048, 32, 65536, 100_000]]),
        needed=np.tile([1024, 1, 0, 0], (3, 1)),
        taken=np.tile([2048, 2, 0, 0], (3, 1)),
        until=np.ones(3),
    )
    held = replace(found, occupancy=occupancy, units=replace(found.units, room_ns=np.array([US, US, US])))
    assert spans(trace, held, run(held)) == {"K": [(7, 107)], "M": [(108, 148)], "L": [(149, 169)]}


def test_what_releases_a_unit_tells_how_soon_it_starts() -> None:
    """L starts 2 µs after its launch; behind K on its stream it would 1 µs after it, behind a wait 6 µs."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.kernel("L", 9, call=20, start=27, end=67)
    trace = program.trace()
    found = tasks(trace)
    dispatch = np.array([[2 * US] * 3, [2 * US, US, 6 * US]])
    for previous, waits, start in ((-1, ([], []), 27), (0, ([], []), 108), (-1, ([1], [0]), 113)):
        units = replace(
            found.units,
            dispatch_ns=dispatch,
            previous=np.array([-1, previous]),
            waits=Lists.of(*(np.array(one, np.int64) for one in waits), 2),
        )
        assert spans(trace, found, run(replace(found, units=units)))["L"] == [(start, start + 40)]


def test_places_in_the_queue_are_so_many_before() -> None:
    program = Program()
    for at in range(7):
        program.kernel("K", 7, call=10 * at, start=10 * at + 7, end=10 * at + 9)
    units = tasks(program.trace()).units
    assert places(units, 3).tolist() == [-1, -1, -1, 0, 1, 2, 3]
    assert places(units, 7).tolist() == [-1] * 7
    assert places(units, 1_021).tolist() == [-1] * 7


def test_what_waits_for_itself_never_ends() -> None:
    trace = two_streams().trace()
    found = tasks(trace)
    circle = replace(found.units, previous=np.array([1, 0]))
    assert run(replace(found, units=circle)).unit_end.tolist() == [-1, -1]
