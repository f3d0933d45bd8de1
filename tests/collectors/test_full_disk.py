"""A disk that is really full: a small file system in memory, where mounting is allowed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors import session
from collectors.manifest import CaptureEntry, Manifest
from tests.collectors.collecting import TRAIN, running, torchrun, traceviz

pytestmark = pytest.mark.torch
pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")
SIZE = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path, left: int) -> None:
    """Leave so many bytes."""
    with (disk / "fill").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, SIZE - left)


@pytest.mark.parametrize("left", [0, 4096], ids=["nothing", "a page"])
def test_it_is_named_and_the_program_goes_on(disk: Path, tmp_path: Path, left: int) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    fill(disk, left)
    out = disk / "out"
    ran = traceviz(
        "collect", "torch", "--steps", "3:6", "-o", str(out), "--", *torchrun(tmp_path / "train.py"), cwd=tmp_path
    )
    assert ran.returncode == 3
    steps = "".join(line for line in ran.stdout.splitlines() if line.startswith(("STEP", " ")) or line.isdigit())
    assert steps.count("11") == 2  # words of two ranks may mix
    assert f"The disk of {out} is full." in ran.stderr
    assert "No process of the command" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [path.name for path in out.iterdir() if path.name.startswith("rank")] == []
    assert running(str(tmp_path)) == []


def test_captures_stand_without_a_manifest_that_does_not_fit(disk: Path) -> None:
    made = Manifest("torch", "per-rank", ["x"], [CaptureEntry("rank0.json.gz", 0)])
    fill(disk, 0)
    session.Begun(disk, made, None, None).keep()
    assert made.notes == ["manifest.json can't be written: No space left on device."]
