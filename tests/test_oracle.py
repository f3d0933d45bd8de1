"""The oracle itself, on cases counted by hand."""

from tests import oracle


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
