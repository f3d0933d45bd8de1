"""SIGINT and SIGTERM at random moments, full disks, no home: no half file under its name, no stack trace."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.test_layout import COMMANDS as EVERY_COMMAND

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
FILES = [str(path) for path in sorted((ROOT / "tests/data/torch").glob("dpmp_overlap.rank?.json.gz"))]
SIDES = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
STARTED = "import traceviz.__main__ as program; print('.', flush=True); program.main()"
LASTING = [sys.executable, "-c", "import signal, time; signal.signal(2, signal.SIG_DFL); time.sleep(60)"]
NSYS = """#!/bin/sh
case "$*" in
    *--version*) echo "NVIDIA Nsight Systems version 2024.6.1.90-1v0" ;;
    *--help*) printf "\\t-t, --trace=\\n\\t  Possible values are 'cuda', 'nvtx'\\n\\t-o, --output=\\n\\t  A name\\n" ;;
    *) trap 'kill $!; exit 130' INT; trap 'kill $!; exit 143' TERM; sleep 60 & wait $! ;;
esac
"""
COMMANDS = {
    "check-overlap": ["check-overlap", *FILES, *SIDES, "--save", "runs.db"],
    "collectives": ["collectives", *FILES],
    "syncs": ["syncs", *FILES],
    "streams": ["streams", *FILES],
    "timeline": ["timeline", *FILES, *SIDES, "-o", "page.html"],
    "report": ["report", *FILES, *SIDES, "-o", "report"],
    "compare": ["compare", *FILES],
    "info": ["info", *FILES],
    "export": ["export", *FILES, "-o", "exported.json"],
    "history": ["history", "runs.db", "-o", "trend.html"],
    "cache": ["cache", "--limit", "1GB"],
    "workload": ["workload", "rowpar", "--ranks", "1"],
    "collect torch": ["collect", "torch", "-o", "captures", "--", *LASTING],
    "collect nsys": ["collect", "nsys", "--nsys", "./bin/nsys", "-o", "captures", "--", *LASTING],
}
MADE = ("page.html", "summary.md", "report.html", "results.json", "trend.html", "exported.json", "limit", "lock")
WRITES = [name for name in COMMANDS if name not in ("collectives", "syncs", "streams", "compare", "info", "workload")]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of one run."""
    folder = tmp_path_factory.mktemp("saved")
    process = start(COMMANDS["check-overlap"], folder)
    process.communicate(timeout=60)
    return folder / "runs.db"


@pytest.fixture
def place(tmp_path: Path, saved: Path) -> Path:
    """A folder with what commands ask for: a history, an nsys and a torch whose programs last."""
    furnish(tmp_path, saved)
    return tmp_path


def furnish(folder: Path, saved: Path) -> None:
    shutil.copyfile(saved, folder / "runs.db")
    (folder / "bin" / "torch" / "distributed").mkdir(parents=True)
    (folder / "bin" / "nsys").write_text(NSYS)
    (folder / "bin" / "nsys").chmod(0o755)
    for name in ("__init__.py", "distributed/__init__.py"):
        (folder / "bin" / "torch" / name).touch()
    (folder / "bin" / "torch" / "distributed" / "run.py").write_text(LASTING[-1])


def test_every_command_is_interrupted_here() -> None:
    assert {" ".join(words) for words in EVERY_COMMAND} == set(COMMANDS)


def start(words: list[str], folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    """A command that has come as far as its own code."""
    settings = {**os.environ, "TMPDIR": str(folder / "tmp"), "PATH": "/nowhere:/usr/bin:/bin", **environment}
    settings["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(folder / "bin")])
    settings.setdefault("TRACEVIZ_CACHE", str(folder / "cache"))
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
        if path.is_dir() or path.name.startswith("runs.db") or (folder / "bin") in path.parents:
            continue
        assert path.name in MADE, f"left behind: {path}"
        if path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
        if path.suffix == ".json":
            json.loads(path.read_text())
        if path.name == "limit":
            assert path.read_text() == str(10**9)
    if (folder / "runs.db").exists() and (folder / "runs.db").stat().st_size:  # empty, it is a history of no run yet
        with closing(sqlite3.connect(folder / "runs.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert database.execute("SELECT count(*) FROM runs").fetchone()[0] in (0, 1, 2)


def left_running(folder: Path) -> list[str]:
    """Processes that still run in a folder."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and (each / "cwd").resolve() == folder and each.name != str(os.getpid()):
                found.append((each / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_quietly(place: Path, command: str, number: signal.Signals) -> None:
    rng = random.Random(f"{command} {number}")
    process = start(COMMANDS[command], place)
    time.sleep(rng.uniform(0, 1.2))
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    # What the collected Python prints of its own start is Python's.
    starting = "collect" in command and b"init_import_site" in said and bytes(ROOT) not in said
    assert b"Traceback" not in said or starting, said.decode()
    # While Python itself starts or ends, its own handler ends it by the signal: a shell calls that 128 + number, too.
    assert process.returncode in (128 + number, -number, 0, 1, 3), (process.returncode, said)
    whole(place)
    assert not left_running(place)


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
        _, said = process.communicate(timeout=60)
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
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
    )
    assert (ran.stdout, ran.stderr) == ("ended by 2\n", "")


def elsewhere(command: str, folder: str) -> list[str]:
    """A command that writes into a folder."""
    words = COMMANDS[command][:]
    option = "--save" if "--save" in words else "-o"
    if option in words:
        place = words.index(option) + 1
        words[place] = f"{folder}/{words[place]}"
    return words


@pytest.mark.parametrize("command", WRITES)
def test_a_folder_that_cannot_be_written_is_one_line(place: Path, command: str) -> None:
    process = start(elsewhere(command, "/proc"), place, TRACEVIZ_CACHE="/proc/none")
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.count(b"\n")) == (2, 1), said
    whole(place)


@pytest.mark.parametrize("command", [one for one in WRITES if not one.startswith("collect")])
def test_a_full_disk_leaves_no_file(place: Path, command: str) -> None:
    """For captures, see test_collect_full_disk."""
    small = place / "small"
    small.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only root can make a small disk")
    try:
        (small / "full").write_bytes(b"x" * 8192)
        process = start(elsewhere(command, str(small)), place, TRACEVIZ_CACHE=str(small / "cache"))
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said.count(b"\n"), b"Traceback" in said) == (2, 1, False), said
        (small / "full").unlink()
        assert [one.name for one in small.iterdir() if one.name != "cache"] == []
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
