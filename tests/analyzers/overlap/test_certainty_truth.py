"""What is claimed of a ratio's certainty, held against the truth: runs are made, then their ranks' clocks set wrong.

Every time of a rank is moved by less than its clock's error, so that waits, and who arrived last, come out wrong. What
the run truly did has to lie within the bounds that the moved times give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.errors import TracevizError
from analyzers.trace.narrow import only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from tests.analyzers.overlap.test_certainty import with_clocks
from tests.analyzers.overlap.test_job import AR, GEMM, Span, job_run

RANKS = range(3)
APART = 100  # collectives begin in slots of this length, but may last into the next
GATHER = "ncclDevKernel_AllGather"
BOTH_WAIT = [
    ("collective:all_reduce", "collective:all_gather"),
    ("collective:all_reduce", "collective:all_gather,compute"),
    (
        "collective:all_reduce,kernel:gemm",
        "collective:all_gather,kernel:lookup",
    ),  # no communication alone: one rank speaks
]
starts = st.lists(st.integers(0, 40), min_size=len(RANKS), max_size=len(RANKS))
compute = st.lists(st.tuples(st.integers(0, 250), st.integers(1, 80)), max_size=3)


@dataclass(frozen=True)
class World:
    """A run as it was: ends of a collective coincide on all ranks, none before the last arrival."""

    collectives: list[dict[int, Span]]
    names: list[str]
    compute: dict[int, list[Span]]
    error: list[int]
    moved: list[int]

    def seen(self, moved: list[int], error: list[int]) -> Trace:
        """The run as it looks with its clocks moved."""

        def on(rank: int, span: Span) -> Span:
            return span[0] + moved[rank], span[1] + moved[rank]

        collectives = [{rank: on(rank, span) for rank, span in each.items()} for each in self.collectives]
        work = {rank: [on(rank, span) for span in spans] for rank, spans in self.compute.items()}
        trace = job_run(collectives, work, self.names)
        names = trace.ops["name"].astype(str)
        names[(names == GEMM) & (trace.ops.index % 2 == 0)] = "lookup"
        return with_clocks(replace(trace, ops=trace.ops.assign(name=pd.Categorical(names))), *error)

    @property
    def truth(self) -> Trace:
        return self.seen([0] * len(RANKS), [0] * len(RANKS))

    @property
    def captured(self) -> Trace:
        return self.seen(self.moved, self.error)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    collectives = []
    for number in range(draw(st.integers(1, 3))):
        joined, longer = draw(starts), draw(st.integers(1, 80))
        of = draw(st.sampled_from([(0, 1, 2), (0, 1, 2), (0, 1), (1, 2)]))
        begin, end = number * APART, max(joined[rank] for rank in of) + longer
        collectives.append({rank: (begin + joined[rank], begin + end) for rank in of})
    names = [draw(st.sampled_from([AR, AR, GATHER])) for _ in collectives]
    error = [0, *(draw(st.integers(0, 20)) for _ in RANKS[1:])]
    moved = [draw(st.integers(min(0, 1 - each), max(0, each - 1))) for each in error]
    spans = {rank: [(start, start + length) for start, length in draw(compute)] for rank in RANKS}
    return World(collectives, names, spans, error, moved)


def assert_within(found: OverlapResult, truth: OverlapResult) -> None:
    seen, true = found.last_arrival, truth.last_arrival
    if seen is None or true is None or seen.ratio_low is None or seen.ratio_high is None:
        return
    slack = 1e-12
    assert seen.ratio_low - slack <= true.real_overlap_ratio <= seen.ratio_high + slack


@given(worlds())
def test_the_true_ratio_lies_within_the_bounds_whoever_truly_came_last(world: World) -> None:
    found, truth = (check_overlap(trace, explain=False) for trace in (world.captured, world.truth))
    assert_within(found, truth)


@pytest.mark.nightly
@given(worlds())
def test_so_it_does_where_only_some_ranks_are_looked_at(world: World) -> None:
    try:
        seen = [only_ranks(trace, (0, 1)) for trace in (world.captured, world.truth)]
    except TracevizError:  # one of them has no ops
        return
    assert_within(*(check_overlap(trace, explain=False) for trace in seen))


@pytest.mark.nightly
@given(worlds(), st.sampled_from(BOTH_WAIT))
def test_so_it_does_where_both_sides_wait(world: World, pair: tuple[str, str]) -> None:
    assert_within(*(check_overlap(trace, *pair, explain=False) for trace in (world.captured, world.truth)))


@given(worlds())
def test_the_true_overlap_of_each_rank_lies_within_its_error(world: World) -> None:
    found, truth = (check_overlap(trace, explain=False) for trace in (world.captured, world.truth))
    for one, other in zip(found.ranks, truth.ranks, strict=True):
        assert abs(one.real_overlap_ns - other.real_overlap_ns) <= one.real_overlap_error_ns
        low, high = one.real_overlap_bounds_ns
        assert low <= other.real_overlap_ns <= high
        if other.real_overlap_ratio is not None:
            assert one.ratio_low - 1e-12 <= other.real_overlap_ratio <= one.ratio_high + 1e-12
