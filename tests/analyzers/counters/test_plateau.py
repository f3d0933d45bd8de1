"""A lone rank's waits by NVLink traffic, held against last arrivals in the same captures with all ranks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from analyzers.counters.plateau import transfer_of
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.narrow import EVERYTHING, Narrowing
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import counters as raw

UNCACHED = Reading(cache=False)


@cache
def whole(which: str) -> Trace:
    """A capture of all ranks, which no test changes."""
    return load([raw.CONTEND / f"contend_{which}.sqlite.gz"], reading=UNCACHED)


def lone(which: str, gpu: int, folder: Path, *, metrics: bool = True) -> Trace:
    """One rank's share of a capture."""
    path = raw.of_rank(which, gpu, folder)
    if not metrics:
        with closing(sqlite3.connect(path)) as database:
            database.execute("DELETE FROM GPU_METRICS")
            database.commit()
    return load([path], reading=UNCACHED)


def collectives(trace: Trace, rank: int) -> list[tuple[int, int, int, int, int, int]]:
    """Of a rank's long all-reduces: correlation, length, wait, its range, and whether waits were seen."""
    ops = trace.ops.to_frame()[
        (trace.ops.to_frame()["rank"] == rank)
        & trace.ops.to_frame()["name"].astype(str).str.contains("AllReduce_Sum_bf16")
    ]
    return [
        (op.correlation, op.end_ns - op.start_ns, op.wait_ns, op.wait_low_ns, op.wait_high_ns, op.wait_seen)
        for op in ops.itertuples()
    ]


@pytest.mark.parametrize("gpu", [0, 1, 2])
@pytest.mark.parametrize("which", ["before", "after"])
def test_waits_agree_with_last_arrivals(which: str, gpu: int, tmp_path: Path) -> None:
    expected = {one[0]: one for one in collectives(whole(which), gpu)}
    found = collectives(lone(which, gpu, tmp_path), gpu)
    assert len(found) == len(expected) >= 2
    for correlation, length, wait, low, high, seen in found:
        _, _, true, true_low, true_high, _ = expected[correlation]
        assert seen == 1
        assert low <= wait <= high <= length
        assert high - low < 0.76e6  # what buffers hold, a lull, four samples
        assert low <= true_high
        assert true_low <= high  # they can be one and the same
        if true_high - true_low < 100_000:  # clocks are known
            assert low <= true <= high


@pytest.mark.parametrize("gpu", [0, 1, 2])
def test_real_overlap_of_a_lone_rank_holds_that_of_all(gpu: int, tmp_path: Path) -> None:
    ranks = check_overlap(whole("after"), "comm", "compute", narrowing=EVERYTHING).ranks
    true = next(one for one in ranks if one.rank == gpu)
    alone = check_overlap(lone("after", gpu, tmp_path), "comm", "compute", narrowing=EVERYTHING).ranks[0]
    low, high = alone.real_overlap_bounds_ns
    assert low <= true.real_overlap_ns <= high
    assert alone.real_overlap_ns == pytest.approx(true.real_overlap_ns, rel=0.05)


def test_a_lone_rank_passes_where_it_is_asked_for_alone(tmp_path: Path) -> None:
    """With counters its waits are known; without, or as one rank of a job of which others may be worse, nothing is."""
    first = lone("after", 0, tmp_path)  # by its name the job may have had no other rank
    assert check_overlap(first, "comm", "compute").passed is None
    assert check_overlap(first, "comm", "compute", narrowing=Narrowing(ranks=(0,))).passed is True
    asked = Narrowing(ranks=(1,))
    with_counters = lone("after", 1, tmp_path)
    assert check_overlap(with_counters, "comm", "compute", narrowing=asked).passed is True
    assert check_overlap(with_counters, "comm", "compute").passed is None
    assert "waits-by-traffic" in {one.code for one in with_counters.warnings}
    without = lone("after", 1, tmp_path, metrics=False)
    assert check_overlap(without, "comm", "compute", narrowing=asked).passed is None


@pytest.mark.parametrize(
    ("traffic", "begin"),
    [
        ([78] * 20, 0),
        ([1] * 8 + [78] * 20, 8),
        ([77, 78, 76] + [1] * 8 + [78] * 20, 11),  # what buffers hold, then the wait
        ([78] * 4 + [1] * 3 + [78] * 20, 0),  # a lull of 150 µs
        ([78] * 9 + [1] * 8 + [78] * 20, None),  # more than buffers hold
        ([5] * 8 + [12] * 20, None),  # no plateau: traffic of others
        ([78] * 5, None),  # too short
        ([0] * 8 + [20, 30] + [78] * 20, 10),  # a trickle
        ([78] * 8 + [-1] + [78] * 8, None),
    ],
)
def test_the_plateau_counts(traffic: list[int], begin: int | None) -> None:
    start = np.arange(len(traffic)) * 50_000
    found = transfer_of(start, start + 50_000, np.array(traffic))
    at = None if begin is None else begin * 50_000  # three samples earlier; what buffers hold, a lull, a sample later
    assert found == (None if at is None else (at, at - 150_000, at + 350_000 + 200_000 + 50_000))


def test_a_lull_of_one_sample_ends_no_stretch_however_long_that_is() -> None:
    start = np.arange(25) * 1_000_000
    found = transfer_of(start, start + 1_000_000, np.array([78] * 4 + [0] + [78] * 20))
    assert found == (0, -3_000_000, 350_000 + 2 * 1_000_000)
