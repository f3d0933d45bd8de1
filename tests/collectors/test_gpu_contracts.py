"""Contracts on real GPUs: `python -m pytest -m gpu -rP tests/collectors/test_gpu_contracts.py`.

One GPU is enough for the first tests; those of several ranks need two, and are skipped without.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.manifest import gpus
from tests.collectors.collecting import environment

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "docs" / "contracts"
ONE_GPU = """
import pytest, torch
from torch.profiler import record_function

RULES = {
    "side work may run beside the main stream's": {"may_run_beside": ["nvtx:side", "nvtx:main"]},
    "nothing blocks the host": {"no_host_sync_in": "main"},
    "the result is waited for": {"wait_on": "nvtx:side", "before_first_of": "nvtx:merge"},
}
x, out = torch.randn(2048, 2048, device="cuda"), torch.empty(2048, 2048, device="cuda")
y, side = x.clone(), torch.cuda.Stream()

def work(kind):
    def step():
        main = torch.cuda.current_stream()
        if kind == "good":
            side.wait_stream(main)
        with record_function("main"):
            for _ in range(4):
                torch.mm(x, x, out=out)
            if kind == "sync":
                out[0, 0].item()
        if kind == "late":
            side.wait_stream(main)
        with torch.cuda.stream(main if kind == "serial" else side), record_function("side"):
            z = y * 2
        if kind != "unwaited":
            main.wait_stream(side)
        with record_function("merge"):
            out.add_(z)
    return step

@pytest.mark.parametrize("kind", ["good", "serial", "late", "sync", "unwaited"])
def test_order(overlap_contract, kind):
    result = overlap_contract(work(kind), RULES)
    print("HELD", kind, len(result.rules), result.rules[0].checked)
"""
RANKS = """
import os
import pytest, torch, torch.distributed as dist
from collectors.workloads.catalog import WORKLOADS
from collectors.workloads.rank import Rank

@pytest.fixture(scope="session")
def rank():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    yield Rank(device, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()

SMALL = {
    "dpmp": dict(rows=100_000, batch=16_384, mp_tables=4),
    "pipelines": dict(rows=100_000, batch=4_096, parameters=12_000_000),
    "a2a": dict(elements=4_000_000, width=1024), "delta": dict(rows=100_000, touched=20_000, width=1024),
    "rowpar": dict(tokens=2048, hidden=2048),
}
RUNS = [(name, variant) for name in SMALL for variant in WORKLOADS[name].variants]

@pytest.mark.parametrize(("name", "variant"), RUNS, ids=[f"{name}-{variant}" for name, variant in RUNS])
def test_workload(rank, overlap_contract, name, variant):
    workload = WORKLOADS[name]
    run = workload.load()(rank, {**workload.sizes, **SMALL[name]}, variant)
    result = overlap_contract(run.step, f"CONTRACTS/{name}.toml")
    assert result.ranks == (0, 1)
    print("HELD", name, variant)
"""
# Each rank notes what became of each test: printed, lines of several ranks would mix.
OUTCOMES = """
import os

def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        name = report.nodeid.partition("[")[2].rstrip("]")
        with open(f"outcomes.rank{os.environ.get('RANK', 0)}", "a") as file:
            file.write(f"{name} {report.outcome}\\n")
"""
GOOD = {"dpmp-overlapped", "pipelines-overlap", "pipelines-prefetch", "pipelines-both", "a2a-event", "delta-async"}
GOOD |= {"rowpar-s2", "rowpar-s4"}
BAD = {"dpmp-serial", "dpmp-hidden-sync", "dpmp-race", "pipelines-serial", "a2a-sync", "a2a-garbage", "delta-sync"}
BAD |= {"rowpar-s1"}


@pytest.fixture(autouse=True, scope="module")
def devices() -> int:
    count = len(gpus())
    if not count:
        pytest.skip("no GPU is here")
    return count


def outcomes(folder: Path, program: str, *before: str, hidden: bool = False) -> tuple[list[dict[str, str]], str]:
    """Run a test file under the plugin: of each rank, each test's outcome by its id; and all that was printed."""
    (folder / "test_it.py").write_text(program.replace("CONTRACTS", str(CONTRACTS)))
    (folder / "conftest.py").write_text(OUTCOMES)
    words = ["-m", "pytest", "-p", "traceviz_pytest", "-p", "no:cacheprovider", "-rA", "test_it.py"]
    more = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **({"CUDA_VISIBLE_DEVICES": ""} if hidden else {})}
    command = [*(before or (sys.executable,)), *words]
    ran = subprocess.run(
        command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=500, check=False
    )
    print(ran.stdout + ran.stderr)  # pytest -rP shows it
    found = [
        dict(line.split() for line in path.read_text().splitlines()) for path in sorted(folder.glob("outcomes.rank*"))
    ]
    return found, ran.stdout + ran.stderr


def test_one_gpu_tells_the_orders_apart_and_leaves_a_report(tmp_path: Path) -> None:
    found, text = outcomes(tmp_path, ONE_GPU)
    assert found == [{"good": "passed", **dict.fromkeys(("serial", "late", "sync", "unwaited"), "failed")}]
    assert "is queued behind" in text  # serial
    assert "only after the host has waited" in text  # sync
    assert "never waits for 'nvtx:side'" in text or "waits for 'nvtx:side' too late" in text  # unwaited
    for kind in ("serial", "late", "sync", "unwaited"):
        folder = tmp_path / "traceviz-failures" / f"test_it.py-test_order-{kind}"
        assert {"contract.json", "contract.md", "rank0.json.gz", "manifest.json"} <= {
            path.name for path in folder.iterdir()
        }
        assert str(folder.relative_to(tmp_path)) in text
        if kind != "unwaited":  # whose sides never met in any way
            assert (folder / "report.html").exists() or "No module named 'plotly'" in text


def test_without_a_gpu_it_skips(tmp_path: Path) -> None:
    without = ONE_GPU.replace('device="cuda"', 'device="cpu"').replace("torch.cuda.Stream()", "None")
    _, text = outcomes(tmp_path, without, hidden=True)
    assert "5 skipped" in text
    assert "no GPU is here" in text


def test_two_ranks_are_gathered_and_fail_or_pass_alike(tmp_path: Path, devices: int) -> None:
    if devices < 2:
        pytest.skip("needs 2 GPUs")
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    found, text = outcomes(tmp_path, RANKS, *words)
    handed = tmp_path / "traceviz-failures" / "test_it.py-test_workload-delta-async" / "contract.json"
    for outcome in found:  # what threads of delta-async hand to each other may be open: then it can't be told
        passed = outcome.pop("delta-async") == "passed"
        assert passed or json.loads(handed.read_text())["outcome"] == "inconclusive"
    assert found == [{**dict.fromkeys(GOOD - {"delta-async"}, "passed"), **dict.fromkeys(BAD, "failed")}] * 2
    folder = tmp_path / "traceviz-failures" / "test_it.py-test_workload-dpmp-hidden-sync"
    assert {"rank0.json.gz", "rank1.json.gz", "contract.json"} <= {path.name for path in folder.iterdir()}
    assert (folder / "report.html").exists() or "No module named 'plotly'" in text
