"""Which collectives tie clocks, which bound them, and what becomes of clocks that none reaches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from analyzers.clocks.solve import ENDING_TOGETHER
from analyzers.matching.lanes import BY_ALL
from analyzers.trace.alignment import Matches
from tests.support.collective_runs import MS
from tests.support.made_matches import bounds, counts, matched, offsets, residuals, solve, together


def test_islands_keep_to_each_other_as_captured_and_each_to_its_lowest_rank() -> None:
    """Ranks 11 and 13; 12, 14 and 15, of which 12 and 15 never meet; 10 is alone."""
    true = {1: 5_000, 2: 70_000, 3: 9_000, 4: 60_000, 5: 90_000}
    groups = [(1, 3), (2, 4), (4, 5), (0,)] * 8
    clocks = solve(matched([together(who, k * MS, true) for k, who in enumerate(groups)], 6))
    assert offsets(clocks) == [0, 0, 0, 4_000, -10_000, 20_000]
    assert residuals(clocks) == [None, 0, 0, 1_000, 1_000, 1_000]
    assert counts(clocks) == [0, 8, 8, 8, 16, 8]
    # What bounds 15 goes over 14: twice 300 µs.
    assert bounds(clocks) == [
        (None, None),
        (0, 0),
        (0, 0),
        (-296_000, 304_000),
        (-310_000, 290_000),
        (-580_000, 620_000),
    ]
    assert clocks.at_ns == np.median([4 * k * MS + ahead for k in range(8) for ahead in (5_000, 9_000)])
    assert clocks.residual_ns is None


def mixed(first: int, then: int, operation: str = "broadcast", unsure: bool = False) -> Matches:
    """All-reduces that last 300 µs, and others of 200 µs, later."""
    spans = [together((0, 1), k * MS, {1: 7_000}) for k in range(first)]
    spans += [together((0, 1), (100 + k) * MS, {1: 7_000}, 200_000) for k in range(then)]
    kinds = ["all_reduce"] * first + [operation] * then
    return matched(spans, 2, kinds, range(first, first + then) if unsure else ())


def test_eight_collectives_that_synchronize_are_enough() -> None:
    """Of a broadcast, which nobody has to wait in for all others, nothing is used."""
    clocks = solve(mixed(8, 3))
    assert counts(clocks) == [8, 8]
    assert bounds(clocks)[1] == (-293_000, 307_000)
    assert clocks.at_ns == 3.5 * MS + 3_500


def test_where_fewer_synchronize_the_ends_of_others_serve_no_more_than_else() -> None:
    """A broadcast's root may leave it long before the others: its end tells of no clock."""
    clocks = solve(mixed(3, 9))
    assert counts(clocks) == [3, 3]
    assert bounds(clocks)[1] == (-293_000, 307_000)
    assert clocks.at_ns == 1 * MS + 7_000 / 2


@pytest.mark.parametrize("operation", BY_ALL)
def test_whatever_needs_the_data_of_all_ranks_bounds_their_clocks(operation: str) -> None:
    """The ends of an all-to-all serve where there are no others."""
    clocks = solve(mixed(7, 3, operation))
    assert counts(clocks) == ([10, 10] if operation in ENDING_TOGETHER else [7, 7])
    assert bounds(clocks)[1] == (-193_000, 207_000)
    clocks = solve(mixed(0, 3, operation))
    assert (offsets(clocks), counts(clocks)) == ([0, 7_000], [3, 3])


def test_collectives_that_are_not_surely_matched_serve_only_where_no_others_do() -> None:
    clocks = solve(mixed(2, 9, "all_reduce", unsure=True))
    assert counts(clocks) == [2, 2]
    assert bounds(clocks)[1] == (-293_000, 307_000)
    assert residuals(clocks) == [0, 1_000]
    clocks = solve(mixed(0, 9, "all_reduce", unsure=True))
    assert counts(clocks) == [9, 9]
    assert offsets(clocks) == [0, 7_000]
    assert bounds(clocks)[1] == (-193_000, 207_000)
    assert residuals(clocks) == [0, None]


def test_where_those_that_synchronize_leave_clocks_unlinked_others_link_them() -> None:
    spans = [together((0, 1), k * MS) for k in range(9)] + [together((1, 2), k * MS, {2: 800}) for k in range(20, 23)]
    clocks = solve(matched(spans, 3, ["all_reduce"] * 9 + ["broadcast"] * 3))
    assert offsets(clocks) == [0, 0, 800]
    assert counts(clocks) == [9, 12, 3]
    assert residuals(clocks)[2] is not None


def test_where_only_unsure_ones_link_all_clocks_no_error_is_known() -> None:
    """All collectives then serve, and even of clocks that sure ones tie nothing is claimed."""
    spans = [together((0, 1), k * MS) for k in range(9)] + [together((1, 2), k * MS, {2: 800}) for k in range(20, 29)]
    clocks = solve(matched(spans, 3, unsure=range(9, 18)))
    assert offsets(clocks) == [0, 0, 800]
    assert counts(clocks) == [9, 18, 9]
    assert residuals(clocks) == [0, None, None]


def test_a_collective_that_one_rank_alone_has_is_no_evidence_whatever_it_is_called() -> None:
    spans = [together((0, 1), k * MS) for k in range(9)] + [together((1,), k * MS) for k in range(20, 50)]
    clocks = solve(matched(spans))
    assert counts(clocks) == [9, 9]
    assert clocks.at_ns == 4 * MS


def test_islands_hang_together_over_any_number_of_ranks_between() -> None:
    """The chain is numbered against its order, so that word of the lowest rank passes one link at a time."""
    chain = [0, 5, 4, 3, 2, 1]
    spans = [together(pair, k * MS, {1: 900}) for pair in pairwise(chain) for k in range(9)]
    clocks = solve(matched(spans, 7))
    assert offsets(clocks) == [0, 900, 0, 0, 0, 0, 0]
    assert counts(clocks) == [9, 9, 18, 18, 18, 18, 0]


def test_clocks_that_no_collective_reaches_go_with_the_others_of_their_capture() -> None:
    """Captures: ranks 10, 11 and 12; 13, 14 and 15; 16 and 17, where none is reached."""
    true = {1: 600, 3: 8_000, 4: 9_001}
    spans = [together((0, 1, 3, 4), k * MS, true) for k in range(9)]
    clocks = solve(matched(spans, 8, captures=[0, 0, 0, 1, 1, 1, 2, 2]))
    assert offsets(clocks) == [0, 600, 300, 8_000, 9_001, 8_500, 0, 0]
    assert counts(clocks) == [9, 9, 0, 9, 9, 0, 0, 0]
    assert residuals(clocks) == [0, 1_000, None, 1_000, 1_000, None, None, None]
    assert bounds(clocks)[5] == (None, None)
