"""Kernels without a name: no verdict passes or fails on a guess which side they are of."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceviz as tv
from analyzers.readers.kineto.read import read
from tests.support.kineto_files import KinetoFile


def capture(path: Path, lost: str) -> Path:
    """Five matmuls of 600 ns, beside each an all-reduce of 300; two of the all-reduces have another name."""
    file = KinetoFile()
    for start in range(0, 5_000, 1_000):
        name = lost if start in (1_000, 3_000) else "ncclDevKernel_AllReduce"
        file.kernel("gemm", 7, start, start + 600, launch=start)
        file.kernel(name, 20, start + 100, start + 400, launch=start + 10)
    return file.write(path)


@pytest.mark.parametrize("lost", ["", " ", "[unknown]", "<unknown>", "Unknown Kernel", "??", "___"])
def test_kernels_without_a_name_leave_the_verdict_open(tmp_path: Path, lost: str) -> None:
    path = capture(tmp_path / "x.json", lost)
    result = tv.check_overlap(path, accept_apparent=True)
    assert (result.verdict, result.exit_code) == ("inconclusive", 3)
    assert "the names of 2 kernels are not in the file" in result.reason
    assert "names-lost" in {one.code for one in result.warnings}


@pytest.mark.parametrize("name", ["unknown_gemm", "k", "核", "ncclDevKernel_AllReduce"])
def test_any_other_name_is_one(tmp_path: Path, name: str) -> None:
    (process,) = read(capture(tmp_path / "x.json", name)).processes
    assert not process.unread


def test_copies_need_no_name(tmp_path: Path) -> None:
    file = KinetoFile()
    file.kernel("gemm", 7, 0, 600, launch=0)
    file.kernel("", 7, 700, 800, launch=10)
    file.events[-1]["cat"] = "gpu_memcpy"
    (process,) = read(file.write(tmp_path / "x.json")).processes
    assert not process.unread
