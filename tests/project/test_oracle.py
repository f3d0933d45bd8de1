"""The oracle itself, on cases counted by hand."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracle


def test_the_oracle_on_cases_counted_by_hand() -> None:
    a, b = [(0, 10), (5, 12), (20, 30), (25, 25)], [(11, 22), (30, 40)]
    assert oracle.busy(a) == 12 + 10
    assert oracle.busy(b) == 11 + 10
    assert oracle.overlap(a, b) == 1 + 2
    assert oracle.levels({"x": a, "y": b}) == {1: 11 + 8 + 8 + 10, 2: 3}
    assert oracle.alone({"x": a, "y": b}, "x") == 22 - 3
    assert oracle.innermost([(0, 10), (3, 5), (3, 9)], 4) == (3, 5)
    assert oracle.innermost([(0, 10)], 11) is None


def test_a_gap_between_all_lanes_counts_at_level_zero() -> None:
    assert oracle.levels({"x": [(0, 1)], "y": [(4, 6)]}) == {0: 3, 1: 3}


spans = st.lists(st.tuples(st.integers(-9, 20), st.integers(0, 9)).map(lambda one: (one[0], sum(one))), max_size=9)


@given(spans, spans)
def test_counting_starts_and_ends_agrees_with_cutting_into_pieces(
    a: list[oracle.Interval], b: list[oracle.Interval]
) -> None:
    assert oracle.sweep(a, b) == (oracle.busy(a), oracle.busy(b), oracle.overlap(a, b))
    assert oracle.busy(a) == len(oracle.instants(a))
    assert oracle.overlap(a, b) == len(oracle.instants(a) & oracle.instants(b))
