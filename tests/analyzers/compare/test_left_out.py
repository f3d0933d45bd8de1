"""Steps that figures leave out are in no median of a comparison either."""

from __future__ import annotations

import statistics

from analyzers.compare.compare import compare
from analyzers.compare.steps import typical_step
from analyzers.steps.find import with_steps
from analyzers.steps.window import with_window
from analyzers.trace.narrow import EVERYTHING
from analyzers.trace.tables import Trace
from tests.analyzers.steps.test_window import USUAL, Step, run
from traceviz.output import contract


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
