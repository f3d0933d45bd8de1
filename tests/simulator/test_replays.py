"""Replays of random programs, and what they predict of changes, against the changed programs themselves."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.replay.predict import Replayed
from tests.simulator.machine import simulate
from tests.simulator.measure import A, B, loaded, programs, queue_of
from tests.simulator.order import races
from tests.simulator.replays import KINDS, Answer, answers, case
from tests.support.nightly import few_by_default, mostly_nightly

POINTS = 0.05  # of a step, by which a prediction may be off
CLOSE = 0.02  # of a step, by which the unchanged program may be
REPLAYED = {"nsys": 0.98, "kineto": 0.95}
RIGHT = WITHIN = 0.9
FEW = range(8)


def close(seeds: range, form: str, folder: Path) -> list[bool]:
    """Whether each unchanged program takes as long as captured, step by step."""
    found = []
    for _, program in programs(seeds):
        with queue_of(program):
            try:
                found.append(Replayed(loaded(simulate(program), form, folder), A, B).fidelity.error <= CLOSE)
            except TracevizError:
                found.append(False)
    return found


def hold(found: list[Answer]) -> None:
    """Step times are right, whether or not the capture tells how kernels slow each other down; ranges hold them."""
    wrong = [str(one) for one in found if one.off > POINTS or not one.within]
    assert sum(one.off <= POINTS for one in found) >= RIGHT * len(found), wrong
    assert sum(one.within for one in found) >= WITHIN * len(found), wrong


@pytest.mark.parametrize(
    ("form", "seeds"), mostly_nightly(product(REPLAYED, (FEW, range(400))), lambda case: case[1] == FEW)
)
def test_a_program_takes_as_long_as_captured(form: str, seeds: range, tmp_path: Path) -> None:
    """Of few programs one may be off."""
    found = close(seeds, form, tmp_path)
    assert sum(found) >= min(REPLAYED[form] * len(found), len(found) - 1)


def test_changes_bring_what_was_predicted(tmp_path: Path) -> None:
    hold([one for kind in KINDS for one in answers(kind, range(1), "nsys", tmp_path)])


@pytest.mark.nightly
@pytest.mark.parametrize("form", REPLAYED)
@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_many_programs_bring_what_was_predicted(kind: str, form: str, tmp_path: Path) -> None:
    hold(answers(kind, range(1, 103), form, tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_programs_are_right_before_and_after(kind: str) -> None:
    for seed in range(3):
        for program in (case(kind, seed).before, case(kind, seed).after):
            assert not any(races(program, rank) for rank in range(len(program.ranks)))


@pytest.mark.parametrize("seeds", few_by_default(3, 40))
def test_without_records_a_prediction_is_right_or_there_is_none(seeds: int, tmp_path: Path) -> None:
    """Waits are inferred then, which is said: as often right as with records, where hosts are not blocked unseen."""
    found = [one for kind in KINDS for one in answers(kind, range(seeds), "kineto-default", tmp_path)]
    told = [one for one in found if not one.refused]
    assert told
    hold(told)
