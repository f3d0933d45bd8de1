"""Real launchers, where they are installed and work: Open MPI's mpirun, and srun on a cluster of one host."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors.collecting import manifest, running, traceviz, under_nsys

pytestmark = pytest.mark.torch
pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")
LAUNCHERS = {
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"],
    "srun": ["srun", "--immediate=5", "-n", "2"],
}
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist

names = ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
rank, size = (next(int(os.environ[name]) for name in some if name in os.environ) for some in names)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=size)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index in range(int(os.environ.get("STEPS", 8))):
    model(torch.randn(2, 8)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(0.02)
    if rank == 1 and str(index) == os.environ.get("DIES_AFTER"):
        os.kill(os.getpid(), 9)
dist.destroy_process_group()
"""
BOTH = [("rank0.json.gz", 0), ("rank1.json.gz", 1)]
REPORTS = [("rank0.nsys-rep", 0), ("rank1.nsys-rep", 1)]


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> list[str]:
    words = LAUNCHERS[request.param]
    works = shutil.which(words[0]) and not subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    if not works:
        pytest.skip(f"no {words[0]} works here")
    return words


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        pytest.param(("torch", "--steps", "2:4"), BOTH, id="torch"),
        pytest.param(("nsys", "--trace", "nvtx", "--per-rank"), REPORTS, id="per-rank", marks=pytest.mark.nsys),
        pytest.param(("nsys", "--trace", "nvtx", "--rank0"), REPORTS[:1], id="rank0", marks=pytest.mark.nsys),
        pytest.param(
            ("nsys", "--trace", "nvtx"), [("all-ranks.nsys-rep", None)], id="one-report", marks=pytest.mark.nsys
        ),
    ],
)
def test_each_rank_is_captured_as_asked(
    launcher: list[str], tmp_path: Path, tool: tuple[str, ...], expected: list[tuple[str, int | None]]
) -> None:
    if launcher[0] == "srun" and expected[0][1] is None:
        expected = REPORTS  # no nsys around srun sees ranks that Slurm starts
    (tmp_path / "train.py").write_text(TRAIN)
    command = [*launcher, sys.executable, str(tmp_path / "train.py"), str(tmp_path / "store")]
    words = (*tool[1:], "-o", "out", "--", *command)
    ran = (
        under_nsys(*words, cwd=tmp_path) if tool[0] == "nsys" else traceviz("collect", *tool[:1], *words, cwd=tmp_path)
    )
    assert ran.returncode == 0, ran.stderr
    made = manifest(tmp_path / "out")
    assert [(one["path"], one["rank"]) for one in made["captures"]] == expected
    assert (made["world_size"], [one["rank"] for one in made["ranks"]]) == (2, [0, 1])


def test_when_a_rank_is_killed_no_process_is_left(launcher: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = [*launcher, sys.executable, str(tmp_path / "train.py"), str(tmp_path / "store")]
    words = ("collect", "torch", "--steps", "2:300", "-o", "out", "--", *command)
    ran = traceviz(*words, cwd=tmp_path, DIES_AFTER="6", STEPS="400")
    assert ran.returncode != 0
    assert [one["rank"] for one in manifest(tmp_path / "out")["captures"]] == [0]
    assert running(str(tmp_path)) == []
