"""`traceviz what-if` as it is run: exit codes, formats, texts of changes."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

import traceviz as tv
from tests.traceviz.conftest import Run

DATA = Path(__file__).parents[1] / "data"
ITEM = [DATA / "torch" / f"item_before.rank{rank}.json.gz" for rank in range(4)]
DROP = ("--change", "drop-sync nvtx:MP lookup")
NO_CALLS = DATA / "nsys-stats" / "small.txt"
MISSED = DATA / "workloads" / "rowpar.s1.2gpu.torch"


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "what-if")


def in_a_line(text: str) -> str:
    return " ".join(text.split())


def test_the_first_lines_say_how_well_it_replays_and_what_the_change_is_worth(run: Run) -> None:
    code, out, err = run(*ITEM, *DROP)
    assert (code, err) == (0, "")
    first, _, second, *_ = (in_a_line(one) for one in out.split("\n\n"))
    step = r"4\.73 ms"  # of steps 1 to 3: of step 0 the profiler took 40.9 % on a rank
    assert first.startswith("PREDICTED FASTER drop-sync nvtx:MP lookup: step 4.73 → ")
    assert re.match(rf"Replay: step {step}, captured {step} \(error (0|<0\.1) %\)", second)
    text = in_a_line(out)
    assert re.search(r"on the worst rank 0 % \(rank 0\) → ", text)
    assert "Next bottleneck: " in text
    assert "Assumed: the host does not need the result there" in text
    assert "Predicted, all changes together" in text


def test_without_changes_suggestions_are_tried(run: Run) -> None:
    code, out, _ = run(*ITEM)
    assert code == 0
    assert "Predicted, in the order to try" in out
    assert "drop-sync nvtx:MP lookup" in out


def test_json_is_what_python_gives_sorted_by_gain(run: Run) -> None:
    code, out, _ = run(*ITEM, "--format", "json")
    answer = json.loads(out)
    assert (code, answer["schema"], answer["reason"]) == (0, "traceviz.what-if/1", "")
    assert answer["pair"] == {"a": "comm", "b": "compute"}
    assert {"step_ns", "measured_step_ns", "error", "unexplained"} <= answer["replay"].keys()
    gains = [one["gain_ns"] for one in answer["changes"]]
    assert gains == sorted(gains, reverse=True)
    order = [one["suggested"] for one in answer["changes"] if len(one["together"]) == 1]
    assert sorted(order) == list(range(1, len(order) + 1))
    for one in answer["changes"]:
        assert one["class"] in ("safe", "conditional", "unsafe", "diagnosis")
        assert (one["likely"] == 0) == (one["class"] in ("unsafe", "diagnosis"))
        assert one["likely"] <= 1
        assert one["change"] == " + ".join(one["together"])
        assert one["step_low_ns"] <= one["step_ns"] <= one["step_high_ns"]
        assert one["gain_ns"] == one["now_ns"] - one["step_ns"]
        assert [rank["rank"] for rank in one["ranks"]] == [0, 1, 2, 3]
        for rank in one["ranks"]:
            assert rank["low_ns"] <= rank["real_overlap_ns"] <= rank["high_ns"]
    assert (answer["critical_path"], answer["communication"]) == (None, None)
    assert tv.what_if(ITEM).to_frame()["gain_ns"].tolist() == gains


def test_the_critical_path_is_listed_where_asked_for(run: Run) -> None:
    _, out, _ = run(*ITEM, *DROP, "--critical-path")
    assert "Critical path of the steps as captured" in out
    assert "Communication, without waits" in out
    answer = json.loads(run(*ITEM, *DROP, "--critical-path", "--format", "json").out)
    path = answer["critical_path"]
    assert all(one["start_ns"] < one["end_ns"] for one in path)
    assert all(one["blocks"] == (one["kind"] == "communication") for one in path)
    for one in answer["communication"]:
        assert 0 <= one["blocking_ns"] <= one["exposed_ns"] <= one["busy_ns"]


@pytest.mark.parametrize("format_", ["text", "md", "json"])
@pytest.mark.parametrize(
    ("captures", "words"),
    [(NO_CALLS, "no CUDA calls"), (MISSED, "misses its captured step times by 21.8 % of a step: more than 5 %")],
)
def test_what_cant_be_predicted_ends_with_3_and_says_why(run: Run, captures: Path, words: str, format_: str) -> None:
    code, out, err = run(captures, "--format", format_)
    assert (code, err) == (3, "")
    assert words in in_a_line(out)
    if format_ == "json":
        assert json.loads(out)["changes"] == []
    else:
        assert "NO PREDICTION" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("faster please", "'faster please' is no change. Changes are: drop-sync SEL; "),
        ("", "'' is no change."),
        ("drop-sync", "Write it as: drop-sync SEL."),
        ("drop-wait comm", "Write it as: drop-wait A on B."),
        ("move-wait comm on compute", "Write it as: move-wait A before B."),
        ("own-stream", "Write it as: own-stream SEL [join-before SEL]."),
        ("on-time first", "Write it as: on-time RANK|all."),
        ("scale comm", "Write it as: scale SEL FACTOR."),
        ("scale comm -1", "Write it as: scale SEL FACTOR."),
        ("split comm 1", "Write it as: split SEL N."),
        ("split comm 2.5", "Write it as: split SEL N."),
        ("scale nvtx:nothing 0.5", "no range 'nothing'"),
        ("scale no:thing 0.5", "no:thing"),
        ("graph nvtx:MP lookup", "which no graph can hold"),
        ("on-time 7", "on-time 7: "),
    ],
)
def test_a_change_that_cant_be_made_is_one_line_and_2(run: Run, text: str, message: str) -> None:
    code, out, err = run(*ITEM, "--change", text)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_only_ranks_and_steps_asked_for_are_answered_for(run: Run) -> None:
    answer = json.loads(run(*ITEM, *DROP, "--ranks", "1-2", "--steps", "1:3", "--format", "json").out)
    assert [rank["rank"] for rank in answer["changes"][0]["ranks"]] == [1, 2]


def test_a_side_that_is_not_there_is_said_and_step_times_are_predicted_all_the_same(run: Run) -> None:
    code, out, _ = run(*ITEM, *DROP, "-a", "nvtx:MP lokup")
    assert code == 0
    assert "did you mean 'MP lookup' (192 launches)? No overlap is predicted." in in_a_line(out)
    assert "Real overlap of" not in out


def test_changes_are_texts_or_objects() -> None:
    trace = tv.load(ITEM)
    both = "move-wait nvtx:DP tower before nvtx:MP lookup", "scale collective:all_to_all 0.5"
    one = tv.what_if(trace, *both)
    other = tv.what_if(trace, tv.MoveWait("nvtx:DP tower", "nvtx:MP lookup"), tv.Scale("collective:all_to_all", 0.5))
    assert one.changes == other.changes
    assert one.best is not None
    assert one.best.changes == both


def test_every_change_is_public() -> None:
    from analyzers.replay.answer import BY_VERB, parse_change

    arguments = {"drop-wait": "a on b", "move-wait": "a before b", "on-time": "1", "scale": "a 2", "split": "a 2"}
    made = {type(parse_change(f"{verb} {arguments.get(verb, 'a')}")).__name__ for verb in BY_VERB}
    assert made <= set(tv.__all__)
