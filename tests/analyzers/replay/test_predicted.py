"""The trace of a changed program: times by hand, and the ranges still hold what they held."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.replay.change import Change
from analyzers.replay.host_changes import DropSync
from analyzers.replay.predict import Replayed
from analyzers.replay.predicted import _moved, predicted_trace
from analyzers.replay.stream_changes import OwnStream, Scale
from analyzers.select.select import select
from analyzers.trace.columns import ints
from tests.analyzers.replay.test_answer import KERNELS, PAIR, US, program

CHANGES = [DropSync("nvtx:look up"), Scale("compute", 0.5), OwnStream("kernel:lookup", "kernel:product")]


def test_without_a_sync_kernels_follow_each_other() -> None:
    trace = predicted_trace(Replayed(program(), *PAIR), [DropSync("nvtx:look up")])
    start, end = (ints(trace.ops, name) for name in ("start_ns", "end_ns"))
    assert (end - start).tolist() == [100 * US] * 8
    between = start[1:] - end[:-1]
    assert np.all(between >= 0)
    assert np.all(between <= 3 * US)
    assert end[-1] - start[0] <= 4 * (KERNELS + 5) * US
    blocked = ints(trace.syncs, "end_ns") - ints(trace.syncs, "start_ns")
    assert np.all(blocked <= 3 * US)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_ranges_hold_the_calls_that_they_held(change: Change) -> None:
    before = program()
    after = predicted_trace(Replayed(before, *PAIR), [change])
    for selector in ("nvtx:look up", "nvtx:step *", "nvtx:step 2"):
        assert select(after, selector).picked.tolist() == select(before, selector).picked.tolist()
    assert np.all(ints(after.ranges, "end_ns") >= ints(after.ranges, "start_ns"))


def test_what_moves_to_another_stream_is_on_one_of_its_own() -> None:
    after = predicted_trace(Replayed(program(), *PAIR), [OwnStream("kernel:lookup", "kernel:product")])
    lookup = select(after, "kernel:lookup").picked
    assert set(ints(after.ops, "stream")[lookup].tolist()) == {8}
    assert set(ints(after.ops, "stream")[~lookup].tolist()) == {7}


def test_ranges_keep_their_distance_from_their_calls() -> None:
    """Calls of [10, 20), [30, 40) and [60, 70) come 5 earlier from the second on, and the third takes 1 less."""
    first, last = np.array([10, 30, 60]), np.array([20, 40, 70])
    new_first, new_last = np.array([10, 25, 55]), np.array([20, 35, 64])
    start, end = np.array([28, 5, 12, 45, 5, 80]), np.array([45, 75, 18, 50, 8, 90])
    moved = _moved(start, end, first, last, new_first, new_last)
    assert moved[0].tolist() == [23, 5, 12, 40, 5, 74]
    assert moved[1].tolist() == [40, 69, 18, 45, 8, 84]
