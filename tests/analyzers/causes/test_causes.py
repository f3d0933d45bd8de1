"""Every cause and every tie between causes, on traces built by hand; times in ns, as the comments count them."""

from __future__ import annotations

from collections import Counter

import pytest

from analyzers.overlap.measure import Missed
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, Rank, one_rank
from tests.support.causes_of import alone_by_instance, with_one_queue

A, B = "kernel:alpha", "kernel:beta"
US = 1000
SIZE = {"block": 256, "registers": 32, "shared_bytes": 0}  # of a block: eight fill a multiprocessor


def h200(run: Builder, process: int = 0) -> None:
    run.add(
        "devices",
        process=process,
        device=0,
        sms=132,
        threads_per_sm=2048,
        blocks_per_sm=32,
        registers_per_sm=65536,
        shared_bytes_per_sm=233472,
    )


def ran(*kernels: tuple[str, int, int, int, tuple[int, int]]) -> tuple[Builder, Rank]:
    """Kernels (name, stream, start, end, when their launch was called and returned), µs."""
    run, rank = one_rank()
    for name, stream, start, end, (called, returned) in kernels:
        rank.kernel(name, stream, start * US, end * US, launch=(called * US, returned * US))
    return run, rank


def causes(trace: Trace) -> Counter[str]:
    (found,) = alone_by_instance(trace, A, B).values()
    return found


def missed(trace: Trace, a: str = A, b: str = B) -> dict[str, Missed]:
    return {one.cause: one for rank in check_overlap(trace, a, b).ranks for one in rank.missed}


def beta_then_alpha(alpha_launch: tuple[int, int], start: int = 120 * US) -> tuple[Builder, Rank]:
    """B runs from 10 to 110 µs on stream 7; A starts on stream 8 when said."""
    run, rank = ran(("beta", 7, 10, 110, (0, 5)))
    rank.kernel("alpha", 8, start, start + 50 * US, launch=alpha_launch)
    return run, rank


def test_a_busy_thread_launches_late() -> None:
    run, rank = beta_then_alpha((100 * US, 105 * US), 112 * US)
    rank.call("cudaGetDevice", 20 * US, 30 * US)
    rank.range("prepare", 40 * US, 70 * US)
    trace = run.trace()
    # B alone from 10 to 110; A submitted at 105, on its way for less than 10 µs: all of it late-launch.
    assert causes(trace) == {"late-launch": 100 * US}
    (one,) = missed(trace).values()
    assert (one.ns, one.after_sync_ns, one.op, one.start_ns, one.end_ns) == (50 * US, 0, 1, 10 * US, 112 * US)
    assert one.evidence == (
        "alpha (alpha) was submitted 95.0 µs late: its thread 1 was busy, 15.0 µs of it in 2 CUDA calls "
        "(longest 10.0 µs: cudaGetDevice); at the middle of the gap the thread was in host code of 'prepare'"
    )
    assert (
        one.next_behind
        == "fixing only this gains up to 95.0 µs in this gap: nothing else in the capture would have held it"
    )
    assert (one.sooner_ns, one.next_cause) == (95 * US, None)


@pytest.mark.parametrize(
    ("call", "cause"), [("cudaLaunchKernelExC", "dependent-launch"), ("cudaLaunchKernel", "same-stream")]
)
def test_a_dependent_launch_is_no_mere_shared_stream(call: str, cause: str) -> None:
    """A begins 12 µs before B, ahead of it on stream 7, has ended, as its launch provides for: 88 of 100 µs alone."""
    run, rank = ran(("beta", 7, 10, 110, (0, 5)))
    rank.kernel("alpha", 7, 98 * US, 148 * US, launch=(6 * US, 8 * US), call=call)
    trace = run.trace()
    assert causes(trace) == {cause: 88 * US}
    (one,) = missed(trace).values()
    if cause == "dependent-launch":
        assert one.evidence == (
            "alpha (alpha, stream 7) waited 88.0 µs until beta of beta on the same stream let it begin, 12.0 µs "
            "before its own end (programmatic dependent launch)"
        )
        assert one.finding == "dependent launch: alpha begins once beta's beta, before it on its stream, lets it"


def test_a_blocked_thread_waits_for_a_host_sync() -> None:
    run, rank = beta_then_alpha((100 * US, 105 * US), 112 * US)
    rank.synchronize("stream", 20 * US, 80 * US, stream=9)
    rank.range("MP Embedding", 15 * US, 90 * US)
    rank.range("aten::item", 18 * US, 85 * US, kind="op")
    rank.range("train.py(88): step", 1, 200 * US, kind="python")
    trace = run.trace()
    # 60 of the 100 µs alone are blocked.
    assert causes(trace) == {"host-sync": 60 * US, "late-launch": 40 * US}
    found = missed(trace)
    assert {cause: one.ns for cause, one in found.items()} == {"host-sync": 30 * US, "late-launch": 20 * US}
    assert found["host-sync"].evidence == (
        "alpha (alpha) was submitted 95.0 µs late: the host was blocked 60.0 µs of it in "
        "cudaStreamSynchronize, from aten::item in 'MP Embedding' (train.py(88): step)"
    )
    assert found["late-launch"].after_sync_ns == 20 * US, "the host never got ahead of the GPU again"
    # The gap is [10, 112); blocked from 20 to 80. Without that submitted at 45; without its own work at 70, as the
    # call still takes its 60 µs. The way of 7 µs stays.
    assert (found["host-sync"].sooner_ns, found["host-sync"].next_cause) == (60 * US, "late-launch")
    assert (found["late-launch"].sooner_ns, found["late-launch"].next_cause) == (35 * US, "host-sync")


def test_work_behind_the_other_side_on_its_stream() -> None:
    run, _ = ran(("beta", 7, 10, 110, (0, 5)), ("alpha", 7, 112, 150, (20, 25)))
    trace = run.trace()
    # Submitted at 25, released by beta at 110: that was last, so it binds from 10 on.
    assert causes(trace) == {"same-stream": 100 * US}
    one = missed(trace)["same-stream"]
    assert one.evidence == "alpha (alpha, stream 7) was queued behind beta of beta on the same stream, 100 µs"
    # On another stream it starts at 27, 2 µs after its launch, as it started 2 µs after beta.
    assert one.next_behind == "fixing only this gains at most 85.0 µs in this gap; next in line: late-launch"
    assert (one.sooner_ns, one.next_cause) == (85 * US, "late-launch")


def test_work_behind_an_event_of_the_other_side() -> None:
    run, rank = ran(("beta", 7, 10, 110, (0, 5)))
    rank.wait_stream(8, 7, 6 * US)
    rank.kernel("beta_late", 7, 110 * US, 130 * US, launch=(7 * US, 8 * US))
    rank.kernel("alpha", 8, 112 * US, 150 * US, launch=(9 * US, 10 * US))
    trace = run.trace()
    # From 110 to 112, beta_late alone: on its way from the event.
    assert causes(trace) == {"event-dependency": 102 * US}
    (one,) = missed(trace).values()
    assert one.evidence == (
        "alpha (alpha, stream 8) waited 102 µs for beta of beta on stream 7, through record on "
        "stream 7 → wait on stream 8; its wait was issued after 1 of 2 ops of beta were queued, so a "
        "faster host could only meet the rest (beta_late)"
    )
    assert (
        one.next_behind
        == "fixing only this gains up to 100 µs in this gap: nothing else in the capture would have held it"
    )


def test_work_behind_work_of_neither_side() -> None:
    run, _ = beta_then_alpha((6 * US, 7 * US), 112 * US)
    run.rows["ops"].insert(
        0, {**run.rows["ops"][0], "name": "gamma", "stream": 8, "start_ns": 2 * US, "end_ns": 90 * US, "launch": -1}
    )
    trace = run.trace()
    # Behind gamma until 90; free from then on, and nothing shows why it starts only at 112.
    assert causes(trace) == {"stream-busy": 80 * US, "unknown": 20 * US}
    found = missed(trace)
    assert found["stream-busy"].evidence == (
        "alpha (alpha, stream 8) waited 80.0 µs for work of neither side, most of it gamma on stream 8"
    )
    assert found["unknown"].evidence == (
        "alpha (alpha) was launched and free to run, with room on the GPU, and started 22.0 µs later"
    )


def queued_behind(*ops: tuple[str, int, int, int], wait: tuple[int, int] | None = None) -> Trace:
    """Ops (name, stream, start, end), launched in this order one µs apart; `wait` (of, for) before the last."""
    run, rank = one_rank()
    for number, (name, stream, start, end) in enumerate(ops):
        if wait and number == len(ops) - 1:
            rank.wait_stream(*wait, number * US)
        rank.kernel(name, stream, start * US, end * US, launch=(number * US + 100, number * US + 200))
    return run.trace()


@pytest.mark.parametrize(
    ("ops", "wait", "expected"),
    [
        # Of stream and event the one released last binds; of both together the stream is named.
        ((("beta", 7, 10, 60), ("beta", 9, 10, 100), ("alpha", 7, 101, 140)), (7, 9), {"event-dependency": 90}),
        ((("beta", 7, 10, 100), ("beta", 9, 10, 60), ("alpha", 7, 101, 140)), (7, 9), {"same-stream": 90}),
        ((("beta", 7, 10, 100), ("beta", 9, 10, 100), ("alpha", 7, 101, 140)), (7, 9), {"same-stream": 90}),
        # Work of neither side that ends last binds where it waits for nothing.
        (
            (("beta", 9, 10, 120), ("beta", 7, 10, 60), ("gamma", 8, 5, 100), ("alpha", 8, 101, 140)),
            (8, 7),
            {"stream-busy": 91},
        ),
    ],
)
def test_what_was_released_last_binds(
    ops: tuple[tuple[str, int, int, int], ...], wait: tuple[int, int], expected: dict[str, int]
) -> None:
    assert causes(queued_behind(*ops, wait=wait)) == {cause: ns * US for cause, ns in expected.items()}


def test_work_of_neither_side_is_passed_over_until_it_begins() -> None:
    """A copy between an all-reduce and what waits for it: the all-reduce is what held it."""
    run, rank = one_rank()
    rank.kernel("beta", 7, 10 * US, 100 * US, launch=(100, 200))
    rank.kernel("beta", 9, 10 * US, 130 * US, launch=(300, 400))
    rank.wait_stream(8, 7, 500)
    rank.kernel("gamma", 8, 102 * US, 110 * US, launch=(600, 700))
    rank.kernel("alpha", 8, 111 * US, 140 * US, launch=(800, 900))
    # Until 100 for beta, from there to 110 for gamma, 1 µs on its way.
    assert causes(run.trace()) == {"event-dependency": 90 * US, "stream-busy": 11 * US}
    one = missed(run.trace())["event-dependency"]
    # Gamma, launched at 0.7, starts 2 µs later and takes its 8; 1 µs later alpha starts, at 11.7 instead of 111.
    assert one.next_behind == "fixing only this gains at most 99.3 µs in this gap; next in line: stream-busy (gamma)"
    assert (one.sooner_ns, one.next_cause) == (99_300, "stream-busy")


def test_what_is_next_behind_is_the_release_or_the_hold_that_would_come_then() -> None:
    run, rank = one_rank()
    h200(run)
    rank.kernel("beta", 7, 10 * US, 60 * US, launch=(100, 200), grid=1056, **SIZE)
    rank.wait_stream(8, 7, 300)
    rank.kernel("beta", 7, 60 * US, 110 * US, launch=(400, 500), grid=1056, **SIZE)
    rank.kernel("alpha", 8, 112 * US, 150 * US, launch=(20 * US, 30 * US), grid=1, **SIZE)
    trace = run.trace()
    # Submitted at 30, released by the event at 60, room at 110: the event binds to 60, room from there.
    assert causes(trace) == {"event-dependency": 50 * US, "gpu-full": 50 * US}
    found = missed(trace)
    assert (
        found["event-dependency"].next_behind
        == "fixing only this gains nothing: gpu-full would have held it just as long"
    )
    assert (found["event-dependency"].sooner_ns, found["event-dependency"].next_cause) == (0, "gpu-full")
    assert found["gpu-full"].next_behind.startswith(
        "fixing only this gains at most 50.0 µs in this gap; next in line: event-dependency"
    )
    assert (found["gpu-full"].sooner_ns, found["gpu-full"].next_cause) == (50 * US, "event-dependency")


def test_no_room_on_the_gpu_is_full_and_its_blocks_are_counted() -> None:
    run, rank = one_rank()
    h200(run)
    rank.kernel("beta", 7, 10 * US, 110 * US, launch=(0, 1 * US), grid=1056, **SIZE)
    rank.kernel("alpha", 8, 113 * US, 150 * US, launch=(2 * US, 3 * US), grid=1, **{**SIZE, "block": 64})
    trace = run.trace()
    # 1056 blocks of 256 threads are 8 on each of 132 SMs: 2048 threads each, all there are.
    assert causes(trace) == {"gpu-full": 100 * US}
    (one,) = missed(trace).values()
    assert one.evidence == (
        "alpha (alpha) was free to run for 103 µs, but there was no room beside beta "
        "(grid 1056 × block 256; 132 SMs hold 1056 such blocks)"
    )


def test_a_full_gpu_explains_nothing_that_an_unrecorded_wait_explains_as_well() -> None:
    run, rank = one_rank()
    h200(run)
    rank.kernel("beta", 7, 10 * US, 110 * US, launch=(0, 1 * US), grid=1056, **SIZE)
    rank.call("cudaStreamWaitEvent", 1_500, 1_600)
    rank.kernel("alpha", 8, 113 * US, 150 * US, launch=(2 * US, 3 * US), grid=1, **SIZE)
    (one,) = missed(run.trace()).values()
    assert one.cause == "unknown"
    assert one.evidence == "alpha (alpha) took an unrecorded wait: it waited, or found the GPU full, for 103 µs"


def chain_then_alpha(start: int) -> Builder:
    """B's two kernels run from 10 to 60 and to 110 µs on stream 7; A is launched last, on stream 8."""
    run, rank = ran(("beta", 7, 10, 60, (0, 1)), ("beta", 7, 60, 110, (1, 2)))
    rank.kernel("alpha", 8, start, start + 50 * US, launch=(2 * US, 3 * US))
    return run


def test_a_kernel_that_begins_with_those_launched_before_it_is_behind_them_in_one_hardware_queue() -> None:
    trace = with_one_queue(chain_then_alpha(61 * US).trace())
    assert causes(trace) == {"shared-queue": 51 * US}
    (one,) = missed(trace).values()
    assert one.evidence == (
        "alpha (alpha, stream 8) was free to run, and began 1.00 µs after beta (stream 7), launched before it, had "
        "begun; CUDA_DEVICE_MAX_CONNECTIONS=1: both are in one hardware queue"
    )
    assert one.finding == (
        "shared hardware queue: alpha waited 51.0 µs for beta on stream 7, launched before it, to begin "
        "(CUDA_DEVICE_MAX_CONNECTIONS=1)"
    )
    # With a queue of its own it is there at 3 µs: it starts with the gap, after the least way to the GPU.
    assert (one.sooner_ns, one.next_cause) == (50 * US, None)


def test_a_setting_on_record_is_no_cause_where_times_show_nothing() -> None:
    """It began neither with the kernel launched before it, nor only after it; and never was another held."""
    for start in (80 * US, 20 * US):
        trace = chain_then_alpha(start).trace()
        assert causes(with_one_queue(trace)) == causes(trace)
        assert "shared-queue" not in causes(trace)


@pytest.mark.parametrize(("way", "expected"), [(10 * US, "late-launch"), (10 * US + 1, "unknown")])
def test_up_to_10_us_on_its_way_belong_to_what_released_it(way: int, expected: str) -> None:
    run, _ = beta_then_alpha((40 * US, 50 * US), 50 * US + way)
    assert causes(run.trace()) == Counter({"late-launch": 40 * US}) + Counter({expected: way})


@pytest.mark.parametrize(
    ("other", "alpha", "returned", "expected"),
    [
        # On its stream, which is free at 110, while another beta runs to 130: the way to the GPU belongs to that.
        (("beta", 9, 10, 130), 115, 30, {"same-stream": 105}),
        (("beta", 9, 10, 130), 115, 110, {"late-launch": 105}),  # launched just as the stream was free
        # Behind an event that comes at 110.
        (None, 112, 109, {"event-dependency": 100}),
        (None, 112, 110, {"late-launch": 100}),  # its launch returns as the awaited work ends
    ],
)
def test_of_a_launch_that_returns_as_the_work_before_ends_the_launch_is_named(
    other: tuple[str, int, int, int] | None, alpha: int, returned: int, expected: dict[str, int]
) -> None:
    run, rank = ran(("beta", 7, 10, 110, (0, 1)))
    stream = 7
    if other is None:
        stream = 8
        rank.wait_stream(8, 7, 2 * US)
    else:
        rank.kernel(other[0], other[1], other[2] * US, other[3] * US, launch=(2 * US, 3 * US))
    rank.kernel("alpha", stream, alpha * US, 150 * US, launch=(20 * US, returned * US))
    assert causes(run.trace()) == {cause: ns * US for cause, ns in expected.items()}


def test_an_op_without_a_launch_on_record_is_unknown() -> None:
    run, rank = one_rank()
    rank.kernel("beta", 7, 10 * US, 110 * US)
    rank.kernel("alpha", 8, 112 * US, 150 * US)
    trace = run.trace()
    assert causes(trace) == {"unknown": 100 * US}
    (one,) = missed(trace).values()
    assert one.evidence == "the capture does not show what launched alpha or what it waited for"


def test_a_collective_that_only_waits_is_named_with_its_rank() -> None:
    run, rank = one_rank()
    rank.kernel("alpha", 8, 10 * US, 100 * US, launch=(0, 1 * US), wait_ns=60 * US)
    rank.kernel("beta", 7, 20 * US, 75 * US, launch=(2 * US, 3 * US))
    trace = run.trace()
    # A spins to 70 and overlaps B for 5 µs. On time it would run from 10 to 40, of which B runs the last 20.
    assert causes(trace) == {"peer-wait": 15 * US}
    # 25 are missed: being on time would bring no more than 15 of them.
    assert {cause: one.ns for cause, one in missed(trace).items()} == {"peer-wait": 15 * US, "unknown": 10 * US}
    one = missed(trace)["peer-wait"]
    assert one.evidence.startswith("alpha only waited for a late rank")


def test_causes_sum_to_achievable_less_real_where_instances_overlap_one_another() -> None:
    """A of each occurrence runs 100 µs, B 120; they meet for 10 µs, and B meets the next A for 10 more, three times."""
    run, rank = one_rank()
    for k in range(4):
        at = 200 * k * US
        rank.range("A", at, at + 3 * US)
        rank.kernel("alpha", 8, at + 50 * US, at + 150 * US, launch=(at + 1 * US, at + 2 * US))
        rank.range("B", at + 4 * US, at + 8 * US)
        rank.kernel("beta", 7, at + 140 * US, at + 260 * US, launch=(at + 5 * US, at + 6 * US))
    (found,) = check_overlap(run.trace(), "nvtx:A", "nvtx:B").ranks
    assert (found.achievable_ns, found.real_overlap_ns, found.missed_ns) == (400 * US, 70 * US, 330 * US)
    assert sum(one.ns for one in found.missed) == 330 * US


def test_inside_a_graph_traced_by_node_streams_are_told_and_nothing_is_launched_late() -> None:
    """One launch, whose call returns when its nodes have long begun; a full GPU proves nothing of what one awaits."""
    run, rank = one_rank()
    h200(run)
    large = {"grid": 1056, **SIZE, "graph": 5}
    small = {**large, "grid": 1}
    rank.kernel("alpha", 20, 10 * US, 20 * US, launch=(0, 200 * US), **small)
    rank.kernel("beta", 21, 10 * US, 110 * US, **large)
    rank.kernel("alpha", 20, 60 * US, 70 * US, **small)
    rank.kernel("alpha", 21, 112 * US, 120 * US, **small)
    for op in run.rows["ops"]:
        op["launch"] = run.rows["ops"][0]["launch"]
    trace = run.trace()
    # From 20 to 60 nobody knows for which node; from 70 to 110 behind beta on its stream.
    assert causes(trace) == {"unknown": 40 * US, "same-stream": 40 * US}
    found = missed(trace)
    assert found["unknown"].evidence == (
        "alpha runs inside a CUDA graph, launched as a whole: the capture shows the order of its nodes on one stream, "
        "not which node waits for which across streams"
    )
    # Without beta on its stream it may have waited for the node beside it, which ended at 70.
    assert (found["same-stream"].sooner_ns, found["same-stream"].next_cause) == (42 * US, "unknown")


def graph_on(nodes: list[tuple[str, int, int, int]], launch: tuple[int, int]) -> tuple[Builder, Rank]:
    """One launch of a graph: (name, stream, start, end) of its nodes, µs."""
    run, rank = one_rank()
    for name, stream, start, end in nodes:
        rank.kernel(name, stream, start * US, end * US, launch=launch, call="cudaGraphLaunch", graph=5)
    for row in run.rows["ops"]:
        row["launch"] = run.rows["ops"][0]["launch"]
    return run, rank


def test_behind_a_node_that_waited_for_what_nobody_knows() -> None:
    """Alpha follows a graph whose last node begins 20 µs after the one before it on its stream."""
    nodes = [("gamma", 7, 10, 30), ("beta", 20, 12, 50), ("gamma", 7, 50, 80)]
    run, rank = graph_on(nodes, (0, 5 * US))
    rank.kernel("beta", 9, 50 * US, 80 * US, launch=(5 * US, 6 * US))
    rank.kernel("alpha", 7, 82 * US, 99 * US, launch=(6 * US, 9 * US))
    trace = run.trace()
    # Beta's node may have held the last node, from 12 to 50, or something else; from 50 on that node is in the way.
    assert causes(trace) == {"unknown": 38 * US, "stream-busy": 30 * US}
    assert missed(trace)["unknown"].evidence == (
        "gamma, which alpha (alpha, stream 7) was queued behind, runs inside a CUDA graph, launched as a "
        "whole: the capture shows the order of its nodes on one stream, not which node waits for which across streams"
    )


def test_no_promise_where_another_branch_may_have_held_a_node() -> None:
    """Without beta on its stream alpha may start at 10, or at 55: as gamma's edge has it."""
    nodes = [("beta", 7, 10, 60), ("gamma", 20, 10, 55), ("alpha", 7, 61, 90)]
    run, _ = graph_on(nodes, (0, 5 * US))
    (one,) = missed(run.trace()).values()
    assert (one.cause, one.sooner_ns, one.next_cause) == ("same-stream", None, None)


def test_a_launch_waits_for_a_place_in_a_full_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a queue of three: the call at 20 waits until the second beta begins at 40, alpha is launched behind it."""
    monkeypatch.setattr("analyzers.causes.hosts.LAUNCH_QUEUE", 3)
    run, rank = one_rank()
    for k, call in enumerate([(0, 5), (5, 10), (10, 15), (15, 20), (20, 43)]):
        rank.kernel("beta", 7, (8 + 32 * k) * US, (40 + 32 * k) * US, launch=(call[0] * US, call[1] * US))
    rank.kernel("alpha", 8, 50 * US, 300 * US, launch=(43 * US, 48 * US))
    (one,) = missed(run.trace()).values()
    assert one.cause == "late-launch"
    assert "; 23.0 µs of it its launch queue was full, so a faster host would gain nothing there" in one.evidence
    # A host that needs no time waits for the place until 40; alpha is 2 µs on its way.
    assert one.sooner_ns == 8 * US
    assert "next in line: late-launch (a full launch queue)" in one.next_behind
    monkeypatch.setattr("analyzers.causes.hosts.LAUNCH_QUEUE", 4)
    (one,) = missed(run.trace()).values()
    assert "queue" not in one.evidence and one.sooner_ns == 40 * US


@pytest.mark.parametrize(("every", "named"), [(12, True), (8, False), (40, False)])
def test_copies_that_their_thread_can_not_launch_fast_enough_bound_what_runs_alone(every: int, named: bool) -> None:
    """20 copies of 7 µs by a thread of their own, one every 12 µs, while another thread comes late with compute."""
    run, rank = one_rank()
    for k in range(20):
        begin = every * k * US
        launch = (begin, begin + 1 * US)
        rank.copy("HtoD", 8, begin + 2 * US, begin + 9 * US, launch=launch, thread=2)
    rank.range("wait for the copies", 0, 300 * US)
    end = 20 * every * US
    rank.kernel("beta", 7, end + 20 * US, end + 90 * US, launch=(end + 10 * US, end + 12 * US))
    (one,) = missed(run.trace(), "memcpy").values()
    assert one.cause == "late-launch"
    text = "launch-bound: thread 2 launches copies of 7.00 µs, one every 12.0 µs; meanwhile beta's thread was in "
    assert one.finding.startswith(text + "host code of 'wait for the copies'") == named
