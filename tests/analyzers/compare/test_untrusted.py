"""A run that lost work is neither faster, nor slower, nor the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.compare.compare import compare
from analyzers.load import load
from tests.support.command_lines import invoked
from tests.support.kineto_files import ten_steps
from traceviz.output.document import Paragraph
from traceviz.output.views.compare import blocks, headline

LOST = (12, 13)  # of 50: 4 %


@pytest.mark.parametrize("first", [True, False])
def test_what_lost_work_has_no_verdict_whichever_run_it_is(tmp_path: Path, first: bool) -> None:
    whole, holed = ten_steps(tmp_path / "whole.json"), ten_steps(tmp_path / "holed.json", LOST)
    runs = [load([holed]), load([whole])] if first else [load([whole]), load([holed])]
    result = compare(runs, labels=("before", "after"), claimed="1.1x")
    label = "before" if first else "after"
    assert result.reason == f"{label}: launches have no GPU work on record: 2 of 50 of rank 0"
    assert (result.exit_code, result.claim) == (3, None)
    (run,) = result.runs[1:]
    assert (run.verdict, run.gain, run.growth) == ("inconclusive", None, None)
    assert headline(result) == f"INCONCLUSIVE: {result.reason}."


def test_a_run_that_lost_a_rank_is_not_the_same(tmp_path: Path) -> None:
    """Rank 0 is as it was in every step, and rank 1, of which nothing is left, may not be."""
    for name, lost in (("before", ()), ("after", range(50))):
        ten_steps(tmp_path / f"{name}.rank0.json")
        ten_steps(tmp_path / f"{name}.rank1.json", lost, rank=1)
    before, after = (str(tmp_path / f"{name}.rank*.json") for name in ("before", "after"))
    result = invoked("compare", before, after)
    out = result.stdout
    assert result.exit_code == 3
    first, second = (" ".join(one.split()) for one in out.split("\n\n")[:2])
    assert first == "INCONCLUSIVE after: rank 1: launches recorded, no GPU work."
    assert second.startswith("after against before: step time ")
    assert not any(word in out for word in ("NO DIFFERENCE", "the same in every step,", "CHANGED"))


def test_what_changed_is_said_where_the_step_time_is_within_noise(tmp_path: Path) -> None:
    """Kernels of 400 ns take 440, and steps still end with the last one, 40 ns later each: 10,000 apart."""
    before, after = ten_steps(tmp_path / "before.json"), ten_steps(tmp_path / "after.json", longer_ns=40)
    result = compare([load([before]), load([after])], labels=("before", "after"))
    assert result.runs[1].verdict == "same", "the word is of the step"
    assert headline(result).startswith("SAME: after against before: step time")
    said = [one.text for one in blocks(result) if isinstance(one, Paragraph) and one.title == "Most changed in after"]
    assert said == ["GPU busy 2.00 → 2.20 µs (+10 %)."]
