"""Overlap step by step, held to a count of single nanoseconds; the median step is the middle one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from analyzers.load import load
from analyzers.overlap.per_step import PerStep, lower_median, per_step
from analyzers.select.select import select
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder

ROOT = Path(__file__).parents[3]


def random_steps(seed: int) -> Trace:
    """Steps of two kinds of kernels that wait, or may wait for less or more; some of beta for absent peers."""
    draw = random.Random(seed)
    run = Builder()
    rank = run.rank(0)
    for step in range(draw.randint(1, 6)):
        at = 200 * step
        rank.range(f"step {step}", at, at + 199)
        for name in ["alpha"] * draw.randint(0, 3) + ["beta"] * draw.randint(0, 3):
            start = at + draw.randint(0, 220)  # at times beside the next step's
            length = draw.randint(1, 60)
            low, wait, high = sorted(draw.randint(0, length) for _ in range(3))
            waits = {"wait_low_ns": low, "wait_ns": wait, "wait_high_ns": high} if draw.random() < 0.6 else {}
            seen = {"wait_seen": 0} if name == "beta" and draw.random() < 0.3 else {}
            rank.kernel(name, 7, start, start + length, launch=(at + 1, at + 2), **waits, **seen)
    rank.kernel("alpha", 7, 5_000, 5_100, launch=(4_000, 4_001))  # in no step
    return run.trace()


def instants(trace: Trace, rows: list[int], wait: str) -> set[int]:
    """Single nanoseconds at which some ops run, waits as a column has them left out; "" leaves out none."""
    found: set[int] = set()
    for row in rows:
        start, end = int(trace.ops.start_ns[row]), int(trace.ops.end_ns[row])
        waits = int(getattr(trace.ops, "wait_high_ns" if wait == "absent" else wait)[row]) if wait else 0
        if wait == "absent" and trace.ops.wait_seen[row] == 0:
            waits = end - start
        found |= set(range(start + waits, end))
    return found


def ratios(trace: Trace, of_step: list[list[int]], of_all: list[list[int]], most: str) -> tuple[float, float]:
    """Least and most of O / (O + the shorter side's time alone), over all that waits may be at once."""
    waits = ("wait_low_ns", most)
    low_own, high_own = ([instants(trace, rows, wait) for rows in of_step] for wait in waits)
    low_all, high_all = ([instants(trace, rows, wait) for rows in of_all] for wait in waits)
    lows, highs = [], []
    for side in (0, 1):
        if len(high_own[side]) > len(low_own[1 - side]):
            continue  # never the shorter
        least, largest = len(high_own[side] & high_all[1 - side]), len(low_own[side] & low_all[1 - side])
        most_alone, least_alone = len(low_own[side] - high_all[1 - side]), len(high_own[side] - low_all[1 - side])
        lows.append(least / (least + most_alone) if least else 0.0)
        highs.append(largest / (largest + least_alone) if largest else 0.0)
    return min(lows), max(highs)


@pytest.mark.parametrize("seed", range(40))
def test_each_step_is_counted_instant_by_instant(seed: int) -> None:
    trace = random_steps(seed)
    names = trace.ops.name.tolist()
    launches = trace.api.start_ns[trace.ops.launch].tolist()
    number = [start // 200 if start < 4_000 else -1 for start in launches]
    rows = {
        (name, step): [i for i, one in enumerate(names) if (one, number[i]) == (name, step)]
        for name in ("alpha", "beta")
        for step in range(6)
    }
    a, b = (np.array([i for i, one in enumerate(names) if one == name], np.int64) for name in ("alpha", "beta"))
    found = per_step(trace, a, b, trace.ops.wait_seen == 0)
    expected = {}
    for step in range(6):
        of_step, of_all = [rows["alpha", step], rows["beta", step]], [a.tolist(), b.tolist()]
        busy = [instants(trace, some, "wait_ns") for some in of_step]
        could = min(map(len, busy))
        if could:
            side = int(len(busy[1]) < len(busy[0]))
            plain = len(instants(trace, of_step[side], "") & instants(trace, of_all[1 - side], ""))
            real = len(busy[side] & instants(trace, of_all[1 - side], "wait_ns"))
            seen, apparent = (ratios(trace, of_step, of_all, most) for most in ("absent", "wait_high_ns"))
            bounds = [min(real / could, one[0]) for one in (seen, apparent)]
            bounds += [max(real / could, one[1]) for one in (seen, apparent)]
            expected[step] = (plain, real, could, *bounds)
    if found is None:
        assert not expected
        return
    columns = (found.overlap_ns, found.real_ns, found.could_ns, found.low, found.apparent_low, found.high)
    rows_found = zip(found.numbers.tolist(), *(one.tolist() for one in (*columns, found.apparent_high)), strict=True)
    got = {step: values for step, *values in rows_found}
    assert sorted(got) == sorted(expected)
    for step, values in expected.items():
        assert got[step] == pytest.approx(list(values))


def test_the_first_verdict_of_the_readme_counted_instant_by_instant() -> None:
    """Rank 1's side work beside the other side of any step, by the step whose mark holds an op's launch."""
    trace = load(sorted((ROOT / "tests/data/torch").glob("dpmp_overlap.rank*.json.gz")))
    sides = ["nvtx:DP Embedding", "nvtx:MP Embedding"]
    ranges, launch = trace.ranges.to_frame(), trace.api.start_ns
    process = next(number for number, one in enumerate(trace.processes) if one.rank == 1)
    rows = [np.flatnonzero(select(trace, side).picked & (trace.ops.process == process)) for side in sides]
    marks = [
        (int(one.start_ns), int(one.end_ns))
        for one in ranges[ranges["process"] == process].itertuples()
        if str(one.name).startswith("ProfilerStep#") and one.kind == "annotation"
    ]
    found = []
    for low, high in marks:
        of_step = [[row for row in some if low <= launch[trace.ops.launch[row]] <= high] for some in rows]
        busy = [instants(trace, some, "wait_ns") for some in of_step]
        shorter = int(len(busy[1]) < len(busy[0]))
        found.append((len(busy[shorter] & instants(trace, rows[1 - shorter].tolist(), "wait_ns")), len(busy[shorter])))
    median = sorted(found, key=lambda one: one[0] / one[1])[1]
    job = check_overlap(trace, *sides).job
    assert (job.rank, job.real_overlap_ns, job.achievable_ns) == (1, *median)


def test_the_median_of_an_even_number_is_the_lower_of_the_two() -> None:
    zeros = np.zeros(4)
    one = PerStep(np.array([3, 4, 5, 6]), *(np.array([9, 5, 1, 7]),) * 2, np.full(4, 10), *(zeros,) * 4)
    assert int(one.numbers[one.median]) == 4
    assert lower_median(np.array([0.9, 0.5, 0.1, 0.7])) == 0.5
    assert one.far(1.0) == {3: 0.9, 5: 0.1}
