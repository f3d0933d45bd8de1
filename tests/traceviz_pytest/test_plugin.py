"""The pytest plugin without a GPU: recorded captures stand in for what the profiler would write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "tests" / "data" / "workloads"
# A profiler whose step names the capture that it would have made.
FAKE = """
import shutil
from pathlib import Path
import pytest
from collectors import steps

@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    def profile(step, folder, *, steps, warmup):
        for path in Path(step()).iterdir():
            shutil.copy(path, folder)
        print("CALLED", steps, warmup)
        return recorded_ranks()
    monkeypatch.setattr(steps, "unavailable", lambda: "")
    monkeypatch.setattr(steps, "profile_steps", profile)

def recorded_ranks():
    return steps.Ranks()
"""
TEST = """
from pathlib import Path

def test_good(overlap_contract):
    result = overlap_contract(lambda: "{workloads}/dpmp.overlapped.2gpu.torch", "{contract}", steps=4)
    assert result.outcome == "held"

def test_bad(overlap_contract):
    overlap_contract(lambda: "{workloads}/dpmp.hidden-sync.2gpu.torch", "{contract}")

def test_beside_the_test(overlap_contract):
    overlap_contract(lambda: "{workloads}/dpmp.overlapped.2gpu.torch", "own.toml")

def test_no_contract(overlap_contract):
    overlap_contract(lambda: 1 / 0, "none.toml")
"""


def run(folder: Path, *words: str, fake: bool = True) -> str:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "conftest.py").write_text(FAKE if fake else "")
    (inner / "own.toml").write_text('["own"]\nown_stream = "collective:all_to_all"\n')
    contract = ROOT / "docs" / "contracts" / "dpmp.toml"
    (inner / "test_it.py").write_text(TEST.format(workloads=WORKLOADS, contract=contract))
    plugins = ("-p", "traceviz_pytest", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, "-rA", *words, "inner"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    environment.pop("PYTEST_ADDOPTS", None)
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return ran.stdout + ran.stderr


@pytest.mark.nightly
def test_a_contract_passes_or_fails_with_the_reason_and_a_report(tmp_path: Path) -> None:
    text = run(tmp_path, "--traceviz-dir=out")
    assert "2 failed, 2 passed" in text
    assert "CALLED 4 3" in text
    assert "PASSED inner/test_it.py::test_good" in text
    assert "PASSED inner/test_it.py::test_beside_the_test" in text
    assert "ContractError: contract BROKEN: " in text
    assert "none.toml: the contract can't be read: No such file or directory." in text
    assert "ZeroDivisionError" not in text  # nothing runs for a contract that can't be read
    folder = tmp_path / "out" / "inner-test_it.py-test_bad"
    assert f"Report in {folder.relative_to(tmp_path)}: contract.md, contract.json, summary.md, report.html" in text
    assert f"Again: traceviz contract {folder.relative_to(tmp_path)} " in text
    assert {"rank0.json.gz", "rank1.json.gz", "manifest.json", "report.html"} <= {
        path.name for path in folder.iterdir()
    }
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["inner-test_it.py-test_bad"]


def test_without_torch_or_a_gpu_it_skips(tmp_path: Path) -> None:
    from traceviz.testing import unavailable

    if not unavailable():
        pytest.skip("a GPU is here")
    text = run(tmp_path, fake=False)
    assert "4 skipped" in text
    assert "an overlap contract needs a GPU and torch: " in text


def test_a_pytest_that_uses_nothing_of_it_imports_nothing_of_traceviz() -> None:
    code = (
        "import sys, traceviz_pytest; print(sorted({'traceviz', 'analyzers', 'collectors', 'torch'} & {*sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
