"""What is around an instant on a thread is what looking at every range, one by one, finds."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.syncs.context import around, enclosing, ranges_around
from analyzers.trace.columns import codes, ints
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

KINDS = ("op", "annotation", "nvtx", "python")


def some_trace(seed: int) -> Trace:
    """Ranges that lie in one another, touch, overlap, or are no longer than an instant.

    Two processes have three threads each, of the same numbers.
    """
    run = Builder()
    ranks = run.rank(0), run.rank(1)
    random = np.random.default_rng(seed)
    for number in range(160):
        start = int(random.integers(0, 60))
        name = f"{random.choice(['aten::add', 'step', 'a.py(1): f'])}{number % 7}"
        length = int(random.integers(0, 25))
        thread = int(random.integers(1, 4))
        ranks[number % 2].range(name, start, start + length, kind=str(random.choice(KINDS)), thread=thread)
    return run.trace()


def by_hand(trace: Trace, process: int, thread: int, instant: int) -> list[int]:
    """Rows of the ranges around an instant, outermost first: of those that start together the longest."""
    columns = ("process", "thread", "start_ns", "end_ns")
    rows = [*enumerate(zip(*(ints(trace.ranges, column).tolist() for column in columns), strict=True))]
    inside = [(low, -high, row) for row, (*of, low, high) in rows if of == [process, thread] and low <= instant <= high]
    return [row for _, _, row in sorted(inside)]


@pytest.mark.parametrize("seed", range(20))
def test_ranges_around_instants(seed: int) -> None:
    trace = some_trace(seed)
    random = np.random.default_rng(seed + 1000)
    count = (1, 7, 300)[seed % 3]
    process, thread = random.integers(0, 3, count), random.integers(0, 5, count)  # some without any range
    instant = random.integers(-3, 90, count)
    expected = [by_hand(trace, *each) for each in zip(process.tolist(), thread.tolist(), instant.tolist(), strict=True)]

    point, row = enclosing(trace.ranges, process, thread, instant)
    assert [row[point == i].tolist() for i in range(count)] == expected

    code, names = codes(trace.ranges, "name")
    kinds, kind_names = codes(trace.ranges, "kind")
    of_user = [
        kind_names[kinds[i]] in ("nvtx", "annotation") and not names[code[i]].startswith("aten::")
        for i in range(len(trace.ranges))
    ]
    innermost = [[names[code[row]] for row in rows if of_user[row]] for rows in expected]
    texts = [each[-1] if each else "" for each in innermost]
    assert ranges_around(trace, process, thread, instant).tolist() == texts
    assert around(trace, process, thread, instant).range.tolist() == texts
