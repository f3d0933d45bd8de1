"""Ops and launches that lost their numbers alone: nothing is lost, and that is what is said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzers.info import info
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.verdict.check import check_overlap

DATA = Path(__file__).parents[2] / "data"
TRACE = DATA / "public" / "correlation-zero" / "trace.json"
Event = dict[str, Any]


def events() -> list[Event]:
    found: list[Event] = json.loads(TRACE.read_text(encoding="utf-8"))["traceEvents"]
    return found


def write(folder: Path, some: list[Event]) -> Path:
    path = folder / "trace.json"
    whole = json.loads(TRACE.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**whole, "traceEvents": some}), encoding="utf-8")
    return path


def said(path: Path) -> dict[str, str]:
    return {one.code: one.message for one in load([path]).warnings}


def number(event: Event) -> int:
    return int(event.get("args", {}).get("correlation", -1))


def test_one_kernel_less_is_a_loss(tmp_path: Path) -> None:
    some = events()
    first = next(one for one in some if one.get("cat") == "kernel" and number(one) == 0)
    found = said(write(tmp_path, [one for one in some if one is not first]))
    assert "lost-work" in found
    assert "missing-links" not in found


def test_kernels_before_their_launches_are_others(tmp_path: Path) -> None:
    """The first of them starts before any launch without an op was made: one of those has lost its op."""
    some = events()
    first = next(one for one in some if one.get("cat") == "kernel" and number(one) == 0)
    first["ts"] = min(one["ts"] for one in some) + 1
    found = said(write(tmp_path, some))
    assert "lost-work" in found
    assert "missing-links" not in found


@pytest.mark.parametrize("which", ["gemm and all", "one"])
def test_other_kernels_without_numbers_are_told_alike(tmp_path: Path, which: str) -> None:
    some = events()
    for one in [one for one in some if one.get("cat") == "kernel"][: None if which == "gemm and all" else 1]:
        one["args"]["correlation"] = 0
    without = [one for one in some if one.get("cat") == "kernel" and number(one) == 0]
    path = write(tmp_path, some)
    assert f"{len(without)} GPU ops of 10 on rank 0" in said(path)["missing-links"]
    assert "lost-work" not in said(path)
    assert info(load([path])).ranks[0].kernels == 5


def is_comm(event: Event) -> bool:
    return event.get("cat") == "kernel" and "nccl" in event["name"]


def is_compute(event: Event) -> bool:
    return event.get("cat") == "kernel" and "nccl" not in event["name"]


def is_no_kernel(event: Event) -> bool:
    return event.get("cat") in ("gpu_memcpy", "gpu_memset")


def without_numbers(folder: Path, name: str, which: Callable[[Event], bool], ranks: tuple[int, ...]) -> list[Path]:
    """Captures of two ranks of which such ops of some ranks have lost their correlation ids."""
    paths = []
    for rank in range(2):
        whole = json.loads(gzip.decompress((DATA / "torch" / f"{name}.rank{rank}.json.gz").read_bytes()))
        for event in whole["traceEvents"]:
            if rank in ranks and which(event):
                event["args"]["correlation"] = 0
        paths.append(folder / f"rank{rank}.json")
        paths[-1].write_text(json.dumps(whole), encoding="utf-8")
    return paths


@pytest.mark.parametrize(
    ("name", "which", "ranks"),
    [
        ("rowpar_s4", is_comm, (0, 1)),
        ("rowpar_s4", is_no_kernel, (0, 1)),  # memsets of four streams, each right before a kernel that has its number
        ("dpmp_overlap", is_comm, (1,)),
        ("ddp", is_compute, (1,)),
    ],
)
def test_what_is_linked_by_order_gives_the_figures_of_the_whole(
    tmp_path: Path, name: str, which: Callable[[Event], bool], ranks: tuple[int, ...]
) -> None:
    whole = load([DATA / "torch" / f"{name}.rank{rank}.json.gz" for rank in range(2)], reading=Reading(cache=False))
    found = load(without_numbers(tmp_path, name, which, ranks), reading=Reading(cache=False))
    for column in ("launch", "correlation"):
        assert found.ops.columns[column].tolist() == whole.ops.columns[column].tolist()
    count = [sum(which(event) for event in events_of(name, rank)) if rank in ranks else 0 for rank in range(2)]
    assert [one.linked for one in found.processes] == count
    one, other = check_overlap(found), check_overlap(whole)
    assert (one.verdict, one.job) == (other.verdict, other.job)
    said = next(one.message for one in found.warnings if one.code == "missing-links")
    assert f"{count[1]:,} GPU ops of " in said
    assert "linked by their order on their stream" in said


def events_of(name: str, rank: int) -> list[Event]:
    path = DATA / "torch" / f"{name}.rank{rank}.json.gz"
    found: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def unnumbered(folder: Path, kernels: list[tuple[int, float]], calls: list[float]) -> Path:
    """Steps of which each launches one kernel, at `calls`, µs; kernels without number, of 40 µs: stream and start."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 0.5}
    kernel = {"ph": "X", "cat": "kernel", "pid": 0, "dur": 40}
    events: list[Event] = []
    for number, (at, (stream, start)) in enumerate(zip(calls, kernels, strict=True), 1):
        name = "ncclDevKernel_AllReduce" if stream == 8 else "gemm"
        step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
        events.append({**step, "ts": at - 0.2, "dur": 0.9})
        events.append({**call, "ts": at, "args": {"correlation": number}})
        where = {"device": 0, "context": 1, "stream": stream, "correlation": 0}
        events.append({**kernel, "name": name, "tid": stream, "ts": start, "args": where})
    return write(folder, events)


@pytest.mark.parametrize(
    ("kernels", "calls", "launches"),
    [
        ([(7, 10), (8, 110), (7, 210)], [5, 105, 205], [0, 1, 2]),  # each begins before the next launch
        ([(7, 10), (7, 60), (7, 210)], [5, 6, 205], [0, 1, 2]),  # one stream, in order
        ([(8, 110), (7, 10), (7, 210)], [5, 105, 205], [1, 0, 2]),
        ([(7, 50), (7, 100), (8, 210)], [5, 6, 205], [0, 1, 2]),  # both on stream 7 before the last is launched
        ([(7, 50), (8, 60), (7, 210)], [5, 6, 205], None),  # either may be of either
        ([(7, 50), (8, 60), (7, 110)], [5, 6, 7], None),
    ],
)
def test_order_tells_launches_or_no_step_is_told(
    tmp_path: Path, kernels: list[tuple[int, float]], calls: list[float], launches: list[int] | None
) -> None:
    trace = load([unnumbered(tmp_path, kernels, calls)])
    assert trace.ops.launch.tolist() == (launches or [-1] * 3)
    assert (trace.processes[0].linked, trace.processes[0].unlinked) == ((3, 0) if launches else (0, 3))
    assert trace.processes[0].lost == 0
    untold = "the links from GPU ops to their launches are missing (3 of 3 of rank 0), so what ran in which step is"
    assert trace.steps is not None
    assert trace.steps.unknown.startswith(untold) == (launches is None)
    by_range = check_overlap(trace, "nvtx:ProfilerStep#1", "compute", accept_apparent=True)
    assert ("the launches of 3 GPU ops" in by_range.reason) == (launches is None)
