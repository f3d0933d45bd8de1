"""SIGINT and SIGTERM at random moments, full disks, no home: no half file under its name, no stack trace."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
FILES = [str(path) for path in sorted((ROOT / "tests/data/torch").glob("dpmp_overlap.rank?.json.gz"))]
SIDES = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
STARTED = "import traceviz.__main__ as program; print('.', flush=True); program.main()"
COMMANDS = {
    "check-overlap": ["check-overlap", *FILES, *SIDES, "--save", "runs.db"],
    "collectives": ["collectives", *FILES],
    "syncs": ["syncs", *FILES],
    "streams": ["streams", *FILES],
    "timeline": ["timeline", *FILES, *SIDES, "-o", "page.html"],
    "report": ["report", *FILES, *SIDES, "-o", "report"],
    "compare": ["compare", *FILES],
    "info": ["info", *FILES],
}


def start(words: list[str], folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    """A command that has come as far as its own code."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), "PATH": "/nowhere", **environment}
    (folder / "tmp").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=settings,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b".\n"
    return process


def whole(folder: Path) -> None:
    """What lies there under its final name is whole; nothing else lies there."""
    for path in folder.rglob("*"):
        if path.is_dir() or path.name.startswith("runs.db"):
            continue
        assert path.name in ("page.html", "summary.md", "report.html", "results.json"), f"left behind: {path}"
        if path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
        if path.suffix == ".json":
            json.loads(path.read_text())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_quietly(tmp_path: Path, command: str, number: signal.Signals) -> None:
    rng = random.Random(f"{command} {number}")
    process = start(COMMANDS[command], tmp_path)
    time.sleep(rng.uniform(0, 1.2))
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert b"Traceback" not in said, said.decode()
    # While Python itself starts or ends, its own handler ends it by the signal: a shell calls that 128 + number, too.
    assert process.returncode in (128 + number, -number, 0, 1, 3), (process.returncode, said)
    whole(tmp_path)


@pytest.mark.parametrize("command", ["timeline", "report", "check-overlap"])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, command: str) -> None:
    words = [
        word.replace("page.html", "/proc/page.html").replace("runs.db", "/proc/runs.db") for word in COMMANDS[command]
    ]
    words = ["/proc/report" if word == "report" and words.index(word) else word for word in words]
    if command == "report":
        words[-1] = "/proc/report"
    process = start(words, tmp_path)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.count(b"\n")) == (2, 1), said
    whole(tmp_path)


@pytest.mark.parametrize("command", ["timeline", "report", "check-overlap"])
def test_a_full_disk_leaves_no_half_file(tmp_path: Path, command: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only root can make a small disk")
    try:
        (small / "tmp").mkdir()
        process = start(COMMANDS[command], small, TMPDIR=str(tmp_path))
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said.count(b"\n"), b"Traceback" in said) == (2, 1, False), said
        whole(small)
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("home", ["", "/nowhere", "/proc"])
def test_no_home_and_a_read_only_one_are_enough_to_read_exports(tmp_path: Path, home: str) -> None:
    export = str(ROOT / "tests/data/nsys/dpmp_overlap.2gpu.sqlite")
    process = start(["info", export], tmp_path, HOME=home, XDG_CACHE_HOME="/proc/none")
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")


def test_a_report_is_exported_elsewhere_where_the_cache_cannot_be_written(tmp_path: Path) -> None:
    nsys, export = tmp_path / "nsys", ROOT / "tests/data/nsys/rowpar_s1.rank0.nsys2025.sqlite"
    nsys.write_text(
        f"""#!{sys.executable}
import shutil, sys
output = [word.partition("=")[2] for word in sys.argv if word.startswith("--output=")]
if output:
    shutil.copyfile({str(export)!r}, output[0])
else:
    print("NVIDIA Nsight Systems version 2023.4.4.54")
"""
    )
    nsys.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    report = str(ROOT / "tests/data/nsys/rowpar_s1.rank0.nsys2023.nsys-rep")
    settings = {"HOME": "/proc", "TRACEVIZ_CACHE": "/proc/none", "TMPDIR": str(tmp_path / "tmp")}
    process = start(["info", report, "--nsys", str(nsys)], tmp_path, **settings)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")
    assert not list((tmp_path / "tmp").iterdir())
