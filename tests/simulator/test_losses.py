"""A loss is never a pass: captures that lost something give none that the whole run denies, and change none unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator.losses import OF_FILES, OF_RUNS, Tally, count
from tests.support.nightly import few_by_default

UNSAID = 0.005  # of the answers, at most


@pytest.mark.parametrize("seeds", few_by_default(6, 300))
def test_no_loss_makes_a_pass_that_the_whole_denies_and_few_change_an_answer_unsaid(seeds: int, tmp_path: Path) -> None:
    tally = Tally()
    for seed in range(seeds):
        count(tally, seed, tmp_path)
    notes = "\n".join(tally.notes)
    assert not tally.of("denied"), notes
    assert tally.of("changed") <= UNSAID * tally.counted.total(), notes
    kinds = {*OF_RUNS, *(name for of_format in OF_FILES.values() for name in of_format)}
    assert {lost for lost, _ in tally.counted} == kinds
