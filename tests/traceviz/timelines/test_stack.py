"""Below each other on one axis: before and after, a step or an instance of each from 0; captured and predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import traceviz as tv
from analyzers.compare.compare import compare
from analyzers.load import load
from analyzers.replay.answer import DropSync
from analyzers.syncs.order_report import order_report
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.analyzers.replay import test_answer as replayed
from tests.support.builder import Builder
from tests.support.command_lines import invoked
from tests.support.timeline_traces import HOSTILE, US, drawn, many_ranks
from tests.traceviz.conftest import Run
from traceviz.timelines.draw import about, figure
from traceviz.timelines.marks import ROLE, UNKNOWN_INSTANT
from traceviz.timelines.page import data
from traceviz.timelines.picture import Picture, picture
from traceviz.timelines.stack import PREDICTED, compared, stacked, with_predicted

PAIR = ("nvtx:A", "nvtx:B")


def run_at(begin_us: int, overlap_us: int, ranks: int = 1) -> Trace:
    """A from `begin` for 20 µs on stream 7, then B for 30, which overlaps A by so much."""
    run = Builder()
    for number in range(ranks):
        rank, begin = run.rank(number), begin_us * US
        rank.range("A", begin - 9 * US, begin - 6 * US)
        rank.kernel(f"a {begin_us}", 7, begin, begin + 20 * US, launch=(begin - 8 * US, begin - 7 * US))
        rank.range("B", begin - 5 * US, begin - 1 * US)
        start = begin + (20 - overlap_us) * US
        rank.kernel(f"b {begin_us}", 9, start, start + 30 * US, launch=(begin - 4 * US, begin - 3 * US))
    return run.trace()


def two(ranks: int = 1) -> Picture:
    pictures = [drawn(run_at(*one, ranks), *PAIR)[1] for one in ((100, 0), (7000, 15))]
    return stacked(pictures, ["before", "after"], "faster")


def spans(picture: Picture, role: str) -> dict[str, tuple[int, int]]:
    marks = picture.marks.take(picture.marks.role == ROLE[role])
    return {
        picture.texts[name]: (start // US, end // US)
        for name, start, end in zip(marks.name.tolist(), marks.start.tolist(), marks.end.tolist(), strict=True)
    }


def test_both_runs_begin_at_nought_however_late_they_were() -> None:
    picture = two()
    assert spans(picture, "a") == {"a 100": (0, 20), "a 7000": (0, 20)}
    assert spans(picture, "b") == {"b 100": (20, 50), "b 7000": (5, 35)}
    overlap = picture.marks.take(picture.marks.role == ROLE["overlap"])
    assert list(zip((overlap.start // US).tolist(), (overlap.end // US).tolist(), strict=True)) == [(5, 20)]
    ops = picture.marks.take(np.isin(picture.marks.role, [ROLE["a"], ROLE["b"]]))
    assert UNKNOWN_INSTANT not in ops.launch.tolist()
    assert set(overlap.launch.tolist()) == {UNKNOWN_INSTANT}, "what is not known stays so"
    assert sorted((ops.launch // US).tolist()) == [-8, -8, -4, -4]
    assert picture.low_ns < -8 * US < 50 * US < picture.high_ns
    text = about(picture)
    assert "before: occurrence 0 on rank 0, the only instance: real overlap 0 %; after: occurrence 0" in text
    assert text.endswith("Times are on a clock that starts with each run's instance.")


def test_every_mark_stays_on_a_row_of_its_run() -> None:
    picture = two(ranks=2)
    assert [band.title.partition(":")[0] for band in picture.bands] == ["before", "after", "before", "after"]
    assert [band.rank for band in picture.bands] == [0, 0, 1, 1]
    rows = sorted((row.number, row.label, f"rank {band.rank}") for band in picture.bands for row in band.rows)
    told = data(picture)
    assert rows == list(zip(range(len(rows)), told["rows"], told["ranks"], strict=True))
    for band in picture.bands:
        mine = picture.marks.take(np.isin(picture.marks.row, [row.number for row in band.rows]))
        names = {picture.texts[name] for name in mine.name[mine.role == ROLE["a"]].tolist()}
        assert names == {"a 100" if band.title.startswith("before") else "a 7000"}
        ops = mine.take(mine.launch_row >= 0)
        assert set(ops.launch_row.tolist()) == set(band.threads.values())


def test_of_many_ranks_the_one_that_decides_is_shown_of_both_runs() -> None:
    picture = stacked([drawn(many_ranks(16), *PAIR)[1]] * 2, ["before", "after"], "same")
    assert [(band.rank, band.title.partition(":")[0]) for band in picture.bands if band.shown] == [
        (7, "before"),  # of all ranks it overlaps least
        (7, "after"),
    ]


def test_the_command_draws_it_and_answers_as_without(tmp_path: Path) -> None:
    runs = [f"tests/data/torch/dpmp_{kind}.rank0.json.gz" for kind in ("serial", "overlap")]
    words = ["compare", *runs, "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
    plain = invoked(*words)
    drawn_too = invoked(*words, "--timeline", str(tmp_path / "x.html"))
    assert (plain.exit_code, plain.output) == (drawn_too.exit_code, drawn_too.output)
    assert "starts with each run" in (tmp_path / "x.html").read_text()


def stepping(lengths_us: tuple[int, ...], at_us: int, ranks: int = 2) -> Trace:
    """Steps of such lengths one behind the other, on rank 1 each 3 µs later than on rank 0.

    In each A runs for 4 µs from its begin on, then B for 4; the last 2 µs of a step are the optimizer's.
    """
    run = Builder()
    for number in range(ranks):
        rank, begin = run.rank(number), (at_us + 3 * number) * US
        for k, length in enumerate(lengths_us):
            rank.range(f"step {k}", begin - 900, begin + length * US - 901)
            for name, stream, start, end in (("a", 7, 0, 4), ("b", 9, 4, 8), ("optimizer", 7, length - 2, length)):
                at = begin - 800 + 100 * stream
                rank.kernel(name, stream, begin + start * US, begin + end * US, launch=(at, at + 10))
            begin += length * US
    return run.trace()


def both_ends(picture: Picture) -> list[tuple[str, float, float]]:
    """Of each band: what its title begins with, and where its two dashed lines are, µs."""
    lines = [one for one in figure(picture, slider=False).layout.shapes if one.type == "line"]
    assert all(one.line.dash == "dash" and one.x0 == one.x1 for one in lines)
    shown = []
    for band in picture.bands:
        own = sorted(
            round(1000 * one.x0, 3)
            for one in lines
            if one.y0 == pytest.approx(band.rows[0].top) and one.y1 == pytest.approx(band.rows[-1].y - 0.5)
        )
        shown.append((band.title.partition(":")[0], *own))
    return shown


def test_compared_runs_begin_at_nought_with_their_median_step_and_both_of_its_ends_are_marked() -> None:
    """Steps take 40, 20, 30, 50 and 30 µs: 30, first step 2; after, 24, 11, 14, 12 and 12: 12, first step 3."""
    traces = [stepping((40, 20, 30, 50, 30), 100), stepping((24, 11, 14, 12, 12), 9000)]
    result = compare(traces, "kernel:a", "kernel:b", labels=["before", "after"])
    assert [run.figures["step_ns"].median_ns for run in result.runs] == [30 * US, 12 * US]
    picture = compared(result, traces)
    assert picture.low_ns == 0
    assert 33 * US < picture.high_ns < 36 * US
    assert both_ends(picture) == [("before", 0, 30), ("after", 0, 12), ("before", 3, 33), ("after", 3, 15)]
    assert [one.title.partition(":")[2].partition(":")[0] for one in picture.bands] == [
        " rank 0, device 0, step 2 took 30.0 µs",
        " rank 0, device 0, step 3 took 12.0 µs",
        " rank 1, device 0, step 2 took 30.0 µs",
        " rank 1, device 0, step 3 took 12.0 µs",
    ]
    text = about(picture)
    assert "before: step 2, the median of 5 common steps: 30.0 µs on rank 0; after: step 3, the median of 5" in text
    assert text.endswith("a clock that starts with each run's step, both ends of which are dashed lines.")
    assert figure(picture, slider=False).layout.xaxis.ticktext[0] == "0 µs"


def test_the_first_step_begins_with_its_first_op_and_the_only_one_is_called_so() -> None:
    traces = [stepping((40,), 100), stepping((30,), 9000)]
    picture = compared(compare(traces, "kernel:a", "kernel:b", labels=["before", HOSTILE[0]]), traces)
    assert picture.headline.startswith("TOO FEW STEPS: <script>"), "the comparison's"
    assert both_ends(picture) == [("before", 0, 40), (HOSTILE[0], 0, 30), ("before", 3, 43), (HOSTILE[0], 3, 33)]
    assert "step 0, the only common step" in picture.shown.text


def test_marked_steps_take_what_compare_says_of_real_captures() -> None:
    names = ("dpmp_serial", "dpmp_overlap")
    traces = [load([f"tests/data/torch/{name}.rank*.json.gz"]) for name in names]
    result = compare(traces, "nvtx:DP Embedding", "nvtx:MP Embedding", labels=names)
    picture = compared(result, traces)
    assert len(result.steps) % 2, "so that one step is the median"
    for run in result.runs:
        own = [(low, high) for row, low, high in picture.ends if row in rows_of(picture, run.label)]
        assert max(high - low for low, high in own) == run.figures["step_ns"].median_ns
        assert min(low for low, _ in own) == 0


def rows_of(picture: Picture, label: str) -> set[int]:
    return {row.number for band in picture.bands if band.title.startswith(f"{label}:") for row in band.rows}


ITEM = [f"tests/data/torch/item_before.rank{rank}.json.gz" for rank in (0, 1, 2, 3)]
DROP = "drop-sync nvtx:MP lookup"


@pytest.fixture(scope="module")
def with_prediction() -> Picture:
    trace = replayed.program()
    result = check_overlap(trace, *replayed.PAIR)
    drawn = picture(trace, result, order_report(trace))
    return with_predicted(trace, drawn, result, [DropSync("nvtx:look up")])


def test_the_predicted_run_is_beneath_the_captured_one_and_says_so(with_prediction: Picture) -> None:
    captured, predicted = with_prediction.bands
    assert captured.title.startswith("captured: rank 0")
    assert predicted.title.startswith(f"{PREDICTED}: rank 0")
    assert with_prediction.headline.startswith(
        "What if? drop-sync nvtx:look up: step 226 → "
    )  # one unit for before and after
    assert "as predicted" in with_prediction.shown.text


def test_both_begin_with_the_same_step_and_the_predicted_one_is_shorter(with_prediction: Picture) -> None:
    """From the lookup's start to the product's end: 224 µs, and some 202 without the sync."""
    spans = []
    for band in with_prediction.bands:
        rows = [row.number for row in band.rows]
        marks = with_prediction.marks.take([row in rows for row in with_prediction.marks.row.tolist()])
        a, b = (marks.take(marks.role == ROLE[side]) for side in "ab")
        first = a.start[a.start >= 0].min()
        spans.append((int(first), int(b.end[b.end > first].min() - first)))
    (captured_at, captured), (predicted_at, predicted) = spans
    assert captured == (replayed.STEP - 2) * US
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
    refused = run("timeline", "tests/data/nsys-stats/small.txt", "--what-if", "scale comm 2", "-o", page)
    assert (refused.code, page.exists()) == (3, False)
    assert "Nothing can be predicted: the capture holds no CUDA calls" in refused.err
    code, _, err = run("timeline", *ITEM, "--what-if", "faster", "-o", page)
    assert (code, page.exists()) == (2, False)
    assert "is no change" in err


def test_python_draws_it_too() -> None:
    figure = tv.timeline(tv.Trace(replayed.program()), *replayed.PAIR, what_if=["drop-sync nvtx:look up"])
    assert PREDICTED in figure.to_json()
