"""The first lines as commands print them: the same in text, Markdown, JSON, brief, a notebook and a summary."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import Result

import traceviz as tv
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.verdict.check import check_overlap
from tests.analyzers.overlap.test_job import job_run
from tests.support.builder import one_rank
from tests.support.command_lines import invoked
from tests.support.nightly import mostly_nightly
from traceviz.output import contract
from traceviz.output.brief import caveats as in_brief
from traceviz.output.document import markdown, quoted
from traceviz.output.views import overlap as view
from traceviz.output.views.caveats import caveats
from traceviz.reports import summary

DATA = Path(__file__).parents[1] / "data"
TORCH = DATA / "torch"
DP, MP = "nvtx:DP Embedding", "nvtx:MP Embedding"
NAMES = sorted({one.name.split(".")[0] for one in TORCH.glob("*.rank0.json.gz")})
QUICK = ("dpmp_hidden_sync", "dpmp_race", "item_before")


def printed(*arguments: str) -> Result:
    return invoked(*arguments)


@cache
def checked(name: str, a: str = DP, b: str = MP) -> tv.OverlapResult:
    return tv.check_overlap(sorted(TORCH.glob(f"{name}.rank*.json.gz")), a, b)


@cache
def whole(name: str) -> tv.Trace:
    return tv.load(sorted(TORCH.glob(f"{name}.rank*.json.gz")))


def texts(result: tv.OverlapResult) -> list[str]:
    return [one.text for one in result.lines]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", mostly_nightly(NAMES, QUICK.__contains__))
def test_text_markdown_json_brief_notebook_and_summary_have_the_same_lines(name: str) -> None:
    paths = [str(path) for path in sorted(TORCH.glob(f"{name}.rank*.json.gz"))]
    result = checked(name, "comm", "compute")
    lines = texts(result)
    verdict, _, sentence = lines[0].partition(": ")
    for more in ([], ["--brief"], ["--verbose"]):
        text = flat(printed("check-overlap", *paths, *more).stdout)
        assert text.startswith(flat(" ".join([f"{verdict} {sentence}", *(f"• {line}" for line in lines[1:])])))
    shown = printed("check-overlap", *paths, "--format", "md").stdout
    assert shown.startswith(markdown(view.head(result)))
    assert all(quoted(line) in shown for line in lines)
    answer = json.loads(printed("check-overlap", *paths, "--format", "json").stdout)
    assert answer["lines"] == [{"kind": one.kind, "text": one.text} for one in result.lines]
    assert (
        json.loads(printed("check-overlap", *paths, "--format", "json", "--brief").stdout)["lines"][: len(lines)]
        == lines
    )
    cell = html.unescape(result._repr_html_())
    assert all(line in cell for line in (sentence, *lines[1:]))
    first = summary.first(result)
    assert first.startswith(f"### {summary.icon_of(result)} {quoted(lines[0])}\n\n- {quoted(lines[1])}\n")
    assert [line for line in first.splitlines() if line][1:] == [f"- {quoted(line)}" for line in lines[1:]]


def test_the_first_says_the_verdict_the_pair_its_number_the_threshold_and_the_rank() -> None:
    """The median of rank 1's three steps, each asked about alone; rank 0's median is larger."""
    ranks = [
        [tv.check_overlap(whole("dpmp_overlap").only(steps=step), DP, MP).ranks[rank] for step in range(3)]
        for rank in (0, 1)
    ]
    medians = [sorted(of_rank, key=lambda one: one.real_overlap_ratio or 0)[1] for of_rank in ranks]
    worst = min(medians, key=lambda one: one.real_overlap_ratio or 0)
    assert worst.rank == 1
    assert worst.real_overlap_ratio is not None
    assert texts(checked("dpmp_overlap"))[0] == (
        f"PARTIAL: DP Embedding overlapped MP Embedding for {worst.real_overlap_ns / 1e3:.0f} of "
        f"{worst.could_overlap_ns / 1e3:.3g} µs achievable a step: {100 * worst.real_overlap_ratio:.3g} %, "
        "threshold 60 % (worst of 2 ranks: rank 1; all below)."
    )


def test_apparent_and_real_stand_side_by_side_where_they_differ() -> None:
    """Rank 0 waits to 40 of 100 for rank 1; compute runs from 20 to 70: 50 of 50 seem hidden, 30 of 50 are."""
    trace = job_run([{0: (0, 100), 1: (40, 100)}], {0: [(20, 70)], 1: [(40, 100)]})
    result = check_overlap(trace, "comm", "compute", min_overlap=0.9)
    lines = texts(result)
    assert lines[1] == "50 ns overlapped, 30 ns of it real: communication spends 40 % of its time waiting for rank 1."
    assert not any("At stake" in line for line in lines)
    (stake,) = (block for block in view.figures(result) if getattr(block, "title", "") == "At stake")
    assert getattr(stake, "text", "") == (
        "20 ns in all. Exposed communication: 30 ns transfer, 20 ns waiting for rank 1: transfer and late ranks both "
        "count."
    )
    assert not any("of it real" in line for line in texts(checked("dpmp_overlap")))


def test_inconclusive_answers_say_what_would_lift_them_and_never_0_percent() -> None:
    per_rank = DATA / "workloads" / "dpmp.overlapped.2gpu.nsys-per-rank"
    line = " ".join(texts(tv.check_overlap(per_rank, DP, MP))[:2])  # the remedy stands in a line of its own
    assert re.fullmatch(
        r"INCONCLUSIVE: DP Embedding and MP Embedding: measured \d+(\.\d)? %, but clock error allows "
        r"\d+(\.\d)?–\d+(\.\d)? % \(threshold 60 %\)\. Capture at least 20 steps, or all ranks in one nsys report\.",
        line,
    )
    alone = texts(tv.check_overlap(TORCH / "ddp.rank0.json.gz"))
    assert alone[0].startswith("INCONCLUSIVE: communication and compute: 88.3 % apparent, threshold 60 %: only 1 of ")
    assert alone[1].startswith("Capture all ranks")
    assert alone[2].startswith("Apparent only: ")
    empty = texts(tv.check_overlap(TORCH / "ddp.rank0.json.gz", "nvtx:nothing", "compute"))
    assert len(empty) == 1
    for text in (line, alone[0], empty[0]):
        assert not re.search(r"(?<![\d.])0 %", text)


def in_words(line: str) -> int:
    """Words of a line; a number and its unit are one, and so is a range's name, however long people make it."""
    line = re.sub(r"(?<=\d) (?=%|[nµm]?s\b)", "", line).replace("DP Embedding", "DP").replace("MP Embedding", "MP")
    return len(re.findall(r"[^\s–→]\S*", line))


@pytest.mark.parametrize("name", ["dpmp_hidden_sync", "dpmp_race", "item_before"])
def test_a_fix_is_said_in_30_words_with_what_a_step_gains(name: str) -> None:
    """The step's milliseconds now and then, as the replay behind `what-if` has them, which names the same change."""
    result = checked(name, "comm", "compute")
    assert result.fix is not None
    (line,) = (one.text for one in result.lines if one.kind == "fix")
    assert in_words(line) <= 30
    now, then, low, high = re.findall(r"[\d.]+(?=[–\d. ]* [µm]s|[^(]*→|–)", line.partition(": predicted ")[2])[:4]
    unit = 1e3 if "µs" in line else 1e6
    for text, ns in ((now, result.fix.now_step_ns), (then, result.fix.step_ns)):
        assert float(text) == pytest.approx(ns / unit, rel=0.006)
    assert float(low) <= float(then) <= float(high)
    named = tv.what_if(whole(name)).fix
    assert named is not None
    assert (named.change, named.step_ns) == (result.fix.change, result.fix.step_ns)


def test_the_fix_of_an_inconclusive_answer_stays_for_it_is_of_the_step() -> None:
    result = checked("dpmp_hidden_sync")
    unsure = replace(result, verdict="inconclusive", passed=None, reason="it can't be told")
    (line,) = (one.text for one in unsure.lines if one.kind == "fix")
    assert line == next(one.text for one in result.lines if one.kind == "fix")
    assert "%" not in line


def test_a_remedy_is_the_fix_with_what_it_brings_of_overlap() -> None:
    """JSON keeps the old key; null where no overlap is predicted."""
    result = checked("dpmp_hidden_sync")
    assert result.fix is not None
    answer = contract.overlap(result)
    fix, remedy = answer["fix"], answer["remedy"]
    assert fix["class"] == "conditional"
    shared = ("change", "now_step_ns", "step_ns", "step_low_ns", "step_high_ns", "assumes", "advice")
    assert {key: fix[key] for key in shared} == {key: remedy[key] for key in shared}
    assert remedy["recoverable_low_ns"] <= remedy["recoverable_ns"] <= remedy["recoverable_high_ns"]
    assert contract.overlap(replace(result, fix=replace(result.fix, recoverable_ns=None)))["remedy"] is None
    none = contract.overlap(replace(result, fix=None))
    assert (none["fix"], none["remedy"]) == (None, None)


def test_several_gpus_of_one_rank_are_told_apart() -> None:
    """Of 2 GPUs of one process one runs both at once, the other one after the other."""
    run, rank = one_rank()
    for device, start in ((0, 0), (1, 500)):
        rank.device = device
        rank.kernel("first", 7, 0, 500)
        rank.kernel("second", 9, start, start + 500)
    line = texts(check_overlap(run.trace(), "kernel:first", "kernel:second"))[0]
    assert line.endswith("(worst of 2 GPUs: rank 0 device 1; 1 of 2 meet it).")


def test_brief_stops_after_them_and_the_default_is_short() -> None:
    pair = ["check-overlap", *map(str, sorted(TORCH.glob("dpmp_overlap.rank*.json.gz"))), "-a", DP, "-b", MP]
    lengths = [len(printed(*pair, *more).stdout.splitlines()) for more in (["--brief"], [], ["--verbose"])]
    result = checked("dpmp_overlap")
    assert lengths[0] <= 2 * len(result.lines) + 3  # two rows a line; which steps figures are of stands there, too
    assert lengths[1] < 50
    assert lengths[2] > lengths[1]
    with pytest.raises(TracevizError, match="exclude each other"):
        printed(*pair, "--brief", "--verbose")


def test_equal_caveats_of_several_ranks_are_one_line_those_that_matter_first() -> None:
    found = [
        TraceWarning("nsys-warns", "nsys warns of process 2064: lost."),
        TraceWarning("nsys-warns", "nsys warns of process 2042: lost."),
        TraceWarning("rank-conflict", "Two rules disagree about rank 1."),
        TraceWarning("rank-conflict", "Two rules disagree about rank 0."),
        TraceWarning("rank-conflict", "Rank 0 and rank 1 are in doubt."),
        *(TraceWarning("shared-ops", f"note {number}") for number in range(4)),
    ]
    (shown,) = caveats(found, rest="--verbose has all")
    assert shown.items == [
        "Two rules disagree about ranks 0–1.",
        "Rank 0 and rank 1 are in doubt.",
        "nsys warns of processes 2042, 2064: lost.",
        "note 0",
        "note 1",
        "… and 2 more caveats (--verbose has all)",
    ]
    (whole,) = caveats(found, verbose=True)
    assert len(whole.items) == 7
    (five,) = caveats([TraceWarning("shared-ops", f"note {number}") for number in range(5)])
    assert five.items == [f"note {number}" for number in range(5)]
    assert caveats([]) == []
    short = in_brief([found[5], found[0], found[2], found[6], found[3]])
    assert [(one["code"], one["message"], one.get("times")) for one in short] == [
        ("rank-conflict", "Two rules disagree about rank 1.", 2),
        ("shared-ops", "note 0", 2),
        ("nsys-warns", "nsys warns of process 2064: lost.", None),
    ]
