"""How much slower units go on beside others, from a few like ones (µs)."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.replay.pace import LIKELY, NO_GAIN, Pace, pace
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import Program
from tests.support.builder import Builder


def of(trace: Trace, name: str) -> tuple[Pace, list[int]]:
    found = tasks(trace)
    names = trace.ops["name"].astype(str).to_numpy()[found.units.op]
    return pace(trace, found.units), np.flatnonzero(names == name).tolist()


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
    assert found.known[rows[1:]].all()
    assert found.least_slower[rows[1:]] == pytest.approx([1 / 3] * 5)
    assert found.beside[rows].tolist() == [0, 0, 0, 0, 1, 1]
    assert found.alone_ns(found.likely_slower)[rows] == pytest.approx([100_000] * 6)


def test_what_never_ran_beside_others_may_be_slowed_or_not() -> None:
    program = Program()
    for at in (0, 200):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 110)
    found, rows = of(program.trace(), "X")
    assert not found.known[rows].any()
    assert found.least_slower[rows].tolist() == [0, 0]
    assert found.likely_slower[rows].tolist() == [LIKELY, LIKELY]
    assert found.most_slower[rows].tolist() == [NO_GAIN, NO_GAIN]


def test_times_alone_that_differ_too_much_are_of_no_like_kernels() -> None:
    """Collectives of unknown sizes: 40 and 90 µs alone. What one takes beside others says nothing."""
    program = Program()
    for at, took in ((0, 40), (200, 90), (400, 40), (600, 90)):
        program.kernel("X", 7, call=at, start=at + 10, end=at + 10 + took)
    program.kernel("Y", 9, call=790, start=805, end=965)
    program.kernel("X", 7, call=800, start=810, end=960)
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
    assert found.beside[rows].tolist() == [0.5, 0.5]
