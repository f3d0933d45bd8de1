"""Programs run again, worked out by hand (µs)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from analyzers.replay.engine import places, run
from analyzers.replay.model import LARGE, LOADS, SMALL, TALKING, Lists, Tasks
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import US, on_ranks, replayed, spans, written

Spans = dict[str, list[tuple[float, float]]]
TWO = "K 7 @0 7-107; L 9 @20 27-67"  # K of 100 µs, and L of 40 beside it


def run_with(trace: Trace, slower: Any = None, *, queue: int | None = None, **columns: Any) -> Spans:
    """When units run, with other columns of calls, of units and of their occupancy."""
    found = tasks(trace)
    changed = {
        name: replace(part, **{key: columns[key] for key in part.__struct_fields__ if key in columns})
        for name, part in (("calls", found.calls), ("units", found.units), ("occupancy", found.occupancy))
    }
    found = replace(found, queue=found.queue if queue is None else queue, **changed)
    return spans(trace, found, run(found, slower))


def before(trace: Trace, *more: int) -> Any:
    """What hosts do before each call, with so many µs more."""
    return tasks(trace).calls.gap_ns + np.array(more) * US


# L is launched to begin before K ends, and does, 30 µs after it began; then M.
DEPENDENT = "K 7 @0 7-47; L 7 @10 37-67; M 7 @20 68-77"


def test_a_kernel_that_begins_before_the_one_before_it_ends_follows_its_start() -> None:
    trace = written(DEPENDENT)
    assert replayed(trace) == {"K": [(7, 47)], "L": [(37, 67)], "M": [(68, 77)]}
    assert tasks(trace).units.beside.tolist() == [-1, 0, -1]
    longer = np.array([60.0, 30.0, 9.0]) * US
    assert run_with(trace, transfer_ns=longer) == {"K": [(7, 67)], "L": [(37, 67)], "M": [(68, 77)]}
    later = {"K": [(27, 67)], "L": [(57, 87)], "M": [(88, 97)]}
    assert run_with(trace, gap_ns=before(trace, 20, 0, 0)) == later, "K is launched 20 later"
    ((begin, _),) = run_with(trace, gap_ns=before(trace, 0, 40, 0))["L"]
    assert begin == 57, "L is submitted at 55, behind K's start and its end: it starts 2 µs after its launch"
    on_another = run_with(trace, previous=np.array([-1, -1, 1]))["L"]
    assert on_another == [(17, 47)], "2 µs after its launch at 10 has returned at 15"


def test_units_are_slowed_by_the_last_load_beside_them() -> None:
    """K of 100 µs starts at 7, L of 40 at 27, M of 20 at 57. K goes at half its pace beside L, at a fifth beside M.

    K has done 20 by 27, 15 more by 57, 4 more by 77, when M is over; the 61 left take 122 beside L, which is over at
    67, or 61 alone.
    """
    trace = written(TWO + "; M 11 @50 57-77")
    slower = np.zeros((3, len(LOADS)))
    slower[0, [SMALL, TALKING]] = 0.5, 0.8
    found = run_with(trace, slower, load=np.array([LARGE, SMALL, TALKING]))
    assert found == {"K": [(7, 138)], "L": [(27, 67)], "M": [(57, 77)]}
    found = run_with(trace, slower, load=np.array([LARGE, TALKING, SMALL]))
    assert found["K"] == [(7, 144)], "at a fifth from 27 to 67, then at half its pace to 77: 67 are left"


def test_a_call_follows_the_one_of_another_thread_that_handed_over() -> None:
    """B's thread makes its first call 15 µs after A's returned, and does so if A is launched 30 µs later."""
    trace = written("A 7 @0 7-12; B 9 @20 27-40")
    found = tasks(trace)
    found = replace(
        found,
        calls=replace(
            found.calls,
            thread=np.array([0, 1]),
            handed=np.array([-1, 0]),
            gap_ns=np.array([30 * US, 15 * US]),
        ),
    )
    assert spans(trace, found, run(found)) == {"A": [(37, 42)], "B": [(57, 70)]}


def test_a_launch_for_a_full_queue_waits_for_a_place() -> None:
    """With one place L's launch goes on when the second K starts, at 109; M is launched 15 µs after it returned."""
    trace = written("K 7 @0 7-107; K 7 @10 109-209; L 7 @20 211-220; M 9 @40 47-50")
    assert run_with(trace, queue=1)["M"] == [(136, 139)]


# Rank 0 waits from 7 to 37 and transfers to 57; K is there from 17.
LATE = [
    "AllReduce:0 9 @0 7-57 wait_ns=30000; K 7 @10 17-117",
    "AllReduce:0 9 @30 37-57",
]


def test_what_waits_for_a_late_rank_slows_others_as_such() -> None:
    """K loses a tenth meanwhile, and then a half: it has done 18 µs by 37 and 10 more by 57; 72 are left."""
    trace = on_ranks(*LATE)
    slower = np.zeros((3, len(LOADS)))
    slower[tasks(trace).units.collective < 0] = [0, 0.1, 0, 0, 0.5]
    assert run_with(trace, slower)["K"] == [(17, 129)]


def test_a_collective_waits_for_its_last_rank_and_goes_on_as_its_slowest() -> None:
    """K runs beside the transfer of 20 µs on rank 0 alone, and slows it on both."""
    trace = on_ranks(*LATE)
    found = tasks(trace)
    of_both = found.units.collective == 0
    slower = np.where(of_both, 0.5, 0.0)
    times = run(found, np.repeat(slower[:, None], len(LOADS), axis=1))
    assert times.unit_began[of_both].tolist() == [37 * US, 37 * US]
    assert times.unit_end[of_both].tolist() == [77 * US, 77 * US]


K_FILLS = {
    "limits": np.array([[2048, 32, 65536, 100_000]]),
    "needed": np.tile([1024, 1, 0, 0], (2, 1)),
    "taken": np.array([[2048, 2, 0, 0], [1024, 1, 0, 0]]),
    "fills": np.array([True, False]),
    "until": np.array([0.5, 1.0]),  # K's last blocks begin halfway
    "room_ns": np.array([US, US]),
}


@pytest.mark.parametrize(
    ("more", "begins"),
    [
        ({}, 58),
        ({"rest": np.array([[1025, 1, 0, 0], [0, 0, 0, 0]])}, 108),  # K's last blocks leave no room for L
        ({"taken": np.array([[1024, 1, 0, 0], [1024, 1, 0, 0]])}, 58),  # L would fit, but blocks of K wait
    ],
)
def test_no_room_holds_a_unit_until_what_fills_the_gpu_drains(more: dict[str, Any], begins: int) -> None:
    assert run_with(written(TWO), **{**K_FILLS, **more}) == {"K": [(7, 107)], "L": [(begins, begins + 40)]}


@pytest.mark.parametrize(
    ("text", "room_ns", "times"),
    [
        # L begins 5 µs after there is room, M would after 1. M, released later, does not begin before L. Together they
        # don't fit: M waits for L's end, and 1 µs.
        (TWO + "; M 11 @40 47-67", [1, 5, 1], {"L": [(112, 152)], "M": [(153, 173)]}),
        # M of stream 11, released at 27, begins before L of stream 9, released at 47.
        ("K 7 @0 7-107; M 11 @20 27-67; L 9 @40 47-67", [1, 1, 1], {"M": [(108, 148)], "L": [(149, 169)]}),
    ],
)
def test_room_is_given_in_the_order_of_release(text: str, room_ns: list[int], times: Spans) -> None:
    """Behind K, which fills the GPU until 107, wait L and M."""
    columns = {
        "limits": K_FILLS["limits"],
        "needed": np.tile([1024, 1, 0, 0], (3, 1)),
        "taken": np.tile([2048, 2, 0, 0], (3, 1)),
        "until": np.ones(3),
        "room_ns": np.array(room_ns) * US,
    }
    assert run_with(written(text), **columns) == {"K": [(7, 107)], **times}


@pytest.mark.parametrize(
    ("previous", "waits", "start"), [(-1, ([], []), 27), (0, ([], []), 108), (-1, ([1], [0]), 113)]
)
def test_what_releases_a_unit_tells_how_soon_it_starts(previous: int, waits: tuple[Any, Any], start: int) -> None:
    """L starts 2 µs after its launch; behind K on its stream it would 1 µs after it, behind a wait 6 µs."""
    found = run_with(
        written(TWO),
        dispatch_ns=np.array([[2 * US] * 3, [2 * US, US, 6 * US]]),
        previous=np.array([-1, previous]),
        **({"waits": Lists.of(*(np.array(one, np.int64) for one in waits), 2)} if waits[0] else {}),
    )
    assert found["L"] == [(start, start + 40)]


def test_places_in_the_queue_are_so_many_before() -> None:
    units = tasks(written("; ".join(f"K 7 @{10 * at} {10 * at + 7}-{10 * at + 9}" for at in range(7)))).units
    assert places(units, 3).tolist() == [-1, -1, -1, 0, 1, 2, 3]
    assert places(units, 7).tolist() == [-1] * 7
    assert places(units, 1_021).tolist() == [-1] * 7


def test_what_waits_for_itself_never_ends() -> None:
    found: Tasks = tasks(written(TWO))
    circle = replace(found.units, previous=np.array([1, 0]))
    assert run(replace(found, units=circle)).unit_end.tolist() == [-1, -1]
