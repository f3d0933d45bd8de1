"""What is said of clocks, and the order of collectives on one clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.clocks.align import align
from analyzers.trace.columns import ints
from analyzers.trace.tables import Capture, Trace
from tests.analyzers.clocks.test_align import KERNEL, SPANS, two_ranks
from tests.support.builder import Builder
from tests.support.collective_runs import MS, Call, run


def warnings_of(trace: Trace) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for warning in align(trace).trace.warnings:
        found.setdefault(warning.code, []).append(warning.message)
    return found


@pytest.mark.parametrize("count", [1, 2, 7])
def test_few_collectives_are_said_with_how_little_they_bound(count: int) -> None:
    spans = SPANS[:count]
    # Nobody ends before the other has started: each bound is the tightest of all collectives.
    width = min(end - first for first, _, end in spans) + min(end - second for _, second, end in spans)
    (message,) = warnings_of(two_ranks(50_000, spans).trace())["few-collectives"]
    tie = "matched collective aligns" if count == 1 else "matched collectives align"
    assert message.startswith(f"Only {count} {tie} rank 1's clock;")
    assert f" a span of {width / 1000:.0f} µs." in message


def test_eight_collectives_are_not_few_and_nothing_is_said_of_them() -> None:
    assert warnings_of(two_ranks(50_000, SPANS[:8]).trace()) == {}


def test_of_clocks_that_few_collectives_align_the_least_bounded_is_named() -> None:
    builder = Builder()
    ranks = [builder.rank(rank) for rank in range(3)]
    starts = (0, 60_000, 30_000)  # rank 2 may be off the reference by more than rank 1
    for number in range(3):
        end = (number + 1) * MS
        for rank, start in enumerate(starts):
            ranks[rank].kernel(KERNEL, 20, end - 100_000 + start, end, launch=(0, 1))
            builder.add("comms", process=rank, correlation=builder.correlation, group="0", sequence=number)
    (message,) = warnings_of(builder.trace())["few-collectives"]
    # Rank 1: 100 − 0 and 100 − 60 µs; rank 2: 100 − 0 and 100 − 30.
    assert "align rank 2's clock" in message
    assert " 170 µs" in message


def test_a_device_is_named_with_its_rank_where_that_drives_several() -> None:
    builder = Builder()
    alone, first = builder.rank(0), builder.rank(1)
    second = replace(first, device=1)
    for number in range(3):
        end = (number + 1) * MS
        for process, start in ((alone, 0), (first, 60_000), (second, 30_000)):
            process.kernel(KERNEL, 20, end - 100_000 + start, end, launch=(0, 1))
            builder.add("comms", process=process.process, correlation=builder.correlation, group="0", sequence=number)
    (message,) = warnings_of(builder.trace())["few-collectives"]
    assert "align rank 1 device 1's clock" in message


def test_ranks_whose_matches_are_unsure_are_named() -> None:
    builder = Builder()
    for rank in range(3):
        process = builder.rank(rank)
        for number in range(10 - rank):
            start = number * 1_000_000 + rank * 40_000_000
            process.kernel("ncclDevKernel_AllReduce(x)", 20, start, start + 100_000)
    found = warnings_of(builder.trace())
    assert found["clocks-not-aligned"] == [
        "No collective that is surely matched says how far off the clock of rank 1, 2 is."
    ]


def test_clocks_that_nothing_aligns_are_said_to_rest_on_session_times() -> None:
    builder = Builder()
    for rank, name in enumerate(["AllReduce", "AllGather"]):
        builder.rank(rank).kernel(f"ncclDevKernel_{name}(x)", 7, 0, 10)
    found = warnings_of(builder.trace())
    assert list(found) == ["clocks-not-aligned"]
    assert "session start times" in found["clocks-not-aligned"][0]


def test_clocks_that_nobody_asked_to_align_and_a_single_one_are_worth_no_word() -> None:
    trace = two_ranks(50_000, SPANS[:3]).trace()
    assert align(trace, enabled=False).trace.warnings == trace.warnings == ()
    builder = Builder()
    builder.rank(0).kernel(KERNEL, 20, 0, 100)
    assert warnings_of(builder.trace()) == {}
    silent = Builder()
    silent.rank(0).kernel("gemm", 7, 0, 100)
    assert warnings_of(silent.trace()) == {}


def test_all_times_are_those_of_the_lowest_rank_s_clock() -> None:
    aligned = align(two_ranks(50_000, SPANS).trace()).trace
    assert ints(aligned.ops, "start_ns").tolist() == [start for first, second, _ in SPANS for start in (first, second)]
    assert ints(aligned.ops, "end_ns").tolist() == [end for *_, end in SPANS for _ in range(2)]
    assert ints(aligned.ops, "wait_ns").tolist() == [
        wait for first, second, _ in SPANS for wait in (max(second - first, 0), max(first - second, 0))
    ]


def test_contradictions_are_said_once() -> None:
    """In odd ones rank 1 ends 6 µs after rank 0 starts; in five even ones rank 0 ends 20 µs before rank 1 starts."""
    ends = [k * MS for k in range(1, 41)]
    builder = two_ranks(0, [(end - (6_000 if k % 2 else 300_000), end - 200_000, end) for k, end in enumerate(ends)])
    for number in range(0, 40, 8):
        builder.rows["ops"][2 * number]["end_ns"] = ends[number] - 220_000
    aligned = align(builder.trace())
    messages = [one.message for one in aligned.trace.warnings if one.code == "clocks-contradict"]
    assert aligned.clocks.doubtful == (0, 8, 16, 24, 32)
    (message,) = messages
    assert message.startswith("Collectives 0, 8, 16, 24, 32 contradict the others: on any clocks, a rank ends before ")


def test_collectives_are_numbered_by_their_first_end_on_the_common_clock() -> None:
    calls = (Call(groups=((0, 1), (2, 3)), name="a"), Call("AllGather", groups=((0, 2), (1, 3)), name="b", stream=24))
    for seed in range(4):
        aligned = align(run(4, 25, calls, seed=seed, offset=50 * MS, keyed="sequence").trace())
        matched, end = aligned.matches.calls, ints(aligned.trace.ops, "end_ns")
        first: dict[int, int] = {}
        for op, number in zip(matched.op.tolist(), matched.collective.tolist(), strict=True):
            first[number] = min(first.get(number, 2**62), int(end[op]))
        assert sorted(first) == list(range(len(aligned.matches.collectives)))
        assert [first[number] for number in sorted(first)] == sorted(first.values())


def test_a_rank_waits_no_longer_than_its_own_call() -> None:
    """Clocks as captured: rank 0's call is over before rank 1's begins."""
    builder = two_ranks(0, [(0, 10, 100), (1000, 1030, 1090)])
    builder.rows["ops"][0]["end_ns"] = 7
    aligned = align(builder.trace(), enabled=False)
    assert ints(aligned.trace.ops, "wait_ns").tolist() == [7, 0, 30, 0]


def test_contradictions_bear_the_numbers_that_collectives_have_on_the_common_clock() -> None:
    """Ranks 0 and 1 contradict each other in the seventh call of theirs; each is followed by one of ranks 0 and 2."""
    builder = Builder()
    ranks = [builder.rank(rank) for rank in range(3)]
    early = -50 * MS  # rank 1's clock: as captured, all calls of the first group end before any of the second
    for k in range(12):
        end = (k + 1) * MS
        first = end - (6_000 if k % 2 else 300_000)
        ended = end - 220_000 if k == 6 else end  # before rank 1 has come
        for group, rank, start, stop in (
            ("a", 0, first, ended),
            ("a", 1, end - 200_000 + early, end + early),
            ("b", 0, end + 100_000, end + 200_000),
            ("b", 2, end + 150_000, end + 200_000),
        ):
            ranks[rank].kernel(KERNEL, 20, start, stop, launch=(0, 1))
            builder.add("comms", process=rank, correlation=builder.correlation, group=group, sequence=k)
    clocks = align(builder.trace()).clocks
    assert clocks.doubtful == (12,)


def warned_of_captures(trace: Trace, hosts: tuple[str, str], world_size: int | None) -> list[str]:
    captures = tuple(Capture(f"{k}.json", "made", host=host, world_size=world_size) for k, host in enumerate(hosts))
    processes = tuple(replace(one, capture=k) for k, one in enumerate(trace.processes))
    named = warnings_of(replace(trace, captures=captures, processes=processes))
    return sorted(text for code in ("several-hosts", "ranks-unstated") for text in named.get(code, []))


def test_several_hosts_and_an_unknown_number_of_ranks_are_said() -> None:
    trace = two_ranks(0, SPANS).trace()
    said = (
        "No capture says how many ranks the job had: the 2 given are taken for all. If there were others, waiting for "
    )
    assert warned_of_captures(trace, ("node3", "node3"), None) == [said + "them counts as overlap."]
    assert warned_of_captures(trace, ("node3", "node4"), 2) == [
        "The captures are of 2 hosts (node3, node4): across hosts, collectives alone align clocks."
    ]
    for hosts in (("node3", "node3"), ("", ""), ("localhost", "node3")):
        assert warned_of_captures(trace, hosts, 2) == []
