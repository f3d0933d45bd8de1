"""Each change of a program on a capture of a few ops, whose times after it follow by hand (µs)."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.common.errors import TracevizError
from analyzers.replay.change import combined
from analyzers.replay.changes import parse_change
from analyzers.replay.host_changes import (
    DropSync,
    Graph,
    MoveWait,
    OnTime,
    Pin,
    _of_others,
    late_hosts,
)
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Scale, Split
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import US, Program, blocked, replayed
from tests.support.builder import Builder


def test_without_the_sync_the_host_goes_on() -> None:
    """L's launch follows at 25 + 8, is submitted at 38, and L starts 2 µs after K's end."""
    assert replayed(blocked(), [DropSync("nvtx:fetch")]) == {"K": [(8, 108)], "L": [(110, 160)]}


def waiting() -> Program:
    """B runs 100 µs on stream 7; A, on 9, waits for it; the host works for 40 µs in B's range before B's launch."""
    program = Program()
    program.kernel("in", 7, call=0, start=7, end=10)
    program.range("B", 6, 55)
    program.kernel("B", 7, call=46, start=53, end=153)
    program.range("A", 56, 80)
    program.wait(9, 7, at=57)
    program.kernel("A", 9, call=65, start=155, end=175)
    program.kernel("tail", 7, call=85, start=155, end=160)
    return program


def test_without_the_wait_it_starts_when_submitted() -> None:
    found = replayed(waiting().trace(), [DropWait("nvtx:A", "nvtx:B")])
    assert found["A"] == [(72, 92)]
    assert found["B"] == [(53, 153)]


def test_other_kernels_before_it_keep_their_wait() -> None:
    """M and a memset stand between the wait and A: a memset is part of A's work, a kernel of another range is not."""
    for between, dropped in (("kernel", False), ("memset", True)):
        program = Program()
        program.kernel("B", 7, call=0, start=7, end=107)
        program.wait(9, 7, at=20)
        if between == "kernel":
            program.kernel("M", 9, call=22, start=110, end=120)
        else:
            program.rank.op("Memset", 9, 110 * US, 120 * US, kind="memset", launch=(22 * US, 27 * US))
        program.range("A", 30, 60)
        program.kernel("A", 9, call=35, start=123, end=140)
        trace = program.trace()
        found = tasks(trace)
        if not dropped:
            with pytest.raises(TracevizError, match="no such wait is on record"):
                combined(trace, found, [DropWait("nvtx:A", "kernel:B")])
            continue
        units = combined(trace, found, [DropWait("nvtx:A", "kernel:B")]).units
        assert found.units.waits.items.size > 0
        assert units.waits.items.size == 0


def test_moved_ahead_it_waits_for_what_there_was_then() -> None:
    """A's 24 µs of host time come at 6: its launch 9 µs in, at 15, and A, behind "in", starts at 15 + 7.

    All of B comes 24 µs later.
    """
    found = replayed(waiting().trace(), [MoveWait("nvtx:A", "nvtx:B")])
    assert found["A"] == [(22, 42)]
    assert found["B"] == [(77, 177)]
    assert found["tail"] == [(179, 184)]


def test_of_more_in_between_all_is_jumped() -> None:
    """M, in no range, is launched between B and A, which comes before both."""
    program = Program()
    program.range("B", 0, 9)
    program.kernel("B", 7, call=1, start=8, end=60)
    program.kernel("M", 11, call=12, start=19, end=70)
    program.range("A", 20, 30)
    program.kernel("A", 9, call=22, start=29, end=80)
    trace = program.trace()
    found = tasks(trace)
    moved, jumped = MoveWait("nvtx:A", "nvtx:B").jumps(trace, found)
    names = trace.ops.to_frame()["name"].astype(str).to_numpy()[found.units.op]
    by_call = [names[found.units.call == call][0] for call in range(3)]
    assert [name for name, one in zip(by_call, moved, strict=True) if one] == ["A"]
    assert [name for name, one in zip(by_call, jumped, strict=True) if one] == ["B", "M"]


def test_what_comes_first_anyway_does_not_move() -> None:
    with pytest.raises(TracevizError, match="no occurrence of the first comes behind"):
        replayed(waiting().trace(), [MoveWait("nvtx:B", "nvtx:A")])


def test_a_stream_of_its_own() -> None:
    """S no longer waits for K, only for what was on the stream where it forks; the tail waits for both."""
    program = Program()
    program.kernel("in", 7, call=0, start=7, end=10)
    program.range("K", 5, 19)
    program.kernel("K", 7, call=10, start=17, end=117)
    program.range("S", 19, 29)
    program.kernel("S", 7, call=20, start=119, end=139)
    program.range("tail", 29, 40)
    program.kernel("tail", 7, call=30, start=141, end=146)
    found = replayed(program.trace(), [OwnStream("nvtx:K", "nvtx:tail")])
    assert found == {"in": [(7, 10)], "K": [(17, 117)], "S": [(27, 47)], "tail": [(119, 124)]}


def test_what_has_its_stream_to_itself_stays_there() -> None:
    """Nothing else is on stream 9: no wait is added for it, and nothing is left to change."""
    with pytest.raises(TracevizError, match="own-stream kernel:A: it has streams of its own already"):
        replayed(waiting().trace(), [OwnStream("kernel:A")])


@pytest.mark.parametrize(("around", "start"), [(True, 119), (False, 27)])
def test_without_a_join_it_is_joined_where_the_range_around_it_ends(around: bool, start: int) -> None:
    """A of 100 µs; B, launched at 20, ends the same range, and waits for A. Without that range D, at the end of the
    step, does, and B begins when it is submitted."""
    program = Program()
    program.range("step 0", 0, 99)
    if around:
        program.range("forward", 9, 29)
    program.range("A", 9, 19)
    program.kernel("A", 7, call=10, start=17, end=117)
    program.kernel("B", 7, call=20, start=119, end=129)
    program.kernel("C", 7, call=30, start=131, end=141)
    program.kernel("D", 7, call=40, start=143, end=153)
    found = replayed(program.trace(), [OwnStream("nvtx:A")])
    assert found["A"] == [(17, 117)]
    assert found["B"][0][0] == start
    assert found["D"][0][0] >= 117


def two_ranks() -> Builder:
    """Rank 1's host works for 50 µs before its all-reduce, rank 0's for 10; the transfer takes 20."""
    both = Builder()
    for number, call in ((0, 20), (1, 60)):
        program = Program(both, number)
        program.kernel("K", 7, call=5, start=12, end=15)
        wait = {0: 40 * US, 1: 0}[number]
        program.kernel("ncclDevKernel_AllReduce", 9, call=call, start=call + 7, end=87, collective=0, wait_ns=wait)
    return both


def test_a_late_rank_that_is_on_time() -> None:
    for change in (OnTime(1), OnTime()):
        assert replayed(two_ranks().trace(), [change])["ncclDevKernel_AllReduce"] == [(27, 47), (27, 47)]


def test_the_early_rank_has_nothing_to_make_up_for() -> None:
    with pytest.raises(TracevizError, match="never later than the others'"):
        replayed(two_ranks().trace(), [OnTime(0)])


def test_of_like_calls_that_is_shortened_which_comes_later_than_others() -> None:
    """Before the second of three launches both ranks work 40 µs; before the third rank 1 works 30 more than rank 0."""
    both = Builder()
    for number, last in ((0, 65), (1, 95)):
        program = Program(both, number)
        for at in (5, 50):
            program.kernel("K", 7, call=at, start=at + 7, end=at + 9)
        wait = (95 - last) * US
        reduce = "ncclDevKernel_AllReduce"
        program.kernel(reduce, 9, call=last, start=last + 7, end=130, collective=0, wait_ns=wait)
    found = tasks(both.trace())
    assert found.calls.before_ns.tolist() == [one * US for one in (5, 40, 10, 5, 40, 40)]
    assert late_hosts(found, 1).tolist() == [0, 0, 0, 0, 0, 30 * US]


@pytest.mark.parametrize("least", [False, True])
def test_others_of_a_group(least: bool) -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        group, values = draw.integers(0, 4, 12), draw.integers(0, 30, 12)
        expected = []
        for row in range(12):
            others = sorted(int(values[i]) for i in range(12) if i != row and group[i] == group[row])
            middle = others[(len(others) - 1) // 2 : len(others) // 2 + 1] if others else [int(values[row])]
            expected.append((min(others) if least else sum(middle) // len(middle)) if others else middle[0])
        assert _of_others(group, values, least=least).tolist() == expected


def test_scaled_kernels() -> None:
    assert replayed(blocked(), [Scale("kernel:K", 0.5)]) == {"K": [(8, 58)], "L": [(77, 127)]}


def test_pieces_of_a_collective_follow_the_pieces_of_what_feeds_it() -> None:
    """K's 100 µs in two pieces of 50, then each half of the all-reduce's 60: from 62 + 2 on instead of 109."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.wait(9, 7, at=6)
    program.kernel("ncclDevKernel_AllReduce", 9, call=10, start=109, end=169, collective=0)
    found = tasks(program.trace())
    changed = combined(program.trace(), found, [Split("kernel:~AllReduce", 2)])
    assert changed.units.op.size == 4
    assert sorted(changed.units.transfer_ns.tolist()) == [30 * US, 30 * US, 50 * US, 50 * US]
    spans = replayed(program.trace(), [Split("kernel:~AllReduce", 2)])
    (first_k, second_k), (first, second) = spans["K"], spans["ncclDevKernel_AllReduce"]
    assert first_k == (7, 57)
    assert 57 < second_k[0] <= 59
    assert first == (first_k[1] + 2, first_k[1] + 32)
    assert second == (second_k[1] + 2, second_k[1] + 32)


def experts(names: str = "KK") -> Program:
    """Kernels of 50 µs one behind the other, and an all-reduce of 60 that waits for the last."""
    program = Program()
    for number, name in enumerate(names):
        program.kernel(name, 7, call=6 * number, start=7 + 51 * number, end=57 + 51 * number)
    end = 51 * len(names) + 6
    program.wait(9, 7, at=40)
    program.kernel("ncclDevKernel_AllReduce", 9, call=45, start=end + 2, end=end + 62, collective=0)
    return program


def test_of_like_kernels_each_may_feed_its_piece() -> None:
    """Two experts end at 57 and 108: at best half an all-reduce begins 2 µs behind each, else behind half the last."""
    trace = experts().trace()
    change = Split("kernel:~AllReduce", 2)
    at_best, usual = (replayed(trace, [one])["ncclDevKernel_AllReduce"] for one in (change.at_best, change))
    assert at_best == [(59, 89), (110, 140)]
    assert usual[0] == (85, 115)  # half of the last expert ends at 83
    assert 115 < usual[1][0] <= 117  # its other half has ended by then
    assert replayed(trace, [change.at_best])["K"] == [(7, 57), (58, 108)]  # none is cut


@pytest.mark.parametrize("names", ["K", "LK"])
def test_where_fewer_are_alike_the_last_is_cut_at_best_too(names: str) -> None:
    trace = experts(names).trace()
    change = Split("kernel:~AllReduce", 2)
    assert replayed(trace, [change.at_best]) == replayed(trace, [change])


def test_like_kernels_of_another_step_feed_no_piece() -> None:
    program = experts()
    program.range("ProfilerStep#0", 0, 5)
    program.range("ProfilerStep#1", 6, 60)
    change = Split("kernel:~AllReduce", 2)
    assert replayed(program.trace(), [change.at_best]) == replayed(program.trace(), [change])


def test_a_collective_that_feeds_another_is_cut_once() -> None:
    """A reduce-scatter and the all-gather that waits for it, both in halves: a half waits for a half."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.wait(9, 7, at=6)
    program.kernel("ncclDevKernel_ReduceScatter", 9, call=10, start=109, end=149, collective=0)
    program.wait(11, 9, at=20)
    program.kernel("ncclDevKernel_AllGather", 11, call=22, start=151, end=191, collective=1)
    trace = program.trace()
    changed = combined(trace, tasks(trace), [Split("comm", 2)])
    assert sorted(changed.units.transfer_ns.tolist()) == [20 * US] * 4 + [50 * US] * 2
    found = replayed(trace, [Split("comm", 2)])
    scattered, gathered = found["ncclDevKernel_ReduceScatter"], found["ncclDevKernel_AllGather"]
    assert [begin - end for (_, end), (begin, _) in zip(scattered, gathered, strict=True)] == [2, 2]


def test_a_graph_is_launched_at_once_and_its_host_code_is_gone() -> None:
    """Three launches with 30 µs of host work between; as a graph all are submitted with the first, at 15."""
    program = Program()
    program.kernel("in", 7, call=0, start=7, end=9)
    program.range("layers", 10, 90)
    for at in (10, 45, 80):
        program.kernel("K", 7, call=at, start=at + 7, end=at + 17)
    program.kernel("tail", 7, call=95, start=102, end=105)
    found = replayed(program.trace(), [Graph("nvtx:layers")])
    assert found["K"] == [(17, 27), (28, 38), (39, 49)]  # 1 µs from node to node
    assert found["tail"] == [(51, 54)]  # the call comes at 20; 2 µs after the graph


def test_a_graph_needs_a_range_and_no_sync_in_it() -> None:
    with pytest.raises(TracevizError, match="no range of that name"):
        replayed(blocked(), [Graph("kernel:K")])
    with pytest.raises(TracevizError, match="waits for the GPU, which no graph can hold"):
        replayed(blocked(), [Graph("nvtx:fetch")])


def test_kernels_that_leave_room_take_none() -> None:
    found = combined(blocked(), tasks(blocked()), [MoreRoom("kernel:K")])
    assert found.occupancy.taken[0].tolist() == [0, 0, 0, 0]
    assert not found.occupancy.fills[0]


def batch(stream: int = 7, synchronized: int = 0, **memory: str) -> Trace:
    """K runs 100 µs; a copy behind it blocks the host until 2 µs after its end, unless its memory is pinned; 8 µs of
    host work on L is launched, on some stream.

    synchronized : 1 where the call returns at once, and a synchronize behind it waits, of a stream that is not on
    record; 2 where it is.
    """
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.range("batch", 10, 165)
    until = 14 if synchronized else 162
    launch = (12 * US, until * US)
    program.rank.copy("HtoD", 7, 109 * US, 160 * US, launch=launch, bytes=1 << 20, **memory)
    if synchronized == 1:
        program.rank.call("cudaStreamSynchronize", 16 * US, 162 * US)
    elif synchronized == 2:
        program.rank.synchronize("stream", 16 * US, 162 * US, stream=7)
    program.kernel("L", stream, call=170, start=177, end=227)
    return program.trace()


PAGEABLE = {"source_memory": "pageable", "target_memory": "device"}


@pytest.mark.parametrize(("stream", "then"), [(7, (162, 212)), (9, (30, 80))])
def test_a_pinned_copy_returns_at_once_and_takes_as_long(stream: int, then: tuple[int, int]) -> None:
    """Its call takes 3 µs from 12 on; L's comes 8 later, at 23, and L 7 after that, or 2 behind the copy."""
    found = replayed(batch(stream, **PAGEABLE), [Pin("nvtx:batch")])
    assert found == {"K": [(7, 107)], "Memcpy HtoD": [(109, 160)], "L": [then]}


@pytest.mark.parametrize("synchronized", [1, 2])
def test_a_synchronize_that_waits_for_the_copy_goes_with_it(synchronized: int) -> None:
    """Whether its stream is on record or not, right behind the copy; the call of the copy takes its 2 µs, too, if that
    did not wait: L's comes at 14 + 2 + 8 = 24."""
    trace = batch(9, synchronized, target_memory="pageable")
    found = replayed(trace, [Pin("nvtx:batch")])
    assert found["Memcpy HtoD"] == [(109, 160)]
    assert found["L"] == [(31, 81)]


@pytest.mark.parametrize(
    ("where", "memory"), [("nvtx:batch", {"source_memory": "pinned"}), ("kernel:L", PAGEABLE), ("nvtx:batch", {})]
)
def test_only_pageable_copies_of_the_place_are_pinned(where: str, memory: dict[str, str]) -> None:
    with pytest.raises(TracevizError, match="no copy from or to pageable memory blocks its thread there"):
        replayed(batch(**memory), [Pin(where)])


def test_a_pin_is_asked_for_in_words() -> None:
    assert Pin("nvtx:batch").advice == "pin the host memory of the copies in batch and copy with non_blocking=True"
    assert Pin("nvtx:batch").advice_at(".to() in batch") == (
        "pin the host memory of the copies .to() in batch and copy with non_blocking=True"
    )


@pytest.mark.parametrize(
    "text",
    [
        "drop-sync nvtx:fetch",
        "pin nvtx:fetch",
        "pin call:cudaMemcpyAsync",
        "level nvtx:load",
        "drop-wait nvtx:A on nvtx:B",
        "move-wait nvtx:A before nvtx:B",
        "own-stream nvtx:S",
        "own-stream nvtx:S join-before nvtx:tail",
        "on-time all",
        "on-time 3",
        "scale comm 0.5",
        "split collective:all_reduce 4",
        "graph nvtx:layers",
        "more-room comm",
    ],
)
def test_a_change_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_change(text)) == text


@pytest.mark.parametrize(
    "text", ["", "fly", "drop-wait nvtx:A", "scale comm", "scale comm -1", "split comm 1", "graph"]
)
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(TracevizError):
        parse_change(text)
