"""Order that rests on host syncs alone: by hand, and on a real program whose wait was taken out."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceviz
from analyzers.load import load
from analyzers.syncs.crossings import crossings
from analyzers.syncs.order_report import order_report
from analyzers.syncs.rests import in_sentences, resting_orders, rests_on
from analyzers.trace.tables import Trace
from tests.support.builder import one_rank
from tests.support.captures import DATA

REAL = DATA / "real"
SIDES = {"a": "nvtx:DP Embedding", "b": "nvtx:MP Embedding"}


def program(*, copies: int = 1, written: bool = False, waits: bool = False, first: str = "kernel") -> Trace:
    """The optimizer on 7, copies to the host while MP runs, then DP on 9, and 7 waits for that."""
    run, rank = one_rank()
    rank.range("optimizer", 0, 10)
    rank.kernel("adam", 7, 10, 50, launch=(2, 4))
    rank.range("MP", 20, 190)
    rank.kernel("lookup", 7, 60, 64, launch=(22, 24))
    for at in range(copies):
        begin = 70 + 20 * at
        launch = (begin - 10, begin + 8)
        rank.copy("DtoH", 7, begin, begin + 5, launch=launch, source_memory="device", target_memory="pageable")
    if written:
        rank.synchronize("device", 150, 160)
    if waits:
        rank.wait_stream(9, 7, 192)
    rank.range("DP", 200, 210)
    launch = (202, 204)
    if first == "kernel":
        rank.kernel("gather", 9, 220, 250, launch=launch)
    else:
        rank.copy(first, 9, 220, 250, launch=launch)
    rank.wait_stream(7, 9, 212)
    rank.range("dense", 215, 225)
    rank.kernel("gemm", 7, 260, 300, launch=(216, 218))
    return run.trace()


def test_what_a_copy_to_the_host_alone_orders_is_told() -> None:
    (one,) = resting_orders(program())
    assert (one.stream, one.other, one.name, one.range) == (9, 7, "gather", "DP")
    assert (one.behind_name, one.behind_range) == ("Memcpy DtoH", "MP"), "the last that is complete"
    assert (one.api, one.sync_range, one.more) == ("cudaMemcpyAsync", "MP", 0)
    assert in_sentences([one]) == [
        "Nothing orders 'DP' (stream 9) behind 'MP' (stream 7) but a host sync, cudaMemcpyAsync in 'MP' "
        "(1 time on rank 0): no stream waits, without them it is a possible race"
    ]


@pytest.mark.parametrize("more", [{"waits": True}, {"written": True}, {"copies": 0}, {"first": "HtoD"}])
def test_order_that_a_wait_or_a_written_sync_makes_does_not_rest_on_it(more: dict[str, Any]) -> None:
    assert not len(resting_orders(program(**more)))


def test_it_is_lost_only_with_all_syncs_that_make_it() -> None:
    trace = program(copies=2)
    (one,) = resting_orders(trace)
    calls = np.flatnonzero(trace.api.to_frame()["name"] == "cudaMemcpyAsync")
    assert one.call == calls[1], "behind the last copy it comes by that alone"
    assert len(rests_on(trace, calls)) == len(rests_on(trace, calls[1:])) == 1
    assert not len(rests_on(trace, calls[:1]))


def test_what_rests_on_a_written_sync_is_lost_with_it_too() -> None:
    """It is meant to order, so nothing is told of it; but to take it out takes that order away."""
    trace = program(written=True, copies=0)
    assert not len(resting_orders(trace))
    calls = np.flatnonzero(trace.api.to_frame()["name"] == "cudaDeviceSynchronize")
    (one,) = rests_on(trace, calls)
    assert (one.name, one.stream, one.behind_name, one.other) == ("gather", 9, "lookup", 7)
    assert one.call == calls[0]
    trace = program(written=True, copies=0, waits=True)
    assert not len(rests_on(trace, np.flatnonzero(trace.api.to_frame()["name"] == "cudaDeviceSynchronize")))
    trace = program(written=True)
    assert not len(rests_on(trace, np.flatnonzero(trace.api.to_frame()["name"] == "cudaDeviceSynchronize"))), (
        "the copy orders, too"
    )


def test_a_join_by_a_host_sync_alone_is_told_too() -> None:
    run, rank = one_rank()
    for step in range(3):
        at = 1_000 * step
        rank.range("main", at, at + 20)
        rank.kernel("produce", 7, at + 10, at + 30, launch=(at + 2, at + 4))
        rank.wait_stream(9, 7, at + 22)
        rank.range("side", at + 30, at + 90)
        rank.kernel("work", 9, at + 40, at + 60, launch=(at + 32, at + 34))
        copy = {"source_memory": "device", "target_memory": "pageable"}
        rank.copy("DtoH", 9, at + 62, at + 70, launch=(at + 40, at + 75), **copy)
        rank.range("after", at + 100, at + 120)
        rank.kernel("use", 7, at + 120, at + 150, launch=(at + 102, at + 104))
    found = [(one.name, one.stream, one.behind_name, one.other) for one in resting_orders(run.trace())]
    assert found == [("use", 7, "Memcpy DtoH", 9)] * 3


def test_a_synchronize_right_behind_a_copy_may_be_written_where_no_operator_is_on_record() -> None:
    run, rank = one_rank()
    rank.kernel("adam", 7, 10_000, 50_000, launch=(2_000, 4_000))
    rank.copy("DtoH", 7, 70_000, 75_000, launch=(60_000, 62_000), source_memory="device", target_memory="pinned")
    rank.synchronize("stream", 62_500, 77_000, stream=7)
    rank.kernel("gather", 9, 220_000, 250_000, launch=(202_000, 204_000))
    rank.wait_stream(7, 9, 212_000)
    rank.kernel("gemm", 7, 260_000, 300_000, launch=(216_000, 218_000))
    assert not len(resting_orders(run.trace()))


def without_the_wait(folder: Path) -> list[Path]:
    """`dpmp_after` with its side stream's waits for the main stream taken out, as in `after_race`."""
    paths = []
    for source in sorted(REAL.glob("dpmp_after.sync.rank*.json.gz")):
        capture = json.loads(gzip.decompress(source.read_bytes()))
        events = capture["traceEvents"]
        calls = {
            (event["name"], event["args"]["correlation"]): event
            for event in events
            if event.get("cat") == "cuda_runtime"
        }
        (main,) = {event["tid"] for event in events if event.get("name") == "DP Embedding" and event["pid"] > 100}
        gone = set()
        for event in events:
            if event.get("name") == "Stream Wait Event" and event["args"]["stream"] == 23:
                wait = calls.get(("cudaStreamWaitEvent", event["args"]["correlation"]))
                if wait is not None and wait["tid"] == main:
                    gone.add(event["args"]["correlation"])
        kept = [event for event in events if event.get("args", {}).get("correlation") not in gone]
        assert len(events) - len(kept) == 2 * len(gone) > 0
        paths.append(folder / source.name)
        paths[-1].write_bytes(gzip.compress(json.dumps({**capture, "traceEvents": kept}).encode(), 1))
    return paths


def test_the_wait_that_a_real_program_lacks_is_told(tmp_path: Path) -> None:
    paths = without_the_wait(tmp_path)
    trace = load(paths)
    found = list(resting_orders(trace))
    named = Counter((one.range, one.stream, one.behind_range, one.other) for one in found)
    assert named.most_common(1)[0][0] == ("DP Embedding", 23, "optimizer", 7)
    assert {one.rank for one in found} == {0, 1, 2, 3}
    assert not crossings(trace).missing, "no race is claimed"
    report = order_report(trace)
    (text,) = in_sentences(report.resting)
    assert text.startswith(
        "Nothing orders 'DP Embedding' (stream 23) behind 'optimizer' (stream 7) but host syncs, aten::to"
    )
    result = traceviz.check_overlap(traceviz.load(paths, cache=False).data, **SIDES)
    assert [one.message for one in result.warnings if one.code == "rests-on-host-sync"] == [f"{text}."]


def test_to_drop_all_syncs_that_order_rests_on_is_told_unsafe_and_one_of_many_is_not(tmp_path: Path) -> None:
    trace = traceviz.load(without_the_wait(tmp_path), cache=False).data
    changes = ['drop-sync nvtx:"## SplitsAllToAllAwaitable wait() ##"', "drop-sync op:aten::to"]
    one, every = (traceviz.what_if(trace, change, **SIDES).best for change in changes)
    assert one is not None
    assert every is not None
    assert not any("orders" in text for text in one.assumptions)
    assert every.assumptions[0].startswith("nothing else orders 'DP Embedding' (stream 23) behind '")


@pytest.mark.parametrize("name", sorted({path.name.rpartition(".rank")[0] for path in REAL.glob("*.rank*.json.gz")}))
def test_right_programs_rest_on_no_host_sync(name: str) -> None:
    assert not len(resting_orders(load(sorted(REAL.glob(f"{name}.rank*.json.gz")))))
