"""The pytest plugin under torchrun, ranks without GPUs: they gather their captures and end alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors.collecting import environment

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
# Captures made on GPUs stand in for what each rank's profiler would write.
PROGRAM = """
import contextlib, os, shutil
from pathlib import Path
import pytest, torch, torch.distributed as dist
from collectors import capture, manifest, steps

RANK = int(os.environ["RANK"])

class Recorded:
    def __init__(self, folder, **_):
        self.folder = Path(folder)
    def __enter__(self):
        return self
    def range(self, name):
        return contextlib.nullcontext()
    def __exit__(self, *_):
        self.folder.mkdir(parents=True)
        self.path = self.folder / f"rank{RANK}.json.gz"
        shutil.copy(f"{CAPTURED[0]}/rank{RANK}.json.gz", self.path)
        mine = [manifest.Capture(self.path.name, RANK)]
        manifest.write(self.folder, manifest.Manifest("torch", "own-rank", ["x"], mine))

CAPTURED = [""]

@pytest.fixture(scope="session", autouse=True)
def group():
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()

@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setattr(steps, "unavailable", lambda: "")
    monkeypatch.setattr(capture, "capture", Recorded)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

@pytest.mark.parametrize("variant", ["overlapped", "hidden-sync"])
def test_it(overlap_contract, variant):
    CAPTURED[0] = f"WORKLOADS/dpmp.{variant}.2gpu.torch"
    result = overlap_contract(lambda: None, "CONTRACT")
    assert result.ranks == (0, 1)

@pytest.mark.parametrize("call", [1, 4])  # as it warms up, and under the profiler
def test_one_fails(overlap_contract, call):
    CAPTURED[0] = "WORKLOADS/dpmp.overlapped.2gpu.torch"
    calls = []
    def step():
        calls.append(0)
        if RANK == 1 and len(calls) == call:
            raise ValueError("out of memory")
    overlap_contract(step, "CONTRACT")
"""


def test_two_ranks_gather_and_end_alike(tmp_path: Path) -> None:
    program = PROGRAM.replace("WORKLOADS", str(ROOT / "tests" / "data" / "workloads"))
    (tmp_path / "test_it.py").write_text(program.replace("CONTRACT", str(ROOT / "docs" / "contracts" / "dpmp.toml")))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--redirects", "3"]
    command += ["--log-dir", str(tmp_path / "logs"), "-m", "pytest", "-p", "traceviz_pytest", "-p", "no:cacheprovider"]
    more = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    subprocess.run([*command, "-rA", "test_it.py"], cwd=tmp_path, env=environment(**more), timeout=300, check=False)
    printed = [path.read_text() for path in sorted((tmp_path / "logs").rglob("stdout.log"))]
    assert len(printed) == 2
    for text in printed:
        assert "PASSED test_it.py::test_it[overlapped]" in text
        assert "FAILED test_it.py::test_it[hidden-sync] - traceviz.testing.ContractError: contract BROKEN" in text
        for call in (1, 4):
            assert f"FAILED test_it.py::test_one_fails[{call}] - " in text
    for call in (1, 4):
        others, own = (
            f"test_one_fails[{call}] - {error}"
            for error in ("RuntimeError: the step failed on rank 1: ValueErr", "ValueError: out of")
        )
        assert sorted(own in text for text in printed) == sorted(others in text for text in printed) == [False, True]
    folder = tmp_path / "traceviz-failures" / "test_it.py-test_it-hidden-sync"
    assert {"rank0.json.gz", "rank1.json.gz", "manifest.json", "contract.md"} <= {
        path.name for path in folder.iterdir()
    }
