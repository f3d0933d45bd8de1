from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.common.errors import TracevizError
from analyzers.compare.results import pair_gain
from analyzers.overlap.measure import RankOverlap, Side
from analyzers.overlap.pairing import Instances
from analyzers.verdict.against import StepsAgainst
from analyzers.verdict.claim import check_claim, claim_code, judge, judge_step, read_speedup, word_of
from analyzers.verdict.gain import gain_over

MS = 10**6


def rank_of(*instances: tuple[int, int, int], rank: int = 0) -> RankOverlap:
    """Instances by busy time of A, of B, and overlap."""
    side = Side(0, 0, 0, ())
    a, b, overlap = np.array(instances, np.int64).reshape(-1, 3).T
    never = np.zeros(a.size, np.int64)
    done = Instances(("k",) * a.size, never, never, a, b, overlap, np.arange(a.size))
    return RankOverlap(rank, 0, side, side, 0, 0, done)


@pytest.mark.parametrize(("claimed", "possible"), [(1.0, True), (1.9, True), (1.91, True), (1.92, False), (2.1, False)])
def test_a_claim_is_held_against_the_bound_as_exactly_as_it_is_written(claimed: float, possible: bool) -> None:
    claim = check_claim(claimed, [rank_of(*[(3_200_000, 2_900_000, 0)] * 6)], 0)  # 6.1 / 3.2 = 1.906
    assert claim is not None
    assert claim.bound == pytest.approx(1.90625)
    assert claim.possible == possible


def test_few_instances_rule_out_only_what_no_two_tasks_can_gain() -> None:
    few = [rank_of((3 * MS, 1 * MS, 0), (3 * MS, 1 * MS, 0))]
    assert [check_claim(one, few, 0).possible for one in (1.9, 2.1)] == [True, False]  # type: ignore[union-attr]


def test_a_bound_scatters_with_the_tasks() -> None:
    runs = [rank_of(*[(3 * MS, k * MS // 4, 0) for k in range(1, 13)])]
    claim = check_claim(1.6, runs, 0)
    assert claim is not None
    assert claim.bound == pytest.approx(1 + 1.625 / 3)
    assert claim.bound < 1.6 <= claim.bound_high < 2
    assert "can't be ruled out" in claim.words


def test_no_instances_no_claim_and_no_claim_is_refused() -> None:
    assert check_claim(2.0, [], 0) is None
    assert check_claim(2.0, [rank_of((1, 1, 0))], 3) is None
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(TracevizError, match="is no speedup"):
            check_claim(wrong, [rank_of((1, 1, 0))], 0)


@pytest.mark.parametrize(
    ("claimed", "shown", "words"),
    [
        (1.06, True, "of the pair's time, 1.06x was claimed, and 1.06x measured (ceiling 1.66x)."),
        (
            1.1,
            True,
            "of the pair's time, 1.1x was claimed, and 1.06x measured (ceiling 1.66x).",
        ),  # 1.1 stands for 1.05 to 1.15
        (1.5, False, "of the pair's time, 1.5x was claimed, and 1.06x measured (ceiling 1.66x)."),
        (2.5, False, "two tasks of 500 ns and 330 ns can gain at most 1.66x; 2.5x measures something else."),
    ],
)
def test_a_claim_is_shown_where_what_was_measured_reaches_it(claimed: float, shown: bool, words: str) -> None:
    alone, beside = [rank_of((500, 330, 0))], [rank_of((510, 340, 67))]  # 830 / 783 = 1.06
    claim, gain = check_claim(claimed, alone, 0), pair_gain(alone, beside, 0)
    assert claim is not None
    assert gain is not None
    claim = replace(claim, measured=gain.speedup, measured_in="run 2")
    assert (claim.shown, claim.words) == (shown, words)


@pytest.mark.parametrize(
    ("stated", "value", "least", "text"),
    [
        ("14.7x", 14.7, 14.65, "14.7x"),
        (1.3, 1.3, 1.25, "1.3x"),
        ("2", 2.0, 1.5, "2x"),
        ("2×", 2.0, 1.5, "2x"),
        (" 1.25 ", 1.25, 1.245, "1.25x"),
        (".5x", 0.5, 0.45, "0.5x"),
        ("1.30×", 1.3, 1.295, "1.3x"),
        ("30%", 1.3, 1.295, "30 % (1.3x)"),
        (" 12.5 % ", 1.125, 1.1245, "12.5 % (1.125x)"),
    ],
)
def test_a_speedup_stands_for_what_rounds_to_it(stated: float | str, value: float, least: float, text: str) -> None:
    read = read_speedup(stated)
    assert (read.value, read.text) == (value, text)
    assert read.value - read.half_digit == pytest.approx(least)


@pytest.mark.parametrize(
    "wrong", ["", "x", "0", "0x", "-2x", "fast", "1e9", "nan", "1.2.3", "1,5x", "1.3x faster", float("nan")]
)
def test_what_is_no_speedup_is_refused_with_how_to_write_one(wrong: float | str) -> None:
    with pytest.raises(TracevizError, match=r"is no speedup.*Write it as 14\.7x or 1\.3; 30% is 1\.3x"):
        read_speedup(wrong)


def test_a_run_is_judged_by_what_it_gained_over_its_baseline() -> None:
    """Alone 300 and 200, together 340: 500 / 340 = 1.47x of at most 500 / 300 = 1.67x."""
    alone, beside = [rank_of(*[(300, 200, 0)] * 6)], [rank_of(*[(330, 260, 250)] * 6)]
    gain = gain_over(alone, beside, 0)

    def judged(stated: str, **more: object) -> tuple[bool | None, bool, str]:
        found = judge(stated, alone, 0, gain, **more)  # type: ignore[arg-type]
        assert found.claim is not None
        return found.claim.shown, found.claim.possible, found.reason

    assert judged("1.4x") == (True, True, "")
    assert judged("47%") == (True, True, "")  # 1.465 to 1.475, and 500 / 340 is 1.4706
    assert judged("50%") == (False, True, "")
    assert judged("14.7x") == (None, False, "")
    shown, possible, reason = judged("1.4x", unseen="this run")
    assert (shown, possible) == (None, True)
    assert reason.startswith("this run: not all ranks were captured")
    assert judged("14.7x", unseen="this run") == (None, False, ""), "what can't be can't be, whatever is not seen"


def test_few_instances_can_refute_a_claim_and_never_prove_it() -> None:
    alone, beside = [rank_of((300, 200, 0))], [rank_of((330, 260, 250), (330, 260, 250))]
    gain = gain_over(alone, beside, 0)
    assert judge("1.4x", alone, 0, gain).reason == "1 instance is too few to tell it from chance; it takes 6"
    assert judge("1.6x", alone, 0, gain).reason == ""
    assert judge("1.4x", [rank_of()], 0, None).claim is None
    assert "both runs" in judge("1.4x", alone, 0, None).reason


def step(word: str, before: int, after: int, steps: int = 20) -> StepsAgainst:
    return StepsAgainst(word, before, after, min(after - before, 0), max(after - before, 0), steps, 2)


@pytest.mark.parametrize(
    ("stated", "against", "word", "code", "reason"),
    [
        ("1.2x", step("FASTER", 1200, 1000), "SHOWN", 0, ""),  # 1200 / 1000
        ("25%", step("FASTER", 1200, 1000), "NOT SHOWN", 1, ""),
        ("14.7x", step("FASTER", 1200, 1000), "NOT SHOWN", 1, ""),  # not of two tasks: nothing bounds it
        ("14.7x", step("FASTER", 14700, 1000), "SHOWN", 0, ""),
        (
            "1.2x",
            step("TOO FEW STEPS", 1200, 1000, 2),
            "UNSURE",
            3,
            "2 common steps can't tell it from noise; it takes 6",
        ),
        ("1.2x", step("SAME", 1200, 1000), "UNSURE", 3, "the difference lies within noise"),
        ("1.2x", step("SLOWER", 1000, 1200), "NOT SHOWN", 1, ""),
        ("1.2x", StepsAgainst("INCONCLUSIVE", reason="why"), "UNSURE", 3, "why"),
    ],
)
def test_a_claim_without_a_pair_is_about_the_step(
    stated: str, against: StepsAgainst, word: str, code: int, reason: str
) -> None:
    found = judge_step(stated, against, "this run")
    assert (word_of(found.claim, found.reason), claim_code(found.claim, found.reason)) == (word, code)
    assert found.reason == reason
    if found.claim is not None:
        assert found.claim.words.startswith("of step time, ")
        assert (found.claim.about, found.claim.bound) == ("step", None)


def test_one_word_for_each_state_of_a_claim() -> None:
    alone, beside = [rank_of(*[(300, 200, 0)] * 6)], [rank_of(*[(330, 260, 250)] * 6)]
    gain = gain_over(alone, beside, 0)
    words = {}
    for stated, unseen in (("14.7x", ""), ("1.4x", ""), ("50%", ""), ("1.4x", "this run")):
        found = judge(stated, alone, 0, gain, unseen=unseen)
        words[stated, unseen] = word_of(found.claim, found.reason), claim_code(found.claim, found.reason)
    assert [*words.values()] == [("IMPOSSIBLE", 1), ("SHOWN", 0), ("NOT SHOWN", 1), ("POSSIBLE", 3)]
    few = judge("1.4x", [rank_of((300, 200, 0))], 0, gain_over([rank_of((300, 200, 0))], beside, 0))
    assert word_of(few.claim, few.reason) == "UNSURE"
    assert (word_of(None), word_of(None, "why")) == ("", "UNSURE")
