"""SIGINT and SIGTERM amid every command, full disks, no home: no half file under its name, no stack trace."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.interruptions import (
    COMMANDS,
    FILLS,
    ROOT,
    WRITES,
    calls,
    elsewhere,
    fill,
    furnish,
    interrupt,
    mounted,
    start,
    whole,
)
from tests.project.test_layout import COMMANDS as EVERY_COMMAND

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of one run."""
    folder = tmp_path_factory.mktemp("saved")
    process = start(COMMANDS["check-overlap"], folder)
    process.communicate(timeout=300)
    return folder / "runs.db"


@pytest.fixture
def place(tmp_path: Path, saved: Path) -> Path:
    """A folder with what commands ask for: a history, an nsys and a torch whose programs last."""
    furnish(tmp_path, saved)
    return tmp_path


def test_every_command_is_interrupted_here() -> None:
    assert {" ".join(words) for words in EVERY_COMMAND} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_quietly(place: Path, saved: Path, command: str, number: signal.Signals) -> None:
    """At one of its calls, not after a time, so that it is everywhere the same one, and before the command ends."""
    share = random.Random(f"{command} {number}").uniform(0, 0.9)
    code = interrupt(command, place, number, 1 + int(share * calls(command, saved)))
    assert code in (128 + number, -number)


def test_sigint_amid_imports_prints_no_stack_trace_of_ours(place: Path) -> None:
    """What Python prints of its own start, before it has come to the package, is Python's."""
    rng = random.Random(1)
    ended = set()
    for _ in range(12):
        process = subprocess.Popen(
            [sys.executable, "-m", "traceviz", *COMMANDS["info"]],
            cwd=place,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        time.sleep(rng.uniform(0, 0.8))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
        ours = set(re.findall(rf"{ROOT}/(\S+\.py)", said.decode()))
        assert ours <= {"traceviz/__init__.py", "traceviz/_start.py"}, said.decode()  # the first millisecond
        ended.add(process.returncode)
    assert ended & {130, -2}


def test_a_signal_that_comes_where_python_drops_exceptions_still_ends_the_command() -> None:
    script = """
import signal, sys, time
import traceviz.__main__ as program
class Late:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
sys.unraisablehook = program._hear_again
signal.signal(signal.SIGINT, program._end)
try:
    Late()
    time.sleep(30)
except program.Ended as ended:
    print("ended by", ended.args[0])
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert (ran.stdout, ran.stderr) == ("ended by 2\n", "")


def test_a_signal_that_comes_where_python_wraps_exceptions_still_ends_the_command() -> None:
    script = """
import signal
import traceviz.__main__ as program, traceviz.cli
class Late:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGTERM)
def run():
    class Holder:
        late = Late()
traceviz.cli.main = run
program.main()
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (143, "", "")


ENDS = """
import atexit, signal, sys, time
import traceviz.__main__ as program, traceviz.cli
class Slow:
    def __del__(self):
        time.sleep(0.2)  # of Python's own end, in which no handler is left that could hear an alarm
class Late:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def late():
    signal.raise_signal(signal.SIGINT)
    len("")
def run():
    sys.slow = Slow()
    {moment}
    raise SystemExit(1)
traceviz.cli.main = run
program.main()
"""


@pytest.mark.parametrize(
    ("moment", "code"), [("pass", 1), ("Late()", 130), ("atexit.register(late)", -2)], ids=["none", "last", "after"]
)
def test_a_signal_that_comes_as_a_command_ends_rings_at_nobody(moment: str, code: int) -> None:
    """Where Python drops the exception and no code of ours runs any more that it could be raised in again."""
    script = ENDS.format(moment=moment)
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", "")


@pytest.mark.parametrize("command", WRITES)
def test_a_folder_that_cannot_be_written_is_one_line(place: Path, command: str) -> None:
    process = start(elsewhere(command, "/proc"), place, TRACEVIZ_CACHE="/proc/none")
    _, said = process.communicate(timeout=300)
    assert (process.returncode, said.count(b"\n")) == (2, 1), said
    whole(place)


@pytest.mark.parametrize("command", FILLS)
def test_a_full_disk_leaves_no_file(place: Path, command: str) -> None:
    """For captures, see test_collect_full_disk."""
    small = place / "small"
    if not mounted(small, 8192):
        pytest.skip("only root can make a small disk")
    try:
        (small / "full").write_bytes(b"x" * 8192)
        process = start(elsewhere(command, str(small)), place, TRACEVIZ_CACHE=str(small / "cache"))
        _, said = process.communicate(timeout=300)
        assert (process.returncode, said.count(b"\n"), b"Traceback" in said) == (2, 1, False), said
        (small / "full").unlink()
        assert [one.name for one in small.iterdir() if one.name != "cache"] == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("command", FILLS)
def test_a_disk_that_fills_leaves_nothing_and_spoils_no_later_run(place: Path, command: str) -> None:
    size = 4096 * round(2 ** random.Random(command).uniform(1, 8))
    try:
        fill(command, place, size)
    except PermissionError:
        pytest.skip("only root can make a small disk")


@pytest.mark.parametrize("home", ["", "/nowhere", "/proc"])
def test_no_home_and_a_read_only_one_are_enough_to_read_exports(tmp_path: Path, home: str) -> None:
    export = str(ROOT / "tests/data/nsys/dpmp_overlap.2gpu.sqlite")
    process = start(["info", export], tmp_path, HOME=home, XDG_CACHE_HOME="/proc/none")
    _, said = process.communicate(timeout=300)
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
    _, said = process.communicate(timeout=300)
    assert (process.returncode, said) == (0, b"")
    assert not list((tmp_path / "tmp").iterdir())
