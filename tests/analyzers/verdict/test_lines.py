"""The first lines: their order, what each says of runs made by hand, and that none takes three rows of a terminal."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

import traceviz as tv
from analyzers.causes.table import CAUSES
from analyzers.common.errors import TraceWarning
from analyzers.syncs.of_steps import StepSync
from analyzers.verdict.against import StepsAgainst
from analyzers.verdict.bound import Bound
from analyzers.verdict.check import check_overlap
from analyzers.verdict.fix import Fix
from analyzers.verdict.lines import LOSSES, RACES, Line, costliest_syncs, fix_sentence, lines_of
from analyzers.verdict.profiler import ProfilerWeight
from analyzers.verdict.result import OverlapResult
from tests.analyzers.overlap.test_job import job_run
from tests.support.builder import one_rank
from tests.support.nightly import mostly_nightly
from traceviz.output.document import Bullets, Headline
from traceviz.output.printed import without_colours

US, MS = 1_000, 1_000_000
DATA = Path(__file__).parents[2] / "data"
DP, MP = "nvtx:DP Embedding", "nvtx:MP Embedding"
KINDS = ("verdict", "apparent", "race", "loss", "bound", "ceiling", "profiler", "cause", "sync", "fix")
PAIRS = {  # captures, and the pair that their program is about
    "torch/dpmp_overlap.rank*": (DP, MP),
    "torch/dpmp_hidden_sync.rank*": (DP, MP),
    "torch/dpmp_race.rank*": (DP, MP),
    "torch/dpmp_serial.rank*": (DP, MP),
    "torch/ddp.rank*": ("nvtx:Optimizer.step#AdamW.step", "comm"),
    "torch/a2a_sync.rank*": ("comm", "op:aten::mm"),
    "torch/delta_sync.rank*": ("memcpy", "compute"),
    "torch/item_before.rank*": ("nvtx:MP lookup", "nvtx:DP tower"),
    "torch/opt_serial.rank*": ("nvtx:optimizer", "nvtx:emb_lookup"),
    "pairs/moe_late_before.rank*": ("nvtx:route", "comm"),
    "pairs/ddp_log_before.rank*": ("nvtx:log loss", "comm"),
    "nsys/dpmp_overlap.2gpu.sqlite": (DP, MP),
    "nsys/graph_overlap.4gpu.sqlite": ("graph", "memcpy"),
    "real/dpmp_before.sync.rank*": (DP, MP),
    "real/trec_a2a_sync_base.rank*": ("nvtx:## all_to_all_single ##", "compute"),
    "settings/blocking.json.gz": ("nvtx:left", "nvtx:right"),
}
QUICK = ("torch/dpmp_hidden_sync.rank*", "torch/dpmp_race.rank*", "settings/blocking.json.gz")


@cache
def checked(name: str, a: str = "comm", b: str = "compute") -> OverlapResult:
    return tv.check_overlap(sorted(DATA.glob(name)), a, b)


def kinds(result: OverlapResult) -> list[str]:
    return [one.kind for one in lines_of(result)]


def line(result: OverlapResult, kind: str) -> str:
    (found,) = (one.text for one in lines_of(result) if one.kind == kind)
    return found


def rows(text: str, *, is_verdict: bool = False) -> int:
    """Rows that a line takes, as a verdict or below one, where prose has 88 columns."""
    block = Headline(*text.split(": ", 1)) if is_verdict else Bullets("", [text])
    printed = without_colours([block], 200, "utf-8").splitlines()
    assert max(map(len, printed)) <= 88
    return len(printed)


def by_hand(**more: object) -> OverlapResult:
    """`first` on stream 7 up to 500 ns, `second` beside it on stream 9 from 400 to 900: 100 of 500 ns overlapped."""
    run, rank = one_rank()
    rank.kernel("first", 7, 0, 500, launch=(-20, -10))
    rank.kernel("second", 9, 400, 900, launch=(380, 390))
    return replace(check_overlap(run.trace(), "kernel:first", "kernel:second"), **more)


def warning(code: str, text: str = "Something is so.") -> TraceWarning:
    return TraceWarning(code, text)


FIX = Fix("pin nvtx:x", "safe", 10 * MS, 8 * MS, 7_200_000, 8_900_000, "", "pin the host memory of x")
BOUND = Bound(
    rank=0,
    device=0,
    step=3,
    step_ns=12_400_000,
    compute_ns=4 * MS,
    exposed_transfer_ns=MS,
    exposed_wait_ns=100 * US,
    exposed_copy_ns=100 * US,
    idle_ns=7_200_000,
    idle_host_ns=7_200_000,
    idle_wait_ns=0,
    idle_profiler_ns=0,
    ceiling_ns=20 * US,
)
HEAVY = ProfilerWeight(1.41, "manifest", 14_100_000, 10 * MS)


def sync(origin: str = "aten::item", **more: object) -> StepSync:
    """One that blocks the host 2 ms a step and leaves the GPU idle for 0.5 ms."""
    found = StepSync(
        call="cudaStreamSynchronize",
        kind="stream",
        hidden=True,
        range="log loss",
        origin=origin,
        frame="",
        copy="DtoH",
        bytes=4,
        waited="",
        delayed="",
        rank=0,
        ranks=(0,),
        count=1.0,
        blocked_ns=2 * MS,
        idle_ns=500 * US,
        steps=3,
        change="drop-sync nvtx:log loss",
        memory="pinned",
    )
    return replace(found, **more)


# Order.


def test_lines_stand_in_their_order_each_kind_once() -> None:
    """A run that has all of them: a late rank seen apart, a race, a loss, a bound, a heavy profiler, a sync, a fix."""
    trace = job_run([{0: (0, 100), 1: (40, 100)}], {0: [(20, 70)], 1: [(40, 100)]})
    result = replace(
        check_overlap(trace, "comm", "compute", min_overlap=0.9),
        warnings=(warning("lost-work"), warning("missing-wait"), warning("ranks-missing")),
        bound=BOUND,
        profiler=HEAVY,
        host_syncs=(sync(),),
        fix=FIX,
    )
    assert tuple(kinds(result)) == KINDS


@pytest.mark.parametrize("name", mostly_nightly(sorted(PAIRS), QUICK.__contains__))
@pytest.mark.parametrize("is_asked", [False, True], ids=["comm", "asked"])
def test_no_line_of_real_captures_takes_over_two_rows_and_each_says_something(name: str, is_asked: bool) -> None:
    result = checked(name, *(PAIRS[name] if is_asked else ()))
    lines = lines_of(result)
    order = [KINDS.index(one.kind) for one in lines]
    assert order == sorted(set(order))
    for one in lines:
        assert rows(one.text, is_verdict=one.kind == "verdict") <= 2, one.text
        assert re.fullmatch(r"[A-Z\d].*[.?…]", one.text), one.text
        assert "nvtx:" not in one.text
        assert not any(f"{code}:" in one.text for code in CAUSES if "-" in code), "no code of a cause"
    assert lines[0].text.startswith(f"{result.verdict.upper()}: ")
    assert result.lines == lines


# A race, a loss.


@pytest.mark.parametrize("code", [*RACES, *LOSSES])
def test_a_race_or_a_loss_stands_behind_the_verdict_before_what_bounds_the_step(code: str) -> None:
    found = lines_of(by_hand(warnings=(warning("ranks-missing"), warning(code, "It is so.")), bound=BOUND))
    title = {**RACES, **LOSSES}[code]
    assert [one.kind for one in found][:3] == ["verdict", "race" if code in RACES else "loss", "bound"]
    assert found[1].text == f"{title}: It is so."


def test_the_first_race_is_told_and_the_others_are_counted() -> None:
    found = by_hand(warnings=tuple(warning("missing-wait", f"Rank {k} lacks a wait.") for k in range(3)))
    assert line(found, "race") == "Possible race: Rank 0 lacks a wait (and 2 more)."
    both = by_hand(warnings=(warning("rests-on-host-sync", "B rests."), warning("missing-wait", "A races.")))
    assert line(both, "race") == "Possible race: A races (and 1 more)."


def test_what_is_too_long_loses_whole_words_and_never_what_counts() -> None:
    """60 words of 4 letters and a space: 168 letters less the title and the end are room for 27 of them."""
    words = " ".join(["word"] * 60)
    found = line(by_hand(warnings=(warning("missing-wait", f"{words}."), warning("missing-wait"))), "race")
    assert found == f"Possible race: {' '.join(['word'] * found.count('word'))} … (and 1 more)."
    assert rows(found) == 2
    assert found.count("word") in (26, 27)
    name = "x" * 200  # no word that a row could hold
    assert rows(line(by_hand(warnings=(warning("missing-wait", f"{name} races."),)), "race")) == 2


# What bounds the step, and the ceiling.


def test_where_the_time_of_a_step_goes_and_what_perfect_overlap_would_save() -> None:
    """The issue's example: of 12.4 ms 4.0 compute, 1.1 communication, 0.1 copies, 7.2 idle; 0.02 is 0.16 % of it."""
    found = by_hand(bound=BOUND)
    assert line(found, "bound") == (  # waiting and copies are less than 1 % of the step each, 0.2 ms together
        "A step of 12.4 ms: compute 4.0, exposed transfer 1.0, idle 7.2 (host-bound 7.2), other 0.2: host-bound."
    )
    assert line(found, "ceiling") == "Perfect overlap of first and second would save at most 0.02 ms a step (0.2 %)."


def test_of_several_ranks_it_is_said_whose_time_that_is() -> None:
    (alone,) = (replace(BOUND, ranks=()),)
    both = replace(BOUND, ranks=(alone, alone))
    assert line(by_hand(bound=both), "bound").startswith("A step of 12.4 ms on rank 0: compute 4.0")


# The profiler's weight.


def test_a_heavy_profiler_marks_what_it_may_have_made_late() -> None:
    """Of causes that are late launches or late ranks; at 1.2x nothing is marked, at 1.05x nothing is said."""
    late = checked("torch/dpmp_race.rank*", DP, MP)
    assert late.findings[0].cause.cause == "late-launch"
    peer = check_overlap(
        job_run([{0: (0, 100), 1: (40, 100)}], {0: [(0, 90)], 1: [(50, 90)]}), "comm", "compute", min_overlap=0.95
    )
    assert peer.findings[0].cause.cause == "peer-wait"
    other = checked("torch/dpmp_serial.rank*", DP, MP)
    for result, is_marked in ((late, True), (peer, True), (other, False)):
        heavy = replace(result, profiler=HEAVY)
        assert ("(perhaps the profiler's)" in line(heavy, "cause")) == is_marked
        assert line(heavy, "profiler").startswith("Captured at 1.41x of the real step: late launches")
        light = replace(result, profiler=replace(HEAVY, weight=1.2))
        assert "profiler's" not in line(light, "cause")
        assert line(light, "profiler") == "Captured at 1.20x of the real step."
        assert "profiler" not in kinds(replace(result, profiler=replace(HEAVY, weight=1.05)))


# The cause.


def test_the_cause_ends_with_what_of_what_was_missed_it_is() -> None:
    """Of what the median step missed as much as the cause held of all that was missed."""
    result = checked("torch/dpmp_overlap.rank*", DP, MP)
    rank, found = result.deciding_rank, result.findings[0]
    assert rank is not None
    missed = (rank.typical.could_overlap_ns - rank.typical.real_overlap_ns) / US
    held = missed * found.ns / rank.missed_ns
    assert line(result, "cause").startswith("Cause: event wait: DP Embedding (stream 25) waits for MP Embedding's ")
    assert line(result, "cause").endswith(f" ({held:.0f} of {missed:.0f} µs missed).")


def test_what_is_met_is_not_explained_at_length() -> None:
    """7 of 500 ns missed, 1.4 %: nothing is told of why. Of 40, 8 %, it is."""
    for end, is_told in ((507, False), (540, True)):
        run, rank = one_rank()
        rank.kernel("first", 7, 0, 500)
        rank.kernel("second", 9, end - 500, end)
        result = check_overlap(run.trace(), "kernel:first", "kernel:second")
        assert result.passed
        assert ("cause" in kinds(result)) == is_told
        if is_told:
            assert line(result, "cause").startswith("Still missed: ")


# Hidden syncs.


def test_a_hidden_sync_is_told_as_it_is_written_where_it_is_with_its_cost() -> None:
    found = by_hand(host_syncs=(sync(frame="train.py:12"),))
    assert line(found, "sync") == (
        "Hidden sync: .item() (4 B DtoH, pinned) in log loss at train.py:12 blocks the host 2.00 ms a step, "
        "GPU idle 500 µs."
    )
    assert line(by_hand(host_syncs=(sync(hidden=False),)), "sync").startswith("Host sync: .item() "), "it asked for it"
    assert "sync" not in kinds(by_hand(host_syncs=(sync(blocked_ns=1_000, idle_ns=1_000),), bound=BOUND)), (
        "of 10 ms it is nothing"
    )


def test_the_costliest_comes_first_by_the_hosts_time_only_where_that_bounds_the_step() -> None:
    """One blocks 2 ms and leaves the GPU idle for 0.5, the other blocks for 0.1 ms and leaves it idle for 1."""
    two = (sync(), sync(origin="aten::cpu", blocked_ns=100 * US, idle_ns=MS))
    computing = replace(BOUND, compute_ns=11 * MS, idle_ns=200 * US, idle_host_ns=200 * US)
    for bound, first in ((BOUND, "aten::item"), (computing, "aten::cpu"), (None, "aten::cpu")):
        assert costliest_syncs(by_hand(host_syncs=two, bound=bound))[0].origin == first


# The fix.


def test_a_safe_fix_is_named_with_the_step_now_and_then() -> None:
    assert fix_sentence(FIX) == "Fix: pin the host memory of x: predicted step 10.0 → 8.0 ms (range 7.2–8.9 ms)."
    assert line(by_hand(fix=FIX, was_replayed=True), "fix") == fix_sentence(FIX)


def test_what_the_range_does_not_tell_is_no_promise() -> None:
    unsure = fix_sentence(replace(FIX, step_high_ns=11 * MS, tells=False), " on the slowest rank")
    assert unsure == (
        "Perhaps: pin the host memory of x: predicted step 10.0 → 8.0 ms (range 7.2–11.0 ms: may gain nothing) on the "
        "slowest rank."
    )


def test_where_nothing_gains_enough_that_is_said_with_what_bounds_the_step() -> None:
    said = "No fix: nothing that the capture suggests saves 2 % of the step."
    assert line(by_hand(was_replayed=True, bound=BOUND), "fix") == f"{said} The step is host-bound."
    assert line(by_hand(was_replayed=True, bound=None), "fix") == said
    assert "fix" not in kinds(by_hand(was_replayed=False, bound=BOUND)), "nothing is known of fixes"
    unknown = by_hand(was_replayed=False, worth_unknown="the capture holds no CUDA calls")
    assert line(unknown, "fix") == "No fix was looked for: the capture holds no CUDA calls."


# The real program whose two embeddings were to overlap.


def test_against_a_baseline_the_step_is_told_with_the_verdict() -> None:
    step = StepsAgainst("SLOWER", 11_900_000, 13_400_000, MS, 2 * MS, 20, 2)
    verdict, *more = lines_of(by_hand(against=step))
    assert verdict.text.endswith(". SLOWER than the baseline: step time 11.9 → 13.4 ms (+12.6 %).")
    assert not any("baseline" in one.text for one in more)
    assert isinstance(verdict, Line)
