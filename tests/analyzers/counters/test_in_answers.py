"""Counters in the answers of other questions: the verdict, the evidence for a full GPU, a run in parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.counters.report import counters
from analyzers.counters.states import mean_within
from analyzers.load import load
from analyzers.trace.narrow import only_ranks, only_steps
from analyzers.verdict.check import check_overlap
from tests.support import counters as raw
from tests.support.builder import Builder
from tests.support.command_lines import run_json

DATA = Path(__file__).parents[2] / "data"
AFTER = raw.CONTEND / "contend_after.sqlite.gz"


def test_a_verdict_says_what_the_sides_contend_for() -> None:
    trace = load([AFTER])
    result = check_overlap(trace, "comm", "compute")
    assert result.contended == counters(trace).contended
    assert [one.contention for one in result.contended.likely] == ["sms", "power"]
    assert check_overlap(load([DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"])).contended is None


def test_a_run_in_parts_says_the_same() -> None:
    whole, parts = (run_json("check-overlap", str(AFTER), *more)["counters"] for more in ([], ["--memory", "8GB"]))
    assert whole == parts
    assert whole["sentence"].startswith("Likely contention: SMs taken by 'comm'")


def test_a_part_of_a_run_is_told_of_that_part() -> None:
    trace = load([AFTER])
    assert [one.rank for one in counters(only_ranks(trace, (1,))).ranks] == [1]
    one_step = counters(only_steps(trace, 1, 2))
    assert one_step.ranks[0].states["both"].time_ns < counters(trace).ranks[0].states["both"].time_ns
    assert not one_step.ranks[0].unrecorded_ns  # ops of other steps are on record, too


def test_a_full_gpu_is_shown_as_measured() -> None:
    result = check_overlap(load([AFTER]), "comm", "compute")
    evidence = [one.evidence for rank in result.ranks for one in rank.missed if one.cause == "gpu-full"]
    assert any("measured: 99 % of SMs active, 15 % of warp places in use" in text for text in evidence)


@pytest.mark.parametrize(
    ("window", "expected"), [((0, 10), 20), ((5, 15), 30), ((8, 30), (2 * 20 + 10 * 40) / 12), ((40, 50), None)]
)
def test_means_of_a_window(window: tuple[int, int], expected: float | None) -> None:
    run = Builder()
    run.rank(0).kernel("one", 1, 0, 50)
    for at, value in ((0, 20), (10, 40), (20, -1)):
        run.add("counters", process=0, device=0, start_ns=at, end_ns=at + 10, warps=value)
    assert mean_within(run.trace(), 0, 0, *window).get("warps") == (expected and pytest.approx(expected))
