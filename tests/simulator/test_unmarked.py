"""Steps that nobody marked are found as the loop made them, or not at all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.simulator.steps_right import (
    REFUSED,
    RIGHT,
    WRONG_NUMBER,
    Answer,
    Launches,
    Verdict,
    capture,
    judge,
    judged,
    read,
)
from tests.simulator.unmarked import MARKS, WINDOWS, kind
from tests.support.nightly import few_by_default

RIGHT_OR_REFUSED = 0.99
REFUSED_THOUGH_PLAIN = 0.10


def wrong(verdicts: list[Verdict]) -> str:
    """Every answer that is neither right nor refused."""
    lines = [f"{one.seed} {one.outcome} [{one.name}] {one.by}: {one.why}" for one in verdicts]
    return "\n".join(line for line in lines if " wrong " in line)


@pytest.mark.parametrize("seeds", few_by_default(len(MARKS) * len(WINDOWS), 400))
def test_steps_are_right_or_refused_and_never_wrong_in_number(seeds: int, tmp_path: Path) -> None:
    verdicts = [judged(seed, tmp_path) for seed in range(seeds)]
    count = Counter(one.outcome for one in verdicts)
    assert not count[WRONG_NUMBER], wrong(verdicts)
    assert count[RIGHT] + count[REFUSED] >= RIGHT_OR_REFUSED * len(verdicts), wrong(verdicts)


@pytest.mark.nightly
@pytest.mark.xfail(strict=True, reason="evaluation and decoding loops look like layers: 33 of 180 are refused")
def test_few_plain_steps_are_refused(tmp_path: Path) -> None:
    verdicts = [judged(seed, tmp_path) for seed in range(2 * len(MARKS) * len(WINDOWS))]
    plain = [one for one in verdicts if one.plain and one.enough]
    assert sum(one.outcome == REFUSED for one in plain) <= REFUSED_THOUGH_PLAIN * len(plain), wrong(verdicts)


def test_seeds_make_every_kind_of_loop() -> None:
    kinds = [kind(seed) for seed in range(100)]
    assert {(one.mark, one.window) for one in kinds} == {(mark, window) for mark in MARKS for window in WINDOWS}
    for having in ("evaluates", "logs", "decodes", "prefetches", "loader_thread", "apart", "alike", "warms_up"):
        assert {bool(getattr(one, having)) for one in kinds} == {False, True}
    assert {one.micro for one in kinds} == {1, 2, 3, 4} and {one.hosts for one in kinds} == {1, 2}


@pytest.mark.parametrize("seed", range(0, 20, 5))
def test_the_judge_takes_the_truth_and_nothing_a_step_off(seed: int, tmp_path: Path) -> None:
    """What optimizers ended, told of each op, is right; two steps as one, or another count on a rank, is not."""
    one = capture(seed)
    trace, launches = read(one, tmp_path), Launches(one)
    [cut] = launches.boundaries()
    surely, _ = launches.whole(cut)
    rank_of, number = trace.ops["rank"].tolist(), trace.ops["correlation"].tolist()
    step_of = {
        (rank, op.call.number): sum(at >= begin for begin in cut.at[rank].values()) - 1
        for rank, ops in enumerate(launches.of_rank)
        for at, op in enumerate(ops)
    }
    true = [step_of.get(key, -1) for key in zip(rank_of, number, strict=True)]

    def said(steps: list[int], whole: set[int]) -> str:
        return judge(one, Answer("inferred", "", steps, tuple(whole)), trace)[0]

    assert said(true, surely) == RIGHT
    assert said([step // 2 for step in true], {step // 2 for step in surely}) == WRONG_NUMBER
    assert said(true, surely - {max(surely)}) == WRONG_NUMBER
    if one.loop.kind.ranks > 1:
        shifted = [step + (rank == 1 and step >= 0) for step, rank in zip(true, rank_of, strict=True)]
        assert said(shifted, surely) == WRONG_NUMBER
