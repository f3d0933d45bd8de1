"""The first lines: what they say of hand-made runs and of real captures, and what they never say."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from traceviz.output.views.first_lines import _HOLDERS, _held, first_lines
from typer.testing import Result

import traceviz as tv
from analyzers.causes.table import CAUSES
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.verdict.check import check_overlap
from tests.analyzers.overlap.test_job import job_run
from tests.support.builder import one_rank
from tests.support.command_lines import invoked
from traceviz.output.document import Bullets, Headline
from traceviz.output.quantities import duration, percent
from traceviz.output.views import overlap as view
from traceviz.output.views.caveats import caveats

US = 1_000
DATA = Path(__file__).parents[1] / "data"
TORCH = DATA / "torch"
DP, MP = "nvtx:DP Embedding", "nvtx:MP Embedding"


def printed(*arguments: str) -> Result:
    return invoked(*arguments)


@cache
def checked(name: str, a: str = DP, b: str = MP) -> tv.OverlapResult:
    return tv.check_overlap(sorted(TORCH.glob(f"{name}.rank*.json.gz")), a, b)


@cache
def whole(name: str) -> tv.Trace:
    return tv.load(sorted(TORCH.glob(f"{name}.rank*.json.gz")))


def of(name: str, a: str = DP, b: str = MP) -> list[str]:
    return first_lines(checked(name, a, b))


def test_the_first_says_the_verdict_the_pair_its_number_the_bar_and_the_rank() -> None:
    """The median of rank 1's three steps, each asked about alone; rank 0's median is larger."""
    ranks = [
        [tv.check_overlap(whole("dpmp_overlap").only(steps=step), DP, MP).ranks[rank] for step in range(3)]
        for rank in (0, 1)
    ]
    medians = [sorted(of_rank, key=lambda one: one.real_overlap_ratio or 0)[1] for of_rank in ranks]
    worst = min(medians, key=lambda one: one.real_overlap_ratio or 0)
    assert worst.rank == 1
    assert of("dpmp_overlap")[0] == (
        f"PARTIAL: DP Embedding ran beside MP Embedding for {worst.real_overlap_ns / 1e3:.0f} of a possible "
        f"{worst.could_overlap_ns / 1e3:.3g} µs in the median of 3 steps: {100 * worst.real_overlap_ratio:.3g} %, "
        "bar 60 % (worst of 2 ranks: rank 1; none meets it)."
    )


def test_work_of_one_stream_reads_simply() -> None:
    assert of("dpmp_serial")[1].startswith(
        "Same stream: DP Embedding and MP Embedding both run on stream 7, which waits for MP Embedding's "
    )
    assert of("a2a_sync", "comm", "compute")[1].startswith(
        "Same stream: communication and compute both run on stream 7 ("
    )


def test_a_sync_that_made_a_launch_late_is_one_finding() -> None:
    lines = of("dpmp_hidden_sync")
    assert lines[1].startswith("Late launch: cudaStreamSynchronize of aten::item in 'MP Embedding' held the thread ")
    assert len([line for line in lines if "aunch" in line]) == 1


def test_apparent_and_real_stand_side_by_side_where_they_differ() -> None:
    """Rank 0 waits to 40 of 100 for rank 1; compute runs from 20 to 70: 50 of 50 seem hidden, 30 of 50 are."""
    trace = job_run([{0: (0, 100), 1: (40, 100)}], {0: [(20, 70)], 1: [(40, 100)]})
    lines = first_lines(check_overlap(trace, "comm", "compute", min_overlap=0.9))
    assert lines[1] == "30 of the 50 ns overlapped is real: communication spends 40 % of its time waiting for rank 1."
    assert lines[-1] == (
        "At stake: 20 ns in all. Exposed communication: 30 ns transfer, 20 ns waiting for rank "
        "1: transfer and late ranks both count."
    )
    assert not any("is real" in line for line in of("dpmp_overlap"))


def test_what_is_met_is_not_explained_at_length() -> None:
    """7 of 500 ns missed: nothing is told of why."""
    run, rank = one_rank()
    rank.kernel("first", 7, 0, 500)
    rank.kernel("second", 9, 7, 507)
    (line,) = first_lines(check_overlap(run.trace(), "kernel:first", "kernel:second"))[:1]
    assert line == "OVERLAPPED: first ran beside second for 493 of a possible 500 ns: 98.6 %, bar 60 % (rank 0)."


def test_inconclusive_answers_say_what_would_lift_them_and_never_0_percent() -> None:
    per_rank = DATA / "workloads" / "dpmp.overlapped.2gpu.nsys-per-rank"
    line = first_lines(tv.check_overlap(per_rank, DP, MP))[0]
    assert re.fullmatch(
        r"INCONCLUSIVE: DP Embedding beside MP Embedding: measured \d+(\.\d)? %, but clock error allows "
        r"\d+(\.\d)?–\d+(\.\d)? % \(bar 60 %\)\. Capture at least 20 steps, or all ranks in one nsys report\.",
        line,
    )
    alone = first_lines(tv.check_overlap(TORCH / "ddp.rank0.json.gz"))
    assert alone[0].startswith("INCONCLUSIVE: communication beside compute: 88.3 % apparent, bar 60 %: only 1 of ")
    assert "Capture all ranks" in alone[0]
    assert alone[1].startswith("Apparent only: ")
    empty = first_lines(tv.check_overlap(TORCH / "ddp.rank0.json.gz", "nvtx:nothing", "compute"))
    assert len(empty) == 1
    for text in (line, alone[0], empty[0]):
        assert not re.search(r"(?<![\d.])0 %", text)


@pytest.mark.parametrize("path", sorted({one.name.split(".")[0] for one in TORCH.glob("*.rank0.json.gz")}))
def test_there_are_at_most_five_plain_lines(path: str) -> None:
    result = checked(path, "comm", "compute")
    lines = first_lines(result)
    assert 1 <= len(lines) <= 5
    assert lines[0].startswith(result.verdict.upper())
    assert all(line.endswith((".", "?")) and "\n" not in line and "nvtx:" not in line for line in lines)
    headline, *more = view.brief(result)
    assert isinstance(headline, Headline)
    assert [line for block in more if isinstance(block, Bullets) for line in block.items] == lines[1:]


def in_words(line: str) -> int:
    """Words of a line; a number and its unit are one, and so is a range's name, however long people make it."""
    line = re.sub(r"(?<=\d) (?=%|[nµm]?s\b)", "", line).replace("DP Embedding", "DP").replace("MP Embedding", "MP")
    return len(re.findall(r"[^\s–→]\S*", line))


@pytest.mark.parametrize("name", ["dpmp_overlap", "dpmp_hidden_sync", "dpmp_race"])
def test_a_fix_is_said_in_25_words_with_what_a_step_gains(name: str) -> None:
    result = checked(name)
    assert result.remedy is not None
    assert result.stake is not None
    (line,) = (line for line in first_lines(result) if line.startswith("Fix: "))
    assert in_words(line) <= 25
    assert (
        f"predicted: {duration(round(result.remedy.recoverable_ns / result.stake.steps))} more overlap a step" in line
    )
    assert line.endswith(f"{percent(result.remedy.now_ratio)} → {percent(result.remedy.ratio)}.")


def test_the_fix_of_an_inconclusive_answer_shows_no_ratio() -> None:
    result = checked("dpmp_hidden_sync")
    unsure = replace(result, verdict="inconclusive", passed=None, reason="it can't be told")
    (line,) = (line for line in first_lines(unsure) if line.startswith("Fix: "))
    assert line.endswith(" µs).")
    assert "%" not in line


def test_what_holds_an_op_next_is_said_in_words() -> None:
    """Every cause has words, and no code of one is in a line."""
    assert set(_HOLDERS) == set(CAUSES)
    line = next(line for line in of("dpmp_serial") if line.startswith("Fixing only this"))
    assert not any(code in line for code in CAUSES if "-" in code)


def test_what_reads_as_all_of_it_is_said_so() -> None:
    assert _held(1_808_000, 1_812_000) == "nearly all 1.81 ms"
    assert _held(1_800_000, 1_812_000) == "1.80 of the 1.81 ms"
    assert _held(500, 500) == "all 500 ns"


def test_what_was_missed_stands_in_the_brackets_that_a_finding_ends_with() -> None:
    result = tv.check_overlap(DATA / "settings" / "blocking.json.gz", "nvtx:left", "nvtx:right")
    line = first_lines(result)[1]
    assert result.findings[0].text.endswith("(as with CUDA_LAUNCH_BLOCKING=1)")
    assert line.endswith(
        "(as with CUDA_LAUNCH_BLOCKING=1; all 366 µs missed a step on average)."
    )  # of ten, 3.66 ms in all


def test_several_gpus_of_one_rank_are_told_apart() -> None:
    """Of 2 GPUs of one process one runs both at once, the other one after the other."""
    run, rank = one_rank()
    for device, start in ((0, 0), (1, 500)):
        rank.device = device
        rank.kernel("first", 7, 0, 500)
        rank.kernel("second", 9, start, start + 500)
    line = first_lines(check_overlap(run.trace(), "kernel:first", "kernel:second"))[0]
    assert line.endswith("(worst of 2 GPUs: rank 0 device 1; 1 of 2 meet it).")


def test_brief_stops_after_them_and_the_default_is_short() -> None:
    pair = ["check-overlap", *map(str, sorted(TORCH.glob("dpmp_overlap.rank*.json.gz"))), "-a", DP, "-b", MP]
    lengths = [len(printed(*pair, *more).stdout.splitlines()) for more in (["--brief"], [], ["--verbose"])]
    assert lengths[0] <= 10  # which steps figures are of stands there, too
    assert lengths[1] < 40
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
    assert caveats([]) == []
