from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.trace import ranges as nesting
from analyzers.trace.columns import table
from analyzers.trace.ranges import RangeIndex, outer_first
from tests.support import oracle

spans = st.lists(
    st.tuples(st.integers(0, 25), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=25
)


def found_at(pairs: list[oracle.Interval], moments: list[int]) -> list[oracle.Interval | None]:
    ranges = table("ranges", {"start_ns": [s for s, _ in pairs], "end_ns": [e for _, e in pairs]}, length=len(pairs))
    zeros = np.zeros(len(moments), np.int64)
    rows = RangeIndex(ranges).innermost(zeros, zeros - 1, np.array(moments, np.int64))
    return [pairs[row] if row >= 0 else None for row in rows]


@given(spans)
def test_the_innermost_range_is_the_one_a_scan_finds(pairs: list[oracle.Interval]) -> None:
    moments = list(range(-1, 48))
    assert found_at(pairs, moments) == [oracle.innermost(pairs, moment) for moment in moments]


@given(spans)
def test_of_ranges_that_start_together_the_longer_comes_first(pairs: list[oracle.Interval]) -> None:
    starts, ends = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    expected = sorted(range(len(pairs)), key=lambda row: (pairs[row][0], -pairs[row][1], row))
    assert outer_first(starts, ends).tolist() == expected


@given(spans)
def test_ranges_that_cross_in_more_levels_than_a_call_stack_has_are_found_too(pairs: list[oracle.Interval]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "MANY_LEVELS", 2)
        moments = list(range(-1, 48))
        assert found_at(pairs, moments) == [oracle.innermost(pairs, moment) for moment in moments]


@given(spans, spans, st.lists(st.tuples(st.sampled_from([1, -7]), st.integers(-1, 47)), max_size=40))
def test_moments_of_several_threads_may_come_in_any_order(
    one: list[oracle.Interval], other: list[oracle.Interval], asked: list[tuple[int, int]]
) -> None:
    pairs, threads = [*one, *other], [1] * len(one) + [-7] * len(other)
    columns = {"thread": threads, "start_ns": [s for s, _ in pairs], "end_ns": [e for _, e in pairs]}
    index = RangeIndex(table("ranges", columns, length=len(pairs)))
    thread, moments = (np.array([each[k] for each in asked], np.int64) for k in (0, 1))
    found = index.innermost(np.zeros(len(asked), np.int64), thread, moments)
    by_hand = [oracle.innermost(one if each == 1 else other, moment) for each, moment in asked]
    assert [pairs[row] if row >= 0 else None for row in found] == by_hand
    of_one = np.flatnonzero(thread == 1)  # rows of no lane are answered with none
    found = index.innermost_by_lane({(0, 1): of_one}, moments)
    assert [row >= 0 for row in found] == [
        each == 1 and expected is not None for (each, _), expected in zip(asked, by_hand, strict=True)
    ]
