"""What is worth a try, on programs of a few ops in which that follows by hand (µs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from analyzers.replay.answer import what_if
from analyzers.replay.fixes import ALIKE, Tried, without_repeated
from analyzers.replay.host_changes import DropSync, OnTime
from analyzers.replay.model import Tasks
from analyzers.replay.safety import Safety
from analyzers.replay.suggest import Suggestion, suggested
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.analyzers.replay.programs import US, Program, blocked
from tests.support.builder import Builder

STEPS, LONG = 3, 1000


def found(trace: Trace, a: str = "comm", b: str = "compute") -> dict[str, Safety]:
    """Suggestions, and the class of each."""
    checked = check_overlap(trace, a, b, min_overlap=0.0)
    return {str(one.change): one.safety for one in suggested(trace, tasks(trace), a, b, checked)}


def steps(make: Callable[[Program, int], None]) -> Trace:
    """Steps of a millisecond each: `make` adds what is in one that begins at some µs."""
    program = Program()
    for number in range(STEPS):
        program.range(f"step {number}", number * LONG, number * LONG + 990)
        make(program, number * LONG)
    return program.trace()


def test_ranges_that_block_the_host_are_named() -> None:
    assert found(blocked())["drop-sync nvtx:fetch"] is Safety.SAFE


def queued(copy: bool) -> Trace:
    """Three ranges on one stream, one behind the other; the first copies to the host, or computes."""

    def make(program: Program, at: int) -> None:
        program.range("out", at + 1, at + 9)
        launch = ((at + 2) * US, (at + 7) * US)
        work = program.rank.copy if copy else program.rank.kernel
        work("DtoH" if copy else "pack", 7, (at + 10) * US, (at + 200) * US, launch=launch)
        for name, call, start, end in (("middle", 12, 201, 500), ("last", 22, 501, 520)):
            program.range(name, at + call - 1, at + call + 6)
            program.kernel(name, 7, at + call, at + start, at + end)

    return steps(make)


def test_what_is_left_on_one_stream_is_asked_about_first_where_it_copies_to_the_host() -> None:
    """Nothing on the GPU reads what was copied to the host."""
    assert found(queued(copy=True))["own-stream nvtx:out"] is Safety.CONDITIONAL
    assert found(queued(copy=False))["own-stream nvtx:out"] is Safety.DOUBTFUL


def test_nothing_is_queued_behind_what_ends_a_step() -> None:
    assert "own-stream nvtx:last" not in found(queued(copy=False))


def reduced(again: bool) -> Trace:
    """Each of two gradients is reduced, and waited for, before what comes next; in the end, `again`, both once more."""

    def make(program: Program, at: int) -> None:
        rank, records = program.rank, []
        for number in (0, 1):
            call, start = at + 40 * number, at + 200 * number
            program.range("backward", call + 1, call + 9)
            if number:
                rank.wait(7, records[-1], (call + 2) * US)
            program.kernel("product", 7, call + 3, start + 10, start + 100)
            program.range("reduce", call + 10, call + 30)
            program.wait(9, 7, call + 11)
            reduce = f"ncclDevKernel_AllReduce_{number}"
            collective = at // LONG * 2 + number
            program.kernel(reduce, 9, call + 15, start + 102, start + 205, collective=collective)
            records.append(rank.record(9, (call + 22) * US))
        program.range("optimizer", at + 80, at + 99)
        for record in records if again else records[1:]:
            rank.wait(7, record, (at + 82) * US)
        program.kernel("adam", 7, at + 85, at + 408, at + 450)

    return steps(make)


def test_what_is_waited_for_again_later_is_needed_only_there() -> None:
    assert found(reduced(again=True))["drop-wait nvtx:backward on nvtx:reduce"] is Safety.SAFE
    assert found(reduced(again=False))["drop-wait nvtx:backward on nvtx:reduce"] is Safety.DOUBTFUL
    assert found(reduced(again=True))["drop-wait nvtx:optimizer on nvtx:reduce"] is Safety.UNSAFE


def test_a_collective_behind_what_feeds_it_may_go_in_pieces() -> None:
    assert found(reduced(again=False))["split nvtx:reduce 4"] is Safety.SAFE


def tower(waits_for_side: bool) -> Trace:
    """A tower on a side stream behind a lookup on the one that steps begin on; or what waits for the tower."""

    def make(program: Program, at: int) -> None:
        program.range("lookup", at, at + 8)
        program.kernel("lookup", 7, at + 1, at + 10, at + 300)
        program.range("tower", at + 10, at + 30)
        program.wait(9, 7, at + 11)
        program.kernel("product", 9, at + 15, at + 302, at + 500)
        if waits_for_side:
            program.range("merge", at + 31, at + 50)
            program.wait(7, 9, at + 32)
            program.kernel("merge", 7, at + 35, at + 502, at + 510)

    return steps(make)


def test_a_fork_may_be_early_and_a_join_waits_for_a_result() -> None:
    assert found(tower(waits_for_side=False))["move-wait nvtx:tower before nvtx:lookup"] is Safety.CONDITIONAL
    assert found(tower(waits_for_side=True))["move-wait nvtx:merge before nvtx:tower"] is Safety.UNSAFE


@pytest.mark.parametrize(
    ("first", "then", "tried"),
    [("lookup", "tower", True), ("forward", "backward", False), ("backward", "optimizer", False)],
)
def test_no_phase_of_a_step_is_moved_before_the_one_that_it_needs(first: str, then: str, tried: bool) -> None:
    def make(program: Program, at: int) -> None:
        program.range(first, at + 1, at + 8)
        program.kernel(first, 7, at + 2, at + 10, at + 300)
        program.range(then, at + 10, at + 30)
        program.wait(9, 7, at + 11)
        program.kernel(then, 9, at + 15, at + 302, at + 500)

    assert (f"move-wait nvtx:{then} before nvtx:{first}" in found(steps(make))) == tried


@pytest.mark.parametrize("ends", [12, 60])
def test_nothing_is_moved_out_of_the_range_that_it_is_in(ends: int) -> None:
    """As `zero_grad` in an optimizer that works before it, too; apart, if the first range ends before the other."""

    def make(program: Program, at: int) -> None:
        program.range("outer", at + 1, at + ends)
        program.kernel("lookup", 7, at + 2, at + 10, at + 300)
        program.range("inner", at + 20, at + 40)
        program.wait(9, 7, at + 21)
        program.kernel("product", 9, at + 25, at + 302, at + 500)

    assert ("move-wait nvtx:inner before nvtx:outer" in found(steps(make))) == (ends == 12)


def test_ranges_bound_by_their_launches_may_be_graphs() -> None:
    def make(program: Program, at: int) -> None:
        program.range("layers", at, at + 400)
        for number in range(5):
            call = at + 10 + 60 * number
            program.kernel("small", 7, call, call + 7, call + 17)

    assert found(steps(make))["graph nvtx:layers"] is Safety.SAFE


def test_the_pair_that_is_asked_about_is_tried_too() -> None:
    assert found(queued(copy=False), "kernel:pack", "kernel:middle")["own-stream kernel:pack"] is Safety.DOUBTFUL
    assert "own-stream kernel:pack" not in found(queued(copy=False))


def late() -> Trace:
    """Rank 1's host works 300 µs before its all-reduce, rank 0's 10; both wait for the result on the host."""
    both = Builder()
    for number, call in ((0, 20), (1, 310)):
        program = Program(both, number)
        for step in range(STEPS):
            at = step * LONG
            program.range(f"step {step}", at, at + 990)
            program.kernel("K", 7, at + 5, at + 12, at + 15)
            wait = (310 - call) * US
            program.kernel(
                "ncclDevKernel_AllReduce",
                9,
                at + call,
                at + call + 7,
                at + 417,
                collective=step,
                wait_ns=wait,
                last_rank=1,
                wait_seen=1,
            )
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
        assert one >= most * (1 - ALIKE) if most > 0 else one == most
    assert singles[0].change == "own-stream nvtx:out"
    gains = [one.gain_ns for one in result.changes]
    assert gains == sorted(gains, reverse=True)
