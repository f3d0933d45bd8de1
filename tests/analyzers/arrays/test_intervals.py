from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays.intervals import (
    EMPTY,
    Labelled,
    Union,
    clip,
    complement,
    coverage,
    depth,
    either,
    intersect,
    measure,
    measure_before,
    meets,
    overlap_by_group,
    subtract,
    union,
)
from analyzers.arrays.types import Ints
from tests.support import oracle

FAR = 2**62
# Small times tie, touch, nest and have no length all the time; far ones must not overflow.
small = st.tuples(st.integers(-20, 20), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))
near_the_end = small.map(lambda pair: (pair[0] + FAR - 100, pair[1] + FAR - 100))
near_the_start = small.map(lambda pair: (pair[0] - FAR + 100, pair[1] - FAR + 100))
intervals = st.one_of(*(st.lists(each, max_size=14) for each in (small, near_the_end, near_the_start)))
two_sets = st.one_of(
    *(st.tuples(st.lists(each, max_size=12), st.lists(each, max_size=12)) for each in (small, near_the_end))
)


def arrays(pairs: list[oracle.Interval]) -> tuple[Ints, Ints]:
    return np.array([start for start, _ in pairs], np.int64), np.array([end for _, end in pairs], np.int64)


def made(pairs: list[oracle.Interval]) -> Union:
    return union(*arrays(pairs))


def pairs_of(found: Union) -> list[oracle.Interval]:
    return list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))


@given(intervals)
def test_a_union_is_sorted_disjoint_and_has_no_touching_neighbours(pairs: list[oracle.Interval]) -> None:
    found = made(pairs)
    assert np.all(found.ends > found.starts)
    assert np.all(found.starts[1:] > found.ends[:-1])


@given(intervals)
def test_a_union_holds_what_is_covered_and_nothing_else(pairs: list[oracle.Interval]) -> None:
    found = pairs_of(made(pairs))
    assert measure(made(pairs)) == oracle.busy(pairs)
    assert oracle.overlap(found, pairs) == oracle.busy(pairs) == oracle.busy(found)


@given(intervals)
def test_order_and_repetition_change_no_union(pairs: list[oracle.Interval]) -> None:
    assert pairs_of(made(pairs[::-1] + pairs)) == pairs_of(made(pairs))


@given(two_sets)
def test_intersection_union_and_difference_agree_with_the_oracle(
    sets: tuple[list[oracle.Interval], list[oracle.Interval]],
) -> None:
    a, b = sets
    both, any_, only = (f(made(a), made(b)) for f in (intersect, either, subtract))
    assert measure(both) == oracle.overlap(a, b)
    assert measure(any_) == oracle.busy(a + b)
    assert measure(only) == oracle.busy(a) - oracle.overlap(a, b)
    for found in (both, any_, only):
        assert pairs_of(union(*found)) == pairs_of(found), "the answer is a union itself"
    assert pairs_of(both) == pairs_of(intersect(made(b), made(a)))


@given(st.lists(small, max_size=10), st.lists(small, max_size=10))
def test_set_operations_are_those_of_sets_of_nanoseconds(a: list[oracle.Interval], b: list[oracle.Interval]) -> None:
    ours, theirs = oracle.instants(a), oracle.instants(b)
    assert oracle.instants(pairs_of(intersect(made(a), made(b)))) == ours & theirs
    assert oracle.instants(pairs_of(either(made(a), made(b)))) == ours | theirs
    assert oracle.instants(pairs_of(subtract(made(a), made(b)))) == ours - theirs
    assert oracle.instants(pairs_of(clip(made(a), -3, 9))) == ours & set(range(-3, 9))
    assert oracle.instants(pairs_of(complement(made(a), -3, 9))) == set(range(-3, 9)) - ours


@given(st.lists(small, max_size=10), st.lists(small, max_size=10), st.lists(st.integers(-30, 45), max_size=10))
def test_coverage_counts_each_interval_by_itself(
    a: list[oracle.Interval], b: list[oracle.Interval], moments: list[int]
) -> None:
    overlaps = [oracle.overlap([one], b) for one in a]
    assert coverage(*arrays(a), made(b)).tolist() == overlaps
    assert meets(*arrays(a), made(b)).tolist() == [ns > 0 for ns in overlaps]
    before = measure_before(made(b), np.array(moments, np.int64)).tolist()
    assert before == [len([t for t in oracle.instants(b) if t < moment]) for moment in moments]


def test_coverage_of_many_intervals_that_ascend_by_a_few() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        starts = np.sort(rng.integers(0, 60, 40))
        ends = np.maximum.accumulate(starts + rng.integers(0, 9, 40))
        b = [(low, low + int(rng.integers(1, 20))) for low in rng.integers(0, 70, rng.integers(0, 4)).tolist()]
        expected = [oracle.overlap([one], b) for one in zip(starts.tolist(), ends.tolist(), strict=True)]
        assert coverage(starts, ends, made(b)).tolist() == expected


@given(intervals)
def test_depth_counts_every_interval_that_covers_a_piece(pairs: list[oracle.Interval]) -> None:
    edges, covering = depth(*arrays(pairs))
    assert edges.tolist() == sorted({instant for pair in pairs for instant in pair})
    expected = [sum(oracle.covers(one, piece) for one in pairs) for piece in oracle.pieces(pairs)]
    assert covering[:-1].tolist() == expected
    assert covering[-1:].tolist() == [0] * min(len(edges), 1)


def test_an_end_and_a_start_at_one_instant_do_not_overlap_and_merge_in_a_union() -> None:
    assert measure(intersect(made([(0, 5)]), made([(5, 9)]))) == 0
    assert pairs_of(made([(0, 5), (5, 9)])) == [(0, 9)]


def test_an_interval_without_length_is_nothing() -> None:
    assert made([(3, 3), (7, 7)]) == EMPTY or measure(made([(3, 3), (7, 7)])) == 0
    assert coverage(*arrays([(3, 3)]), made([(0, 9)])).tolist() == [0]


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        made([(0, 5), (9, 8)])


def test_nothing_in_gives_nothing_out() -> None:
    assert measure(EMPTY) == measure(intersect(EMPTY, EMPTY)) == measure(subtract(EMPTY, made([(0, 4)]))) == 0
    assert pairs_of(subtract(made([(0, 4)]), EMPTY)) == [(0, 4)]
    assert pairs_of(complement(EMPTY, 2, 5)) == [(2, 5)]
    assert pairs_of(complement(EMPTY, 5, 5)) == []


def test_what_only_touches_a_window_leaves_no_empty_interval() -> None:
    two = union(np.array([0, 10], np.int64), np.array([5, 15], np.int64))
    for low, high, starts in ((5, 12, [10]), (5, 10, []), (15, 20, []), (-5, 0, [])):
        assert clip(two, low, high).starts.tolist() == starts


@pytest.mark.parametrize("pairs", [[], [(3, 3)], [(0, 5), (9, 12)]])
def test_lengths_are_whole_nanoseconds_also_of_nothing(pairs: list[oracle.Interval]) -> None:
    some = np.array([1, 4], np.int64)
    found = [*made(pairs), measure_before(made(pairs), some), coverage(some, some + 3, made(pairs))]
    found += [*clip(made(pairs), 0, 9), *complement(made(pairs), 0, 9), *depth(*arrays(pairs))]
    assert {array.dtype for array in found} == {np.dtype(np.int64)}


GROUPS = 4
labelled = st.lists(st.tuples(st.integers(-15, 15), st.integers(0, 12), st.integers(0, GROUPS - 1)), max_size=15)
far = st.sampled_from([0, 2**62 - 100, -(2**62) + 100])


def columns(rows: list[tuple[int, int, int]], shift: int) -> Labelled:
    start, length, group = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    return start + shift, start + shift + length, group


def of_group(rows: list[tuple[int, int, int]], group: int) -> list[oracle.Interval]:
    return [(start, start + length) for start, length, mine in rows if mine == group]


@given(labelled, labelled, far)
def test_every_group_is_measured_as_if_it_were_alone(
    a: list[tuple[int, int, int]], b: list[tuple[int, int, int]], shift: int
) -> None:
    found = overlap_by_group(columns(a, shift), columns(b, shift), GROUPS)
    groups = range(GROUPS)
    assert found.a.tolist() == [oracle.busy(of_group(a, group)) for group in groups]
    assert found.b.tolist() == [oracle.busy(of_group(b, group)) for group in groups]
    assert found.both.tolist() == [oracle.overlap(of_group(a, group), of_group(b, group)) for group in groups]


def test_the_last_instant_of_one_group_does_not_run_into_the_first_of_the_next() -> None:
    rows = [(0, 10, group) for group in range(3)]
    found = overlap_by_group(columns(rows, 0), columns(rows[1:], 0), 3)
    assert found.a.tolist() == [10, 10, 10]
    assert found.both.tolist() == [0, 10, 10]


def test_many_groups_over_a_long_capture_do_not_overflow() -> None:
    groups, year = 100_000, 365 * 86_400 * 10**9
    number = np.arange(groups, dtype=np.int64)
    a = (np.zeros(groups, np.int64), np.full(groups, year), number)
    b = (np.full(groups, year - 7), np.full(groups, year + 5), number)
    found = overlap_by_group(a, b, groups)
    assert found.both.tolist() == [7] * groups
    assert found.a.tolist() == [year] * groups
