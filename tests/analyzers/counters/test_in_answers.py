"""Counters in the answers of other questions: the verdict, the evidence for a full GPU, a run in parts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from analyzers.compare.compare import compare
from analyzers.counters.by_state import counters
from analyzers.counters.states import mean_within, pooled
from analyzers.info import info
from analyzers.load import load
from analyzers.readers.nsys import counters as reader
from analyzers.readers.reading import Reading
from analyzers.trace.narrow import only_ranks, only_steps
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import counters as raw
from tests.support.builder import Builder
from tests.support.command_lines import invoked, run_json, run_text
from traceviz.output import contract
from traceviz.output.brief import MOST_TOKENS, tokens
from traceviz.output.document import markdown
from traceviz.output.views import compare as view
from traceviz.output.views import info as info_view

DATA = Path(__file__).parents[2] / "data"
AFTER = raw.CONTEND / "contend_after.sqlite.gz"


@cache
def run_of(which: str) -> Trace:
    """A capture with counters, which no test changes."""
    return load([raw.CONTEND / f"contend_{which}.sqlite.gz"])


def test_a_verdict_says_what_the_sides_contend_for() -> None:
    trace = run_of("after")
    result = check_overlap(trace, "comm", "compute")
    assert result.contended == counters(trace).contended
    assert [one.contention for one in result.contended.likely] == ["sms", "power"]
    assert check_overlap(load([DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"])).contended is None


def test_a_run_in_parts_says_the_same() -> None:
    whole, parts = (run_json("check-overlap", str(AFTER), *more)["counters"] for more in ([], ["--memory", "8GB"]))
    assert whole == parts
    assert whole["sentence"].startswith("Likely contention: SMs taken by communication")


def test_a_part_of_a_run_is_told_of_that_part() -> None:
    trace = run_of("after")
    assert [one.rank for one in counters(only_ranks(trace, (1,))).ranks] == [1]
    one_step = counters(only_steps(trace, 1, 2))
    assert one_step.ranks[0].states["both"].time_ns < counters(trace).ranks[0].states["both"].time_ns
    assert not one_step.ranks[0].unrecorded_ns  # ops of other steps are on record, too


def test_a_full_gpu_is_shown_as_measured() -> None:
    result = check_overlap(run_of("after"), "comm", "compute")
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


def test_runs_that_both_have_counters_are_compared_by_them() -> None:
    """Alone in the run without overlap, both in the other: the table that the captures were made for."""
    before, after = (only_ranks(run_of(which), (0, 1)) for which in ("before", "after"))
    result = compare([before, after], "comm", "kernel:~nvjet", labels=("before", "after"))
    first, second = result.runs
    assert first.contended is None
    assert [one.contention for one in second.contended.likely] == ["sms", "power"]
    alone, both = pooled(first.counters), pooled(second.counters)["both"]
    assert alone["b"].mean("tensor_active") == pytest.approx(93, abs=1)
    assert both.mean("tensor_active") == pytest.approx(72, abs=1)
    assert alone["a"].mean("nvlink_in") == pytest.approx(72, abs=3)
    assert both.mean("nvlink_in") == pytest.approx(65, abs=3)
    text = markdown(view.blocks(result))
    assert "| tensor active | % | 1 | 93 | 72 |" in text
    json = contract.comparison(result)
    assert json["runs"][0]["counters"]["b"]["counters"]["tensor_active"]["p90"] == 99
    assert json["runs"][1]["contended"]["sentence"].startswith("Likely contention")


def test_a_baseline_tells_what_sides_use_alone() -> None:
    """Communication never runs alone where it overlaps; in the run before it does: both together need more SMs."""
    before, after = (run_of(which) for which in ("before", "after"))
    result = check_overlap(after, "comm", "compute", baseline=before)
    assert [one.contention for one in result.contended.likely] == ["sms", "power"]
    assert result.contended.likely[1].alone > check_overlap(after, "comm", "compute").contended.likely[1].alone


def test_info_says_which_counters_there_are() -> None:
    ranks = run_json("info", str(AFTER))["ranks"]
    assert [(one["samples"] in (747, 748), len(one["counters"])) for one in ranks] == [(True, 13)] * 4
    assert all(abs(one["sample_period_ns"] - 50_000) < 100 for one in ranks)
    without = run_json("info", str(DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"))["ranks"]
    assert [(one["samples"], one["counters"]) for one in without] == [(0, [])] * 2
    shown = markdown(info_view.blocks(info(run_of("after"))))
    assert "**GPU counters:** 13 counters, a sample every 50.0 µs on ranks 0–3" in shown


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Reports of two ranks."""
    folder = tmp_path_factory.mktemp("reports")
    return [str(raw.of_rank("after", gpu, folder)) for gpu in (0, 1)]


@pytest.mark.parametrize("more", [[], ["--ranks", "0", "--steps", "1"], ["-a", "kernel:~absent"]])
def test_counters_of_reports_looked_at_one_by_one_are_those_of_all(more: list[str], one_by_one: list[str]) -> None:
    whole, parts = (run_json("counters", *one_by_one, "--no-cache", *more, *by) for by in ([], ["--memory", "8GB"]))
    assert [one["rank"] for one in parts["ranks"]] == ([0] if "--ranks" in more else [0, 1])
    assert whole == parts


def test_counters_that_were_left_unread_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "QUICK_ROWS", 1000)
    found = check_overlap(load([AFTER], reading=Reading(cache=False)), "comm", "compute").contended
    assert found is not None
    assert "89,670 rows of GPU counters were left unread here; traceviz counters" in found.sentence


def test_brief_answers_name_the_contention() -> None:
    text = invoked("check-overlap", str(AFTER), "--brief").output
    assert "Likely contention: SMs taken by communication" in " ".join(text.split())
    answer = run_json("check-overlap", str(AFTER), "--brief")
    assert answer["counters"]["likely"] == ["sms", "power"]
    assert answer["counters"]["sentence"] == check_overlap(run_of("after"), "comm", "compute").contended.sentence
    assert tokens(run_text("check-overlap", str(AFTER), "--brief")) <= MOST_TOKENS
    without = run_json("check-overlap", str(DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"), "--brief")
    assert without["counters"] is None
