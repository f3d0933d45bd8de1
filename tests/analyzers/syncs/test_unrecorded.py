"""A host sync that outlasts all that is on record of a CUDA graph waited for what was not recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.syncs.order_report import order_of
from analyzers.syncs.points import OUTLASTS_NS, SyncPoint, host_syncs
from analyzers.trace.run import Run
from tests.support.builder import Rank, one_rank
from tests.support.command_lines import invoked

TRACE = Path(__file__).parents[2] / "data" / "public" / "idle-while-graph-runs" / "trace.json"
MS = 1_000_000


def test_how_long_gpus_were_idle_behind_a_graphs_loop_cant_be_told() -> None:
    events = json.loads(TRACE.read_text())["traceEvents"]
    ends = {e["args"]["correlation"]: e["ts"] + e["dur"] for e in events if e["cat"] == "kernel"}  # the last of each
    syncs = [e["ts"] + e["dur"] for e in events if e["name"] == "cudaStreamSynchronize"]
    outlast = [round(1000 * (end - last)) for end, last in zip(syncs, ends.values(), strict=True)]
    assert outlast == [1_590_000] * 5
    report = order_of(Run.of(load([TRACE])))
    assert [(one.gpu_idle_ns, one.unrecorded_ns) for one in report.syncs] == [(0, ns) for ns in outlast]
    assert [one.code for one in report.warnings].count("unrecorded-work") == 1
    said = " ".join(invoked("syncs", str(TRACE)).output.split())
    assert "how long they left GPUs idle can't be told: up to 1.59 ms" in said
    assert "GPUs idle 7.95" not in said


def only(rank: Rank) -> SyncPoint:
    (point,) = host_syncs(rank.run.trace())
    return point


@pytest.mark.parametrize("what", ["stream", "device", "event"])
def test_whichever_synchronize_it_is(what: str) -> None:
    run, rank = one_rank()
    rank.kernel("turn", 7, 20, 1000, launch=(0, 10), call="cudaGraphLaunch")
    record = rank.record(7, 11)
    rank.synchronize(what, 15, 1000 + OUTLASTS_NS, stream=7 if what == "stream" else -1, record=record)
    assert (only(rank).gpu_idle_ns, only(rank).unrecorded_ns) == (0, OUTLASTS_NS)
    assert "unrecorded-work" in {one.code for one in order_of(Run.of(run.trace())).warnings}


@pytest.mark.parametrize(
    ("call", "until", "idle"),
    [
        ("cudaGraphLaunch", 1000 + OUTLASTS_NS - 1, OUTLASTS_NS - 1),  # the host may take as long to wake
        ("cudaLaunchKernel", 1000 + 2 * MS, 2 * MS),  # what it launched is on record
    ],
)
def test_else_it_is_idle_time(call: str, until: int, idle: int) -> None:
    _, rank = one_rank()
    rank.kernel("turn", 7, 20, 1000, launch=(0, 10), call=call)
    rank.synchronize("stream", 15, until, stream=7)
    assert (only(rank).gpu_idle_ns, only(rank).unrecorded_ns) == (idle, 0)


def test_work_behind_a_graph_shows_when_the_graph_ended() -> None:
    _, rank = one_rank()
    rank.kernel("turn", 7, 20, 1000, launch=(0, 10), call="cudaGraphLaunch")
    rank.copy("DtoH", 7, 5 * MS, 5 * MS + 10, launch=(11, 13), target_memory="pinned")
    rank.synchronize("stream", 15, 8 * MS, stream=7)
    assert (only(rank).gpu_idle_ns, only(rank).unrecorded_ns) == (3 * MS - 10, 0)


def test_another_streams_graph_holds_no_stream_up() -> None:
    _, rank = one_rank()
    rank.kernel("own", 9, 20, 1000, launch=(0, 5))
    rank.kernel("turn", 7, 20, 500, launch=(6, 10), call="cudaGraphLaunch")
    rank.synchronize("stream", 15, 3 * MS, stream=9)
    assert (only(rank).gpu_idle_ns, only(rank).unrecorded_ns) == (3 * MS - 1000, 0)


def test_of_several_syncs_those_that_are_known_still_count() -> None:
    run, rank = one_rank()
    rank.kernel("turn", 7, 20, 1000, launch=(0, 10), call="cudaGraphLaunch")
    rank.synchronize("stream", 15, 3 * MS, stream=7)
    rank.kernel("work", 7, 4 * MS, 4 * MS + 100, launch=(4 * MS - 10, 4 * MS - 5))
    rank.synchronize("stream", 4 * MS, 4 * MS + 300, stream=7)
    report = order_of(Run.of(run.trace()))
    assert int(report.syncs.gpu_idle_ns.sum()) == 200
    assert report.untold.startswith("how long they left GPUs idle can't be told for 1 of them")
