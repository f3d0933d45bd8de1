"""`compare`, `check-overlap --baseline` and `report` hold a run against another with one engine."""

from __future__ import annotations

import gzip
import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import traceviz as tv
from analyzers.clocks.align import align
from analyzers.compare.against import with_baseline
from analyzers.compare.compare import compare
from analyzers.compare.noise import change
from analyzers.compare.results import PairGain
from analyzers.load import load
from analyzers.trace.narrow import Narrowing
from analyzers.trace.step_table import excluded
from analyzers.trace.tables import Trace
from analyzers.verdict.against import StepsAgainst
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.support.builder import Builder
from tests.support.nightly import mostly_nightly
from traceviz.output.views.compare import _effective_gain
from traceviz.reports.report import make
from traceviz.reports.summary import summary

PAIRS = Path(__file__).parents[2] / "data" / "pairs"
NAMES = sorted({path.name.partition("_before.")[0] for path in PAIRS.glob("*_before.rank0.json.gz")})
QUICK = ("buckets", "dpmp_item", "towers", "pipe_send")


@cache
def captured(name: str) -> Trace:
    return load(sorted(PAIRS.glob(f"{name}.rank*.json.gz")))


def against_baseline(name: str, **more: Any) -> OverlapResult:
    after, before = captured(f"{name}_after"), captured(f"{name}_before")
    return with_baseline(check_overlap(after, explain=False), after, before, **more)


@pytest.mark.parametrize("name", mostly_nightly(NAMES, QUICK.__contains__))
def test_one_word_and_the_same_figures_whichever_command_is_asked(name: str) -> None:
    (_, compared) = compare([captured(f"{name}_before"), captured(f"{name}_after")]).runs
    found = against_baseline(name)
    assert found.against is not None
    assert compared.against is not None
    assert found.against == compared.against
    assert (found.gain is None) == (compared.gain is None)
    if found.gain is not None and compared.gain is not None:
        for figure in ("rank", "effective_gain", "speedup", "speedup_bound", "before_ns", "instances"):
            assert getattr(found.gain, figure) == getattr(compared.gain, figure), figure


@pytest.mark.parametrize("name", mostly_nightly(NAMES, lambda name: name == "buckets"))
def test_a_report_says_the_same_and_so_does_a_claim(name: str) -> None:
    runs = captured(f"{name}_before"), captured(f"{name}_after")
    for pair in ((), ("comm", "compute")):
        result = compare(runs, *pair, claimed="1.1x")
        made = make(runs[1], baseline=runs[0], claimed="1.1x", of_pair=bool(pair)).overlap
        assert made.against == result.runs[1].against
        told, same = made.claim, result.claim
        assert (told is None) == (same is None)
        if told is not None and same is not None:
            for figure in ("about", "measured", "shown", "impossible", "a_ns", "b_ns", "bound", "words"):
                assert getattr(told, figure) == getattr(same, figure), figure


def counted_by_hand(paths: list[Path]) -> dict[int, int]:
    """Of each marked step, the time on its slowest rank, ns: from the end of the one before, of what it launched."""
    slowest: dict[int, int] = {}
    for path in paths:
        with gzip.open(path) as file:
            events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
        launched = {
            one["args"]["correlation"]: one["ts"] for one in events if one["cat"] in ("cuda_runtime", "cuda_driver")
        }
        marks = sorted(
            (one["ts"], one["ts"] + one["dur"], int(one["name"].partition("#")[2]))
            for one in events
            if one["name"].startswith("ProfilerStep#") and one["cat"] == "user_annotation"
        )
        ops = [one for one in events if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        last = None
        for begin, end, number in marks:
            mine = [one for one in ops if begin <= launched.get(one["args"]["correlation"], -1) < end]
            first = min(one["ts"] for one in mine) if last is None else last
            last = max(one["ts"] + one["dur"] for one in mine)
            slowest[number] = max(slowest.get(number, 0), round((last - first) * 1000))
    return slowest


@pytest.mark.parametrize("name", mostly_nightly(NAMES, ("pipe_send", "dpmp_item").__contains__))
def test_step_times_are_those_counted_from_the_files(name: str) -> None:
    before, after = (counted_by_hand(sorted(PAIRS.glob(f"{name}_{one}.rank*.json.gz"))) for one in ("before", "after"))
    found = against_baseline(name).against
    assert found is not None
    numbers = set(before) & set(after)
    for one in ("before", "after"):
        found_steps = captured(f"{name}_{one}").steps
        assert found_steps is not None
        numbers -= set(excluded(found_steps, is_given=False))
    if len(numbers) != found.steps:
        pytest.skip("some step is not whole, which the plain count does not know")
    for figure, times in ((found.before_ns, before), (found.after_ns, after)):
        assert figure == pytest.approx(statistics.median(times[number] for number in numbers), abs=3)


def steps(*times: int, rank_times: tuple[int, ...] = ()) -> Trace:
    """Marked steps of so many ns, each one kernel; on a second rank of `rank_times`."""
    run = Builder()
    for number, of_rank in enumerate([times, *([rank_times] if rank_times else [])]):
        rank, at = run.rank(number), 1000
        for step, length in enumerate(of_rank):
            rank.range(f"step {step}", at, at + length)
            rank.kernel("gemm", 7, at, at + length, launch=(at + 1, at + 2))
            at += length
    return run.trace()


def held(before: Trace, after: Trace, **more: Any) -> OverlapResult:
    return with_baseline(check_overlap(after, explain=False), after, before, **more)


@pytest.mark.parametrize(
    ("before", "after", "word", "code"),
    [
        ((1000, 1010, 1020), (900, 910, 920), "FASTER", 0),
        ((900, 910, 920), (1000, 1010, 1020), "SLOWER", 1),
        ((1000, 1010, 1020), (980, 985, 990), "CHANGED", 1),  # 985 of 1010: 2.5 %
        ((1000, 1010, 1020), (900, 910, 1000), "TOO FEW STEPS", 3),  # one is as long as one before
        ((1000, 1010, 1020), (1010, 1000, 1020), "TOO FEW STEPS", 3),  # that three don't differ is not the same
        ((1000,), (500,), "TOO FEW STEPS", 3),
        ((1000, 1010), (500, 510), "TOO FEW STEPS", 3),
        ((1000,), (1000,), "SAME", 1),
        ((1000, 1010, 1020, 1030, 1040, 1050), (1010, 1000, 1030, 1020, 1050, 1040), "SAME", 1),
    ],
)
def test_the_word_and_what_requiring_faster_comes_to(
    before: tuple[int, ...], after: tuple[int, ...], word: str, code: int
) -> None:
    found = held(steps(*before), steps(*after), require_faster=True)
    assert found.against is not None
    assert (found.against.word, found.against.exit_code) == (word, code)
    assert held(steps(*before), steps(*after)).against.exit_code == 0  # type: ignore[union-attr]
    (_, run) = compare([steps(*before), steps(*after)]).runs
    assert run.verdict == word.lower().replace(" ", "-")


def test_the_step_is_that_of_the_slowest_rank_in_both() -> None:
    found = held(steps(1000, 1000, 1000, rank_times=(1100,) * 3), steps(900, 900, 900, rank_times=(800,) * 3)).against
    assert found is not None
    assert (found.before_ns, found.after_ns, found.steps, found.ranks) == (1100, 900, 3, 2)
    assert found.ratio == -200 / 1100
    assert found.speedup == 1100 / 900


def test_steps_that_no_run_shares_and_windows_leave_it_open() -> None:
    before, after = steps(1000, 1010, 1020), steps(900, 910, 920)
    cut = held(before, after, narrowing=Narrowing(window=(0, 2000)), require_faster=True).against
    assert cut is not None
    assert (cut.word, cut.exit_code, cut.reason) == ("INCONCLUSIVE", 3, "a window of time holds no whole steps")
    one = held(before, after, narrowing=Narrowing(steps=(1, 2))).against
    assert one is not None
    assert (one.word, one.steps) == ("TOO FEW STEPS", 1)


@pytest.mark.parametrize(
    ("gained", "could", "text"),
    [
        (400, 1000, "gained 400 of the 1000 ns a step that perfect overlap could save (40 %)"),
        (-4810, 1000, "nothing gained of the 1.00 µs a step that perfect overlap could save"),
        (400, 0, ""),
        (400, None, ""),
    ],
)
def test_gain_is_step_time_of_what_could_be_gained(gained: int, could: int | None, text: str) -> None:
    word = "FASTER" if gained > 0 else "SLOWER"
    step = StepsAgainst(word, 10_000, 10_000 - gained, -1, 1, 20, 2, could_ns=could)
    assert step.gained.replace("0.40 of the 1.00 µs", "400 of the 1000 ns") == text
    assert not replace(step, word="INCONCLUSIVE").gained


def slower_and_overlapped() -> tuple[Trace, Trace]:
    """A kernel of 600 ns and one of 400 on a side stream: behind it, every 1,800 ns; beside it, every 2,000.

    What fills the first step before them makes it as long as the others.
    """
    found = []
    for pitch, begin in ((1800, 1300), (2000, 700)):
        run = Builder()
        rank = run.rank(0)
        for step in range(4):
            at = 5000 + pitch * step
            ends = at + max(1300, begin + 400)
            rank.range(f"step {step}", at - (0 if step else 1100), at + pitch)
            rank.kernel(
                "fill", 7, at + 10 if step else ends - pitch, at + 700, launch=(at - (-1 if step else 1000),) * 2
            )
            rank.kernel("gemm", 7, at + 700, at + 1300, launch=(at + 3, at + 4))
            rank.kernel("side", 9, at + begin, at + begin + 400, launch=(at + 5, at + 6))
        found.append(align(run.trace()).trace)
    return found[0], found[1]


def test_no_green_headline_stands_over_a_step_that_got_slower() -> None:
    before, after = slower_and_overlapped()
    made = make(after, "kernel:side", "kernel:gemm", baseline=before)
    result = made.overlap
    assert (result.verdict, result.passed, result.exit_code) == ("overlapped", True, 0)
    assert result.against is not None
    assert result.against.word == "SLOWER"
    assert result.mood == "middle"
    first = summary(made, with_image=False).partition("\n")[0]
    assert first.startswith("### ⚠️ OVERLAPPED")
    assert "SLOWER than the baseline: step time" in first
    assert "SLOWER than the baseline" in made.picture.headline
    required = make(after, "kernel:side", "kernel:gemm", baseline=before, require_faster=True)
    assert required.overlap.exit_code == 1
    assert summary(required, with_image=False).startswith("### ❌")
    assert "--require-faster" not in made.command


def test_different_profilers_are_said_once_and_near_the_first_line() -> None:
    from analyzers.compare.against import different_profilers
    from traceviz.output.terminal import as_text
    from traceviz.output.views import compare as compared
    from traceviz.output.views import overlap

    one, other = steps(1000, 1010, 1020), steps(900, 910, 920)
    (capture,) = one.captures
    lacks = ("synchronization records (enable_cuda_sync_events=True)",)
    default, nsys = (
        replace(other, captures=(replace(capture, format=kind, producer=made, lacks=lacks),))
        for kind, made in (("kineto", "torch.profiler 2.11"), ("nsys", "NVIDIA Nsight Systems 2025.3"))
    )
    records = replace(one, captures=(replace(capture, format="kineto", producer="torch.profiler 2.11"),))
    assert different_profilers(("x", "y"), (default, default)) == ""
    assert "without" not in different_profilers(("x", "y"), (records, default))
    for after in (default, nsys):
        for text in (
            as_text("md", compared.blocks(compare([records, after], labels=("x", "y")))),
            as_text("md", overlap.blocks(held(records, after))),
        ):
            assert text.count("compares the profilers") == 1
            assert text.index("compares the profilers") < text.index("| ")


def test_python_takes_it_too() -> None:
    files = [sorted(PAIRS.glob(f"buckets_{one}.rank*.json.gz")) for one in ("before", "after")]
    found = tv.check_overlap(files[1], baseline=files[0], min_overlap=0, claimed="1.1x", require_faster=True)
    assert found.against is not None
    assert found.claim is not None
    assert (found.against.word, found.claim.about, found.claim.shown, found.exit_code) == ("FASTER", "step", True, 0)
    of_pair = tv.check_overlap(files[1], "comm", "compute", baseline=files[0], min_overlap=0, claimed="14.7x")
    assert of_pair.claim is not None
    assert (of_pair.claim.about, of_pair.claim.impossible, of_pair.exit_code) == ("pair", True, 1)
    with pytest.raises(tv.TracevizError, match="Give it with --baseline"):
        tv.check_overlap(files[1], require_faster=True)


def test_no_gain_of_a_pair_is_shown_that_lies_within_noise_or_is_a_loss() -> None:
    same = np.array([100, 101, 102, 103, 104, 105, 106], np.int64)
    before = same + 103  # the pair took A + B, 206
    shown = [
        _effective_gain(PairGain(0, change(same, same), change(same, same), change(before, after), 0, 0, 7, 7))
        for after in (before, before[::-1].copy(), same + 40, same + 900, same[:1] + 40)
    ]
    # 206 - 143 = 63 of 103, 61.2 %; 206 - 140 = 66 of 103, 64.1 %, of one instance.
    assert shown == ["nothing gained", "within noise", "61.2 %", "nothing gained", "64.1 % ?"]
