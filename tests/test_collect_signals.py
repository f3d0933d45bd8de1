"""Signals go to the program, never to nsys, which some end at once and others before its report is written.

What comes before the program runs waits until it does, and a program that ends at nothing ends before nsys does.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.inject._traceviz_programs import is_nsys
from tests.support.collecting import HOME, environment
from tests.support.waiting import soon

pytestmark = pytest.mark.once
INJECT = Path(__file__).parents[1] / "collectors" / "inject"
# Its words: whether the program has a session of its own, and what the program does.
NSYS = """#!{python}
import os, signal, subprocess, sys, time
told = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: told.append(number))
print("starting", flush=True)
while not os.path.exists(sys.argv[0] + ".go"):
    time.sleep(0.02)
if "helped" in sys.argv:
    print("helping", flush=True)
    print("helper ended", subprocess.run(["sleep", "2"]).returncode, flush=True)
os.environ["NSYS_PROFILING_SESSION_ID"] = "1"  # as of those that run a real program; what it runs for itself lacks it
if len(sys.argv) > 1:
    words = [sys.executable, "-c", {program!r}, *sys.argv[2:]]
    program = subprocess.Popen(words, start_new_session=sys.argv[1] == "apart")
    print("program ended", program.wait(), flush=True)
print("writing", flush=True)
time.sleep(3 if len(sys.argv) == 1 else 1 if "deaf" in sys.argv else 0.2)
print("nsys was told", told, flush=True)
while "hangs" in sys.argv:
    time.sleep(1)
"""
PROGRAM = """
import signal, subprocess, sys, time
def hear(number, frame):
    if sys.argv[1] == "second":  # it swallows the first SIGINT only
        signal.signal(number, signal.SIG_DFL)
    print(f"heard {number}\\n", end="", flush=True)  # in one piece: a child says the same
signal.signal(signal.SIGINT, signal.SIG_DFL if sys.argv[1] == "plain" else hear)
signal.signal(signal.SIGUSR1, hear)
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] == "family":
    kid = subprocess.Popen([sys.executable, "-c", sys.argv[2], "second", "kid"])
print("ready\\n", end="", flush=True)
if sys.argv[1] == "family":
    kid.wait()
else:
    time.sleep(60)
"""
COLLECTOR = """
import os, sys
from collectors.processes import run
grace = 5 if {"deaf", "hangs"} & set(sys.argv) else 30
outcome = run(sys.argv[3:], os.environ, apart=sys.argv[2] == "apart", timeout=float(sys.argv[1]) or None, grace=grace)
print("stopped by", outcome.stopped or "nothing", flush=True)
"""
RANK = f"""
import sys
sys.path.insert(0, {str(INJECT)!r})
from _traceviz_supervise import run_as_rank
run_as_rank(sys.argv[3:])
"""
LAUNCHER = """
import signal, subprocess, sys
rank = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGINT, lambda number, frame: rank.send_signal(number))
rank.wait()
"""
BOTH = pytest.mark.parametrize("script", [COLLECTOR, RANK], ids=["collector", "rank"])


@pytest.fixture
def nsys(tmp_path: Path) -> str:
    """Its name is what tells it from the program."""
    (tmp_path / "nsys").write_text(NSYS.format(python=sys.executable, program=PROGRAM))
    (tmp_path / "nsys").chmod(0o755)
    return str(tmp_path / "nsys")


@pytest.fixture
def go(nsys: str) -> Path:
    """Where this file is, nsys has started."""
    return Path(nsys + ".go")


def start(script: str, *command: str, timeout: float = 0, apart: bool = True) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", script, str(timeout), "apart" if apart else "together", *command]
    return subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True, cwd=HOME)


def taken(pid: int) -> bool:
    """Whether a process has taken every signal that it was sent."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return not any(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def until(process: subprocess.Popen[str], line: str) -> list[str]:
    """What it said until it said so."""
    assert process.stdout is not None
    said: list[str] = []
    while line not in said:
        said.append(process.stdout.readline().strip())
        assert said[-1], said
    return said


def told(process: subprocess.Popen[str], *numbers: int) -> None:
    for number in numbers:
        process.send_signal(number)
        assert soon(lambda: taken(process.pid))


def rest(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=300)
    return output.splitlines()


@BOTH
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_as_nsys_starts_ends_the_program_once_it_runs(script: str, nsys: str, go: Path, number: int) -> None:
    process = start(script, nsys, "apart", "plain")
    until(process, "starting")
    told(process, number, signal.SIGINT)
    go.touch()
    said = [line for line in rest(process) if line != "ready"]
    assert said[:3] == [f"program ended {-number}", "writing", "nsys was told []"]


@BOTH
def test_what_comes_while_nsys_writes_is_not_said(script: str, nsys: str, go: Path) -> None:
    go.touch()
    process = start(script, nsys)
    until(process, "writing")
    told(process, signal.SIGINT)
    assert "nsys was told []" in rest(process)


def test_a_timeout_that_ends_while_nsys_writes_is_not_said_either(nsys: str, go: Path) -> None:
    go.touch()
    assert rest(start(COLLECTOR, nsys, timeout=0.5))[-2:] == ["nsys was told []", "stopped by timeout"]


@BOTH
@pytest.mark.parametrize(
    ("session", "does", "first", "last"),
    [
        ("apart", "plain", signal.SIGUSR1, signal.SIGHUP),
        ("together", "plain", signal.SIGUSR1, signal.SIGHUP),
        ("apart", "second", signal.SIGINT, signal.SIGINT),  # a program that swallows one is told again
    ],
)
def test_every_signal_reaches_the_program_and_not_nsys(
    script: str, session: str, does: str, first: signal.Signals, last: signal.Signals, nsys: str, go: Path
) -> None:
    """By SIGHUP, SIGUSR1 and SIGUSR2 nsys ends at once, and leaves no report."""
    go.touch()
    process = start(script, nsys, session, does)
    until(process, "ready")
    told(process, first)
    until(process, f"heard {first.value}")
    told(process, last)
    assert rest(process)[:3] == [f"program ended {-last}", "writing", "nsys was told []"]


@BOTH
def test_what_ends_a_program_reaches_its_children_as_from_a_terminal(script: str, nsys: str, go: Path) -> None:
    go.touch()
    process = start(script, nsys, "apart", "family", PROGRAM)
    assert until(process, "ready") and until(process, "ready")
    told(process, signal.SIGINT)
    assert until(process, "heard 2") and until(process, "heard 2")
    told(process, signal.SIGINT)
    assert "program ended 0" in rest(process)


@BOTH
def test_what_nsys_runs_for_itself_is_not_told(script: str, nsys: str, go: Path) -> None:
    go.touch()
    process = start(script, nsys, "apart", "plain", "helped")
    until(process, "helping")
    told(process, signal.SIGINT)
    said = [line for line in rest(process) if line != "ready"]
    assert said[:4] == ["helper ended 0", f"program ended {-signal.SIGINT}", "writing", "nsys was told []"]


def test_what_nsys_forks_is_nsys_whatever_the_thread_is_called_that_did(tmp_path: Path) -> None:
    shutil.copyfile("/bin/sh", tmp_path / "nsys-launcher")
    (tmp_path / "nsys-launcher").chmod(0o755)
    rename = "printf '*1Comm' >/proc/$$/comm; echo renamed; read line"
    for file, own in ((str(tmp_path / "nsys-launcher"), True), ("/bin/sh", False)):
        with subprocess.Popen(
            [file, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            until(process, "renamed")
            assert Path(f"/proc/{process.pid}/comm").read_text() == "*1Comm\n"
            assert is_nsys(process.pid) is own


@pytest.mark.parametrize("behind", ["collector", "launcher"])
def test_a_program_that_does_not_end_is_killed_and_nsys_writes_what_there_is(nsys: str, go: Path, behind: str) -> None:
    go.touch()
    command = [nsys, "apart", "deaf"]
    if behind == "launcher":  # which waits for its rank
        command = [sys.executable, "-c", LAUNCHER, sys.executable, "-c", RANK, "0", "apart", *command]
    process = start(COLLECTOR, *command, apart=behind == "collector")
    until(process, "ready")
    told(process, signal.SIGINT)
    said = rest(process)
    assert said[-4:] == [f"program ended {-signal.SIGKILL}", "writing", "nsys was told []", "stopped by SIGINT"]


def test_an_nsys_that_does_not_end_is_killed(nsys: str, go: Path) -> None:
    go.touch()
    process = start(COLLECTOR, nsys, "apart", "plain", "hangs")
    until(process, "ready")
    told(process, signal.SIGINT)
    assert rest(process)[-2:] == ["nsys was told []", "stopped by SIGINT"]
