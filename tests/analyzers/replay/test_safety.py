"""Whether a change may be made, by hand on programs of a few ops (µs): which orders it takes away, and what of them is
sure.

Each program states its waits, as a capture does that records them. None of the answers looks at a time but to tell how
long a wait held its stream.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analyzers.replay.change import Change
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.safety import Safety, comes_later, phase_of, safety_of
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Scale, Split
from analyzers.replay.tasks import tasks
from analyzers.trace.kernels import operations
from analyzers.trace.tables import Trace
from analyzers.verdict.fix import CONDITIONAL, DIAGNOSIS, SAFE, UNSAFE
from tests.analyzers.replay.programs import US, Program

STEPS, LONG = 3, 1_000
RECEIVE, REDUCE = "ncclDevKernel_Recv", "ncclDevKernel_AllReduce"


def of(change: Change, trace: Trace) -> Safety:
    return safety_of(change, trace, tasks(trace))


def steps(make: Callable[[Program, int], None]) -> Trace:
    """Steps of a millisecond each: `make` adds what is in one that begins at some µs."""
    program = Program()
    for number in range(STEPS):
        program.range(f"step {number}", number * LONG, number * LONG + 990)
        make(program, number * LONG)
    return program.trace()


def copy(program: Program, direction: str, stream: int, call: int, start: int, end: int, **memory: str) -> None:
    """A copy that returns at once, or, of pageable memory, when it is done."""
    until = end + 2 if "pageable" in memory.values() else call + 5
    program.rank.copy(direction, stream, start * US, end * US, launch=(call * US, until * US), bytes=4096, **memory)


# Waits of streams.


def fed(by: str, reader: str = "gemm", at_once: bool = True) -> Trace:
    """Per step "feed" runs on stream 9 and "use", on 7, waits for it; or its work is of another launch before that."""

    def make(program: Program, at: int) -> None:
        number = at // LONG
        program.range("head", at, at + 8)
        program.kernel("head", 7, at + 1, at + 8, at + 20)
        program.range("feed", at + 10, at + 20)
        if by == "copy":
            copy(program, "HtoD", 9, at + 12, at + 21, at + 300, source_memory="pinned")
        elif by == "copy to the host":
            copy(program, "DtoH", 9, at + 12, at + 21, at + 300, target_memory="pinned")
        elif by == "kernel":
            program.kernel("tower", 9, at + 12, at + 21, at + 300)
        else:
            program.kernel(by, 9, at + 12, at + 21, at + 300, collective=2 * number)
        record = program.rank.record(9, (at + 18) * US)
        if not at_once:
            program.range("other", at + 20, at + 29)
            program.kernel("other", 11, at + 21, at + 28, at + 40)
        program.range("use", at + 30, at + 50)
        program.rank.wait(7, record, (at + 32) * US)
        collective = 2 * number + 1 if reader == REDUCE else -1
        program.kernel(reader, 7, at + 35, at + 303, at + 400, collective=collective)

    return steps(make)


WAIT = DropWait("nvtx:use", "nvtx:feed")


def test_a_receive_before_its_consumer_is_needed() -> None:
    """However soon behind its call the stream was told to wait."""
    trace = fed(RECEIVE)
    assert set(operations(trace)) == {"", "recv"}
    assert of(WAIT, trace) is Safety.UNSAFE
    assert of(WAIT, fed(RECEIVE, at_once=False)) is Safety.UNSAFE


def test_a_copy_before_its_reader_is_needed() -> None:
    """The reader waits for the copy by an event: data surely flows."""
    assert of(WAIT, fed("copy")) is Safety.UNSAFE


def test_work_that_was_forked_is_joined_by_who_waits_for_it() -> None:
    assert of(WAIT, fed("kernel")) is Safety.UNSAFE


def test_what_a_collective_sends_is_needed() -> None:
    assert of(WAIT, fed("kernel", reader=REDUCE)) is Safety.UNSAFE


def waited_for(inside: bool) -> Trace:
    """Each step: a reduction on 9, for which stream 7 is told to wait, then a kernel there; in the kernel's range?"""

    def make(program: Program, at: int) -> None:
        program.range("feed", at, at + 10)
        program.kernel(REDUCE, 9, at + 1, at + 10, at + 300, collective=at // LONG)
        record = program.rank.record(9, (at + 8) * US)
        program.range("use", at + 20, at + 40)
        program.rank.wait(7, record, (at + (21 if inside else 12)) * US)
        program.kernel("use", 7, at + 25, at + 303, at + 400)

    return steps(make)


def test_the_wait_right_behind_a_collective_is_asked_about() -> None:
    """So does a framework make streams wait for a synchronous collective, whether its result is needed or not.

    One that is made in another range is made where the program comes to need it.
    """
    assert of(WAIT, waited_for(inside=False)) is Safety.CONDITIONAL
    assert of(WAIT, waited_for(inside=True)) is Safety.DOUBTFUL
    assert of(WAIT, fed(REDUCE)) is Safety.DOUBTFUL


def test_a_wait_where_the_program_comes_to_need_it_is_doubtful() -> None:
    """Another kernel is launched between the collective and the wait: nobody waits for what he does not need."""
    assert of(WAIT, fed(REDUCE, at_once=False)) is Safety.DOUBTFUL


def test_a_copy_to_the_host_brings_no_data_to_a_stream() -> None:
    """Only what writes to its source has to wait for it: a question whose answer is likely yes."""
    assert of(WAIT, fed("copy to the host")) is Safety.LIKELY


def test_an_optimizer_needs_gradients_that_were_reduced() -> None:
    """The same wait, by the name of who waits."""

    def make(program: Program, at: int) -> None:
        program.range("reduce", at, at + 10)
        program.kernel(REDUCE, 9, at + 1, at + 10, at + 300, collective=at // LONG)
        record = program.rank.record(9, (at + 8) * US)
        for name, stream, call in (("layer", 7, 20), ("optimizer", 11, 40)):
            program.range(name, at + call, at + call + 15)
            program.rank.wait(stream, record, (at + call + 1) * US)
            program.kernel(name, stream, at + call + 5, at + 303, at + 400)

    trace = steps(make)
    assert of(DropWait("nvtx:layer", "nvtx:reduce"), trace) is Safety.DOUBTFUL
    assert of(DropWait("nvtx:optimizer", "nvtx:reduce"), trace) is Safety.UNSAFE


@pytest.mark.parametrize("again", [True, False])
def test_a_wait_that_is_made_again_later_is_not_needed_before(again: bool) -> None:
    """The host makes stream 7 wait for a reduction before the first layer, and once more before the second."""

    def make(program: Program, at: int) -> None:
        program.range("reduce", at, at + 10)
        program.kernel(REDUCE, 9, at + 1, at + 10, at + 300, collective=at // LONG)
        record = program.rank.record(9, (at + 8) * US)
        for number, call in enumerate((20, 40)):
            program.range(f"layer {number}", at + call, at + call + 15)
            if not number or again:
                program.rank.wait(7, record, (at + call + 1) * US)
            program.kernel(f"layer {number}", 7, at + call + 5, at + 303 + 100 * number, at + 400 + 100 * number)

    trace = steps(make)
    assert of(DropWait("nvtx:layer 0", "nvtx:reduce"), trace) is (Safety.SAFE if again else Safety.DOUBTFUL)


# Work submitted earlier.


def tower(waits_for_side: bool, by: str = "kernel", behind: bool = False) -> Trace:
    """A lookup on 7, the stream that steps begin on, then a tower on 9 that waits for it; or what waits for the tower.

    behind : the tower is on the lookup's stream instead, behind it, and nothing waits.
    """

    def make(program: Program, at: int) -> None:
        program.range("head", at, at + 6)
        program.kernel("head", 7, at + 1, at + 8, at + 9)
        program.range("lookup", at + 7, at + 13)
        if by == "copy":
            copy(program, "HtoD", 7, at + 8, at + 15, at + 300, source_memory="pinned")
        else:
            collective = at // LONG if by == RECEIVE else -1
            program.kernel(by, 7, at + 8, at + 15, at + 300, collective=collective)
        program.range("tower", at + 14, at + 30)
        if not behind:
            program.wait(9, 7, at + 15)
        program.kernel("product", 7 if behind else 9, at + 20, at + 303, at + 500)
        if waits_for_side:
            program.range("merge", at + 31, at + 50)
            program.wait(7, 9, at + 32)
            program.kernel("merge", 7, at + 40, at + 503, at + 510)

    return steps(make)


EARLIER = MoveWait("nvtx:tower", "nvtx:lookup")


def test_a_fork_may_come_earlier_if_nothing_there_is_needed() -> None:
    """A wait for the stream that steps begin on stands for all that was launched there until then."""
    assert of(EARLIER, tower(waits_for_side=False)) is Safety.CONDITIONAL


def test_what_is_received_is_not_read_before() -> None:
    """Neither by an event, of a stream of its own or of the one that steps begin on, nor behind it on one stream."""
    assert of(EARLIER, tower(waits_for_side=False, by=RECEIVE)) is Safety.UNSAFE
    assert of(EARLIER, tower(waits_for_side=False, by=RECEIVE, behind=True)) is Safety.UNSAFE
    assert of(MoveWait("nvtx:use", "nvtx:feed"), fed(RECEIVE)) is Safety.UNSAFE


def test_a_join_is_for_the_result() -> None:
    assert of(MoveWait("nvtx:merge", "nvtx:tower"), tower(waits_for_side=True)) is Safety.UNSAFE


def test_what_is_read_of_a_copy_does_not_come_before_it() -> None:
    """Neither by an event nor on one stream."""
    assert of(EARLIER, tower(waits_for_side=False, by="copy")) is Safety.UNSAFE
    assert of(EARLIER, tower(waits_for_side=False, by="copy", behind=True)) is Safety.UNSAFE


def test_what_was_queued_behind_on_one_stream_is_asked_about() -> None:
    assert of(EARLIER, tower(waits_for_side=False, behind=True)) is Safety.CONDITIONAL


def test_what_waited_for_nothing_that_it_comes_before_keeps_all_orders() -> None:
    """Two streams: the host submits the tower first, which never waited for the lookup."""

    def make(program: Program, at: int) -> None:
        program.range("lookup", at + 1, at + 8)
        program.kernel("lookup", 7, at + 2, at + 9, at + 300)
        program.range("tower", at + 10, at + 20)
        program.kernel("product", 9, at + 12, at + 19, at + 500)

    assert of(EARLIER, steps(make)) is Safety.SAFE


def test_what_moves_takes_its_waits_for_earlier_work_along() -> None:
    """The tower waits for the head, whose event was recorded before the lookup: that order stays."""

    def make(program: Program, at: int) -> None:
        program.range("head", at, at + 6)
        program.kernel("head", 7, at + 1, at + 8, at + 100)
        record = program.rank.record(7, (at + 6) * US)
        program.range("lookup", at + 8, at + 15)
        program.kernel("lookup", 7, at + 9, at + 102, at + 300)
        program.range("tower", at + 16, at + 30)
        program.rank.wait(9, record, (at + 17) * US)
        program.kernel("product", 9, at + 20, at + 103, at + 500)

    assert of(EARLIER, steps(make)) is Safety.SAFE


@pytest.mark.parametrize(
    ("phase", "place"),
    [
        ("nvtx:forward", 0),
        ("nvtx:fwd 3", 0),
        ("nvtx:loss", 1),
        ("nvtx:backward", 2),
        ("nvtx:Backward pass", 2),
        ("nvtx:clip gradients", 3),
        ("nvtx:optimizer", 4),
        ("nvtx:Optimizer.step#Adam", 4),
        ("nvtx:zero_grad", 4),
        ("nvtx:lookup", -1),
        ("comm", -1),
    ],
)
def test_phases_by_name(phase: str, place: int) -> None:
    assert phase_of(phase) == place


def test_a_phase_needs_those_before_it() -> None:
    assert comes_later("nvtx:forward", "nvtx:backward")
    assert comes_later("nvtx:backward", "nvtx:optimizer")
    assert not comes_later("nvtx:backward", "nvtx:forward")
    assert not comes_later("nvtx:forward 1", "nvtx:forward 2")
    assert not comes_later("nvtx:lookup", "nvtx:optimizer")
    assert not comes_later("nvtx:forward", "nvtx:lookup")


def test_no_backward_comes_before_its_forward() -> None:
    """Though they are on two streams, and no wait is on record: names say it."""

    def make(program: Program, at: int) -> None:
        for name, stream, call in (("forward", 7, 2), ("backward", 9, 12)):
            program.range(name, at + call - 1, at + call + 6)
            program.kernel(name, stream, at + call, at + call + 7, at + 300)

    trace = steps(make)
    assert of(MoveWait("nvtx:backward", "nvtx:forward"), trace) is Safety.UNSAFE


# A stream of its own.


def queued(first: str, last: str = "gemm") -> Trace:
    """Per step "out", "middle" and "last", one behind the other on one stream."""

    def make(program: Program, at: int) -> None:
        program.range("out", at + 1, at + 9)
        if first in ("DtoH", "HtoD"):
            copy(program, first, 7, at + 2, at + 10, at + 200)
        else:
            program.kernel(first, 7, at + 2, at + 10, at + 200)
        program.range("middle", at + 11, at + 20)
        collective = at // LONG if last == REDUCE else -1
        program.kernel(last, 7, at + 12, at + 201, at + 500, collective=collective)
        program.range("last", at + 21, at + 30)
        program.kernel("last", 7, at + 22, at + 501, at + 520)

    return steps(make)


OWN = OwnStream("nvtx:out")


def test_work_left_on_one_stream_is_asked_about() -> None:
    """Of copies nothing says that what comes behind needs them; of a kernel something probably reads what it wrote."""
    assert of(OWN, queued("DtoH")) is Safety.CONDITIONAL
    assert of(OWN, queued("pack")) is Safety.DOUBTFUL


def test_the_inputs_of_a_collective_stay_before_it() -> None:
    assert of(OWN, queued("pack", last=REDUCE)) is Safety.UNSAFE


def test_a_phase_of_the_step_gets_no_stream_of_its_own() -> None:
    def make(program: Program, at: int) -> None:
        for name, call, start, end in (("backward", 2, 10, 200), ("other", 12, 201, 300), ("end", 22, 301, 320)):
            program.range(name, at + call - 1, at + call + 6)
            program.kernel(name, 7, at + call, at + start, at + end)

    trace = steps(make)
    assert of(OwnStream("nvtx:backward"), trace) is Safety.UNSAFE
    assert of(OwnStream("nvtx:other"), trace) is Safety.DOUBTFUL


# Host syncs.


def synced(kind: str) -> Trace:
    """Per step a kernel, perhaps a copy, and a call that blocks the host in "log"; then a kernel of the same stream."""

    def make(program: Program, at: int) -> None:
        program.range("work", at, at + 9)
        program.kernel("K", 7, at + 2, at + 10, at + 100)
        program.range("log", at + 10, at + 160)
        if kind == "item":  # a copy to pageable memory blocks its thread
            copy(program, "DtoH", 7, at + 12, at + 101, at + 104, target_memory="pageable")
        elif kind == "written":
            copy(program, "DtoH", 7, at + 12, at + 101, at + 104, target_memory="pinned")
            program.rank.synchronize("stream", (at + 20) * US, (at + 106) * US, stream=7)
        elif kind == "upload":
            copy(program, "HtoD", 7, at + 12, at + 101, at + 104, source_memory="pinned")
            program.rank.synchronize("stream", (at + 20) * US, (at + 106) * US, stream=7)
        else:
            program.rank.synchronize("stream", (at + 20) * US, (at + 102) * US, stream=7)
        program.range("next", at + 170, at + 180)
        program.kernel("L", 7, at + 172, at + 179, at + 250)

    return steps(make)


LOG = DropSync("nvtx:log")


def test_an_item_is_asked_about_as_the_host_reads_its_value() -> None:
    assert of(LOG, synced("item")) is Safety.LIKELY


def test_a_synchronize_behind_a_copy_is_asked_about() -> None:
    """Of one to the host the host may read what it brings; of one from it, write again to where it came from."""
    assert of(LOG, synced("written")) is Safety.LIKELY
    assert of(LOG, synced("upload")) is Safety.LIKELY


def test_a_synchronize_with_nothing_to_read_is_safe() -> None:
    assert of(LOG, synced("nothing")) is Safety.SAFE


def test_a_copy_that_was_waited_for_already_is_not_asked_about_again() -> None:
    """`fetch` copies and waits; a second synchronize, behind another kernel, brings the host nothing."""

    def make(program: Program, at: int) -> None:
        program.range("fetch", at, at + 60)
        copy(program, "DtoH", 7, at + 2, at + 10, at + 40, target_memory="pinned")
        program.rank.synchronize("stream", (at + 10) * US, (at + 42) * US, stream=7)
        program.kernel("K", 7, at + 70, at + 77, at + 200)
        program.range("log", at + 80, at + 210)
        program.rank.synchronize("stream", (at + 90) * US, (at + 202) * US, stream=7)
        program.kernel("L", 7, at + 220, at + 227, at + 300)

    trace = steps(make)
    assert of(LOG, trace) is Safety.SAFE
    assert of(DropSync("nvtx:fetch"), trace) is Safety.LIKELY


def resting(waits: bool, written: bool = False) -> Trace:
    """Each step the optimizer and a lookup on 7, whose value the host reads in "log"; then A on 9, and 7 waits for it.

    That A comes behind the optimizer rests on that copy alone, or 9 waits for 7. written : no value is read there, the
    host synchronizes.
    """

    def make(program: Program, at: int) -> None:
        program.range("optimizer", at, at + 9)
        program.kernel("adam", 7, at + 2, at + 9, at + 50)
        program.range("log", at + 10, at + 110)
        program.kernel("lookup", 7, at + 11, at + 52, at + 60)
        if written:
            program.rank.synchronize("stream", (at + 20) * US, (at + 62) * US, stream=7)
        else:
            copy(program, "DtoH", 7, at + 20, at + 62, at + 70, target_memory="pageable")
        program.range("use", at + 120, at + 140)
        if waits:
            program.wait(9, 7, at + 121)
        program.kernel("A", 9, at + 130, at + 137, at + 250)
        program.wait(7, 9, at + 141)
        program.range("dense", at + 145, at + 160)
        program.kernel("gemm", 7, at + 146, at + 252, at + 300)

    return steps(make)


def test_a_sync_that_alone_orders_streams_stays() -> None:
    """Else it is a value that the host reads, which is asked about."""
    assert of(LOG, resting(waits=False)) is Safety.UNSAFE
    assert of(LOG, resting(waits=True)) is Safety.LIKELY


def test_so_does_one_that_is_written_to_order_them() -> None:
    assert of(LOG, resting(waits=False, written=True)) is Safety.UNSAFE
    assert of(LOG, resting(waits=True, written=True)) is Safety.SAFE


# Pageable memory.


@pytest.mark.parametrize(
    ("direction", "memory", "safety"),
    [
        ("HtoD", {"source_memory": "pageable", "target_memory": "device"}, Safety.SAFE),
        ("DtoH", {"source_memory": "device", "target_memory": "pageable"}, Safety.LIKELY),
    ],
)
def test_an_upload_may_be_pinned_and_a_download_is_asked_about(
    direction: str, memory: dict[str, str], safety: Safety
) -> None:
    """The host has what it uploads; what it downloads it may read right behind the call."""

    def make(program: Program, at: int) -> None:
        program.kernel("K", 7, at + 2, at + 9, at + 100)
        program.range("batch", at + 10, at + 200)
        copy(program, direction, 7, at + 12, at + 101, at + 150, **memory)
        program.kernel("L", 7, at + 210, at + 217, at + 300)

    assert of(Pin("nvtx:batch"), steps(make)) is safety


def test_a_synchronize_behind_a_pageable_copy_goes_with_it_as_a_question() -> None:
    def make(program: Program, at: int) -> None:
        program.range("batch", at + 1, at + 200)
        copy(program, "DtoH", 7, at + 2, at + 10, at + 100, target_memory="pageable")
        program.rank.synchronize("stream", (at + 103) * US, (at + 110) * US, stream=7)
        program.kernel("L", 7, at + 210, at + 217, at + 300)

    assert of(Pin("nvtx:batch"), steps(make)) is Safety.LIKELY


# All others, and several.


def test_what_keeps_all_orders_is_safe() -> None:
    trace = fed(REDUCE)
    for change in (Graph("nvtx:head"), Split("nvtx:feed", 4), Level("nvtx:use"), Scale("nvtx:use", 0.5)):
        assert of(change, trace) is Safety.SAFE


def test_a_late_rank_is_a_diagnosis_and_room_is_doubtful() -> None:
    trace = fed(REDUCE)
    assert of(OnTime(1), trace) is of(OnTime(), trace) is Safety.DIAGNOSIS
    assert of(MoreRoom("nvtx:use"), trace) is Safety.DOUBTFUL


def test_of_what_may_not_be_made_nothing_counts() -> None:
    named = {one: (one.named, one.weight) for one in Safety}
    assert named == {
        Safety.SAFE: (SAFE, 1.0),
        Safety.LIKELY: (CONDITIONAL, 1.0),
        Safety.CONDITIONAL: (CONDITIONAL, 0.5),
        Safety.DOUBTFUL: (CONDITIONAL, 0.1),
        Safety.DIAGNOSIS: (DIAGNOSIS, 0.0),
        Safety.UNSAFE: (UNSAFE, 0.0),
    }
