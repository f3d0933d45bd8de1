"""How much a side's overlap, and what of it could overlap, may differ with who came last; all by hand."""

from __future__ import annotations

import numpy as np

from analyzers.overlap.certainty import bounds
from analyzers.overlap.job import Arrivals, Calls
from analyzers.trace.devices import DeviceKey

PLENTY = 1000  # of the other side


def call(
    collective: int,
    rank: int,
    length: int,
    hidden: int,
    *,
    last: bool = False,
    able: bool = False,
    error: int = 0,
    in_run: int = 2,
    beside: int = 0,
    hidden_beside: int = 0,
) -> tuple[int, ...]:
    """A call of `length`, of which `hidden` beside the other side; of both some beside another call of its side."""
    return (
        *(collective, in_run, rank, 0, last, last or able, error),
        *(length, length - beside, hidden, hidden - hidden_beside),
    )


def arrivals(
    overlap: int,
    achievable: int,
    transfer: dict[int, int],
    calls: list[tuple[int, ...]],
    works: dict[int, int],
    doubt: dict[int, int] | None = None,
) -> Arrivals:
    """A side of which so much counts; `transfer`, `works` and `doubt` by rank."""

    def placed(by_rank: dict[int, int]) -> dict[DeviceKey, int]:
        return {(rank, 0): value for rank, value in by_rank.items()}

    columns = (np.array(column) for column in zip(*calls, strict=True))
    kinds = (bool if name in ("came_last", "may_be_last") else np.int64 for name in Calls._fields)
    return Arrivals(
        *(len(calls), 0, len(calls), len(calls), overlap, achievable, placed(transfer)),
        Calls(*(column.astype(kind) for column, kind in zip(columns, kinds, strict=True))),
        placed(works),
        placed(doubt or {}),
    )


def test_where_all_arrivals_are_sure_nothing_may_differ() -> None:
    calls = [call(0, 0, 60, 36, last=True), call(0, 1, 64, 40)]
    assert bounds(arrivals(36, 60, {0: 60}, calls, {0: 76, 1: 90})) == ((36, 36), (60, 60))


def test_a_call_that_may_count_instead_brings_what_it_hides_and_its_length() -> None:
    """Ranks 2 and 3 came earlier for sure: nothing of theirs matters."""
    calls = [
        call(0, 1, 60, 36, last=True, error=3, in_run=4),
        call(0, 0, 64, 40, able=True, in_run=4),
        call(0, 2, 5, 99, in_run=4),
        call(0, 3, 500, 0, in_run=4),
        call(1, 2, 30, 20, last=True),
        call(1, 1, 70, 0),
    ]
    # The wait that the last to arrive may have had, 3, may be of what both hide.
    found = bounds(arrivals(36 + 20, 60 + 30, {1: 60, 2: 30}, calls, {0: PLENTY, 1: PLENTY, 2: PLENTY}))
    assert found == ((20 + 36 - 3, 20 + 40), (30 + 60 - 4, 30 + 60 + 4))


def test_where_the_other_rank_hides_less_there_may_be_as_much_less() -> None:
    calls = [call(0, 1, 60, 36, last=True), call(0, 0, 50, 10, able=True)]
    found = bounds(arrivals(36, 60, {1: 60}, calls, {0: PLENTY, 1: PLENTY}))
    assert found == ((10, 36), (60 - 10, 60 + 10))


def test_of_what_runs_beside_other_calls_nothing_may_be_lost_or_won() -> None:
    calls = [
        call(0, 1, 60, 36, last=True, beside=5, hidden_beside=4),
        call(0, 0, 64, 40, able=True, beside=14, hidden_beside=10),
    ]
    # To lose 36 and win 30 to 40; or, where 4 of the 36 stay, to lose 32. Lengths lie between 50 and 64.
    found = bounds(arrivals(36, 60, {1: 60}, calls, {0: PLENTY, 1: PLENTY}))
    assert found == ((30, 36 + 40 - 32), (60 - 14, 60 + 14))


def test_what_may_count_on_a_rank_out_of_sight_may_count_nowhere() -> None:
    calls = [call(0, 1, 60, 36, last=True, error=1, in_run=3), call(0, 0, 64, 40, able=True, in_run=3)]
    found = bounds(arrivals(36 + 7, 60 + 7, {1: 60 + 7}, calls, {0: PLENTY, 1: PLENTY}))
    assert found == ((7, 43 + 4), (7, 67 + 64))
    sure = [call(0, 1, 60, 36, last=True, error=0, in_run=3)]
    assert bounds(arrivals(36, 60, {1: 60}, sure, {1: PLENTY})) == ((36, 36), (60, 60))


def test_what_counts_out_of_sight_may_count_here() -> None:
    calls = [call(0, 1, 60, 36, able=True), call(0, 2, 70, 70), call(1, 1, 7, 7, last=True), call(1, 0, 5, 5)]
    assert bounds(arrivals(7, 7, {1: 7}, calls, {1: PLENTY})) == ((7, 7 + 36), (7, 7 + 60))


def test_transfers_beyond_the_other_side_are_no_part_of_what_could_overlap() -> None:
    """Rank 1's 100 have 90 to overlap with; had one of them counted on rank 0, all 100 could."""
    calls = [one for number in (0, 1) for one in (call(number, 1, 50, 0, last=True), call(number, 0, 50, 0, able=True))]
    assert bounds(arrivals(0, 90, {1: 100}, calls, {0: PLENTY, 1: 90})) == ((0, 0), (90, 100))
    # On rank 0 nothing could overlap; but rank 1's own 100 more do so, whoever is last to the others.
    assert bounds(arrivals(0, 90, {1: 200}, calls, {1: 90})) == ((0, 0), (90, 90))
    # Of rank 1's 20 more, 20 could overlap in any case.
    assert bounds(arrivals(0, 120, {1: 120}, calls, {1: PLENTY})) == ((0, 0), (20, 120))


def test_the_other_sides_own_waits_add_their_doubt() -> None:
    """The other side works for 90 ± 7 on rank 1."""
    calls = [
        one
        for number in (0, 1)
        for one in (
            call(number, 1, 50, 30, last=True, in_run=3),
            call(number, 0, 50, 30, able=True, in_run=3),
            call(number, 2, 50, 30, able=True, in_run=3),
        )
    ]
    works, doubt = {0: PLENTY, 1: 90, 2: PLENTY}, {1: 7}
    assert bounds(arrivals(60, 90, {1: 100}, calls, works, doubt)) == ((60 - 7, 60 + 7), (83, 100))
    # With 100 more of rank 1's own: at least 90 − 7 there, and 90 + 7 beside the 100 that may move away.
    assert bounds(arrivals(60, 90, {1: 200}, calls, works, doubt)) == ((60 - 7, 60 + 7), (83, 197))
    assert bounds(arrivals(60, 90, {1: 200}, calls[:2] + calls[3:5], works, doubt))[1] == (83, 197)
