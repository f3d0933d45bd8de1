"""What causes are worth, on a program whose overlap without each follows by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import traceviz as tv
from analyzers.replay import worth
from analyzers.replay.worth import with_worth
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import Run
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.support.builder import one_rank
from tests.support.nightly import mostly_nightly
from traceviz.output.document import markdown
from traceviz.output.views import overlap as view

US = 1_000
STEPS = 5
PAIR = ("nvtx:first", "nvtx:second")
DATA = Path(__file__).parents[2] / "data"
TORCH = DATA / "torch"


def program(steps: int = STEPS) -> Trace:
    """Per step "second" runs for 100 µs; "first", of another stream, waits for that before its own 100 µs.

    Without the wait "first" starts 10 µs after "second": 90 µs a step overlap.
    """
    run, rank = one_rank()
    for number in range(steps):
        at = number * 260 * US
        rank.range(f"step {number}", at, at + 30 * US)
        rank.range("second", at, at + 6 * US)
        rank.kernel("product", 7, at + 7 * US, at + 107 * US, launch=(at, at + 5 * US))
        rank.range("first", at + 7 * US, at + 16 * US)
        rank.wait_stream(9, 7, at + 8 * US)
        rank.kernel("lookup", 9, at + 109 * US, at + 209 * US, launch=(at + 10 * US, at + 15 * US))
    return run.trace()


def told(trace: Trace, result: OverlapResult | None = None) -> OverlapResult:
    return with_worth(result or check_overlap(trace, *PAIR), trace)


def test_a_cause_is_worth_the_overlap_without_it() -> None:
    result = told(program())
    assert result.worth_unknown == ""
    (rank,) = result.ranks
    (one,) = (one for one in rank.missed if one.cause == "event-dependency")
    assert one.ns == pytest.approx(STEPS * 100 * US, rel=0.05)
    assert one.recoverable_ns == pytest.approx(STEPS * 90 * US, rel=0.05)
    assert one.recoverable_low_ns is not None
    assert one.recoverable_high_ns is not None
    assert one.recoverable_low_ns <= STEPS * 90 * US <= one.recoverable_high_ns
    assert one.recoverable_low_ns <= one.recoverable_ns <= one.recoverable_high_ns


def run_ahead() -> Trace:
    """Per step the same 200 µs, launched long before: "second" waits for the "first" of the step before it, too.

    Without the wait of "first" for "second", or with it submitted before, both begin 3 µs after those of the step
    before end: a step takes 103 µs instead of 206, if they don't slow each other down.
    """
    run, rank = one_rank()
    for number in range(STEPS):
        host, gpu = number * 20 * US, (7 + 206 * number) * US
        rank.range(f"step {number}", host, host + 19 * US)
        if number:
            rank.wait_stream(7, 9, host)
        rank.range("second", host + 3 * US, host + 7 * US)
        rank.kernel("product", 7, gpu, gpu + 100 * US, launch=(host + 4 * US, host + 6 * US))
        rank.range("first", host + 7 * US, host + 16 * US)
        rank.wait_stream(9, 7, host + 8 * US)
        rank.kernel("lookup", 9, gpu + 103 * US, gpu + 203 * US, launch=(host + 12 * US, host + 15 * US))
    return run.trace()


def test_what_takes_the_cause_out_is_told_beside_the_fix_with_its_class() -> None:
    """The cause is a wait: to drop it is unsafe, and so it is not the fix."""
    result = told(run_ahead())
    assert result.cause_fix is not None
    assert (result.cause_fix.change, result.cause_fix.safety) == ("drop-wait nvtx:first on nvtx:second", "unsafe")
    assert result.cause_fix.step_low_ns <= 103 * US <= result.cause_fix.step_high_ns


def test_a_change_that_keeps_the_order_is_named_and_one_that_drops_a_wait_is_not() -> None:
    """Both bring as much; the first is asked about, the other brings a race."""
    result, trace = told(run_ahead()), run_ahead()
    fix = result.fix
    assert fix is not None
    assert (fix.change, fix.safety) == ("move-wait nvtx:first before nvtx:second", "conditional")
    assert fix.now_step_ns == 206 * US
    assert fix.step_low_ns <= 103 * US <= fix.step_high_ns
    assert fix.step_low_ns <= fix.step_ns <= fix.step_high_ns
    assert fix.assumes == "the first needs nothing of the second"
    assert fix.recoverable_ns is not None and fix.recoverable_low_ns is not None and fix.recoverable_high_ns is not None
    assert fix.recoverable_ns >= 90 * STEPS * US
    assert fix.recoverable_low_ns <= fix.recoverable_ns <= fix.recoverable_high_ns
    assert fix.now_ratio == 0.0
    assert fix.ratio is not None and fix.ratio >= 0.8
    (line,) = (one.text for one in result.lines if one.kind == "fix")
    assert line.startswith(
        "Perhaps: submit first, with its waits, before second, if first needs nothing of it: predicted"
    )
    tried = {one.change: one for one in tv.what_if(trace, a=PAIR[0], b=PAIR[1]).changes}
    dropped = tried["drop-wait nvtx:first on nvtx:second"]
    assert (dropped.safety, dropped.worth_ns) == ("unsafe", 0)
    assert dropped.gain_ns >= fix.gain_ns


def test_where_no_step_gets_shorter_no_change_is_named_whatever_it_brings_of_overlap() -> None:
    """The host begins each step 260 µs after the one before it."""
    result = told(program())
    assert any(one.recoverable_ns for one in result.ranks[0].missed)
    assert (result.fix, result.was_replayed) == (None, True)
    (line,) = (one.text for one in result.lines if one.kind == "fix")
    assert line.startswith("No fix: nothing that the capture suggests saves 2 % of the step.")


def test_of_many_ops_nothing_is_run_again_and_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = program()
    monkeypatch.setattr(worth, "MOST_OPS", len(trace.ops) - 1)
    result = told(trace)
    assert all(one.recoverable_ns is None for one in result.ranks[0].missed)
    assert (result.fix, result.was_replayed) == (None, False)
    (said,) = (one.text for one in result.lines if one.kind == "fix")
    assert said.startswith("No fix was looked for: more than 9 ops (10) are not replayed here"), (
        "not that there is none"
    )
    assert 'traceviz what-if TRACE... -a "nvtx:first" -b "nvtx:second"' in result.worth_unknown
    assert "more than 9 ops (10) are not replayed here; traceviz what-if" in markdown(view.blocks(result))


def test_of_a_part_its_own_steps_count() -> None:
    trace, narrowing = program(), Narrowing(steps=(1, 3))
    result = with_worth(check_overlap(trace, *PAIR, narrowing=narrowing), Run.of(trace), narrowing)
    (one,) = (one for one in result.ranks[0].missed if one.cause == "event-dependency")
    assert one.recoverable_ns == pytest.approx(2 * 90 * US, rel=0.05)


def test_captures_looked_at_one_by_one_are_not_run_again() -> None:
    paths = [str(TORCH / f"dpmp_overlap.rank{rank}.json.gz") for rank in (0, 1)]
    result = tv.check_overlap(paths, "nvtx:DP Embedding", "nvtx:MP Embedding", memory="4GB")
    assert "one by one" in result.worth_unknown
    assert all(one.recoverable_ns is None for rank in result.ranks for one in rank.missed)


def test_the_fix_that_was_made_is_named() -> None:
    """Without the `.item()` in that lookup the program is 14.6 % faster when nobody profiles it."""
    paths = [str(TORCH / f"item_before.rank{rank}.json.gz") for rank in range(4)]
    result = tv.check_overlap(paths)
    assert result.fix is not None
    assert (result.fix.change, result.fix.safety) == ("drop-sync nvtx:MP lookup", "conditional")
    assert result.ranks[0].missed[0].cause == "host-sync"


@pytest.mark.parametrize(
    ("before", "after", "change", "most"),
    mostly_nightly(
        [
            ("pairs/rowpar_split_before", "pairs/rowpar_split_after", "split nvtx:reduce 4", 0.87),
            ("pairs/scatter_split_before", "pairs/scatter_split_after", "split nvtx:reduce 4", 0.92),
            ("pairs/moe_split_before", "pairs/moe_split_after", "split nvtx:combine 4", 0.81),
            ("pairs/experts_split_before", "pairs/experts_split_after", "split nvtx:combine 4", 0.78),
            ("pairs/stack_split_before", "pairs/stack_split_after", "split nvtx:reduce 4", 0.85),
        ],
        lambda case: case[0] == "pairs/moe_split_before",
    ),
)
def test_what_pieces_recovered_when_made_is_in_the_range(before: str, after: str, change: str, most: float) -> None:
    """It may be nothing: which of a piece of work and one of communication begins first, and fills the GPU, is open.

    Of `moe_split` and `experts_split` each expert feeds a piece, of `stack_split` the last layer alone feeds all: no
    capture says so.
    """
    was, is_now = (tv.check_overlap(sorted(map(str, DATA.glob(f"{name}.rank*.json.gz")))) for name in (before, after))
    assert was.fix is not None
    assert was.fix.change == change
    captured = min(one.real_overlap_ratio or 0.0 for one in is_now.ranks)
    (possible_ns,) = (one.could_overlap_ns for one in was.ranks if one.rank == was.fix.rank)
    recoverable = was.fix.recoverable_low_ns, was.fix.recoverable_ns, was.fix.recoverable_high_ns
    low, likely, high = ((ns or 0) / possible_ns for ns in recoverable)
    assert low == 0 < captured < high < most
    assert likely == pytest.approx(was.fix.ratio, abs=1e-4), "to be slowed down is no gain"


def test_pieces_that_overlap_and_gain_no_step_are_not_promised() -> None:
    """With four pieces a step takes 3.53 ms, 3.42 before: what is predicted of it is no fix, and no lie of overlap."""
    trace = tv.load(sorted(map(str, TORCH.glob("rowpar_s1.rank*.json.gz")))).data
    after = tv.check_overlap(sorted(map(str, TORCH.glob("rowpar_s4.rank*.json.gz"))))
    times = json.loads((TORCH / "step_time_ms.json").read_text())
    assert times["rowpar_s4"] > times["rowpar_s1"]
    assert tv.check_overlap(trace).fix is tv.what_if(trace).fix is None
    (found,) = tv.what_if(trace, "split nvtx:chunk 0 4").changes
    assert found.step_low_ns <= times["rowpar_s4"] / times["rowpar_s1"] * found.now_ns <= found.step_high_ns
    captured = min(one.real_overlap_ratio or 0.0 for one in after.ranks)
    one = found.worst
    assert one is not None and one.low_ratio is not None and one.high_ratio is not None
    assert one.low_ratio == 0 < captured < one.high_ratio < 0.95


def test_a_text_needs_the_causes_of_the_rank_that_decides_alone() -> None:
    trace = tv.load(str(TORCH / "item_before.rank*.json.gz")).data
    whole = told(trace, result := check_overlap(trace))
    less = with_worth(result, trace, everywhere=False)
    assert less.ranks != whole.ranks
    assert less.findings == whole.findings
    assert view.blocks(less, verbose=True) == view.blocks(whole, verbose=True)
