"""How much slower units go on beside others, from a few like ones (µs)."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.replay.model import LARGE, LOADS, TALKING, WAITING
from analyzers.replay.slowdown import LITTLE_TAKEN, NO_GAIN, USUAL, Slowdown, slowdown
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import US, Program
from tests.support.builder import Builder


def of(trace: Trace, name: str) -> tuple[Slowdown, list[int]]:
    found = tasks(trace)
    names = trace.ops.to_frame()["name"].astype(str).to_numpy()[found.units.op]
    return slowdown(trace, found.units, found.occupancy), np.flatnonzero(names == name).tolist()


def test_like_kernels_alone_and_beside_others() -> None:
    """X takes 100 µs alone, and 150 all the way beside Y: there it does 2/3 of its pace.

    The first comes behind nothing, the others behind like ones.
    """
    program = Program()
    for at in (0, 200, 400, 600):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 110)
    for at in (800, 1_000):
        program.kernel("Y", 9, call=at - 10, start=at + 5, end=at + 165)
        program.kernel("X", 7, call=at, start=at + 10, end=at + 160)
    found, rows = of(program.trace(), "X")
    assert found.known[rows[1:], LARGE].all()
    assert not found.known[:, TALKING].any()
    assert found.least_slower[rows[1:], LARGE] == pytest.approx([1 / 3] * 5)
    assert found.beside[rows].tolist() == [[0] * 5] * 4 + [[0, 0, 0, 1, 0]] * 2
    assert found.alone_ns(found.likely_slower)[rows] == pytest.approx([100_000] * 6)


def test_what_never_ran_beside_others_may_be_slowed_or_not() -> None:
    program = Program()
    for at in (0, 200):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 110)
    found, rows = of(program.trace(), "X")
    assert not found.known[rows].any()
    assert found.least_slower[rows].tolist() == [[0] * len(LOADS)] * 2
    assert found.likely_slower[rows].tolist() == [USUAL[LARGE].tolist()] * 2
    assert found.most_slower[rows].tolist() == [[LITTLE_TAKEN] * 2 + [NO_GAIN] * 3] * 2


def test_what_it_loses_is_told_apart_by_what_is_beside() -> None:
    """X takes 100 µs alone, 125 all beside Y, which loses 1/5, and 200 beside a transfer: half."""
    program = Program()
    for at in (0, 200, 400):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 110)
    program.kernel("Y", 9, call=590, start=605, end=740)
    program.kernel("X", 7, call=600, start=610, end=735)
    program.kernel("ncclDevKernel_AllReduce", 11, call=790, start=805, end=1_015)
    program.kernel("X", 7, call=800, start=810, end=1_010)
    found, rows = of(program.trace(), "X")
    assert found.likely_slower[rows[1], LARGE] == pytest.approx(0.2)
    assert found.likely_slower[rows[1], TALKING] == pytest.approx(0.5)
    assert found.alone_ns(found.likely_slower)[rows] == pytest.approx([100_000] * 5)


def test_a_transfer_that_waits_is_not_one_that_transfers() -> None:
    """Rank 0 waits from 20 to 60 and transfers to 120; K runs from 30 to 80: 30 of 50 µs beside the wait."""
    both = Builder()
    for number, start, wait in ((0, 20, 40), (1, 60, 0)):
        program = Program(both, number)
        program.kernel(
            "ncclDevKernel_AllReduce", 9, call=start - 10, start=start, end=120, collective=0, wait_ns=wait * US
        )
        if number == 0:
            program.kernel("K", 7, call=20, start=30, end=80)
    found, rows = of(both.trace(), "K")
    assert found.beside[rows[0], [WAITING, TALKING]].tolist() == [0.6, 0.4]


def test_what_one_loses_beside_another_tells_what_that_loses() -> None:
    """X loses 1/3 beside the all-reduce, which never ran alone: most likely it loses as much, where 1/4 is usual."""
    program = Program()
    for at in (0, 200, 400):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 110)
    program.kernel("ncclDevKernel_AllReduce", 9, call=590, start=605, end=765)
    program.kernel("X", 7, call=600, start=610, end=760)
    found, rows = of(program.trace(), "ncclDevKernel_AllReduce")
    assert not found.known[rows, LARGE].any()
    assert found.likely_slower[rows, LARGE] == pytest.approx([1 / 3])
    assert found.most_slower[rows, LARGE].tolist() == [NO_GAIN]


def test_the_range_holds_what_is_most_likely() -> None:
    """X takes five times as long beside the all-reduce: 4/5 of its pace. Then the all-reduce may lose as much, too."""
    program = Program()
    for at in (0, 200, 400):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 110)
    program.kernel("ncclDevKernel_AllReduce", 9, call=590, start=605, end=1_115)
    program.kernel("X", 7, call=600, start=610, end=1_110)
    found, rows = of(program.trace(), "ncclDevKernel_AllReduce")
    assert found.likely_slower[rows, LARGE] == pytest.approx([0.8])
    assert (found.least_slower <= found.likely_slower).all()
    assert (found.likely_slower <= found.most_slower).all()


def test_times_alone_that_differ_too_much_are_of_no_like_kernels() -> None:
    """Collectives of unknown sizes: 40 and 90 µs alone. What one takes beside others says nothing."""
    program = Program()
    for at, took in ((0, 40), (200, 90), (400, 40), (600, 90)):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 10 + took)
    program.kernel("Y", 9, call=790, start=805, end=965)
    program.kernel("X", 7, call=800, start=810, end=960)
    found, rows = of(program.trace(), "X")
    assert not found.known[rows].any()


@pytest.mark.filterwarnings("error")
def test_of_kernels_that_take_no_time_nothing_is_known() -> None:
    program = Program()
    for at in (0, 200):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 10)
    found, rows = of(program.trace(), "X")
    assert not found.known[rows].any()


def test_a_collective_is_beside_what_runs_on_any_of_its_ranks() -> None:
    """Of the transfer from 20 to 120, rank 0 runs K from 20 to 50 and rank 1 from 40 to 70: half."""
    both = Builder()
    for number, low, high in ((0, 20, 50), (1, 40, 70)):
        program = Program(both, number)
        program.kernel("ncclDevKernel_AllReduce", 9, call=0, start=20, end=120, collective=0)
        program.kernel("K", 7, call=low - 10, start=low, end=high)
    found, rows = of(both.trace(), "ncclDevKernel_AllReduce")
    assert found.beside[rows, LARGE].tolist() == [0.5, 0.5]
