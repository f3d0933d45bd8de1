"""CUPTI's counters of ranges: nothing is claimed of overlap by them, and that is said."""

from __future__ import annotations

from pathlib import Path

from analyzers.readers.kineto.read import read
from tests.support.kineto_files import PID, THREAD, KinetoFile


def made(folder: Path, *, counted: bool) -> Path:
    file = KinetoFile()
    file.kernel("gemm", 7, 1000, 2000, launch=100)
    if counted:
        file.add("cuda_profiler_range", "range 0", PID, THREAD, 1000, 2000, **{"smsp__inst_executed.sum": 12.5})
    path = folder / f"{counted}.json"
    file.write(path)
    return path


def test_counters_of_ranges_claim_nothing_of_overlap(tmp_path: Path) -> None:
    trace = read(made(tmp_path, counted=True))
    assert not len(trace.counters)
    assert [text for text in trace.captures[0].lacks if "GPU counters" in text]
    without = read(made(tmp_path, counted=False))
    assert not [text for text in without.captures[0].lacks if "GPU counters" in text]
    assert trace.ops.equals(without.ops)
