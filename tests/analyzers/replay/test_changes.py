"""Each change of a program on a capture of a few ops, whose times after it follow by hand (µs)."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.common.errors import TracevizError
from analyzers.replay.answer import parse_change
from analyzers.replay.change import Change, combined
from analyzers.replay.host_changes import DropSync, Graph, MoveWait, OnTime, Pin, _of_others, late_hosts
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Scale, Split
from analyzers.replay.tasks import tasks
from tests.analyzers.replay.programs import BLOCKED, US, blocked, names_of, on_ranks, replayed, written

ALL_REDUCE = "ncclDevKernel_AllReduce"
# B runs 100 µs on stream 7; A, on 9, waits for it; the host works for 40 µs in B's range before B's launch.
WAITING = """
    in 7 @0 7-10; [B 6-55]; B 7 @46 53-153
    [A 56-80]; 9<7 @57; A 9 @65 155-175; tail 7 @85 155-160
"""


@pytest.mark.parametrize(
    ("text", "change", "times"),
    [
        # L's launch follows at 25 + 8, is submitted at 38, and L starts 2 µs after K's end.
        (BLOCKED, DropSync("nvtx:fetch"), {"K": [(8, 108)], "L": [(110, 160)]}),
        (BLOCKED, Scale("kernel:K", 0.5), {"K": [(8, 58)], "L": [(77, 127)]}),
        # A starts when it is submitted.
        (WAITING, DropWait("nvtx:A", "nvtx:B"), {"A": [(72, 92)], "B": [(53, 153)]}),
        # A's 24 µs of host time come at 6: its launch 9 µs in, at 15, and A, behind "in", starts at 15 + 7. All of B
        # comes 24 µs later.
        (WAITING, MoveWait("nvtx:A", "nvtx:B"), {"A": [(22, 42)], "B": [(77, 177)], "tail": [(179, 184)]}),
        # S no longer waits for K, only for what was on the stream where it forks; the tail waits for both.
        (
            "in 7 @0 7-10; [K 5-19]; K 7 @10 17-117; [S 19-29]; S 7 @20 119-139; [tail 29-40]; tail 7 @30 141-146",
            OwnStream("nvtx:K", "nvtx:tail"),
            {"in": [(7, 10)], "K": [(17, 117)], "S": [(27, 47)], "tail": [(119, 124)]},
        ),
        # Three launches with 30 µs of host work between; as a graph all are submitted with the first, at 15, with 1 µs
        # from node to node. The next call comes at 20; its kernel 2 µs after the graph.
        (
            "in 7 @0 7-9; [layers 10-90]; K 7 @10 17-27; K 7 @45 52-62; K 7 @80 87-97; tail 7 @95 102-105",
            Graph("nvtx:layers"),
            {"K": [(17, 27), (28, 38), (39, 49)], "tail": [(51, 54)]},
        ),
        # A reduce-scatter and the all-gather that waits for it, in halves: each waits for one, and begins 2 µs later.
        (
            "K 7 @0 7-107; 9<7 @6; ReduceScatter:0 9 @10 109-149; 11<9 @20; AllGather:1 11 @22 151-191",
            Split("comm", 2),
            {"ncclDevKernel_AllGather": [(81, 101), (133, 153)]},
        ),
    ],
)
def test_times_with_a_change(text: str, change: Change, times: dict[str, list[tuple[float, float]]]) -> None:
    found = replayed(written(text), [change])
    assert {name: found[name] for name in times} == times


@pytest.mark.parametrize(
    ("text", "change", "reason"),
    [
        (BLOCKED, DropSync("kernel:L"), "drop-sync kernel:L: no call that blocks"),
        (WAITING, MoveWait("nvtx:B", "nvtx:A"), "no occurrence of the first comes behind"),  # it comes first anyway
        (WAITING, OwnStream("kernel:A"), "own-stream kernel:A: it has streams of its own already"),
        (BLOCKED, Graph("kernel:K"), "no range of that name"),
        (BLOCKED, Graph("nvtx:fetch"), "waits for the GPU, which no graph can hold"),
    ],
)
def test_what_changes_nothing_or_can_not_be_is_refused(text: str, change: Change, reason: str) -> None:
    with pytest.raises(TracevizError, match=reason):
        replayed(written(text), [change])


def test_other_kernels_before_it_keep_their_wait() -> None:
    """M and a memset stand between the wait and A: a memset is part of A's work, a kernel of another range is not."""
    for between in ("M", "Memset"):
        trace = written(f"B 7 @0 7-107; 9<7 @20; {between} 9 @22 110-120; [A 30-60]; A 9 @35 123-140")
        found, change = tasks(trace), DropWait("nvtx:A", "kernel:B")
        assert found.units.waits.items.size > 0
        if between == "Memset":
            assert combined(trace, found, [change]).units.waits.items.size == 0
            continue
        with pytest.raises(TracevizError, match="no such wait is on record"):
            combined(trace, found, [change])


def test_what_moves_knows_all_that_it_comes_before() -> None:
    """M, in no range, is launched between B and A, which comes before both; not before "in", which was first anyway."""
    trace = written("in 7 @0 7-8; [B 5-10]; B 7 @6 13-60; M 11 @12 19-70; [A 20-30]; A 9 @22 29-80; tail 7 @40 61-70")
    found = tasks(trace)
    moved, jumped = MoveWait("nvtx:A", "nvtx:B").jumps(trace, found)
    names = np.array(names_of(trace, found.units))
    by_call = [names[found.units.call == call][0] for call in range(5)]
    assert [name for name, one in zip(by_call, moved, strict=True) if one] == ["A"]
    assert [name for name, one in zip(by_call, jumped, strict=True) if one] == ["B", "M"]


@pytest.mark.parametrize(("around", "start"), [(True, 119), (False, 27)])
def test_without_a_join_it_is_joined_where_the_range_around_it_ends(around: bool, start: int) -> None:
    """A of 100 µs; B, launched at 20, ends the same range, and waits for A. Without that range D, at the end of the
    step, does, and B begins when it is submitted."""
    text = f"""
        [step 0 0-99]; {"[forward 9-29]" if around else ""}; [A 9-19]
        A 7 @10 17-117; B 7 @20 119-129; C 7 @30 131-141; D 7 @40 143-153
    """
    found = replayed(written(text), [OwnStream("nvtx:A")])
    assert found["A"] == [(17, 117)]
    assert found["B"][0][0] == start
    assert found["D"][0][0] >= 117


# Rank 1's host works for 50 µs before its all-reduce, rank 0's for 10; the transfer takes 20.
LATE = [f"K 7 @5 12-15; AllReduce:0 9 @{call} {call + 7}-87 wait_ns={wait}" for call, wait in ((20, 40_000), (60, 0))]


def test_a_late_rank_that_is_on_time() -> None:
    for change in (OnTime(1), OnTime()):
        assert replayed(on_ranks(*LATE), [change])[ALL_REDUCE] == [(27, 47), (27, 47)]
    with pytest.raises(TracevizError, match="never later than the others'"):
        replayed(on_ranks(*LATE), [OnTime(0)])


def test_of_like_calls_that_is_shortened_which_comes_later_than_others() -> None:
    """Before the second of three launches both ranks work 40 µs; before the third rank 1 works 30 more than rank 0."""
    texts = [
        f"K 7 @5 12-14; K 7 @50 57-59; AllReduce:0 9 @{last} {last + 7}-130 wait_ns={(95 - last) * US}"
        for last in (65, 95)
    ]
    found = tasks(on_ranks(*texts))
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


# Collectives in pieces.

HALVES = Split("kernel:~AllReduce", 2)


def experts(names: str = "KK", steps: str = "") -> str:
    """Kernels of 50 µs one behind the other, and an all-reduce of 60 that waits for the last."""
    work = [f"{name} 7 @{6 * at} {7 + 51 * at}-{57 + 51 * at}" for at, name in enumerate(names)]
    end = 51 * len(names) + 8
    return "; ".join([*work, "9<7 @40", f"AllReduce:0 9 @45 {end}-{end + 60}", steps])


def test_pieces_of_a_collective_follow_the_pieces_of_what_feeds_it() -> None:
    """K's 100 µs in two pieces of 50, then each half of the all-reduce's 60: from 57 + 2 on instead of 109."""
    trace = written("K 7 @0 7-107; 9<7 @6; AllReduce:0 9 @10 109-169")
    changed = combined(trace, tasks(trace), [HALVES])
    assert sorted(changed.units.transfer_ns.tolist()) == [30 * US, 30 * US, 50 * US, 50 * US]
    found = replayed(trace, [HALVES])
    (first_k, second_k), (first, second) = found["K"], found[ALL_REDUCE]
    assert first_k == (7, 57)
    assert 57 < second_k[0] <= 59
    assert first == (first_k[1] + 2, first_k[1] + 32)
    assert second == (second_k[1] + 2, second_k[1] + 32)


def test_of_like_kernels_each_may_feed_its_piece() -> None:
    """Two experts end at 57 and 108: at best half an all-reduce begins 2 µs behind each, else behind half the last."""
    trace = written(experts())
    at_best, usual = (replayed(trace, [one])[ALL_REDUCE] for one in (HALVES.at_best, HALVES))
    assert at_best == [(59, 89), (110, 140)]
    assert usual[0] == (85, 115)  # half of the last expert ends at 83
    assert 115 < usual[1][0] <= 117  # its other half has ended by then
    assert replayed(trace, [HALVES.at_best])["K"] == [(7, 57), (58, 108)]  # none is cut


@pytest.mark.parametrize(
    "text", [experts("K"), experts("LK"), experts(steps="[ProfilerStep#0 0-5]; [ProfilerStep#1 6-60]")]
)
def test_where_fewer_of_a_step_are_alike_the_last_is_cut_at_best_too(text: str) -> None:
    assert replayed(written(text), [HALVES.at_best]) == replayed(written(text), [HALVES])


def test_kernels_that_leave_room_take_none() -> None:
    found = combined(blocked(), tasks(blocked()), [MoreRoom("kernel:K")])
    assert found.occupancy.taken[0].tolist() == [0, 0, 0, 0]
    assert not found.occupancy.fills[0]


# Copies of pageable memory.


def batch(stream: int = 7, memory: str = "", behind: str = "") -> str:
    """K runs 100 µs; a copy behind it blocks the host until 2 µs after its end, unless its memory is pinned; 8 µs of
    host work on L is launched, on some stream.

    behind : a synchronize behind the copy that waits instead.
    """
    returns = 14 if behind else 162
    copy = f"HtoD 7 @12-{returns} 109-160 bytes=1048576 {memory}".strip()
    return f"K 7 @0 7-107; [batch 10-165]; {copy}; {behind}; L {stream} @170 177-227"


FROM_PAGEABLE = "source_memory=pageable target_memory=device"


@pytest.mark.parametrize(("stream", "then"), [(7, (162, 212)), (9, (30, 80))])
def test_a_pinned_copy_returns_at_once_and_takes_as_long(stream: int, then: tuple[int, int]) -> None:
    """Its call takes 3 µs from 12 on; L's comes 8 later, at 23, and L 7 after that, or 2 behind the copy."""
    found = replayed(written(batch(stream, FROM_PAGEABLE)), [Pin("nvtx:batch")])
    assert found == {"K": [(7, 107)], "Memcpy HtoD": [(109, 160)], "L": [then]}


def test_a_synchronize_that_waits_for_the_copy_goes_with_it() -> None:
    """The call of the copy takes its 2 µs, too, if that did not wait: L's comes at 14 + 2 + 8 = 24."""
    found = replayed(written(batch(9, "target_memory=pageable", "sync7 16-162")), [Pin("nvtx:batch")])
    assert (found["Memcpy HtoD"], found["L"]) == ([(109, 160)], [(31, 81)])


@pytest.mark.parametrize(
    ("where", "memory"), [("nvtx:batch", "source_memory=pinned"), ("kernel:L", FROM_PAGEABLE), ("nvtx:batch", "")]
)
def test_only_pageable_copies_of_the_place_are_pinned(where: str, memory: str) -> None:
    with pytest.raises(TracevizError, match="no copy from or to pageable memory blocks its thread there"):
        replayed(written(batch(memory=memory)), [Pin(where)])


def test_a_pin_is_asked_for_in_words() -> None:
    assert Pin("nvtx:batch").advice == "pin the host memory of the copies in batch and copy with non_blocking=True"


@pytest.mark.parametrize(
    "text",
    [
        "drop-sync nvtx:fetch",
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
