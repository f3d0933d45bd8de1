from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from collectors.workloads.catalog import WORKLOADS

SCRIPT = Path(__file__).parents[2] / "tools" / "capture-matrix.py"
SAID = """dpmp overlapped: 2 ranks, 5 steps
step time: median 5.69 ms, P90 5.81 ms (slowest rank), slowed by the profiler
traceviz: Rank 1: the program ended after 12 steps.
traceviz: usable in /out: all-ranks.nsys-rep. Next: traceviz info /out
check: partial, real overlap ratio 0.25, [('gpu-full', 200), ('unknown', 3)]
"""


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capture_matrix", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["capture_matrix"] = module
    spec.loader.exec_module(module)
    return module


def test_every_variant_is_planned_in_every_way_once(matrix: ModuleType) -> None:
    planned = [run.name for run in matrix.plan(4) if not run.devices]
    ways = ("torch", "clock", "nsys-one-report", "nsys-per-rank", "nsys-rank0")
    expected = {
        f"{name}.{variant}.4gpu.{way}"
        for name, one in WORKLOADS.items()
        if one.is_here
        for variant in one.variants
        for way in ways
    }
    assert set(planned) == expected
    assert len(planned) == len(expected)
    assert [run.devices for run in matrix.plan(2) if run.devices] == ["2,3"] * 3


def test_an_output_is_read_as_it_was_meant(matrix: ModuleType) -> None:
    found = matrix.read(SAID + "check: NOT as expected: the verdict is partial, not overlapped\n")
    assert found == {
        "checked": False,
        "verdict": "partial",
        "ratio": 0.25,
        "causes": [("gpu-full", 200), ("unknown", 3)],
        "problems": ["the verdict is partial, not overlapped"],
        "step_ms": [5.69, 5.81],
        "notes": ["Rank 1: the program ended after 12 steps."],
    }
    assert matrix.read(SAID + "check: as expected\n")["checked"] is True
    assert matrix.read("Traceback")["checked"] is None


def test_runs_that_are_there_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "have" / "a2a.sync.2gpu.torch").mkdir(parents=True)
    (tmp_path / "results.json").write_text(
        json.dumps({"a2a.event.2gpu.torch": {"ok": True}, "a2a.garbage.2gpu.torch": {"ok": False}})
    )
    words = [sys.executable, str(SCRIPT), str(tmp_path), "--only", "a2a.*.torch", "--list"]
    listed = subprocess.run([*words, "--skip", str(tmp_path / "have")], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["a2a.garbage.2gpu.torch"]
