"""SIGINT and SIGTERM amid a command, full disks, no home: no half file under its name, no stack trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.endings import answered

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
FILES = [str(path) for path in sorted((ROOT / "tests/data/torch").glob("dpmp_overlap.rank?.json.gz"))]
SIDES = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
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


def run(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "TRACEVIZ_CHROMIUM": "/nowhere", **environment}
    ran = subprocess.run(
        [sys.executable, "-m", "traceviz", *words],
        cwd=folder, env=settings, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return answered(ran)


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
    ran = run([*WRITES[name], f"/proc/{name}"], tmp_path, TRACEVIZ_CACHE="/proc/none")
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
        ran = run([*WRITES[name], str(disk / name)], tmp_path, TRACEVIZ_CACHE="off")
        left = [path for path in disk.iterdir() if path.name != "full"]
        if ran.returncode != 2:
            assert [path.name for path in left] == [name]
        else:
            assert ran.stderr.count("\n") == 1, ran.stderr
            assert all(path.name == "runs.db" and not path.stat().st_size for path in left)  # of no run yet
        subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
        again = [*WRITES[name], str(disk / f"again-{name}" if left and name != "runs.db" else disk / name)]
        assert run(again, tmp_path, TRACEVIZ_CACHE="off").returncode in (0, 1, 3)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("home", ["", "/nowhere", "/proc"])
def test_no_home_and_a_read_only_one_are_enough_to_read_exports(tmp_path: Path, home: str) -> None:
    export = str(ROOT / "tests/data/nsys/dpmp_overlap.2gpu.sqlite")
    ran = run(["info", export], tmp_path, HOME=home, XDG_CACHE_HOME="/proc/none")
    assert (ran.returncode, ran.stderr) == (0, "")


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
    ran = run(["info", report, "--nsys", str(nsys)], tmp_path, **settings)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not list((tmp_path / "tmp").iterdir())
