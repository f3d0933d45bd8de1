"""The profiler's weight: by hand from a manifest and from overhead, and on captures of one program by two profilers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from analyzers.load import load
from analyzers.trace.tables import Process
from analyzers.verdict.bound import RankBound
from analyzers.verdict.check import check_overlap
from analyzers.verdict.profiler import ProfilerWeight, profiler_weight
from traceviz.output.contract import overlap

TORCH = Path(__file__).parents[2] / "data" / "torch"
MS = 1_000_000


def process(rank: int, before: int = -1, captured: int = -1) -> Process:
    return Process(0, 100 + rank, rank=rank, unprofiled_step_ns=before, profiled_step_ns=captured)


def step(rank: int, time: int, profiler: int = 0, *, tells: bool = True, number: int | None = 3) -> RankBound:
    idle = {"idle_ns": profiler, "idle_host_ns": 0, "idle_wait_ns": 0, "idle_profiler_ns": profiler}
    busy = {"compute_ns": time - profiler, "exposed_transfer_ns": 0, "exposed_wait_ns": 0, "exposed_copy_ns": 0}
    return RankBound(rank, 0, number, time, **busy, **idle, tells_profiler=tells)


def test_of_a_manifest_the_slowest_steps_count_before_and_captured() -> None:
    """The example of the module's docstring."""
    processes = [process(0, 9_190_000, 15_100_000), process(1, 8_950_000, 15_600_000)]
    found = profiler_weight(processes, [step(0, 1), step(1, 1)])
    assert found == ProfilerWeight(15_600 / 9_190, "manifest", 15_600_000, 9_190_000)
    assert found.is_heavy
    assert found.sentence == ("Captured at 1.70x of the real step: late launches and late ranks may be the profiler's.")


def test_where_the_manifest_has_no_captured_step_the_captures_own_counts() -> None:
    found = profiler_weight([process(0, 10 * MS)], [step(0, 15 * MS)])
    assert found == ProfilerWeight(1.5, "manifest", 15 * MS, 10 * MS)
    assert profiler_weight([process(0, 10 * MS)], [step(0, 15 * MS, tells=False, number=None)]) is None


def test_without_a_manifest_the_profilers_own_work_in_the_slowest_ranks_step_counts() -> None:
    """The example of the module's docstring."""
    found = profiler_weight([process(0), process(1)], [step(0, 11 * MS, 8 * MS), step(1, 12 * MS, 2 * MS)])
    assert found == ProfilerWeight(1.2, "overhead-events", 12 * MS, 10 * MS)
    assert found.sentence == "Captured at 1.20x of the real step or more."


def collected(folder: Path, ranks: list[dict[str, Any]]) -> Path:
    """Captures of two ranks with a manifest that says so of them."""
    for rank in (0, 1):
        shutil.copy(TORCH / f"dpmp_overlap.rank{rank}.json.gz", folder / f"rank{rank}.json.gz")
    captures = [{"path": f"rank{rank}.json.gz", "rank": rank} for rank in (0, 1)]
    content = {"schema": "traceviz.manifest/1", "captures": captures, "ranks": ranks}
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


def test_a_manifests_step_times_reach_the_answer(tmp_path: Path) -> None:
    ranks = [
        {"rank": 0, "pid": 7, "step_ms": {"unprofiled": 2.0, "profiled": 2.5}},
        {"rank": 1, "pid": 8, "step_ms": {"unprofiled": 1.5, "profiled": 3.0}},
    ]
    trace = load([collected(tmp_path, ranks)])
    assert [(one.unprofiled_step_ns, one.profiled_step_ns) for one in trace.processes] == [
        (2_000_000, 2_500_000),
        (1_500_000, 3_000_000),
    ]
    found = check_overlap(trace)
    assert found.profiler == ProfilerWeight(1.5, "manifest", 3_000_000, 2_000_000)
    said = overlap(found)["profiler"]
    assert said == {"weight": 1.5, "from": "manifest", "captured_step_ns": 3_000_000, "real_step_ns": 2_000_000}


@pytest.mark.parametrize(
    "step_ms", [None, {}, {"unprofiled": None, "profiled": 3.0}, {"unprofiled": "9"}, {"unprofiled": True}]
)
def test_step_times_that_are_none_are_not_taken(tmp_path: Path, step_ms: object) -> None:
    trace = load([collected(tmp_path, [{"rank": rank, "step_ms": step_ms} for rank in (0, 1)])])
    assert {one.unprofiled_step_ns for one in trace.processes} == {-1}
    found = check_overlap(trace).profiler
    assert found is None or found.source == "overhead-events"
