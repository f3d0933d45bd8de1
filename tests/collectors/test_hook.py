"""What a collected program's own children see, and which of them are captured."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.collectors.collecting import HOME, TRAIN, manifest, torchrun, traceviz

pytestmark = pytest.mark.torch
pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")

CHILD = """import os, sys
left = [one for one in sys.path if one.endswith('inject')]
print('CHILD', os.environ.get('PYTHONPATH'), os.environ.get('SITE'), left)
"""
STARTS_A_CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}], check=True)\n"
SPAWNS = """
import os, sys
import torch, torch.distributed as dist

def train(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(8):
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (sys.argv[1],), nprocs=2)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a `sitecustomize` of the user's."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\nos.environ['SITE'] = 'user'\n")
    return tmp_path


def child_of(program: list[str], folder: Path, path: str) -> str:
    """What a child of the program says of its PYTHONPATH, the user's sitecustomize, and what is left of ours."""
    ran = traceviz("collect", "torch", "--steps", "2:4", "-o", "out", "--", *program, cwd=folder, PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert [one["rank"] for one in manifest(folder / "out")["captures"]] == [0]
    lines = [line for line in ran.stdout.splitlines() if line.startswith("CHILD ")]
    assert len(lines) == 1
    return lines[0]


def test_a_ranks_children_find_the_users_environment(folder: Path) -> None:
    """An empty entry, which stands for the current folder, included."""
    (folder / "train.py").write_text(TRAIN.replace("sys.exit", STARTS_A_CHILD + "sys.exit"))
    path = f"{folder / 'site'}{os.pathsep}{os.pathsep}{HOME}"
    line = child_of(torchrun(folder / "train.py", ranks=1), folder, path)
    assert line.startswith(f"CHILD {path} user ")


def test_a_plain_programs_children_keep_the_hook_in_front_of_the_users_entries(folder: Path) -> None:
    """They may be ranks. What stands in front of `sys.path` is gone again when their program starts."""
    (folder / "train.py").write_text(TRAIN.replace("sys.exit", STARTS_A_CHILD + "sys.exit"))
    path = f"{folder / 'site'}{os.pathsep}{HOME}"
    _, entries, site, left = child_of([sys.executable, "train.py"], folder, path).split()
    assert entries.split(os.pathsep)[1:] == path.split(os.pathsep)
    assert (site, left) == ("user", "[]")


def test_ranks_that_a_plain_program_spawns_are_captured_each(folder: Path) -> None:
    (folder / "spawns.py").write_text(SPAWNS)
    command = [sys.executable, "spawns.py", str(folder / "store")]
    ran = traceviz("collect", "torch", "--steps", "2:4", "-o", "out", "--", *command, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    made = manifest(folder / "out")
    assert [(one["path"], one["rank"]) for one in made["captures"]] == [("rank0.json.gz", 0), ("rank1.json.gz", 1)]
    assert made["world_size"] == 2
