"""Signals go to the program, never to nsys; what comes before the program runs waits until it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.with_nsys import SUPERVISE
from tests.support.waiting import soon

# Stands for nsys: runs something for itself, starts the program as nsys does, and says which signals it heard itself.
NSYS = """
import os, signal, subprocess, sys, time
told = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: told.append(number))
print("starting", flush=True)
go, session, variable, *program = sys.argv[1:]
while subprocess.run(["sleep", "0.1"]).returncode or not os.path.exists(go):
    pass
name, _, value = variable.removeprefix("--env-var=").partition("=")
marked = {**os.environ, name: value}
program = subprocess.Popen(program, start_new_session=session == "apart", env=marked)
print("program ended", program.wait(), flush=True)
print("writing", flush=True)
time.sleep(1)
print("nsys was told", told, flush=True)
sys.exit(7)
"""
PROGRAM = """
import signal, subprocess, sys, time
def hear(number, frame):
    print(f"heard {number}\\n", end="", flush=True)
    if number == signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGUSR1, hear)
signal.signal(signal.SIGINT, hear)
kid = subprocess.Popen([sys.executable, "-c", sys.argv[1]]) if len(sys.argv) > 1 else None
print("ready\\n", end="", flush=True)
kid.wait() if kid else time.sleep(60)
"""
RUNS = [sys.executable, "-c", PROGRAM]


class Supervised:
    """A program under what stands for nsys, which waits for `go`."""

    def __init__(self, folder: Path, *program: str, session: str = "apart") -> None:
        self.go = folder / "go"
        words = [*SUPERVISE, sys.executable, "-c", NSYS, str(self.go), session, "--", *program]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def until(self, line: str, times: int = 1) -> None:
        """Wait until it has said so."""
        assert self.process.stdout is not None
        while times:
            said = self.process.stdout.readline().strip()
            assert said
            times -= said == line

    def tell(self, number: int) -> None:
        """Send a signal to its process group, as a launcher, a batch system or a terminal may, and see it taken."""
        os.killpg(self.process.pid, number)
        status = Path(f"/proc/{self.process.pid}/status")
        assert soon(lambda: "ShdPnd:\t0000000000000000" in status.read_text())

    def rest(self) -> list[str]:
        """What else it says to its end."""
        output, _ = self.process.communicate(timeout=120)
        return output.splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_as_nsys_starts_ends_the_program_once_it_runs(tmp_path: Path, number: int) -> None:
    under = Supervised(tmp_path, "sleep", "60")
    under.until("starting")
    under.tell(number)
    under.tell(number)
    under.go.touch()
    assert under.rest() == [f"program ended {-number}", "writing", "nsys was told []"]


def test_what_comes_while_nsys_writes_is_told_nobody_and_its_exit_code_stays(tmp_path: Path) -> None:
    under = Supervised(tmp_path, "true")
    under.go.touch()
    under.until("writing")
    under.tell(signal.SIGTERM)
    under.tell(signal.SIGTERM)
    assert under.rest() == ["nsys was told []"]
    assert under.process.returncode == 7


@pytest.mark.parametrize("session", ["apart", "together"])
@pytest.mark.parametrize("last", [signal.SIGHUP, signal.SIGTERM])
def test_every_signal_reaches_the_program_and_not_nsys(tmp_path: Path, session: str, last: int) -> None:
    under = Supervised(tmp_path, *RUNS, session=session)
    under.go.touch()
    under.until("ready")
    under.tell(signal.SIGUSR1)
    under.until(f"heard {signal.SIGUSR1.value}")
    under.tell(last)
    assert under.rest() == [f"program ended {-last}", "writing", "nsys was told []"]


def test_what_ends_a_program_reaches_its_children_and_may_be_said_again(tmp_path: Path) -> None:
    """A program that swallows the first Ctrl-C is told of the next."""
    under = Supervised(tmp_path, *RUNS, PROGRAM)
    under.go.touch()
    under.until("ready", times=2)
    under.tell(signal.SIGINT)
    under.until(f"heard {signal.SIGINT.value}", times=2)
    under.tell(signal.SIGINT)
    assert under.rest()[0] == f"program ended {-signal.SIGINT}"


def test_a_signal_that_ends_nsys_itself_is_told_by_the_exit_code(tmp_path: Path) -> None:
    words = [*SUPERVISE, "sh", "-c", "kill -SEGV $$", "--", "true"]
    assert subprocess.run(words, check=False).returncode == 128 + signal.SIGSEGV
