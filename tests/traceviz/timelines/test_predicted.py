"""`timeline --what-if`: the predicted run beneath the captured one, marked as predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceviz as tv
from analyzers.replay.changes import DropSync
from analyzers.syncs.report import order_report
from analyzers.verdict.check import check_overlap
from tests.analyzers.replay.test_answer import PAIR, STEP, US, program
from tests.traceviz.conftest import Run
from traceviz.timelines.marks import ROLE
from traceviz.timelines.picture import Picture, picture
from traceviz.timelines.stack import PREDICTED, with_predicted

DATA = Path(__file__).parents[2] / "data"
ITEM = [DATA / "torch" / f"item_before.rank{rank}.json.gz" for rank in (0, 1, 2, 3)]
DROP = "drop-sync nvtx:MP lookup"


@pytest.fixture(scope="module")
def both() -> Picture:
    trace = program()
    result = check_overlap(trace, *PAIR)
    drawn = picture(trace, result, order_report(trace))
    return with_predicted(trace, drawn, result, [DropSync("nvtx:look up")])


def test_the_predicted_run_is_beneath_the_captured_one_and_says_so(both: Picture) -> None:
    captured, predicted = both.bands
    assert captured.title.startswith("captured: rank 0")
    assert predicted.title.startswith(f"{PREDICTED}: rank 0")
    assert both.headline.startswith("What if? drop-sync nvtx:look up: step 226 → ")  # one unit for before and after
    assert "as predicted" in both.shown.text


def test_both_begin_with_the_same_step_and_the_predicted_one_is_shorter(both: Picture) -> None:
    """From the lookup's start to the product's end: 224 µs, and some 202 without the sync."""
    spans = []
    for band in both.bands:
        rows = [row.number for row in band.rows]
        marks = both.marks.take([row in rows for row in both.marks.row.tolist()])
        a, b = (marks.take(marks.role == ROLE[side]) for side in "ab")
        first = a.start[a.start >= 0].min()
        spans.append((int(first), int(b.end[b.end > first].min() - first)))
    (captured_at, captured), (predicted_at, predicted) = spans
    assert captured == (STEP - 2) * US
    assert 200 * US <= predicted <= 204 * US
    assert abs(captured_at - predicted_at) <= 2 * US


def test_the_command_draws_it(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    code, out, _ = run("timeline", *ITEM, "--ranks", "0", "--what-if", DROP, "-o", page)
    assert code == 0
    assert "as predicted" in out
    text = page.read_text(encoding="utf-8")
    assert f"{PREDICTED}: rank 0" in text
    assert "What if? drop-sync nvtx:MP lookup" in text


def test_what_cant_be_predicted_or_read_draws_nothing(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    refused = run("timeline", DATA / "nsys-stats" / "small.txt", "--what-if", "scale comm 2", "-o", page)
    assert (refused.code, page.exists()) == (3, False)
    assert "Nothing can be predicted: the capture holds no CUDA calls" in refused.err
    code, _, err = run("timeline", *ITEM, "--what-if", "faster", "-o", page)
    assert (code, page.exists()) == (2, False)
    assert "is no change" in err


def test_python_draws_it_too() -> None:
    figure = tv.timeline(tv.Trace.of(program()), *PAIR, what_if=["drop-sync nvtx:look up"])
    assert PREDICTED in figure.to_json()
