"""Ops whose durations no GPU work has: counted by hand, and no verdict rests on them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.times import ABSURD
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.support.kineto_files import KinetoFile

DATA = Path(__file__).parents[2] / "data"
CALM = Reading(cache=False)
Event = dict[str, Any]


def of_comm(event: Event) -> bool:
    return "nccl" in event["name"]


def of_compute(event: Event) -> bool:
    return not of_comm(event)


def anything(event: Event) -> bool:
    return True


def zero(event: Event) -> None:
    event["dur"] = 0


def gone(event: Event) -> None:
    del event["dur"]


def thousandth(event: Event) -> None:
    event["dur"] /= 1000


def answer(
    folder: Path, which: Callable[[Event], bool], change: Callable[[Event], None], most: int = 1_000
) -> OverlapResult:
    """Of rank 0 as it is, and rank 1 with the durations of its first `most` such ops changed.

    A rank has ten launches 100 µs apart, each with a kernel of 150 µs right behind, by turns a collective and a GEMM.
    """
    paths = []
    for rank in range(2):
        file = KinetoFile(rank, world_size=2)
        for number in range(1, 11):
            at = 100_000 * number
            name, stream = ("ncclDevKernel_AllReduce_Sum", 8) if number % 2 else ("gemm", 7)
            file.kernel(name, stream, at + 10_000, at + 160_000, launch=at, device=rank)
        kernels = [one for one in file.events if one["cat"] == "kernel" and which(one)]
        for one in kernels[: most if rank else 0]:
            change(one)
        paths.append(file.write(folder / f"rank{rank}.json"))
    return check_overlap(load(paths, reading=CALM), accept_apparent=True)


@pytest.mark.parametrize("change", [zero, gone, thousandth])
@pytest.mark.parametrize(("which", "count"), [(anything, 10), (of_comm, 5), (of_compute, 5)])
def test_ops_without_durations_leave_the_verdict_open(
    tmp_path: Path, which: Callable[[Event], bool], count: int, change: Callable[[Event], None]
) -> None:
    """150 ns, or nothing, for 150 µs: half of what either side is has another's time beside it."""
    result = answer(tmp_path, which, change)
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert f"of rank 1 {count} GPU ops without a usable duration (under 300 ns)" in result.reason
    assert ABSURD in {one.code for one in result.warnings}


@pytest.mark.parametrize("most", [0, 2])
def test_few_leave_no_verdict_open(tmp_path: Path, most: int) -> None:
    result = answer(tmp_path, anything, zero, most)
    assert "usable" not in result.reason
    assert ABSURD not in {one.code for one in result.warnings}


@pytest.mark.parametrize("name", ["rocm/roctracer.rank0.json.gz", "xpu/rank1.json.gz"])
def test_other_runtimes_may_take_as_little_as_they_say(tmp_path: Path, name: str) -> None:
    """Both have an op of less than 300 ns; nothing at all is too short on any GPU."""
    whole = json.loads(gzip.decompress((DATA / name).read_bytes()))
    path = tmp_path / "rank0.json"
    for count in (0, 3):
        for event in [one for one in whole["traceEvents"] if one.get("cat") == "kernel"][:count]:
            for other in [one for one in whole["traceEvents"] if one.get("name") == event["name"]]:
                other["dur"] = 0
        path.write_text(json.dumps(whole), encoding="utf-8")
        trace = load([path], reading=CALM)
        assert ("(0 ns)" in trace.processes[0].unread) == bool(count)


@pytest.mark.parametrize("path", sorted(DATA.glob("torch/*.json.gz"))[::5], ids=lambda path: path.name)
def test_real_captures_have_durations(path: Path) -> None:
    trace = load([path], reading=CALM)
    assert ABSURD not in {one.code for one in trace.warnings}
