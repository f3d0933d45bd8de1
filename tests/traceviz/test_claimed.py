"""`--claimed` of `check-overlap`, `compare` and `report`: one question, one answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from tests.support.kineto_files import pair_of_ranges
from tests.traceviz.conftest import Run

SIDES = ("-a", "nvtx:A", "-b", "nvtx:B", "--min-overlap", "50%")
TORCH = Path(__file__).parents[1] / "data" / "torch"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A and B of 100 ns each, one after the other and then half together: 200 / 150 = 1.33x of at most 200 / 100."""
    return (
        pair_of_ranges("A", "B", overlap=0).write(tmp_path / "serial.json"),
        pair_of_ranges("A", "B", overlap=50).write(tmp_path / "beside.json"),
    )


CLAIMS = [
    ("14.7x", 1, "IMPOSSIBLE CLAIM", "can gain at most 2.00x; 14.7x measures something else."),
    ("1.4x", 1, "CLAIM NOT SHOWN", "of the pair's time, 1.4x was claimed, and 1.33x measured (ceiling 2.00x)."),
    ("40%", 1, "CLAIM NOT SHOWN", "of the pair's time, 40 % (1.4x) was claimed, and 1.33x measured (ceiling 2.00x)."),
    ("1.3x", 3, "CLAIM UNSURE", "1 instance is too few to tell it from chance; it takes 6."),
]


@pytest.mark.parametrize(("claim", "code", "word", "words"), CLAIMS)
def test_a_claim_is_held_against_the_baseline(
    run: Run, pair: tuple[Path, Path], claim: str, code: int, word: str, words: str
) -> None:
    serial, beside = pair
    asked = ("check-overlap", beside, "--baseline", serial, *SIDES, "--claimed", claim)
    ended, out, err = run(*asked)
    assert (ended, err) == (code, "")
    text = " ".join(out.split())
    assert word in text
    assert words in text
    answer = json.loads(run(*asked, "--format", "json").out)
    assert (answer["passed"], answer["schema"]) == (True, "traceviz.overlap/3"), "the bar is another question"
    assert (answer["claim"]["possible"], answer["claim"]["bound"]) == (claim != "14.7x", 2.0)
    assert bool(answer["claim_reason"]) == (code == 3)
    short = json.loads(run(*asked, "--format", "json", "--brief").out)
    told = {key: value for key, value in short["claim"].items() if key not in ("word", "about")}
    assert told == pytest.approx({key: answer["claim"][key] for key in told}, abs=1e-4)
    assert [short["claim"][key] for key in ("word", "about")] == [answer["claim"]["word"], "pair"]
    assert answer["claim"]["word"] in word
    assert set(short["claim"]) == {"word", "about", "claimed", "bound", "possible", "measured", "shown"}
    assert short["claim_reason"] == answer["claim_reason"]
    found = tv.check_overlap(beside, "nvtx:A", "nvtx:B", min_overlap=0.5, baseline=serial, claimed=claim)
    assert found.exit_code == code


@pytest.mark.nightly
@pytest.mark.parametrize("claim", [claim for claim, *_ in CLAIMS])
def test_compare_and_report_end_as_check_overlap_does(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, claim: str
) -> None:
    serial, beside = pair
    folder = tmp_path / "report"
    codes = {
        run("check-overlap", beside, "--baseline", serial, *SIDES, "--claimed", claim).code,
        run("compare", serial, beside, *SIDES[:4], "--claimed", claim).code,
        run("report", beside, "--baseline", serial, *SIDES, "--claimed", claim, "-o", folder).code,
    }
    assert len(codes) == 1
    answer = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert answer["overlap"]["claim"]["stated"].startswith(claim[:2])


@pytest.mark.parametrize("command", ["check-overlap", "report"])
def test_a_claim_needs_a_baseline_and_has_to_be_one(run: Run, pair: tuple[Path, Path], command: str) -> None:
    serial, beside = pair
    alone = run(command, beside, "--claimed", "1.3x")
    assert (alone.code, "Give it with --baseline." in alone.err) == (2, True)
    wrong = run(command, beside, "--baseline", serial, "--claimed", "quick")
    assert (wrong.code, "'quick' is no speedup." in wrong.err) == (2, True)
    with pytest.raises(TracevizError, match="Give it with --baseline"):
        tv.check_overlap(beside, claimed=1.3)


def test_waits_that_cant_be_seen_leave_a_claim_open_unless_it_cant_be(run: Run) -> None:
    """One rank of two, on both sides: its all-to-all may only wait for the other."""
    words = ("check-overlap", TORCH / "dpmp_overlap.rank0.json.gz", "--baseline", TORCH / "dpmp_serial.rank0.json.gz")
    words = (*words, "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding", "--min-overlap", "0%")
    open_ = run(*words, "--claimed", "1.01x")
    assert (open_.code, "POSSIBLE CLAIM" in open_.out) == (3, True)
    assert "The baseline and this run: not all ranks were captured" in " ".join(open_.out.split())
    assert run(*words, "--claimed", "14.7x").code == 1
