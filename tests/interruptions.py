"""Faults of many kinds, injected into every command: `python -m tests.interruptions`.

SIGINT and SIGTERM at random ones of the Python calls that a command makes, and disks of random sizes that fill as it
writes. After each nothing half written lies there under its name, nothing runs on, no stack trace was printed; and once
a disk has room again, the same command succeeds, whatever it had left in its cache.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [str(path) for path in sorted((ROOT / "tests/data/torch").glob("dpmp_overlap.rank?.json.gz"))]
SIDES = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
STARTED = "import traceviz.__main__ as program; print('.', flush=True); program.main()"
# Where Python looks whether a signal came: at each call's start, and after each of a function that is not Python's.
COUNTED = """
import atexit, os, signal, sys
import traceviz.__main__ as program
place, number = map(int, os.environ["INTERRUPT_AT"].split())
calls = 0
def count(frame, event, argument):
    global calls
    if event in ("call", "c_return"):
        calls += 1
        if calls == place:
            sys.setprofile(None)
            signal.raise_signal(number)
def tell():
    print("calls", calls, file=sys.stderr, flush=True)
def until(event, arguments):
    if event == "subprocess.Popen" and any(os.environ["UNTIL"] in str(word) for word in arguments[1]):
        tell()
        os._exit(0)
if not place:
    sys.addaudithook(until)
    atexit.register(tell)
print(".", flush=True)
sys.setprofile(count)
program.main()
"""
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
RUN = {  # commands that run a program, and a word of what starts it
    "workload": "torch.distributed.run",
    "collect torch": "import signal, time",
    "collect nsys": "import signal, time",
}
MADE = (
    "page.html",
    "summary.md",
    "report.html",
    "timeline.png",
    "results.json",
    "trend.html",
    "exported.json",
    "limit",
    "lock",
)
WRITES = [name for name in COMMANDS if name not in ("collectives", "syncs", "streams", "compare", "info", "workload")]
FILLS = [name for name in WRITES if not name.startswith("collect")]  # for captures, see test_collect_full_disk


def furnish(folder: Path, saved: Path) -> None:
    shutil.copyfile(saved, folder / "runs.db")
    (folder / "bin" / "torch" / "distributed").mkdir(parents=True)
    (folder / "bin" / "nsys").write_text(NSYS)
    (folder / "bin" / "nsys").chmod(0o755)
    for name in ("__init__.py", "distributed/__init__.py"):
        (folder / "bin" / "torch" / name).touch()
    (folder / "bin" / "torch" / "distributed" / "run.py").write_text(LASTING[-1])


def start(words: list[str], folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    """A command that has come as far as its own code."""
    settings = {**os.environ, "TMPDIR": str(folder / "tmp"), "PATH": "/nowhere:/usr/bin:/bin", **environment}
    settings["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(folder / "bin")])
    settings.setdefault("TRACEVIZ_CACHE", str(folder / "cache"))
    (folder / "tmp").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTED if "INTERRUPT_AT" in environment else STARTED, *words],
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


@functools.cache
def calls(command: str, saved: Path) -> int:
    """How many calls a command makes, those included that start a program of the user's, which then lasts."""
    with tempfile.TemporaryDirectory() as name:
        furnish(Path(name), saved)
        counting = start(COMMANDS[command], Path(name), INTERRUPT_AT="0 0", UNTIL=RUN.get(command, "no program"))
        _, said = counting.communicate(timeout=300)
    return int(said.split(b"calls ")[1])


def interrupt(command: str, folder: Path, number: signal.Signals, place: int) -> int:
    """Send a furnished folder's command a signal at one of its calls; returns its exit code, fails if it ends badly."""
    process = start(COMMANDS[command], folder, INTERRUPT_AT=f"{place} {number.value}")
    _, said = process.communicate(timeout=300)
    # A program that a command runs may meet it as Python starts, and print what Python prints then: no file of ours.
    of_program = command in RUN and bytes(ROOT) not in said
    assert b"Traceback" not in said or of_program, said.decode()
    # While Python itself starts or ends, its own handler ends it by the signal: a shell calls that 128 + number, too.
    assert process.returncode in (128 + number, -number, 0, 1, 3), (place, process.returncode, said)
    whole(folder)
    assert not left_running(folder)
    return process.returncode


def elsewhere(command: str, folder: str) -> list[str]:
    """A command that writes into a folder."""
    words = COMMANDS[command][:]
    option = "--save" if "--save" in words else "-o"
    if option in words:
        place = words.index(option) + 1
        words[place] = f"{folder}/{words[place]}"
    return words


def mounted(disk: Path, size: int) -> bool:
    """Put a small file system in memory there; False where that is not allowed."""
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def fill(command: str, folder: Path, size: int) -> bool:
    """Have a furnished folder's command write to a disk of so many bytes; whether it was full. Fails as `interrupt`.

    PermissionError where disks can't be made.
    """
    small = folder / "small"
    if not mounted(small, size):
        raise PermissionError("Only root can make a small disk.")
    try:
        words, cache = elsewhere(command, str(small)), str(small / "cache")
        process = start(words, folder, TRACEVIZ_CACHE=cache)
        _, said = process.communicate(timeout=300)
        assert b"Traceback" not in said, said.decode()
        full = process.returncode == 2
        left = [one for one in small.iterdir() if one.name != "cache"]
        if full:
            assert said.count(b"\n") == 1, said.decode()
            assert not left, left
        for one in left:
            assert one.name in (*MADE, "report", "runs.db"), f"left behind: {one}"
        for one in left:  # a history goes on; what else is there commands may refuse to write over
            if one.name != "runs.db":
                shutil.rmtree(one) if one.is_dir() else one.unlink()
        subprocess.run(["mount", "-o", "remount,size=256m", str(small)], check=True)
        again = start(words, folder, TRACEVIZ_CACHE=cache)
        _, said = again.communicate(timeout=300)
        assert again.returncode in (0, 1, 3), said.decode()
        return full
    finally:
        subprocess.run(["umount", str(small)], check=True)


def somewhere(rng: random.Random, calls: int) -> int:
    """One of so many calls, one time in four of the last ones, amid which Python ends."""
    return rng.randint(1, calls) if rng.random() < 0.75 else calls - rng.randrange(min(calls, 300))


def main() -> int:
    """Try each fault on each command so many times; 1 if any ended badly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=20, help="of each fault on each command")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        saved = Path(name) / "runs.db"
        start(COMMANDS["check-overlap"], Path(name)).communicate(timeout=300)
        for fault in ("SIGINT", "SIGTERM", "full disk"):
            for command in COMMANDS if fault != "full disk" else FILLS:
                rng, bad, hit = random.Random(f"{given.seed} {fault} {command}"), 0, 0
                for number in range(given.tries):
                    folder = Path(name) / f"{fault} {command} {number}".replace(" ", "-")
                    folder.mkdir()
                    furnish(folder, saved)
                    try:
                        if fault == "full disk":
                            hit += fill(command, folder, 4096 * round(2 ** rng.uniform(0, 10)))
                        else:
                            interrupt(command, folder, signal.Signals[fault], somewhere(rng, calls(command, saved)))
                    except AssertionError as error:
                        print(f"{fault}, {command}, try {number}: {error}", file=sys.stderr)
                        bad += 1
                    shutil.rmtree(folder)
                failures += bad
                print(
                    f"{fault:10} {command:14} {given.tries} tries, {bad} failures" + f", {hit} full" * bool(hit),
                    flush=True,
                )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
