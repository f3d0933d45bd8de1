"""The whole way from ranks on clocks of their own to a ratio and its bounds, held against the truth of made runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analyzers.clocks.align import align
from analyzers.trace.columns import table
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.collective_runs import MS, Run, run

pytestmark = pytest.mark.nightly

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
