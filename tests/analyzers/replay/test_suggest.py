"""What is worth a try, on programs of a few ops in which that follows by hand (µs)."""

from __future__ import annotations

from typing import cast

import pytest

from analyzers.replay.answer import MAX_GAIN_DIFFERENCE, Tried, what_if, without_repeated
from analyzers.replay.host_changes import DropSync, OnTime
from analyzers.replay.model import Tasks
from analyzers.replay.safety import Safety
from analyzers.replay.suggest import Suggestion, suggested
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.analyzers.replay.programs import LONG, US, Program, blocked, steps
from tests.support.builder import Builder


def found(trace: Trace, a: str = "comm", b: str = "compute") -> dict[str, Safety]:
    """Suggestions, and the class of each."""
    checked = check_overlap(trace, a, b, min_overlap=0.0)
    return {str(one.change): one.safety for one in suggested(trace, tasks(trace), a, b, checked)}


def test_ranges_that_block_the_host_are_named() -> None:
    assert found(blocked())["drop-sync nvtx:fetch"] is Safety.SAFE


def queued(copy: bool) -> Trace:
    """Three ranges on one stream, one behind the other; the first copies to the host, or computes."""
    return steps(f"""
        [out 1-9]; {"DtoH" if copy else "pack"} 7 @2 10-200
        [middle 11-18]; middle 7 @12 201-500; [last 21-28]; last 7 @22 501-520
    """)


def test_what_is_left_on_one_stream_is_asked_about_first_where_it_copies_to_the_host() -> None:
    """Nothing on the GPU reads what was copied to the host."""
    assert found(queued(copy=True))["own-stream nvtx:out"] is Safety.CONDITIONAL
    assert found(queued(copy=False))["own-stream nvtx:out"] is Safety.DOUBTFUL


def test_nothing_is_queued_behind_what_ends_a_step() -> None:
    assert "own-stream nvtx:last" not in found(queued(copy=False))


def reduced(again: bool) -> Trace:
    """Each of two gradients is reduced, and waited for, before what comes next; in the end, `again`, both once more."""
    return steps(f"""
        [backward 1-9]; product 7 @3 10-100; [reduce 10-30]; 9<7 @11; AllReduce:0 9 @15 102-205; e=9 @22
        [backward 41-49]; 7<e @42; product 7 @43 210-300; [reduce 50-70]; 9<7 @51; AllReduce:1 9 @55 302-405; f=9 @62
        [optimizer 80-99]; {"7<e @82;" if again else ""} 7<f @82; adam 7 @85 408-450
    """)


def test_what_is_waited_for_again_later_is_needed_only_there() -> None:
    assert found(reduced(again=True))["drop-wait nvtx:backward on nvtx:reduce"] is Safety.SAFE
    assert found(reduced(again=False))["drop-wait nvtx:backward on nvtx:reduce"] is Safety.DOUBTFUL
    assert found(reduced(again=True))["drop-wait nvtx:optimizer on nvtx:reduce"] is Safety.UNSAFE


def test_a_collective_behind_what_feeds_it_may_go_in_pieces() -> None:
    assert found(reduced(again=False))["split nvtx:reduce 4"] is Safety.SAFE


def tower(waits_for_side: bool) -> Trace:
    """A tower on a side stream behind a lookup on the one that steps begin on; or what waits for the tower."""
    merge = "[merge 31-50]; 7<9 @32; merge 7 @35 502-510"
    return steps(f"""
        [lookup 0-8]; lookup 7 @1 10-300; [tower 10-30]; 9<7 @11; product 9 @15 302-500
        {merge if waits_for_side else ""}
    """)


def test_a_fork_may_be_early_and_a_join_waits_for_a_result() -> None:
    assert found(tower(waits_for_side=False))["move-wait nvtx:tower before nvtx:lookup"] is Safety.CONDITIONAL
    assert found(tower(waits_for_side=True))["move-wait nvtx:merge before nvtx:tower"] is Safety.UNSAFE


@pytest.mark.parametrize(
    ("first", "then", "tried"),
    [("lookup", "tower", True), ("forward", "backward", False), ("backward", "optimizer", False)],
)
def test_no_phase_of_a_step_is_moved_before_the_one_that_it_needs(first: str, then: str, tried: bool) -> None:
    text = f"[{first} 1-8]; {first} 7 @2 10-300; [{then} 10-30]; 9<7 @11; {then} 9 @15 302-500"
    assert (f"move-wait nvtx:{then} before nvtx:{first}" in found(steps(text))) == tried


@pytest.mark.parametrize("ends", [12, 60])
def test_nothing_is_moved_out_of_the_range_that_it_is_in(ends: int) -> None:
    """As `zero_grad` in an optimizer that works before it, too; apart, if the first range ends before the other."""

    text = f"[outer 1-{ends}]; lookup 7 @2 10-300; [inner 20-40]; 9<7 @21; product 9 @25 302-500"
    assert ("move-wait nvtx:inner before nvtx:outer" in found(steps(text))) == (ends == 12)


def test_ranges_bound_by_their_launches_may_be_graphs() -> None:
    launches = "; ".join(f"small 7 @{at} {at + 7}-{at + 17}" for at in range(10, 310, 60))
    assert found(steps(f"[layers 0-400]; {launches}"))["graph nvtx:layers"] is Safety.SAFE


def test_the_pair_that_is_asked_about_is_tried_too() -> None:
    assert found(queued(copy=False), "kernel:pack", "kernel:middle")["own-stream kernel:pack"] is Safety.DOUBTFUL
    assert "own-stream kernel:pack" not in found(queued(copy=False))


def late() -> Trace:
    """Rank 1's host works 300 µs before its all-reduce, rank 0's 10; both wait for the result on the host."""
    both = Builder()
    for number, call in ((0, 20), (1, 310)):
        program, stated = Program(both, number), f"wait_ns={(310 - call) * US} last_rank=1 wait_seen=1"
        for step in range(3):
            program.range(f"step {step}", step * LONG, step * LONG + 990)
            program.write(f"K 7 @5 12-15; AllReduce:0 9 @{call} {call + 7}-417 {stated}", step)
    return both.trace()


def test_the_rank_that_others_wait_for_is_a_diagnosis() -> None:
    """No change of the program is known that brings it there on time."""
    classes = found(late())
    assert (classes["on-time 1"], classes["on-time all"]) == (Safety.DIAGNOSIS, Safety.DIAGNOSIS)


@pytest.mark.parametrize(("gain", "kept"), [(0.105, False), (0.12, True)])
def test_all_ranks_on_time_are_told_where_that_brings_more_than_one(gain: float, kept: bool) -> None:
    """One rank brings a tenth of the step; all bring 10.5 %, or 12."""
    one, every, other = (
        Tried(Suggestion(change, Safety.DIAGNOSIS), cast(Tasks, None), (), brings)
        for change, brings in ((OnTime(1), 0.1), (OnTime(), gain), (DropSync("comm"), 0.1))
    )
    assert without_repeated([one, every, other]) == ([one, every, other] if kept else [one, other])


def test_suggestions_are_numbered_by_worth() -> None:
    result = what_if(queued(copy=True))
    singles = [one for one in result.to_try if one.suggested is not None]
    assert [one.suggested for one in singles] == list(range(1, len(singles) + 1))
    worth = [one.worth_ns for one in singles]
    assert len(worth) > 1
    for number, one in enumerate(worth):  # of what is alike, what takes least for granted comes first
        most = max(worth[number:])
        assert one >= most * (1 - MAX_GAIN_DIFFERENCE) if most > 0 else one == most
    assert singles[0].change == "own-stream nvtx:out"
    gains = [one.gain_ns for one in result.changes]
    assert gains == sorted(gains, reverse=True)
