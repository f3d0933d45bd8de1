"""GPU times in another unit than the host's are found, and no verdict rests on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.times import OTHER_UNIT
from analyzers.verdict.check import check_overlap
from tests.support.kineto_files import KinetoFile
from tests.support.nsys_exports import edited

DATA = Path(__file__).parents[2] / "data"
EXPORT = DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
CALM = Reading(cache=False)
US, S = 1_000, 10**9


def said(path: Path) -> list[str]:
    return [one.message for one in load([path], reading=CALM).warnings if one.code == OTHER_UNIT]


@pytest.mark.parametrize(("change", "factor"), [("/ 1000", "0.001"), ("* 1000", "1000")])
def test_kernels_in_another_unit_are_found(tmp_path: Path, change: str, factor: str) -> None:
    first = "" if "*" not in change else "+ 10000000000"  # as sessions that ran for a while before
    shift = [f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start {first}, end = end {first}"] if first else []
    moved = f"UPDATE {KERNEL} SET start = (start {first}) {change}, end = (end {first}) {change}"
    path = edited(EXPORT, tmp_path / "changed.sqlite", *shift, moved)
    messages = said(path)
    assert len(messages) == 2
    assert all(f"multiplied by {factor}." in one for one in messages)
    result = check_overlap(load([path], reading=CALM), "nvtx:DP Embedding", "nvtx:MP Embedding")
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert "not in the unit" in result.reason


def kineto(folder: Path, kernels: float) -> Path:
    """Ten launches 100 µs apart from 5 s on, each with a kernel of 50 µs right behind; its times scaled."""
    file = KinetoFile(None)
    for number in range(1, 11):
        at = 5 * S + 100 * US * number
        name, stream = ("ncclDevKernel_AllReduce", 8) if number % 2 else ("gemm", 7)
        file.add("cuda_runtime", "cudaLaunchKernel", 1, 1, at, at + 5 * US, correlation=number)
        start, end = ((at + us * US) * kernels for us in (10, 160))
        file.add("kernel", name, 0, stream, start, end, device=0, stream=stream, correlation=number)
    return file.write(folder / "trace.json")


@pytest.mark.parametrize(("kernels", "found"), [(1, 0), (0.001, 1), (1000, 1)])
def test_kineto_is_held_to_the_same(tmp_path: Path, kernels: float, found: int) -> None:
    path = kineto(tmp_path, kernels)
    assert len(said(path)) == found
    result = check_overlap(load([path], reading=CALM), accept_apparent=True)
    assert (result.passed is None) == bool(found)


@pytest.mark.parametrize("offset", [-40_000_000, 3_000_000, 40_000_000])
def test_clocks_that_are_apart_are_no_other_unit(tmp_path: Path, offset: int) -> None:
    moved = f"UPDATE {KERNEL} SET start = start + 100000000 + {offset}, end = end + 100000000 + {offset}"
    calls = "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start + 100000000, end = end + 100000000"
    assert said(edited(EXPORT, tmp_path / "changed.sqlite", moved, calls)) == []


def from_the_first_launch(
    folder: Path, *, ops: float = 1, calls: float = 1, wait: bool = False, busy: float = 150.0, every: float = 100.0
) -> Path:
    """Twenty launches `every` µs from 0 on, that take 5 µs, each with a kernel of `busy` µs; all on one stream.

    A kernel begins 10 µs behind its launch, or 1 µs behind the kernel before it. ops, calls : what times of either are
    multiplied by. wait : whether the host then waits for the device.
    """
    file, end = KinetoFile(None), 0.0
    for number in range(1, 21):
        at = every * (number - 1)
        start, end = max(at + 10, end + 1), max(at + 10, end + 1) + busy
        name = "ncclDevKernel_AllReduce" if number % 2 else "gemm"
        called, returned = (us * US * calls for us in (at, at + 5))
        file.add("cuda_runtime", "cudaLaunchKernel", 1, 1, called, returned, correlation=number)
        file.add("kernel", name, 0, 7, start * US * ops, end * US * ops, device=0, stream=7, correlation=number)
    if wait:
        called, returned = (us * US * calls for us in (every * 20, max(end, every * 20) + 20))
        file.add("cuda_runtime", "cudaDeviceSynchronize", 1, 1, called, returned, correlation=99)
    return file.write(folder / "trace.json")


@pytest.mark.parametrize(
    ("form", "begin", "factor"),
    [
        ({"ops": 1e-3, "every": 300.0}, "10 ns", "0.001"),  # launched by 5.7 ms, and all run by 5.9 µs
        ({"ops": 1e-3}, "10 ns", "0.001"),
        ({"ops": 1e3, "wait": True, "every": 300.0}, "10.0 ms", "1000"),  # run by 5.86 s, waited for until 6.02 ms
        ({"calls": 1e-3, "every": 300.0}, "10.0 µs", "1000"),  # launches of 5 ns
        ({"ops": 1e3}, "10.0 ms", "1000"),  # queued kernels begin 1 ms behind the one before them
    ],
)
def test_units_are_told_where_both_begin_together(
    tmp_path: Path, form: dict[str, float], begin: str, factor: str
) -> None:
    path = from_the_first_launch(tmp_path, **form)
    (message,) = said(path)
    assert f"its 20 kernels begin between {begin} and" in message
    assert f"multiplied by {factor}." in message
    assert check_overlap(load([path], reading=CALM), accept_apparent=True).passed is None


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize(("busy", "every"), [(150.0, 300.0), (150.0, 100.0), (10_000.0, 10.0), (2.0, 100.0)])
def test_long_queues_are_no_other_unit(tmp_path: Path, *, wait: bool, busy: float, every: float) -> None:
    """Kernels of 10 ms launched every 10 µs last a thousand times as long as their launches."""
    assert said(from_the_first_launch(tmp_path, wait=wait, busy=busy, every=every)) == []
