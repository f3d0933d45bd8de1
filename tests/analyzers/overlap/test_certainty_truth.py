"""What is claimed of a ratio's certainty, held against the truth: runs are made, then their ranks' clocks set wrong.

Every time of a rank is moved by less than its clock's error, so that waits, and who arrived last, come out wrong. What
the run truly did has to lie within the bounds that the moved times give.

So it is with the whole way from ranks on clocks of their own, of synthetic runs of many collectives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.align import align
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import table
from analyzers.trace.narrow import only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from tests.analyzers.overlap.test_certainty import with_clocks
from tests.analyzers.overlap.test_job import AR, GEMM, Span, job_run
from tests.support.collective_runs import MS, Run, run

DRIFT = 1e-4  # what clocks that run 20 ppm apart change of a length, and more


def with_compute(recorded: Run, trace: Trace, seed: int, *, true: bool) -> Trace:
    """The trace and kernels beside its calls, half as long or twice: on each rank's clock, or in true time."""
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(random.random(recorded.rank.size) < 0.8)
    beside = recorded.keep(rows)
    length = beside.true_end - beside.true_start
    start = beside.true_start + (length * random.uniform(-0.5, 1.0, rows.size)).astype(np.int64)
    end = start + (length * random.uniform(0.5, 2.0, rows.size)).astype(np.int64)
    times = [column if true else beside.recorded(column) for column in (start, end)]
    kernels = table(
        "ops",
        {
            "process": beside.rank,
            "device": np.zeros(rows.size, np.int32),
            "stream": np.full(rows.size, 7),
            "name": pd.Categorical(["gemm"] * rows.size),
            "start_ns": times[0],
            "end_ns": times[1],
            "correlation": len(trace.ops) + np.arange(rows.size),
            "grid": np.full(rows.size, 24),
        },
    ).assign(rank=beside.rank)
    both = [
        frame.assign(**{name: frame[name].astype(object) for name in ("name", "kind")})
        for frame in (trace.ops, kernels)
    ]
    ops = pd.concat(both, ignore_index=True)
    return replace(trace, ops=ops.assign(name=pd.Categorical(ops["name"]), kind=pd.Categorical(ops["kind"])))


def true_ratio(recorded: Run, seed: int) -> float | None:
    there = replace(recorded, offset=np.zeros_like(recorded.offset), drift=np.zeros_like(recorded.drift))
    aligned = align(with_compute(there, there.trace(), seed, true=True), enabled=False)
    trace = replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)
    return check_overlap(trace, explain=False).job.real_overlap_ratio


@pytest.mark.nightly
@pytest.mark.parametrize("rank_noise", [5_000, 100_000])
@pytest.mark.parametrize("jitter", [0, 2_000, 15_000])
@pytest.mark.parametrize("steps", [5, 12, 60])
def test_the_true_ratio_lies_within_the_bounds_of_aligned_captures(steps: int, jitter: int, rank_noise: int) -> None:
    widths = []
    for seed in range(8):
        recorded = run(
            4, steps, seed=seed, offset=50 * MS, drift=20e-6, jitter=jitter, rank_noise=rank_noise, keyed="sequence"
        )
        aligned = align(with_compute(recorded, recorded.trace(), seed, true=False))
        trace = replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)
        job, truth = check_overlap(trace, explain=False).job, true_ratio(recorded, seed)
        assert truth is not None
        assert job.ratio_low is not None
        assert job.ratio_high is not None
        assert job.ratio_low - DRIFT <= truth <= job.ratio_high + DRIFT, seed
        widths.append(job.ratio_high - job.ratio_low)
    if steps == 60 and jitter <= 2_000 < rank_noise / 10:
        assert max(widths) < 0.1, "with clocks that are well known, so is the ratio"


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
        names = trace.ops.to_frame()["name"].astype(str)
        names[(names == GEMM) & (np.arange(len(trace.ops)) % 2 == 0)] = "lookup"
        return with_clocks(replace(trace, ops=trace.ops.having(name=pd.Categorical(names))), *error)

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
