"""A copy and the synchronize that the same operator makes behind it are one host sync, whatever the capture records."""

from __future__ import annotations

import gzip
import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from analyzers.load import load
from analyzers.syncs.groups import sync_groups
from analyzers.syncs.points import host_syncs
from tests.support.builder import Rank, one_rank

DATA = Path(__file__).parents[2] / "data"
Event = dict[str, Any]


def by_torchs_default(folder: Path, name: str) -> tuple[Path, list[Event]]:
    """A capture without the records of synchronizations that `enable_cuda_sync_events` adds, and its events."""
    with gzip.open(DATA / name) as file:
        content = json.load(file)
    content["traceEvents"] = [event for event in content["traceEvents"] if event.get("cat") != "cuda_sync"]
    path = folder / "default.rank0.json"
    path.write_text(json.dumps(content))
    return path, content["traceEvents"]


def blocking_events(events: list[Event]) -> int:
    """Synchronizes and copies of pageable memory, without the synchronizes right behind a copy in one operator."""
    complete = [event for event in events if event.get("ph") == "X"]
    copies = {e["args"]["correlation"]: e["name"] for e in complete if e.get("cat") == "gpu_memcpy"}
    gpu = {e["args"]["correlation"] for e in complete if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")}
    operators = [e for e in complete if e.get("cat") == "cpu_op"]
    count = 0
    copied_in: dict[Any, int] = {}  # by thread, the operator whose copy was its last launch; 0 for none
    for call in sorted((e for e in complete if e.get("cat") == "cuda_runtime"), key=lambda e: e["ts"]):
        around = [
            e
            for e in operators
            if e["tid"] == call["tid"] and e["ts"] <= call["ts"] and call["ts"] + call["dur"] <= e["ts"] + e["dur"]
        ]
        operator = id(min(around, key=lambda e: e["dur"])) if around else 0
        correlation = call["args"]["correlation"]
        if correlation in gpu:
            pageable = "Pageable" in copies.get(correlation, "")
            count += pageable
            copied_in[call["tid"]] = operator if pageable else 0
        elif "Synchronize" in call["name"] and not (operator and operator == copied_in.get(call["tid"], 0)):
            count += 1
    return count


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch/delta_sync.rank0.json.gz", 3 + 2),  # copies of 97.7 MiB, and two synchronizes of the device
        ("torch/item_before.rank0.json.gz", 4 + 2),
        ("real/dpmp_before.sync.rank0.json.gz", 24 + 32),  # to the host, to the device
    ],
)
def test_host_syncs_of_real_captures_count_once(tmp_path: Path, name: str, expected: int) -> None:
    path, events = by_torchs_default(tmp_path, name)
    assert blocking_events(events) == expected
    told = attrgetter("start_ns", "duration_ns", "api", "kind", "copy", "bytes", "gpu_idle_ns", "after_ns", "chain")
    with_records, without = (sorted(map(told, host_syncs(load([one])))) for one in (DATA / name, path))
    assert len(with_records) == expected
    assert without == with_records


def copied(rank: Rank, at: int, *, name: str = "aten::copy_", until: int = 130, gap: int = 3) -> None:
    """A pageable copy, its call from 5 to 110 behind `at`, and the synchronize `gap` behind that, of unknown stream."""
    if name:
        rank.range(name, at, at + until, kind="op")
    rank.copy("DtoH", 7, at + 20, at + 100, launch=(at + 5, at + 110), bytes=96, target_memory="pageable")
    rank.call("cudaStreamSynchronize", at + 110 + gap, at + 110 + gap + 4)


@pytest.mark.parametrize(
    ("name", "until", "gap", "expected"),
    [
        ("aten::copy_", 130, 3, [115 - 5 + 2]),
        ("aten::copy_", 9000, 8000, [8114 - 5]),  # one call of an operator, however slow the profiler makes it
        ("aten::copy_", 111, 3, [105, 4]),  # the operator ended before
        ("", 0, 3, [112]),  # no operators on record: back to back
        ("", 0, 8000, [105, 4]),
    ],
)
def test_a_synchronize_of_unknown_stream_is_its_operators_copys(
    name: str, until: int, gap: int, expected: list[int]
) -> None:
    run, rank = one_rank()
    copied(rank, 0, name=name, until=until, gap=gap)
    rank.kernel("next", 7, 20_000, 20_100, launch=(19_000, 19_010))
    points = sorted(host_syncs(run.trace()), key=lambda one: one.start_ns)
    assert [one.duration_ns for one in points] == expected
    assert points[0].copy == "DtoH"


def test_a_synchronize_in_another_call_of_the_same_operator_is_its_own() -> None:
    run, rank = one_rank()
    copied(rank, 0, until=112)
    rank.range("aten::copy_", 112, 140, kind="op")
    assert [one.kind for one in sorted(host_syncs(run.trace()), key=lambda one: one.start_ns)] == ["pageable", "stream"]


def test_a_synchronize_of_a_stream_that_the_copy_is_not_on_is_its_own() -> None:
    run, rank = one_rank()
    rank.range("aten::copy_", 0, 200, kind="op")
    rank.copy("DtoH", 7, 20, 100, launch=(5, 110), bytes=96, target_memory="pageable")
    rank.synchronize("stream", 113, 117, stream=8)  # stated, and it ran nothing
    assert len(host_syncs(run.trace())) == 2


def test_copies_alike_are_one_finding_whichever_call_blocked_longer() -> None:
    run, rank = one_rank()
    for turn, (copy_ns, sync_ns) in enumerate([(40, 4), (4, 40)]):
        at = 1000 * turn
        rank.range("aten::copy_", at, at + 200, kind="op")
        rank.copy("DtoH", 7, at + 6, at + 8, launch=(at + 5, at + 5 + copy_ns), bytes=96, target_memory="pageable")
        rank.call("cudaStreamSynchronize", at + 50, at + 50 + sync_ns)
    found = host_syncs(run.trace())
    assert {one.api for one in found} == {"cudaMemcpyAsync", "cudaStreamSynchronize"}
    (group,) = sync_groups(found)
    assert group.count == 2
