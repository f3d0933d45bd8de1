"""What each host thread launched, and the stream that it comes back to."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analyzers.ordering.calls import Launches, host_calls
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, one_rank
from tests.support.order_of import array, lanes_of, linked, name_of, named

NCCL = "ncclDevKernel_AllGather_RING_LL"


def launching(seed: int) -> tuple[Trace, list[tuple[int, int, int, int]]]:
    """A run of three threads of two processes, and its launches: process, thread, start and stream."""
    dice, run = random.Random(seed), Builder()
    ranks = [run.rank(0), run.rank(1)]
    launches = []
    for at in range(0, dice.randint(0, 24) * 2, 2):
        process, thread, stream = dice.choice([(0, 1), (0, 2), (1, 1)]), dice.randint(0, 9), dice.randint(5, 8)
        start = at if dice.random() < 0.8 else max(at - 2, 0)  # some at one instant
        kernel = NCCL if stream == 8 else f"k{thread}"
        ranks[process[0]].kernel(kernel, stream, 100 + at, 101 + at, launch=(start, at + 1), thread=process[1])
        launches.append((*process, start, stream))
    ranks[0].kernel("without a call", 6, 300, 301)
    return run.trace(), launches


RUNS = [launching(seed) for seed in range(30)]


def test_a_thread_computed_last_on_the_stream_of_its_last_launch_that_does_not_communicate() -> None:
    for trace, _ in RUNS:
        lanes = lanes_of(trace, (0, 1), (0, 2), (1, 1))
        launches = Launches(lanes)
        expected = np.full(lanes.op.size, -1)
        for host in np.flatnonzero(lanes.is_host()).tolist():
            last = -1
            for unit in launches.of(host)[0].tolist():
                lane = int(lanes.lane_of_unit()[unit])
                last = last if lanes.stream[lane] == 8 else lane
                expected[unit] = last
        assert launches.computed_on.tolist() == expected.tolist()


def test_neighbours_are_the_last_launch_before_an_instant_and_the_first_after_it() -> None:
    for trace, _ in RUNS:
        lanes = lanes_of(trace, (0, 1), (0, 2), (1, 1))
        launches = Launches(lanes)
        asked = [(host, at) for at in range(-1, 60) for host in [-1, *np.flatnonzero(lanes.is_host()).tolist()]]
        expected = []
        for host, at in asked:
            units = launches.of(host)[0].tolist() if host >= 0 else []
            earlier = [unit for unit in units if lanes.enqueue_ns[unit] < at]
            later = [unit for unit in units if lanes.enqueue_ns[unit] >= at]
            expected.append((earlier[-1] if earlier else -1, later[0] if later else -1))
        host, instant = (array(*column) for column in zip(*asked, strict=True))
        before, after = launches.neighbours(host, instant)
        assert list(zip(before.tolist(), after.tolist(), strict=True)) == expected


@pytest.mark.parametrize("default", [9, 5])
def test_a_default_stream_that_a_thread_makes_wait_is_its_home(default: int) -> None:
    run, rank = one_rank()
    run.stream(rank, default, default=1)
    for at, stream in ((0, 8), (2, 7)):
        rank.kernel("k", stream, 100, 101, launch=(at, at + 1))
    rank.kernel("k", default, 100, 101, launch=(0, 1), thread=2)
    rank.wait_stream(default, 8, 10)
    trace = run.trace()
    found, lanes = linked(trace).home, host_calls(trace).lanes
    assert all(found[~lanes.is_host()] == -1), "only threads have a home"
    assert name_of(lanes, int(found[named(lanes, "t1")])) == f"s{default}"
