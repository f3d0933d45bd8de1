"""What launches and synchronizations say of GPU clocks: by hand, by the definition, and against real captures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.align import align
from analyzers.clocks.hosts import AheadByHosts, HostBounds, _Last, host_bounds, shared_hosts, witnesses
from analyzers.clocks.solve import _ByHosts, _Estimated, _of_one_host
from analyzers.clocks.solve import solve as solution
from analyzers.scale.summaries import summary_of
from analyzers.trace.alignment import MatchedCalls, MatchedCollectives
from analyzers.trace.columns import ints, table
from analyzers.trace.tables import Capture, Trace
from tests.support.builder import Builder, Rank
from tests.support.captures import one_capture, whole_run
from tests.support.collective_runs import MS
from tests.support.made_matches import bounds, counts, matched, offsets, residuals, solve, together
from tests.support.nightly import times

US = 1_000


def said(trace: Trace) -> dict[tuple[int, int], tuple[int | None, int | None]]:
    """Of each (process, device): how far it runs ahead of its host at least, and at most."""
    found = host_bounds(trace)
    result = {}
    for process, device in sorted(set(zip(found.process.tolist(), found.device.tolist(), strict=True))):
        own = (found.process == process) & (found.device == device)
        least, most = found.ahead_ns[own & ~found.at_most], found.ahead_ns[own & found.at_most]
        result[process, device] = max(least.tolist(), default=None), min(most.tolist(), default=None)
    return result


def launched(rank: Rank, stream: int, start: int, end: int, call: int, **more: object) -> int:
    """A kernel on the GPU's clock whose launch call takes 2 µs on the host's."""
    return rank.kernel("k", stream, start, end, launch=(call, call + 2 * US), **more)


def test_no_op_starts_before_its_launch_began() -> None:
    """By the first the GPU is at most 9 µs ahead, by the second 7 µs."""
    builder = Builder()
    rank = builder.rank(0)
    launched(rank, 7, 109 * US, 120 * US, 100 * US)
    launched(rank, 7, 207 * US, 220 * US, 200 * US)
    assert said(builder.trace()) == {(0, 0): (None, 7 * US)}


def test_a_device_synchronize_returns_after_all_that_was_launched_before_on_any_stream() -> None:
    """The op on stream 9 ends 3 µs before the return, that on 7 earlier; the last is launched while the host waits."""
    builder = Builder()
    rank = builder.rank(0)
    launched(rank, 7, 110 * US, 120 * US, 100 * US)
    with rank.on_thread(2):
        launched(rank, 9, 112 * US, 147 * US, 102 * US)
    rank.synchronize("device", 105 * US, 150 * US)
    with rank.on_thread(2):
        launched(rank, 9, 147 * US, 190 * US, 104 * US)  # its call returns at 106
    assert said(builder.trace()) == {(0, 0): (-3 * US, 10 * US)}


def test_a_stream_synchronize_returns_after_what_was_launched_on_that_stream() -> None:
    builder = Builder()
    rank = builder.rank(0)
    launched(rank, 7, 110 * US, 120 * US, 100 * US)
    launched(rank, 9, 112 * US, 400 * US, 102 * US)
    rank.synchronize("stream", 105 * US, 125 * US, stream=7)
    assert said(builder.trace()) == {(0, 0): (-5 * US, 10 * US)}


def test_an_event_synchronize_returns_after_what_its_stream_had_when_it_was_recorded() -> None:
    builder = Builder()
    rank = builder.rank(0)
    launched(rank, 7, 110 * US, 120 * US, 100 * US)
    event = rank.record(7, 103 * US)
    launched(rank, 7, 120 * US, 300 * US, 105 * US)
    rank.synchronize("event", 110 * US, 124 * US, record=event)
    assert said(builder.trace()) == {(0, 0): (-4 * US, 10 * US)}


@pytest.mark.parametrize(
    ("call", "target", "waits"),
    [
        ("cudaMemcpy", "pinned", True),
        ("cudaMemcpyAsync", "pinned", False),
        ("cudaMemcpyAsync", "pageable", True),
    ],
)
def test_a_copy_to_the_host_returns_when_it_is_done_unless_it_need_not(call: str, target: str, waits: bool) -> None:
    builder = Builder()
    rank = builder.rank(0)
    rank.copy("DtoH", 7, 110 * US, 120 * US, launch=(100 * US, 126 * US), call=call, target_memory=target)
    rank.copy("HtoD", 7, 210 * US, 290 * US, launch=(200 * US, 216 * US), call="cudaMemcpy", source_memory="pageable")
    assert said(builder.trace()) == {(0, 0): (-6 * US if waits else None, 10 * US)}


def test_a_synchronize_of_a_process_with_two_gpus_says_nothing_where_it_does_not_name_its_context() -> None:
    builder = Builder()
    rank = builder.rank(0)
    launched(rank, 7, 110 * US, 120 * US, 100 * US)
    launched(replace(rank, device=1, context=2), 7, 110 * US, 130 * US, 100 * US)
    rank.call("cudaDeviceSynchronize", 105 * US, 133 * US)
    assert said(builder.trace()) == {(0, 0): (None, 10 * US), (0, 1): (None, 10 * US)}


def test_what_is_a_millisecond_before_its_launch_is_a_broken_record() -> None:
    builder = Builder()
    rank = builder.rank(0)
    launched(rank, 7, 110 * US, 120 * US, 100 * US)
    launched(rank, 7, 200 * US, 220 * US, 2_000 * US)
    assert said(builder.trace()) == {(0, 0): (None, 10 * US)}


steps = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "device", "stream", "copy"]),
        st.integers(0, 1),  # thread
        st.sampled_from([7, 9]),  # stream
        st.integers(0, 40),  # until the call
        st.integers(1, 20),  # how long it takes
        st.integers(-30, 60),  # from the call's start to the op's
        st.integers(1, 50),  # the op's length
    ),
    min_size=1,
    max_size=25,
)


@times(2.5)
@given(steps)
def test_bounds_are_those_of_the_definition(program: list[tuple[str, int, int, int, int, int, int]]) -> None:
    """Whatever happened: every op against its launch, every call against all ops it waited for, one by one."""
    builder = Builder()
    rank = builder.rank(0)
    ops, waits = [], []  # (stream, start, end, launch began, returned); (stream or None, began, returned)
    at = 0
    for kind, thread, stream, gap, took, behind, length in program:
        at += gap
        call, start = (at, at + took), at + behind
        with rank.on_thread(thread + 1):
            if kind == "kernel":
                rank.kernel("k", stream, start, start + length, launch=call)
            elif kind == "copy":
                rank.copy("DtoH", stream, start, start + length, launch=call, call="cudaMemcpy")
            else:
                rank.synchronize(kind, *call, stream=stream if kind == "stream" else -1)
        if kind in ("kernel", "copy"):
            ops.append((stream, start, start + length, *call))
        if kind == "copy":
            waits.append(start + length - call[1])
        if kind in ("stream", "device"):
            before = [
                op for op in ops if (op[4] <= call[0] and kind == "device") or (op[0] == stream and op[4] <= call[0])
            ]
            waits += [op[2] - call[1] for op in before]
    trace = builder.trace()
    if not ops:
        assert said(trace) == {}
        return
    most = min(start - began for _, start, _, began, _ in ops)
    assert said(trace) == {(0, 0): (max(waits, default=None), most)}


CAPTURES = [
    "dpmp_overlap.4gpu.sqlite",
    "rowpar_s4.4gpu.sqlite",
    "ddp_log.2gpu.sqlite",
    "rowpar_s4",
    "ddp",
    "delta_sync",
]


@pytest.mark.parametrize("name", CAPTURES)
def test_a_summary_s_rows_say_the_same(name: str) -> None:
    trace = whole_run(name)
    assert said(summary_of(trace).trace) == said(trace)
    assert all(len(rows) < 20_000 for rows in witnesses(trace).values())


# Several clocks.


def hosts_of(
    bounded: dict[int, tuple[int | None, int | None]], captures: list[int], shared: list[int], error: int = 0
) -> HostBounds:
    """Bounds of clocks as `made_matches` numbers them, against their captures' hosts."""
    rows = [(one, ahead, k == 1) for one, both in bounded.items() for k, ahead in enumerate(both) if ahead is not None]
    member, ahead, at_most = (np.array(column) for column in zip(*rows, strict=True))
    nothing = np.full(len(rows), -1)
    return HostBounds(
        20 + member, 30 + member, np.full(len(rows), MS), ahead, at_most, nothing, nothing, np.array(shared),
        np.full(len(set(captures)), error),
    )  # fmt: skip


def test_gpus_of_one_report_are_aligned_without_any_collective() -> None:
    """Rank 10 is 4 behind to 6 µs ahead of the host, and rank 11 20 to 32 ahead: 14 to 36 ahead of rank 10."""
    hosts = hosts_of({0: (-4_000, 6_000), 1: (20_000, 32_000)}, [0, 0], [-1])
    clocks = solve(matched([], 2, captures=[0, 0]), hosts)
    assert clocks.method == "host"
    assert bounds(clocks) == [(0, 0), (14_000, 36_000)]
    assert offsets(clocks) == [0, 24_000]  # each lies 5 above its lower bound, as the one that is bounded most closely
    assert residuals(clocks) == [0, 12_000]


def test_captures_of_two_hosts_say_nothing_of_each_other() -> None:
    hosts = hosts_of({0: (-4_000, 6_000), 1: (20_000, 32_000)}, [0, 1], [-1, -1])
    clocks = solve(matched([], 2, captures=[0, 1]), hosts)
    assert (clocks.method, offsets(clocks), residuals(clocks)) == ("session", [0, 0], [None, None])


def test_clocks_of_two_hosts_may_drift_apart_where_too_few_collectives_show_it() -> None:
    """Nine all-reduces of 10 µs, one each 100 ms; rank 11 gains 4 µs between two of them: 16 µs in all, each way.

    Without a drift it would be at most 10 - 16 µs ahead by the first, and at least 16 - 10 by the last. Each bound
    is 40 ns wider for each ms from the fifth, so that all say 10 µs there; the residual holds at either end, too.
    """
    spans = [together((0, 1), k * 100 * MS, {1: 4_000 * (k - 5)}, 10_000) for k in range(1, 10)]
    clocks = solve(matched(spans, captures=[0, 1]), hosts_of({0: (None, 10**9)}, [0, 1], [-1, -1]))
    assert (offsets(clocks), clocks.doubtful) == ([0, 0], ())
    assert bounds(clocks)[1] == pytest.approx((-10_000, 10_000), abs=2)
    assert 16_000 <= (residuals(clocks)[1] or 0) <= 16_000 + 10_002


@pytest.mark.parametrize("count", [1, 2])
def test_of_two_hosts_that_share_less_than_three_collectives_a_drift_of_100_ppm_is_allowed(count: int) -> None:
    """The first and the last are 50 ms from the middle: 5 µs."""
    spans = [together((0, 1), k * 100 * MS, length=10_000) for k in range(1, count + 1)]
    apart, alike = (
        residuals(solve(matched(spans, captures=[0, 1]), hosts_of({0: (None, 10**9)}, [0, 1], shared)))[1] or 0
        for shared in ([-1, -1], [0, 0])
    )
    assert apart - alike == pytest.approx(5_000 * (count - 1), abs=2)


def test_host_clocks_of_captures_of_one_host_agree_within_a_term_of_their_own() -> None:
    """Each within 10 µs of the host's: what bounds the GPUs against each other is 20 µs wider on either side."""
    hosts = hosts_of({0: (-4_000, 6_000), 1: (20_000, 32_000)}, [0, 1], [0, 0], 10_000)
    clocks = solve(matched([], 2, captures=[0, 1]), hosts)
    assert bounds(clocks) == [(0, 0), (-6_000, 56_000)]
    assert (clocks.method, clocks.hosts_agree_ns) == ("host", 20_000)


def test_the_estimate_by_ends_moves_to_within_what_hosts_allow() -> None:
    """By ends rank 11 runs 50 µs ahead, by hosts 36 at most; by starts 250 behind to 350 ahead."""
    hosts = hosts_of({0: (-4_000, 6_000), 1: (20_000, 32_000)}, [0, 0], [-1])
    clocks = solve(matched([together((0, 1), k * MS, {1: 50_000}) for k in range(5)], captures=[0, 0]), hosts)
    assert clocks.method == "collectives+host"
    assert bounds(clocks)[1] == (14_000, 36_000)
    assert offsets(clocks) == [0, 36_000]
    assert residuals(clocks) == [0, 14_000]  # as far as it moved


def test_hosts_that_contradict_the_collectives_are_left_out() -> None:
    hosts = hosts_of({0: (-4_000, 6_000), 1: (420_000, 432_000)}, [0, 0], [-1])
    clocks = solve(matched([together((0, 1), k * MS) for k in range(5)], captures=[0, 0]), hosts)
    assert (clocks.method, clocks.hosts_contradict) == ("collectives", True)
    assert bounds(clocks)[1] == (-300_000, 300_000)


def test_a_capture_whose_own_bounds_cross_is_left_out() -> None:
    hosts = hosts_of({0: (6_000, -4_000), 1: (20_000, 32_000)}, [0, 0], [-1])
    clocks = solve(matched([together((0, 1), k * MS) for k in range(5)], captures=[0, 0]), hosts)
    assert (clocks.method, clocks.hosts_contradict) == ("collectives", True)


def test_where_collectives_are_matched_without_certainty_hosts_alone_serve() -> None:
    hosts = hosts_of({0: (-4_000, 6_000), 1: (20_000, 32_000)}, [0, 0], [-1])
    spans = [together((0, 1), k * MS, {1: 250_000}) for k in range(9)]
    clocks = solve(matched(spans, unsure=range(9), captures=[0, 0]), hosts)
    assert (clocks.method, offsets(clocks)) == ("host", [0, 24_000])


def test_all_to_alls_serve_beside_hosts_where_few_leave_together() -> None:
    """A first all-reduce ends 150 µs apart, as connections are made in it; five all-to-alls of 300 µs end 7 µs apart.

    Each may leave an all-to-all a tenth of it, 30 µs, later than another in all of them: the residual holds that.
    With three all-reduces nothing but these serves, whatever all-to-alls say.
    """
    hosts = hosts_of({0: (-400_000, 400_000), 1: (-400_000, 400_000)}, [0, 0], [-1])
    first = [together((0, 1), 1 * MS, {1: 157_000})]
    exchanges = [together((0, 1), k * MS, {1: 7_000}) for k in range(2, 7)]
    kinds = ["all_reduce", *["all_to_all"] * 5]
    clocks = solve(matched(first + exchanges, 2, kinds, captures=[0, 0]), hosts)
    assert (clocks.method, offsets(clocks), counts(clocks)) == ("collectives+host", [0, 7_000], [5, 5])
    assert residuals(clocks) == [0, 31_000]  # with what no time of a GPU is below
    clocks = solve(matched(first + exchanges[:2], 2, kinds[:3], captures=[0, 0]), hosts)
    assert counts(clocks) == [3, 3], "few of either kind: all serve"
    assert (residuals(clocks)[1] or 0) >= 150_000 + 30_000  # as far as the one that lies apart, and what is by nature
    reductions = [together((0, 1), k * MS, {1: 9_000}) for k in range(7, 10)]
    kinds = ["all_to_all"] * 5 + ["all_reduce"] * 3
    clocks = solve(matched(exchanges + reductions, 2, kinds, captures=[0, 0]), hosts)
    assert (offsets(clocks), counts(clocks)) == ([0, 9_000], [3, 3])
    assert (residuals(clocks)[1] or 0) < 3_000


spans_of = st.lists(
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(-60, 60), st.integers(100, 300)), min_size=2),
    min_size=0,
    max_size=4,
)


@times(5 / 3)
@given(
    spans_of,
    st.lists(st.integers(-40, 40), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=4, max_size=4),
    st.integers(0, 1_000),
)
def test_true_clocks_lie_within_the_bounds_of_any_two(
    spans: list[dict[int, tuple[int, int]]], true: list[int], room: list[tuple[int, int]], seed: int
) -> None:
    """Two captures of two GPUs each, host clocks up to 10 off: all clocks that meet what was recorded, sampled."""
    captures, error = [0, 0, 1, 1], 10 * US
    ahead = {one: by * US for one, by in enumerate(true)}
    recorded = [
        {
            one: (k * MS + start * US + ahead[one], k * MS + (400 + length) * US + ahead[one])
            for one, (start, length) in its.items()
        }
        for k, its in enumerate(spans, 1)
    ]
    bounded = {one: (ahead[one] - below * US, ahead[one] + above * US) for one, (below, above) in enumerate(room)}
    found = solution(matched(recorded, 4, captures=captures), hosts_of(bounded, captures, [0, 0], error))
    apart, offset = found.apart_ns, np.array(offsets(found.clocks))
    rng = np.random.default_rng(seed)
    for _ in range(300):
        host = rng.integers(-error, error + 1, 2)
        clocks = [int(host[captures[one]]) + int(rng.integers(low, high + 1)) for one, (low, high) in bounded.items()]
        if all(
            max(start - clocks[one] for one, (start, _) in its.items())
            <= min(end - clocks[one] for one, (_, end) in its.items())
            for its in recorded
        ):
            beyond = np.array(clocks) - offset
            by_errors = [clock.residual_ns or 0 for clock in found.clocks.clocks]
            if all(abs(beyond[one] - beyond[0]) <= by_errors[one] for one in range(4)):
                assert (beyond[None, :] - beyond[:, None] <= apart + 1).all()


CLOCKS = 6  # of three captures: two GPUs, one, three; the first two are of one host


@given(
    st.lists(st.tuples(st.integers(0, CLOCKS - 1), st.integers(-90, 90), st.booleans()), max_size=20),
    st.lists(st.tuples(*[st.integers(0, CLOCKS - 1)] * 2, st.integers(0, 50)), max_size=8),
)
def test_bounds_between_clocks_are_those_of_all_ways_over_captures_and_hosts(
    found: list[tuple[int, int, bool]], ends: list[tuple[int, int, int]]
) -> None:
    """All clocks of GPUs, captures and hosts as one graph, every way of which is tried (Floyd and Warshall)."""
    captures, hosts, error = [0, 0, 1, 2, 2, 2], [0, 0, -1], [4 * US, 7 * US, 0]
    members = matched([], CLOCKS, captures=captures).members
    clock, ahead, at_most = (np.array([one[k] for one in found], np.int64) for k in range(3))
    least, most = np.full(CLOCKS, -np.inf), np.full(CLOCKS, np.inf)
    np.maximum.at(least, clock[at_most == 0], ahead[at_most == 0] * US)
    np.minimum.at(most, clock[at_most == 1], ahead[at_most == 1] * US)
    bounded = HostBounds(
        20 + clock, 30 + clock, np.zeros(clock.size, np.int64), ahead * US, at_most.astype(bool),
        np.arange(clock.size), np.arange(clock.size), np.array(hosts), np.array(error),
    )  # fmt: skip
    if (most < least).any():
        return  # a capture whose bounds cross is left out
    size = CLOCKS + 3 + 1
    between = np.full((size, size), np.inf)
    np.fill_diagonal(between, 0.0)
    for one, capture in enumerate(captures):
        between[CLOCKS + capture, one], between[one, CLOCKS + capture] = most[one], -least[one]
    for capture in (0, 1):
        between[CLOCKS + capture, -1] = between[-1, CLOCKS + capture] = error[capture]
    for over in range(size):
        between = np.minimum(between, between[:, [over]] + between[[over], :])
    by_hosts = _ByHosts(bounded, members, _of_one_host(members, bounded))
    linked = np.isfinite(between) & np.isfinite(between.T) & ~np.eye(size, dtype=bool)
    assert (by_hosts.links_some, by_hosts.links_all) == (linked[:CLOCKS, :CLOCKS].any(), False)
    ahead = AheadByHosts(bounded, members)  # which agrees where there is one instant
    at = np.zeros(1, np.int64)
    for one in range(CLOCKS):
        for other in range(CLOCKS):
            (least,), (most,) = ahead(one, other, at)
            assert (least, most) == pytest.approx((-between[other, one], between[one, other]), abs=20)  # drift
    direct = np.full((CLOCKS, CLOCKS), np.inf)
    np.fill_diagonal(direct, 0.0)
    for i, j, ns in ends:
        direct[i, j] = min(direct[i, j], ns * US if i != j else 0.0)
    for over in range(CLOCKS):
        direct = np.minimum(direct, direct[:, [over]] + direct[[over], :])
    between[:CLOCKS, :CLOCKS] = np.minimum(between[:CLOCKS, :CLOCKS], direct)
    for over in range(size):
        between = np.minimum(between, between[:, [over]] + between[[over], :])
    if (between.diagonal() < 0).any():
        return
    estimated = msgspec.structs.replace(_Estimated.nothing(CLOCKS), most_ns=direct)
    apart, agree = by_hosts.joined(estimated, 0)
    assert not apart.contradicts
    assert np.allclose(apart.most_ns[:CLOCKS, :CLOCKS], between[:CLOCKS, :CLOCKS])
    assert agree == (14 * US if np.isin(clock, [0, 1, 2]).any() else 0)


def other_steps(host: str) -> Trace:
    """Two captures of eight all-reduces, 10 ms apart; those of the second begin 35 ms later, and are other steps'."""
    builder = Builder()
    for number in range(2):
        rank = builder.rank(number)
        for step in range(8):
            at = step * 10 * MS + number * 35 * MS
            rank.kernel(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 7, at + 8 * US, at + 2 * MS, launch=(at, at + 5 * US)
            )
            rank.synchronize("device", at + 6 * US, at + 2 * MS + 4 * US)
    trace = builder.trace()
    captures = tuple(
        Capture(f"{k}.json", "made", host=host, start_utc_ns=1, last_ns=120 * MS, host_error_ns=10_000)
        for k in range(2)
    )
    processes = tuple(replace(one, capture=k) for k, one in enumerate(trace.processes))
    return replace(trace, captures=captures, processes=processes)


def test_calls_of_other_steps_are_not_matched_where_hosts_rule_that_out_and_the_warning_says_so() -> None:
    aligned = align(other_steps("node3"))
    assert not aligned.matches.collectives.sure.any()
    assert set(aligned.matches.collectives.matched_by) == {"alone"}
    assert aligned.clocks.method == "host"
    (warning,) = (one for one in aligned.trace.warnings if one.code == "order-refuted")
    assert warning.message.startswith("16 calls of communication stay unmatched")
    unnamed = align(other_steps(""))
    assert set(unnamed.matches.collectives.matched_by) == {"order"}
    assert "order-refuted" not in [one.code for one in unnamed.trace.warnings]


# Which captures share a host clock.


def two_captures(**more: object) -> Trace:
    builder = Builder()
    for number in range(2):
        launched(builder.rank(number), 7, 110, 120, 100)
    trace = builder.trace()
    captures = tuple(Capture(f"{k}.json", "made", host_error_ns=10_000, world_size=2, **more) for k in range(2))  # type: ignore[arg-type]
    processes = tuple(replace(one, capture=k) for k, one in enumerate(trace.processes))
    ops = trace.ops.having(device=np.array([0, 1]))
    devices = table("devices", {"process": [0, 0, 1, 1], "device": [0, 1, 0, 1]})
    return replace(trace, captures=captures, processes=processes, ops=ops, devices=devices)


def test_captures_that_name_one_host_share_its_clock() -> None:
    assert shared_hosts(two_captures(host="node3")).tolist() == [0, 0]
    trace = two_captures(host="node3")
    other = replace(trace, captures=(trace.captures[0], replace(trace.captures[1], host="node4")))
    assert shared_hosts(other).tolist() == [-1, -1]


@pytest.mark.parametrize("name", ["localhost", "Localhost.localdomain", "(none)", " "])
def test_a_name_that_any_container_has_names_no_host(name: str) -> None:
    """Two containers of two machines; of a larger job, so that nothing else says that they are one host either."""
    named = two_captures(host=name)
    larger = replace(named, captures=tuple(replace(one, world_size=4) for one in named.captures))
    assert shared_hosts(larger).tolist() == [-1, -1]
    assert shared_hosts(named).tolist() == [0, 0]  # as if without a name: all ranks, each on a GPU of its own


def test_some_ranks_of_a_job_on_different_gpus_may_be_of_two_hosts() -> None:
    """Rank 0 of node 0 on GPU 0 and rank 9 of node 1 on GPU 1: two of 16 ranks, or, nothing stated, of who knows."""
    trace = two_captures()
    for size in (16, 3, None):
        captures = tuple(replace(one, world_size=size) for one in trace.captures)
        listed = table("devices", {"process": np.repeat([0, 1], 16), "device": np.tile(np.arange(16), 2)})
        assert shared_hosts(replace(trace, captures=captures, devices=listed)).tolist() == [-1, -1]


def test_captures_without_a_host_share_one_where_the_job_fits_on_it_and_each_has_a_gpu_of_its_own() -> None:
    trace = two_captures()
    assert shared_hosts(trace).tolist() == [0, 0]
    same_gpu = replace(trace, ops=trace.ops.having(device=0))
    larger_job = replace(trace, captures=tuple(replace(one, world_size=4) for one in trace.captures))
    unknown = replace(trace, captures=tuple(replace(one, host_error_ns=None) for one in trace.captures))
    for one in (same_gpu, larger_job, unknown):
        assert shared_hosts(one).tolist() == [-1, -1]


# Real captures.


def spans(name: str) -> dict[int, tuple[int, int, int]]:
    """Of each rank: the offset by collectives alone, and what hosts alone allow."""
    trace = whole_run(name) if "/" not in name else one_capture(name)
    aligned = align(trace)
    hosts = host_bounds(trace)
    matches = aligned.matches
    by_ends = solve(matches)
    by_hosts = solve(replace(matches, calls=MatchedCalls.of(), collectives=MatchedCollectives.of()), hosts)
    return {
        one.rank: (by_ends.clocks[k].offset_ns, one.lower_ns or 0, one.upper_ns or 0)
        for k, one in enumerate(by_hosts.clocks)
        if k
    }


@pytest.mark.parametrize("name", ["rowpar_s4.4gpu.sqlite", "ddp_log.2gpu.sqlite", "ddp", "rowpar_s4"])
def test_what_many_collectives_say_lies_within_what_hosts_say(name: str) -> None:
    """Of 12 to 56 collectives each, the middle of whose ends is known to some µs."""
    for offset, low, high in spans(name).values():
        assert low <= offset <= high


def test_device_1_of_the_4_gpu_report_is_bounded_as_measured() -> None:
    """By launches and synchronizations +27.8 to +52.4 µs, and +69.5 to +112; by collectives +87.7 in the latter."""
    (_, low, high) = spans("dpmp_overlap.4gpu.sqlite")[1]
    assert (low, high) == (pytest.approx(27_800, abs=100), pytest.approx(52_400, abs=100))
    (offset, low, high) = spans("rowpar_s4.4gpu.sqlite")[1]
    assert 69_500 <= low <= offset <= high <= 112_000  # streams that were waited for narrow it further
    assert offset == pytest.approx(87_700, abs=100)


def test_ranks_of_one_report_without_collectives_are_aligned_by_their_host() -> None:
    builder = Builder()
    for number in range(2):
        rank = builder.rank(number)
        for start in (100, 300):
            ahead = 40 * number
            launched(rank, 7, (start + 8 + ahead) * US, (start + 20 + ahead) * US, start * US)
            rank.synchronize("device", (start + 3) * US, (start + 25) * US)
    aligned = align(builder.trace())
    assert aligned.clocks.method == "host"
    assert [one.offset_ns for one in aligned.clocks.clocks] == [0, 40 * US]
    starts = ints(aligned.trace.ops, "start_ns")
    assert all(one == two for one, two in pairwise(np.sort(starts).reshape(2, 2).T.tolist()))
    assert "clocks-not-aligned" not in {one.code for one in aligned.trace.warnings}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40),
    st.lists(st.integers(-1, 10), max_size=6),
    st.integers(0, 12),
)
def test_the_last_to_end_of_what_was_launched_by_an_instant_is_found_however_ops_lie(
    times: list[tuple[int, int]], instants: list[int], first: int
) -> None:
    """All at once, and the first few by themselves, as those of another stream are."""
    returned, end = np.array(times, np.int64).T
    ops = np.arange(len(times)) * 10
    expected = []
    for instant in instants:
        launched = [(end, returned, op) for op, (returned, end) in enumerate(times) if returned <= instant]
        expected.append(max(launched)[2] * 10 if launched else -1)
    for split in (0, first):
        found = _Last(np.arange(len(instants)), np.array(instants, np.int64))
        for part in (slice(split), slice(split, None)):
            found.look_at(ops[part], returned[part], end[part])
        assert found.op.tolist() == expected


# How far clocks may be ahead at an instant: the tightest of all bounds, each widened by what drifts until then.

SECOND, PPM = 1_000_000_000, 50e-6  # clocks of one run stay within 50 ppm of each other
Bound = tuple[int, int, int, bool]  # which clock, when on the host's, how far ahead, and whether at most
some_bounds = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 900), st.integers(0, 40_000), st.booleans()).map(
        lambda one: (one[0], one[1] * SECOND, one[2] if one[3] else -one[2], one[3])
    ),
    max_size=12,
)


def ahead_of(found: list[Bound], captures: tuple[int, int] = (0, 0)) -> AheadByHosts:
    clock, host, ahead = (np.array([one[k] for one in found], np.int64) for k in range(3))
    rows = np.arange(clock.size)
    members = pd.DataFrame({"process": [0, 1], "device": [0, 0], "rank": [0, 1], "capture": captures})
    at_most = np.array([one[3] for one in found], bool)
    device, hosts, error = np.zeros(clock.size, np.int64), np.array([-1, -1]), np.array([0, 0])
    return AheadByHosts(HostBounds(clock, device, host + ahead, ahead, at_most, rows, rows, hosts, error), members)


def tightest(found: list[Bound], clock: int, host: int, *, at_most: bool) -> float:
    """Of all bounds one by one."""
    sign = 1 if at_most else -1
    of_clock = [one for one in found if one[0] == clock and one[3] == at_most]
    return sign * min((sign * ahead + PPM * abs(host - at) for _, at, ahead, _ in of_clock), default=np.inf)


@given(some_bounds, st.lists(st.integers(-50, 950), min_size=1, max_size=6))
def test_what_holds_at_an_instant_is_the_tightest_of_all_bounds_by_then(found: list[Bound], seconds: list[int]) -> None:
    """Of two clocks of one capture; when an instant is on the host's clock is known but for 40 µs, which is 2 ns."""
    hosts = np.array(seconds) * SECOND
    least, most = ahead_of(found)(0, 1, hosts)
    for host, low, high in zip(hosts.tolist(), least, most, strict=True):
        first, second = ([tightest(found, one, host, at_most=kind) for kind in (False, True)] for one in (0, 1))
        assert high == pytest.approx(second[1] - first[0], abs=20)
        assert low == pytest.approx(second[0] - first[1], abs=20)


def test_bounds_of_one_instant_say_little_of_another_a_quarter_of_an_hour_later() -> None:
    found = [(clock, 0, 20_000 if kind else -20_000, kind) for clock in (0, 1) for kind in (True, False)]
    least, most = ahead_of(found)(0, 1, np.array([0, 900 * SECOND]))
    assert most == pytest.approx([40_000, 40_000 + 2 * 45_000_000], abs=20)
    assert least == pytest.approx([-40_000, -40_000 - 2 * 45_000_000], abs=20)


def test_nothing_is_known_of_clocks_of_other_hosts_or_where_bounds_of_a_capture_cross() -> None:
    found = [(clock, 0, 9 if kind else -9, kind) for clock in (0, 1) for kind in (True, False)]
    at = np.zeros(1, np.int64)
    assert ahead_of(found, (0, 1))(0, 1, at) == (-np.inf, np.inf)
    assert ahead_of([*found, (1, 0, 5_000, False)])(0, 1, at) == (-np.inf, np.inf)
    assert ahead_of(found)(0, 0, at) == (0, 0)
