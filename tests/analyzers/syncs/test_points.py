"""Every call that blocked the host is one point, with its cause and its cost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.syncs.calls import MODULE_LOAD_NS, SMALL_COPY_BYTES, SPIN_QUERIES, blocking_calls
from analyzers.syncs.order_report import order_report
from analyzers.syncs.points import SyncPoint, copies_of, host_syncs, joined_calls
from tests.support.builder import Builder, Rank, one_rank
from traceviz.output import contract


def only(run: Builder) -> SyncPoint:
    (point,) = host_syncs(run.trace())
    return point


def item(rank: Rank, at: int) -> None:
    """What `.item()` does at `at`: a copy of one value and a synchronize, until 100 ns later."""
    rank.range("aten::item", at, at + 120, kind="op")
    rank.range("aten::_local_scalar_dense", at + 2, at + 118, kind="op")
    rank.copy("DtoH", 7, at + 80, at + 90, launch=(at + 5, at + 10), bytes=1, target_memory="pinned")
    rank.synchronize("stream", at + 12, at + 100, stream=7)


def test_item_is_one_hidden_point_with_its_operators_and_cost() -> None:
    run, rank = one_rank()
    rank.range("MP Embedding", 0, 500)
    rank.kernel("lookup", 7, 10, 170, launch=(0, 5))
    item(rank, 100)
    rank.range("DP Embedding", 600, 800)
    rank.kernel("next", 7, 650, 700, launch=(620, 625))
    point = only(run)
    assert (point.api, point.kind, point.hidden) == ("cudaStreamSynchronize", "stream", True)
    assert (point.start_ns, point.duration_ns) == (112, 88)
    assert (point.op, point.chain) == ("aten::item", "aten::item → aten::_local_scalar_dense")
    assert (point.range, point.delayed) == ("MP Embedding", "DP Embedding")
    assert (point.copy, point.bytes, point.waited_stream, point.waited_name) == ("DtoH", 1, 7, "Memcpy DtoH")
    assert point.gpu_idle_ns == 200 - 190  # from the end of the copy to the call's return
    assert point.after_ns == 620 - 200  # from there to the next launch: the host's
    assert point.pattern == ""


def test_without_operators_on_record_the_calls_tell_what_it_looks_like() -> None:
    run, rank = one_rank()
    rank.kernel("void at::native::compare()", 7, 2, 4, launch=(0, 1))  # torch, whose words the pattern has
    rank.copy("DtoH", 7, 80, 90, launch=(5, 10), bytes=1, target_memory="pinned")
    rank.synchronize("stream", 12, 100, stream=7)
    point = only(run)
    assert (point.op, point.hidden) == ("", True)
    assert point.pattern == ".item() or nonzero(): a DtoH copy of 1 B and cudaStreamSynchronize"


def test_operators_in_nvtx_count_as_operators() -> None:
    run, rank = one_rank()
    rank.range("step", 0, 300)
    rank.range("aten::item", 90, 230)
    rank.copy("DtoH", 7, 180, 190, launch=(105, 110), bytes=1, target_memory="pinned")
    rank.synchronize("stream", 112, 200, stream=7)
    point = only(run)
    assert (point.range, point.op) == ("step", "aten::item")


@pytest.mark.parametrize("what", ["stream", "event", "device"])
def test_a_written_synchronize_is_explicit(what: str) -> None:
    run, rank = one_rank()
    op = rank.kernel("work", 7, 10, 100, launch=(0, 5))
    record = rank.record(7, 6)
    rank.synchronize(what, 20, 110, stream=7 if what == "stream" else -1, record=record)
    rank.kernel("next", 7, 140, 150, launch=(120, 125))
    point = only(run)
    assert (point.kind, point.hidden, point.waited_op) == (what, False, op)
    assert (point.gpu_idle_ns, point.after_ns) == (110 - 100, 120 - 110)


def test_a_barrier_is_written_to_wait() -> None:
    run, rank = one_rank()
    rank.range("c10d::barrier", 0, 200, kind="op")
    rank.kernel("work", 7, 10, 100, launch=(2, 5))
    rank.synchronize("stream", 20, 110, stream=7)
    assert not only(run).hidden


def test_waiting_for_a_stream_means_waiting_for_what_it_waits_for() -> None:
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 20, launch=(0, 2))
    slow = rank.kernel("slow", 9, 10, 100, launch=(3, 4))
    rank.wait_stream(7, 9, 5)
    rank.synchronize("stream", 20, 110, stream=7)
    assert only(run).waited_op == slow


def test_a_pageable_copy_and_the_synchronize_behind_it_are_one_point() -> None:
    run, rank = one_rank()
    rank.range("aten::to", 0, 200, kind="op")
    rank.copy("DtoH", 7, 20, 100, launch=(5, 110), bytes=4096, target_memory="pageable")
    rank.synchronize("stream", 113, 116, stream=7)
    rank.kernel("next", 7, 150, 160, launch=(130, 132))
    point = only(run)
    assert (point.api, point.kind, point.hidden) == ("cudaMemcpyAsync", "pageable", True)
    assert (point.start_ns, point.duration_ns) == (5, 111)
    assert (point.copy, point.bytes, point.gpu_idle_ns, point.after_ns) == ("DtoH", 4096, 116 - 100, 130 - 116)


@given(st.lists(st.tuples(st.sampled_from("csk"), st.integers(1, 8), st.booleans()), min_size=1, max_size=12))
def test_the_copies_of_one_call_are_those_of_the_points_in_which_it_blocked_longest(
    steps: list[tuple[str, int, bool]],
) -> None:
    """Copies that block, synchronizes and kernels of two threads, one after the other."""
    run, rank = one_rank()
    for number, (what, length, other) in enumerate(steps):
        at, thread, stream = 20 * number, 1 + other, 7 + other
        if what == "c":
            copy = {"launch": (at, at + length), "bytes": 4096, "target_memory": "pageable", "thread": thread}
            rank.copy("DtoH", stream, at, at + length - 1, **copy)
        elif what == "s":
            rank.synchronize("stream", at - 9, at - 9 + length, stream=stream, thread=thread)
        else:
            rank.kernel("k", stream, at + 2, at + 4, launch=(at, at + 1), thread=thread)
    trace = run.trace()
    points = joined_calls(trace)
    for call in blocking_calls(trace).call.tolist():
        expected = [copy for each, copy in zip(points.call.tolist(), points.copy.tolist(), strict=True) if each == call]
        assert copies_of(trace, call).tolist() == [copy for copy in expected if copy >= 0]


@pytest.mark.parametrize(
    ("direction", "call", "size", "memory", "kind"),
    [
        ("DtoH", "cudaMemcpy", 8, "pinned", "copy"),
        ("HtoD", "cudaMemcpy", SMALL_COPY_BYTES + 1, "pageable", "copy"),
        ("HtoD", "cudaMemcpy", SMALL_COPY_BYTES, "pageable", ""),
        ("DtoD", "cudaMemcpy", 8, "device", ""),
        ("DtoH", "cudaMemcpyAsync", 8, "pageable", "pageable"),
        ("DtoH", "cudaMemcpyAsync", 8, "pinned", ""),
        ("HtoD", "cudaMemcpyAsync", 8, "pageable", "pageable"),
    ],
)
def test_copies_block_by_call_direction_and_memory(
    direction: str, call: str, size: int, memory: str, kind: str
) -> None:
    run, rank = one_rank()
    side = "source_memory" if direction == "HtoD" else "target_memory"
    rank.copy(direction, 7, 20, 100, launch=(5, 110), call=call, bytes=size, **{side: memory})
    assert [point.kind for point in host_syncs(run.trace())] == ([kind] if kind else [])


def test_a_free_counts_only_if_it_drained_the_device() -> None:
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 100, launch=(0, 5))
    rank.call("cudaFree", 20, 90)  # returned while the kernel ran
    rank.call("cudaFree", 92, 105)
    rank.call("cudaMalloc", 110, 500)  # slow, but nothing ran
    rank.kernel("next", 7, 540, 560, launch=(520, 525))
    point = only(run)
    assert (point.kind, point.api, point.start_ns) == ("memory", "cudaFree", 92)
    assert (point.gpu_idle_ns, point.after_ns) == (105 - 100, 520 - 105)


def test_module_loading_costs_the_idle_time_inside_the_call() -> None:
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 1000, launch=(0, 5))
    rank.call("cuModuleLoadData", 500, 500 + MODULE_LOAD_NS)
    rank.call("cudaGetFuncBySymbol", 100_000, 100_002)  # found it loaded
    point = only(run)
    assert (point.kind, point.gpu_idle_ns) == ("module", MODULE_LOAD_NS - 500)


def test_a_loop_of_queries_is_one_wait_on_a_launching_thread_only() -> None:
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 1000, launch=(0, 5))
    for turn in range(SPIN_QUERIES):
        rank.call("cudaEventQuery", 100 + 10 * turn, 105 + 10 * turn)
        rank.call("cudaEventQuery", 100 + 10 * turn, 105 + 10 * turn, thread=2)
    rank.call("cudaGetDevice", 1900, 1901)
    for turn in range(SPIN_QUERIES - 1):
        rank.call("cudaStreamQuery", 2000 + 10 * turn, 2005 + 10 * turn)
        rank.call("cudaGetDevice", 2006 + 10 * turn, 2007 + 10 * turn)
    point = only(run)
    assert (point.kind, point.thread) == ("spin", 1)
    assert (point.start_ns, point.duration_ns) == (100, 10 * (SPIN_QUERIES - 1) + 5)


def test_a_wait_inside_a_communication_call_is_the_librarys_own() -> None:
    run, rank = one_rank()
    rank.range("ncclCommFinalize", 10, 200, domain="NCCL")
    rank.kernel("work", 7, 10, 100, launch=(0, 5))
    rank.synchronize("stream", 20, 110, stream=7)
    point = only(run)
    assert (point.kind, point.hidden, point.range) == ("nccl", True, "")


def test_a_runtime_call_and_the_driver_call_inside_it_are_one() -> None:
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 100, launch=(0, 5))
    rank.synchronize("stream", 20, 110, stream=7)
    rank.call("cuStreamSynchronize", 22, 108)
    assert only(run).api == "cudaStreamSynchronize"


def test_the_users_python_line_is_named_not_torchs() -> None:
    run, rank = one_rank()
    rank.range("train.py(88): step", 0, 300, kind="python")
    rank.range("torch/_tensor.py(10): item", 10, 290, kind="python")
    rank.range("<built-in method item of Tensor object at 0x7f>", 20, 280, kind="python")
    rank.synchronize("stream", 100, 200, stream=7)
    assert only(run).frame == "train.py(88): step"


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(7, 8)), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 40),
)
def test_costs_are_those_counted_instant_by_instant(ops: list[tuple[int, int, int]], before: int, back: int) -> None:
    run, rank = one_rank()
    at, free, ran = 0, {7: 0, 8: 0}, []
    call = (-1, -1)
    for number, (pause, length, stream) in enumerate(ops):
        if number == min(before, len(ops) - 1) and ran:
            done = max(end for _, _, end in ran)
            call = at, max(at, done) + back + 1
            rank.synchronize("device", *call)
            at = call[1]
        at += pause
        start = max(at + 3, free[stream])
        free[stream] = start + length
        rank.kernel(f"op {number}", stream, start, start + length, launch=(at, at + 1))
        ran.append((at, start, start + length))
        at += 1
    found = list(host_syncs(run.trace()))
    if call[0] < 0:
        assert found == []
        return
    (point,) = found
    earlier, later = ([one for one in ran if (one[0] < call[1]) == early] for early in (True, False))
    drain, next_launch = max(end for _, _, end in earlier), min(at for at, _, _ in later)
    idle = [now for now in range(drain, next_launch) if not any(low <= now < high for _, low, high in ran)]
    if drain <= call[0]:
        idle = []
    within = sum(now < call[1] for now in idle)
    assert (point.gpu_idle_ns, point.after_ns) == (within, len(idle) - within)


def test_the_json_contract() -> None:
    run, rank = one_rank()
    rank.kernel("lookup", 7, 10, 170, launch=(0, 5))
    item(rank, 100)
    answer = json.loads(json.dumps(contract.syncs(order_report(run.trace()))))
    assert answer["schema"] == "traceviz.syncs/2"
    wanted = [
        "rank",
        "thread",
        "api",
        "start_ns",
        "duration_ns",
        "kind",
        "range",
        "op",
        "copy",
        "gpu_idle_ns",
        "after_ns",
        "delayed",
    ]
    assert set(wanted) <= set(answer["syncs"][0])
