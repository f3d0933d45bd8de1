"""Places: the n-th launches of turns that are alike."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analyzers.ordering.ordering import Ordering
from tests.support.builder import Builder, one_rank


def by_launch(run: Builder) -> list[tuple[int, int]]:
    """Place and turn of each op, in the order in which the ops were added."""
    ordering = Ordering(run.trace())
    places, unit = ordering.linked.places, ordering.lanes.unit_of_op
    return list(zip(places.place[unit].tolist(), places.turn[unit].tolist(), strict=True))


def launched(*what: str, marks: tuple[int, ...] = ()) -> Builder:
    """Launches like "a7": kernel a on stream 7, 10 ns apart; "a7'" by another thread. Steps begin at `marks`."""
    run, rank = one_rank()
    for number, one in enumerate(what):
        thread = 2 if one.endswith("'") else 1
        now, stream = 10 * number, int(one[1:].rstrip("'"))
        rank.kernel(one[0], stream, 1000 + now, 1005 + now, launch=(now, now + 1), thread=thread)
    for number, mark in enumerate(marks):
        end = 10 * (marks[number + 1] if number + 1 < len(marks) else len(what)) - 5
        rank.range(f"ProfilerStep#{number}", 10 * mark - 2, end)
    return run


def test_a_turn_that_launches_more_has_places_of_its_own() -> None:
    # |p7 s9 |p7 s9 |p7 s9 s9 : the last is not like the others, and none of its launches is
    found = by_launch(launched("p7", "s9", "p7", "s9", "p7", "s9", "s9", marks=(0, 2, 4)))
    assert [turn for _, turn in found] == [0, 0, 1, 1, 2, 2, 2]
    assert not {place for place, _ in found[4:]} & {place for place, _ in found[:4]}


def test_a_unit_is_found_by_its_place_and_turn_and_else_none() -> None:
    places = Ordering(launched(*["p7", "s9"] * 2).trace()).linked.places
    units = np.arange(places.place.size)
    assert places.unit_at(places.place, places.turn).tolist() == units.tolist()
    assert places.unit_at(places.place[:1], np.array([5])).tolist() == [-1]
    assert places.unit_at(np.array([-1]), np.array([0])).tolist() == [-1]


# By brute force. The turn of a thread's launches: take the shortest period, 1 or more launches, with which all repeat
# from some launch on, where that is at least two periods and at least half of all; whole turns are counted back from
# the last launch. A place is what a turn launches, all of it, and which of it.


def slow_turns(what: list[str]) -> list[int]:
    for period in range(1, len(what) // 2 + 1):
        start = next(
            s for s in range(len(what)) if all(what[k] == what[k + period] for k in range(s, len(what) - period))
        )
        if len(what) - start >= 2 * period and len(what) - start >= len(what) // 2:
            start += (len(what) - start) % period
            return [-1] * start + [k // period for k in range(len(what) - start)]
    return [-1] * len(what)


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(20, 60))])
def test_places_are_those_of_the_slow_calculation(seed: int) -> None:
    dice = random.Random(seed)
    turn = [f"{dice.choice('ab')}{dice.choice([7, 9])}" for _ in range(dice.randint(1, 4))]
    what = [f"{dice.choice('abc')}7" for _ in range(dice.randint(0, 3))] + turn * dice.randint(1, 4)
    if dice.random() < 0.3:
        what[dice.randrange(len(what))] = "c9"
    found, turns = by_launch(launched(*what)), slow_turns(what)
    assert [turn for _, turn in found] == turns
    inside = {turn: [k for k in range(len(what)) if turns[k] == turn] for turn in turns}
    kinds = [
        (tuple(what[other] for other in inside[turn]), inside[turn].index(k)) if turn >= 0 else None
        for k, turn in enumerate(turns)
    ]
    for one, (place, _) in zip(kinds, found, strict=True):
        assert [other == one for other in kinds] == [other == place for other, _ in found]
        assert (one is None) == (place == -1)
