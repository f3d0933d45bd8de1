"""Ranks number their steps by the collectives that they share, whatever their hosts' clocks say."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from analyzers.steps.choose import with_steps
from analyzers.steps.renumber import OTHER_NUMBERS, renumbered
from analyzers.trace.alignment import MatchedCalls, MatchedCollectives, Matches, Members
from analyzers.trace.tables import Trace
from tests.analyzers.steps.loops import OPTIMIZER, Loop
from tests.support.builder import Builder


def joined(*ranks: tuple[int, int, int], sure: bool = True, odd: int = 0) -> Trace:
    """Ranks that train, each from some step on, for some steps, at some time; step k's collective is number k.

    odd : how many of the second rank's collectives are matched with the step after.
    """
    run, calls = Builder(), []
    for number, (first, steps, at) in enumerate(ranks):
        loop = Loop(run.rank(number, device=number), at)
        for step in range(first, first + steps):
            collective = step + (number == 1 and step - first < odd)
            calls.append((collective, len(run.rows["ops"]), number))
            loop.launch(["ncclDevKernel_AllReduce", "a", "b", "c", "d"]).range(OPTIMIZER, ["adam", "norm"])
    trace = with_steps(run.trace())
    collective, op, member = (np.array(column) for column in zip(*sorted(calls), strict=True))
    table = MatchedCalls.of({"collective": collective, "op": op, "member": member, "rank": member})
    about = MatchedCollectives.of({"sure": np.full(int(collective.max()) + 1, sure)})
    return replace(trace, matches=Matches(Members.of({"rank": np.arange(len(ranks))}), table, about))


def numbers(trace: Trace) -> dict[int, list[int]]:
    steps = renumbered(trace).steps
    assert steps is not None
    return {process: steps.numbers[steps.process == process].tolist() for process in set(steps.process.tolist())}


STEP = 70  # ns


def test_a_host_that_is_a_step_ahead_is_at_the_same_step() -> None:
    trace = joined((0, 5, 0), (0, 5, -STEP))
    assert trace.steps is not None and trace.steps.whole == (1, 2, 3, 4), "so their clocks say"
    assert numbers(trace) == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}


@pytest.mark.parametrize(("sure", "odd"), [(False, 0), (True, 2)])
def test_where_nothing_is_sure_times_tell_and_where_it_is_at_odds_nothing_does(sure: bool, odd: int) -> None:
    found = numbers(joined((0, 5, 0), (0, 5, 10), sure=sure, odd=odd))
    assert found == ({} if odd else {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]})


def named(trace: Trace, *numbers: list[int]) -> Trace:
    """The same, with marks that number each rank's steps so."""
    assert trace.steps is not None
    steps = replace(trace.steps, numbers=np.concatenate(numbers), named=True, source="marked", whole=())
    return replace(trace, steps=steps)


def test_marks_that_number_other_steps_alike_are_counted_as_the_lowest_rank_counts() -> None:
    """Both train the same five steps; rank 1 calls them 7 to 11."""
    trace = named(joined((0, 5, 0), (0, 5, 0)), [0, 1, 2, 3, 4], [7, 8, 9, 10, 11])
    found = renumbered(trace)
    assert numbers(trace) == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}
    assert found.steps is not None and set(found.steps.whole) >= {1, 2, 3, 4}
    assert [one.message for one in found.warnings if one.code == "steps-renumbered"] == [
        "The collectives that ranks share show that some number their steps otherwise than rank 0: rank 1 by 7 higher. "
        "Steps are counted as rank 0 does."
    ]


def test_marks_are_believed_where_collectives_mostly_agree_or_say_nothing() -> None:
    same, other = [0, 1, 2, 3, 4], [7, 8, 9, 10, 11]
    for trace, second in (
        (joined((0, 5, 0), (0, 5, 0), odd=2), same),
        (joined((0, 5, 0), (0, 5, 0), sure=False), other),
    ):
        trace = named(trace, same, second)
        assert numbers(trace) == {0: same, 1: second}
        assert renumbered(trace).warnings == trace.warnings


def test_marks_that_collectives_contradict_at_random_tell_no_steps() -> None:
    trace = named(joined((0, 5, 0), (0, 5, 0)), [0, 1, 2, 3, 4], [4, 3, 2, 1, 0])
    found = renumbered(trace).steps
    assert found is not None and (found.size, found.unknown) == (0, OTHER_NUMBERS)
