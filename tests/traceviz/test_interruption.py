"""SIGINT and SIGTERM amid a command, full disks, no home: no half file under its name, no stack trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors.collecting import traceviz

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
FILES = [str(path) for path in sorted((ROOT / "tests/data/torch").glob("dpmp_overlap.rank?.json.gz"))]
SIDES = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
NO_PICTURES = {"TRACEVIZ_CHROMIUM": "/nowhere"}
WRITES = {
    "page.html": ["timeline", *FILES, *SIDES, "-o"],
    "report": ["report", *FILES, *SIDES, "-o"],
    "exported.json": ["export", *FILES, "-o"],
    "tables": ["export", *FILES, "--to", "parquet", "-o"],
    "runs.db": ["check-overlap", *FILES, *SIDES, "--save"],
}
# Tells of the moment the command opens a file to write its result, and holds still there until a signal comes.
HELD = """
import sys, time
def hold(event, arguments):
    if event == "open" and "{name}" in str(arguments[0]) and "w" in str(arguments[1]):
        print("writing", flush=True)
        time.sleep(60)
sys.addaudithook(hold)
from traceviz.__main__ import main
main()
"""


@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=lambda one: getattr(one, "name", "")
)
def test_a_signal_ends_a_command_quietly_and_leaves_no_half_of_a_result(
    tmp_path: Path, number: signal.Signals, code: int, there: bool
) -> None:
    page = tmp_path / "page.html"
    if there:
        page.write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-c", HELD.format(name=page.name), *WRITES["page.html"], str(page)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    output = process.communicate(timeout=300)
    assert (process.returncode, output) == (code, ("", ""))
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"] * there
    assert not there or page.read_text() == "old"


@pytest.mark.parametrize("name", WRITES)
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    ran = traceviz(*WRITES[name], f"/proc/{name}", cwd=tmp_path, **NO_PICTURES, TRACEVIZ_CACHE="/proc/none")
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr


@pytest.mark.parametrize("name", WRITES)
def test_on_a_full_disk_a_result_is_whole_or_not_there(tmp_path: Path, name: str) -> None:
    """For captures, see test_collect_full_disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(disk)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("only root can make a small disk")
    try:
        (disk / "full").write_bytes(b"x" * 4096)
        ran = traceviz(*WRITES[name], str(disk / name), cwd=tmp_path, **NO_PICTURES, TRACEVIZ_CACHE="off")
        left = [path for path in disk.iterdir() if path.name != "full"]
        if ran.returncode != 2:
            assert [path.name for path in left] == [name]
        else:
            assert ran.stderr.count("\n") == 1, ran.stderr
            assert all(path.name == "runs.db" and not path.stat().st_size for path in left)  # of no run yet
        subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
        again = disk / f"again-{name}" if left and name != "runs.db" else disk / name
        ran = traceviz(*WRITES[name], str(again), cwd=tmp_path, **NO_PICTURES, TRACEVIZ_CACHE="off")
        assert ran.returncode in (0, 1, 3)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("home", ["", "/nowhere", "/proc"])
def test_no_home_and_a_read_only_one_are_enough_to_read_exports(tmp_path: Path, home: str) -> None:
    export = str(ROOT / "tests/data/nsys/dpmp_overlap.2gpu.sqlite")
    ran = traceviz("info", export, cwd=tmp_path, HOME=home, XDG_CACHE_HOME="/proc/none")
    assert (ran.returncode, ran.stderr) == (0, "")
