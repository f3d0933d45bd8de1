from __future__ import annotations

import gzip
import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analyzers.clocks.align import align
from analyzers.common.errors import TracevizError
from analyzers.compare.compare import compare
from analyzers.load import load
from analyzers.trace.narrow import Narrowing, only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import oracle, raw_captures
from tests.support.builder import Builder, one_rank
from traceviz.output.document import Headline
from traceviz.output.views import compare as view

TORCH = Path(__file__).parents[2] / "data" / "torch"
COUNTERS = Path(__file__).parents[2] / "data" / "counters"
PAIRS = {
    "dpmp": ("DP Embedding", "MP Embedding"),
    "opt": ("optimizer", "emb_lookup"),
}


def files(scenario: str) -> list[Path]:
    return sorted(TORCH.glob(f"{scenario}.rank?.json.gz"))


@cache
def loaded(scenario: str, ranks: int = 2) -> Trace:
    return load(files(scenario)[:ranks])


@pytest.mark.parametrize("scenario", ["dpmp_serial", "opt_overlap", "rowpar_s4", "delta_sync"])
def test_a_capture_does_not_differ_from_itself(scenario: str) -> None:
    result = compare([loaded(scenario), load(files(scenario))])
    (_, after) = result.runs
    assert (after.verdict, after.regions_that_differ, result.exit_code) == ("same", [], 0)
    assert {one.call for one in after.changes.values()} == {"equal"}
    assert after.speedup == 1
    if after.gain and after.gain.first_overlap_ns:  # what overlaps there already is not gained again
        assert after.gain.effective_gain in (0, None)
        assert after.gain.speedup == 1
    elif after.gain:  # medians of A and of B, against that of both
        a, b, together = after.gain.a.before_ns, after.gain.b.before_ns, after.gain.together.before_ns
        assert after.gain.effective_gain == (a + b - together) / min(a, b) == pytest.approx(0, abs=0.1)
    assert after.against is not None
    assert (after.against.word, after.against.gained_ns) == ("SAME", 0)


@pytest.mark.parametrize(
    ("scenario", "region"),
    [
        ("dpmp_serial", "DP Embedding"),
        ("dpmp_serial", "MP Embedding"),
        ("dpmp_serial", "merge"),
        ("opt_overlap", "optimizer"),
        ("opt_overlap", "dense forward"),
    ],
)
def test_a_region_with_longer_ops_is_the_only_one_that_differs(tmp_path: Path, scenario: str, region: str) -> None:
    longer = [lengthened(path, region, tmp_path / path.name) for path in files(scenario)]
    result = compare([loaded(scenario), load(longer)])
    differing = result.runs[1].regions_that_differ
    assert {(one.name, one.rank) for one in differing} == {(region, 0), (region, 1)}
    assert all(one.delta_ns > 0 for one in differing)
    assert {one.change.call for one in differing if one.change} == {"too-few"}, "there are but two or three steps"
    assert result.warnings[0].code == "too-few-steps"  # so a first step that waits for a late profiler counts, too
    assert result.steps == (0, 1, 2)


def lengthened(path: Path, region: str, target: Path) -> Path:
    """A copy of a trace in which the kernels launched in a range run half as long again."""
    with gzip.open(path) as file:
        trace: dict[str, Any] = json.load(file)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    inside = [e for e in events if e["cat"] == "user_annotation" and e["name"] == region]
    launched = {
        call["args"]["correlation"]
        for call in events
        if call["cat"] in ("cuda_runtime", "cuda_driver")
        and any(e["tid"] == call["tid"] and e["ts"] <= call["ts"] <= e["ts"] + e["dur"] for e in inside)
    }
    for event in events:
        if event["cat"] == "kernel" and event["args"]["correlation"] in launched and "nccl" not in event["name"]:
            event["dur"] = round(event["dur"] * 1.5, 3)
    with gzip.open(target, "wt") as file:
        json.dump(trace, file)
    return target


@pytest.mark.parametrize(("kind", "ranks"), [("dpmp", 1), ("opt", 2)])
def test_gain_bound_and_contention_are_those_counted_from_the_files(kind: str, ranks: int) -> None:
    """Rank 0 alone knows of no waits, and the optimizer's sides have none: counted without them."""
    a, b = PAIRS[kind]
    result = compare(
        [loaded(f"{kind}_serial", ranks), loaded(f"{kind}_overlap", ranks)], f"nvtx:{a}", f"nvtx:{b}", claimed=14.7
    )
    before, after = (counted(f"{kind}_{run}", a, b) for run in ("serial", "overlap"))
    gain, claim = result.runs[1].gain, result.claim
    assert gain is not None
    assert claim is not None
    a_alone, b_alone = (statistics.median(one[side] for one in before) for side in (0, 1))
    apart, together = (statistics.median(x + y - both for x, y, both in run) for run in (before, after))
    assert (gain.a.before_ns, gain.b.before_ns) == (a_alone, b_alone)
    assert (gain.a.after_ns, gain.b.after_ns) == tuple(statistics.median(one[side] for one in after) for side in (0, 1))
    assert (gain.together.before_ns, gain.together.after_ns) == (apart, together)
    assert gain.effective_gain == pytest.approx((a_alone + b_alone - together) / min(a_alone, b_alone))
    assert gain.speedup == pytest.approx((a_alone + b_alone) / together)
    assert gain.speedup_bound == claim.bound == pytest.approx((a_alone + b_alone) / max(a_alone, b_alone))
    assert (claim.possible, result.exit_code) == (False, 1)
    assert gain.speedup < claim.bound


def counted(scenario: str, a: str, b: str) -> list[tuple[int, int, int]]:
    """(busy A, busy B, overlap) on rank 0 of every k-th occurrence of A with the k-th of B."""
    raw = raw_captures.read_kineto(files(scenario)[:1])
    sides = []
    for name in (a, b):
        found = raw_captures.picked(raw, name)
        ranges = sorted({one for one in found.values() if one is not None}, key=lambda one: one.start)
        sides.append([[(raw.ops[k].start, raw.ops[k].end) for k, own in found.items() if own == one] for one in ranges])
    return [oracle.sweep(*both) for both in zip(*sides, strict=True)]


@pytest.mark.parametrize("scenario", ["dpmp_overlap", "opt_serial", "opt_overlap", "rowpar_s1", "rowpar_s4", "ddp"])
def test_step_times_are_near_those_measured_without_a_profiler(scenario: str) -> None:
    truth = json.loads((TORCH / "step_time_ms.json").read_text())[scenario] * 1e6
    found = compare([loaded(scenario), loaded(scenario)]).runs[0].figures["step_ns"].median_ns
    assert found == pytest.approx(truth, rel=0.06)


def steps_of(*lengths: dict[int, int], marks: bool = True, name: str = "gemm") -> Trace:
    """Ranks whose steps (number -> length of their one kernel) start 1 µs apart."""
    run = Builder()
    for number, steps in enumerate(lengths):
        rank = run.rank(number)
        for step, length in steps.items():
            at = 1000 * step
            if marks:
                rank.range(f"step {step}", at, at + 999)
            rank.range("region", at + 10, at + 20)
            rank.kernel(name, 7, at + 100, at + 100 + length, launch=(at + 15, at + 16))
    return run.trace()


def test_only_steps_and_ranks_that_all_have_are_compared() -> None:
    before, after = (
        steps_of({1: 10, 2: 20, 3: 30}, {2: 5, 3: 5}),
        steps_of({2: 20, 3: 30, 9: 500}, {2: 5, 3: 5}, {2: 1}),
    )
    result = compare([before, after])
    assert (result.steps, result.ranks) == ((2, 3), (0, 1))
    assert {one.call for name, one in result.runs[1].changes.items() if name != "step_ns"} == {"equal"}
    assert [one.message for one in result.warnings if one.code.startswith("other")] == [
        "run 1: step 1 is left out: not every run has it, whole.",
        "run 2: step 9 is left out: not every run has it, whole.",
        "run 2: rank 2 is left out: not every run has it, whole.",
    ]


def test_a_step_takes_as_long_as_on_its_slowest_rank() -> None:
    """Rank 0 ends a step every 1,000 ns, rank 1, which falls behind, every 1,100: so does the job."""
    behind = steps_of(dict.fromkeys(range(4), 100), {0: 100, 1: 200, 2: 300, 3: 400})
    step = compare([behind, behind]).runs[0].figures["step_ns"]
    assert (step.median_ns, step.p90_ns) == (1_100, 1_100)


def test_more_steps_tell_a_change_from_noise() -> None:
    before = steps_of({k: 100 + k % 3 for k in range(20)})
    after = steps_of({k: 120 + k % 4 for k in range(20)})
    result = compare([before, after])
    assert result.runs[1].changes["busy_ns"].call == "more"
    assert [one.name for one in result.runs[1].regions_that_differ] == ["region"]
    assert not result.warnings


def test_a_change_on_one_rank_is_told_of_that_rank() -> None:
    steps = {k: 100 + k % 3 for k in range(20)}
    result = compare([steps_of(steps, steps), steps_of(steps, {k: n + 50 for k, n in steps.items()})])
    calls = {lane.rank: lane.changes["busy_ns"].call for lane in result.runs[1].lanes}
    assert calls == {0: "equal", 1: "more"}
    assert [(one.name, one.rank) for one in result.runs[1].regions_that_differ] == [("region", 1)]


def test_a_region_that_only_one_run_has_is_reported() -> None:
    run, rank = one_rank()
    rank.range("step 1", 0, 99)
    rank.range("new", 10, 20)
    rank.kernel("gemm", 7, 100, 110, launch=(15, 16))
    found = compare([steps_of({1: 10}), run.trace()]).runs[1].regions_that_differ
    assert {(one.name, one.before is None, one.after is None) for one in found} == {
        ("new", True, False),
        ("region", False, True),
    }


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (
            steps_of({5: 10, 6: 10}),
            "no step is in every run, whole on every common rank (run 1 has 1, 2; run 2 has 5, 6)",
        ),
        (steps_of({1: 10}, marks=False), "run 2 has no step marks and the others have"),
    ],
)
def test_where_nothing_is_in_both_it_says_so_and_ends_with_3(after: Trace, reason: str) -> None:
    result = compare([steps_of({1: 10, 2: 10}), after])
    assert reason in result.reason
    assert result.exit_code == 3


def test_ranks_that_have_a_common_step_are_named_where_not_all_have_one() -> None:
    """Of the real pair, ranks 2 and 3 lack ops of the last steps in one run each: 0 and 1 are what can be compared."""
    pair = [load([COUNTERS / f"contend_{which}.sqlite.gz"]) for which in ("before", "after")]
    result = compare(pair)
    assert result.reason.endswith("on some ranks there is one: --ranks 0,1")
    asked = compare([only_ranks(one, (0, 1)) for one in pair])
    assert not asked.reason
    assert asked.runs[1].contended is not None


@pytest.mark.parametrize(("longer", "verdict"), [(20, "changed"), (40, "slower"), (-20, "changed"), (-40, "faster")])
def test_a_step_time_that_repeats_differ_by_makes_no_run_faster_or_slower(longer: int, verdict: str) -> None:
    """Every step of some 1,000 ns takes 2 % or 4 % more or less: both are no noise, and captures differ by 3 %."""

    def run_of(more: int) -> Trace:
        run, rank = one_rank()
        at = 0
        for step in range(12):
            length = 1000 + step % 3 + more
            rank.range(f"step {step}", at, at + length)
            rank.kernel("gemm", 7, at + 10, at + length, launch=(at + 2, at + 4))
            at += length
        return run.trace()

    result = compare([run_of(0), run_of(longer)])
    assert result.runs[1].changes["step_ns"].call in ("more", "less")
    assert result.runs[1].verdict == verdict
    headline = view.blocks(result)[0]
    assert isinstance(headline, Headline)
    assert ("Captures of one program differ by 3 % as well: repeat both" in headline.text) == (verdict == "changed")


def test_a_pair_asked_for_that_is_not_there_can_not_be_told() -> None:
    traces = [steps_of({1: 10}), steps_of({1: 10})]
    assert compare(traces).exit_code == 0, "the default pair need not be there"
    asked = compare(traces, "nvtx:Region")
    assert asked.exit_code == 3
    assert "did you mean 'region'" in asked.reason
    assert compare(traces, "comm", claimed=1.2).exit_code == 3
    of_step = compare(traces, claimed=1.2)  # of the step, which takes as long as before
    assert (of_step.exit_code, of_step.claim.shown, of_step.claim.measured) == (1, False, 1.0)  # type: ignore[union-attr]


PAIR = "nvtx:optimizer", "nvtx:emb_lookup"


def test_a_run_that_overlaps_already_is_no_measure_of_tasks_alone() -> None:
    result = compare([loaded("opt_overlap"), loaded("opt_serial")], *PAIR)
    (warning,) = [one for one in result.warnings if one.code == "not-alone"]
    by_step = [
        check_overlap(loaded("opt_overlap"), *PAIR, explain=False, narrowing=Narrowing(numbers=(step,))).ranks
        for step in (0, 1, 2)
    ]
    medians = [sorted(one.real_overlap_ratio or 0 for one in of_rank)[1] for of_rank in zip(*by_step, strict=True)]
    assert warning.message.startswith(f"In run 1 the pair already overlaps by {100 * min(medians):.1f} %: ")


def one_of_four(shift: int) -> Trace:
    """Two steps of an all-reduce with three absent peers, of 100 ns, beside compute but for so much of it."""
    run, rank = one_rank()
    for number in (1, 2):
        at = 1000 * number
        rank.range(f"step {number}", at, at + 900)
        row = rank.kernel("ncclDevKernel_AllReduce", 9, at + 100 + shift, at + 200 + shift, launch=(at + 1, at + 2))
        correlation = run.rows["ops"][row]["correlation"]
        run.add("comms", process=0, correlation=correlation, operation="allreduce", group="0", group_size=4)
        rank.kernel("gemm", 7, at + 100, at + 200, launch=(at + 3, at + 4))
    return align(run.trace()).trace


def test_apparent_overlap_is_compared_where_that_is_accepted_and_is_called_so() -> None:
    traces = [one_of_four(100), one_of_four(40)]
    assert compare(traces).reason == "", "the default pair is not what is asked about"
    asked = compare(traces, "comm")
    assert (asked.exit_code, asked.reason.startswith("run 2: not all ranks were captured")) == (3, True)
    accepted = compare(traces, "comm", accept_apparent=True)
    assert (accepted.reason, [one.overlap_ratio_text for one in accepted.runs]) == (
        "",
        ["0 % apparent", "60 % apparent"],
    )


def test_no_bar_is_asked_about_and_so_none_can_be_in_doubt() -> None:
    """What `dpmp_overlap` overlaps is known to 11 to 16 %; the range of ranks known to 50 to 70 % would hold a bar."""
    pair = [f"nvtx:{side}" for side in PAIRS["dpmp"]]
    result = compare([loaded("dpmp_overlap"), loaded("dpmp_overlap")], *pair)
    overlap = result.runs[0].overlap
    assert overlap is not None
    assert overlap.job.ratio_low < overlap.job.ratio_high  # type: ignore[operator]
    between = check_overlap(loaded("dpmp_overlap"), *pair, min_overlap=overlap.job.ratio_high)  # type: ignore[arg-type]
    assert (between.passed, result.reason) == (None, "")


def test_several_pipelines_stand_in_one_frame() -> None:
    labels = ("serial", "overlap", "again")
    result = compare(
        [loaded("opt_serial"), loaded("opt_overlap"), loaded("opt_serial")],
        *(f"nvtx:{side}" for side in PAIRS["opt"]),
        labels=labels,
    )
    frame = result.to_frame()
    assert tuple(frame.index) == labels
    assert frame.loc["overlap", "step_ns"] < frame.loc["serial", "step_ns"] == frame.loc["again", "step_ns"]
    assert frame.loc["again", "effective_gain"] == 0
    told = "<comparison against serial: overlap faster, again same>"
    assert repr(result) == told, "three steps of 2.53 to 3.01 ms, and of 2.10 to 2.26"


@pytest.mark.parametrize("labels", [("a",), ("a", "a"), ("a", "b", "c")])
def test_labels_must_fit(labels: tuple[str, ...]) -> None:
    with pytest.raises(TracevizError, match="can't have the labels"):
        compare([steps_of({1: 1}), steps_of({1: 1})], labels=labels)


def test_one_run_can_not_be_compared() -> None:
    with pytest.raises(TracevizError, match="One run can't be compared"):
        compare([steps_of({1: 1})])
