"""What is around an instant on a thread is what looking at every range, one by one, finds."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.syncs.context import around, enclosing, ranges_around
from analyzers.trace.columns import codes, ints
from analyzers.trace.tables import Trace
from tests.support.builder import one_rank

KINDS = ("op", "annotation", "nvtx", "python")


def some_trace(seed: int) -> Trace:
    """Ranges of three threads that lie in one another, touch, overlap, or are no longer than an instant."""
    run, rank = one_rank()
    random = np.random.default_rng(seed)
    for number in range(80):
        start = int(random.integers(0, 60))
        name = f"{random.choice(['aten::add', 'step', 'a.py(1): f'])}{number % 7}"
        length = int(random.integers(0, 25))
        thread = int(random.integers(1, 4))
        rank.range(name, start, start + length, kind=str(random.choice(KINDS)), thread=thread)
    return run.trace()


def by_hand(trace: Trace, thread: int, instant: int) -> list[int]:
    """Rows of the ranges around an instant, outermost first: of those that start together the longest."""
    start, end, own = (ints(trace.ranges, column).tolist() for column in ("start_ns", "end_ns", "thread"))
    inside = [row for row in range(len(start)) if own[row] == thread and start[row] <= instant <= end[row]]
    return sorted(inside, key=lambda row: (start[row], -end[row]))


@pytest.mark.parametrize("seed", range(20))
def test_ranges_around_instants(seed: int) -> None:
    trace = some_trace(seed)
    random = np.random.default_rng(seed + 1000)
    count = (1, 7, 300)[seed % 3]
    process, thread = np.zeros(count, np.int64), random.integers(0, 5, count)  # threads 0 and 4 have no range
    instant = random.integers(-3, 90, count)
    expected = [by_hand(trace, *each) for each in zip(thread.tolist(), instant.tolist(), strict=True)]

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


def test_nothing_is_around_no_instants() -> None:
    none = np.empty(0, np.int64)
    assert ranges_around(some_trace(0), none, none, none).size == 0
