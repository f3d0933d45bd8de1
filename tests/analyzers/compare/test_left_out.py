"""What figures leave out, steps or a run that lost work: it is in no median, and has no verdict."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from analyzers.compare.compare import compare
from analyzers.compare.steps import typical_step
from analyzers.load import load
from analyzers.steps.choose import with_steps
from analyzers.steps.window import with_window
from analyzers.trace.narrow import EVERYTHING
from analyzers.trace.tables import Trace
from tests.analyzers.steps.test_window import USUAL, Step, run
from tests.support.command_lines import invoked
from tests.support.kineto_files import ten_steps
from traceviz.output import contract
from traceviz.output.document import Paragraph
from traceviz.output.views.compare import blocks, headline


def found(steps: list[Step]) -> Trace:
    return with_window(with_steps(run(steps)))


LATE, OTHER = [(3500, 9500), *USUAL], [(2000, 0), (2100, 0), (2200, 0), (2300, 0)]


def test_a_comparison_leaves_it_out_of_both_runs_and_says_so() -> None:
    result = compare([found(LATE), found(OTHER)], labels=("old", "new"))
    assert result.steps == (1, 2, 3)
    assert [one.figures["step_ns"].median_ns for one in result.runs] == [
        statistics.median([3400, 3600, 3400]),
        statistics.median([2100, 2200, 2300]),
    ]
    said = [one.message for one in result.warnings if one.code in ("late-start", "other-steps")]
    assert said == [
        "old: step 0 is left out of medians: rank 0 waits 9.50 µs in it, mostly for rank 7, in others 0 ns in the "
        "median, as where a rank's profiler starts late."
    ]
    shown = contract.comparison(result)["runs"]
    assert (shown[0]["late_start"]["wait_ns"], shown[1]["late_start"]) == (9500, None)
    assert [one["steps"]["left_out"][:1] for one in shown] == [
        [{"step": 0, "reason": said[0][len("old: step 0 is left out of medians: ") : -1]}],
        [],
    ]


def test_all_of_it_counts_where_that_is_asked_for() -> None:
    result = compare([found(LATE), found(OTHER)], narrowing=EVERYTHING)
    assert result.steps == (0, 1, 2, 3)
    assert "late-start" not in [one.code for one in result.warnings]


def test_a_step_that_leaves_no_common_step_counts() -> None:
    result = compare([found(LATE), found([(2000, 0)])])
    assert result.steps == (0,)
    assert "late-start" not in [one.code for one in result.warnings]


def test_the_typical_step_is_one_of_those_that_count() -> None:
    typical, everything = typical_step(found(LATE)), typical_step(found(LATE), EVERYTHING)
    assert typical is not None and (typical.steps, typical.median_ns) == (3, 3400)
    assert everything is not None and everything.steps == 4


def test_without_steps_there_is_no_typical_one() -> None:
    assert typical_step(found([])) is None


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
