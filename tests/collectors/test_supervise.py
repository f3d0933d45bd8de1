"""Signals go to the program, never to nsys, which stops recording before one that ends the program; what comes before
the program runs waits until it does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from collectors.inject._traceviz_supervise import stop
from collectors.with_nsys import SUPERVISE
from tests.support.endings import soon

# Stands for nsys: runs something for itself, starts the program as nsys does, and says which signals it heard itself.
NSYS = f"""#!{sys.executable}
import os, signal, subprocess, sys, time
if sys.argv[1] == "stop":
    time.sleep(0.5)
    with open(sys.argv[0] + "-stopped", "a") as file:
        print(*sys.argv[2:], file=file)
    sys.exit()
heard = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: heard.append(number))
print("starting", flush=True)
go, session, named, variable, *program = sys.argv[1:]
assert named.removeprefix("--session-new=") == variable.removeprefix("--env-var=TRACEVIZ_SESSION=")
while subprocess.run(["sleep", "0.1"]).returncode or not os.path.exists(go):
    pass
name, _, value = variable.removeprefix("--env-var=").partition("=")
marked = {{**os.environ, name: value}}
program = subprocess.Popen(program, start_new_session=session == "apart", env=marked)
print("program ended", program.wait(), flush=True)
print("writing", flush=True)
time.sleep(1)
print("nsys heard", heard, flush=True)
sys.exit(7)
"""
PROGRAM = """
import os, signal, subprocess, sys, time
def hear(number, frame):
    stopped = " after stop" * os.path.exists(os.environ["STOPPED"])
    print(f"heard {number}{stopped}\\n", end="", flush=True)
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
        nsys = folder / "nsys"
        nsys.write_text(NSYS)
        nsys.chmod(0o755)
        self.stopped = folder / "nsys-stopped"
        self.process = subprocess.Popen(
            [*SUPERVISE, str(nsys), str(self.go), session, "--", *program],
            env={**os.environ, "STOPPED": str(self.stopped), "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, line: str, times: int = 1) -> None:
        """Wait until it has said so."""
        assert self.process.stdout is not None
        while times:
            printed = self.process.stdout.readline().strip()
            assert printed
            times -= printed == line

    def send(self, number: int) -> None:
        """Send a signal to its process group, as a launcher, a batch system or a terminal may, and see it taken."""
        os.killpg(self.process.pid, number)
        status = Path(f"/proc/{self.process.pid}/status")
        assert soon(lambda: "ShdPnd:\t0000000000000000" in status.read_text())

    def rest(self) -> list[str]:
        """What else it says to its end."""
        output, _ = self.process.communicate(timeout=120)
        return output.splitlines()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_what_comes_as_nsys_starts_ends_the_program_once_it_runs(tmp_path: Path, number: int) -> None:
    under = Supervised(tmp_path, "sleep", "60")
    under.until("starting")
    under.send(number)
    under.send(number)
    under.go.touch()
    assert under.rest() == [f"program ended {-number}", "writing", "nsys heard []"]


def test_what_comes_while_nsys_writes_is_told_nobody_and_its_exit_code_stays(tmp_path: Path) -> None:
    under = Supervised(tmp_path, "true")
    under.go.touch()
    under.until("writing")
    under.send(signal.SIGTERM)
    under.send(signal.SIGTERM)
    assert under.rest() == ["nsys heard []"]
    assert under.process.returncode == 7


@pytest.mark.parametrize("session", ["apart", "together"])
@pytest.mark.parametrize("last", [pytest.param(signal.SIGHUP, marks=pytest.mark.nightly), signal.SIGTERM])
def test_every_signal_reaches_the_program_and_not_nsys(tmp_path: Path, session: str, last: int) -> None:
    under = Supervised(tmp_path, *RUNS, session=session)
    under.go.touch()
    under.until("ready")
    under.send(signal.SIGUSR1)
    under.until(f"heard {signal.SIGUSR1.value}")
    under.send(last)
    assert under.rest() == [f"program ended {-last}", "writing", "nsys heard []"]
    assert under.stopped.exists() == (last == signal.SIGTERM)
    assert list(tmp_path.glob("traceviz-*")) == []


def test_what_ends_a_program_reaches_its_children_and_may_be_said_again(tmp_path: Path) -> None:
    """A program that swallows the first Ctrl-C is told of the next."""
    under = Supervised(tmp_path, *RUNS, PROGRAM)
    under.go.touch()
    under.until("ready", times=2)
    under.send(signal.SIGINT)
    under.until(f"heard {signal.SIGINT.value} after stop", times=2)
    under.send(signal.SIGINT)
    assert under.rest()[0] == f"program ended {-signal.SIGINT}"


def test_a_signal_that_ends_nsys_itself_is_told_by_the_exit_code(tmp_path: Path) -> None:
    words = [*SUPERVISE, "sh", "-c", "kill -SEGV $$", "--", "true"]
    assert subprocess.run(words, check=False).returncode == 128 + signal.SIGSEGV


def test_a_process_that_ends_while_another_stops_nsys_waits_for_it(tmp_path: Path, monkeypatch: Any) -> None:
    """Else its GPU's events would go with it."""
    nsys, log = tmp_path / "nsys", tmp_path / "log"
    nsys.write_text(f"#!/bin/sh\necho begin >> {log}\nsleep 0.3\necho end $LD_PRELOAD >> {log}\n")
    nsys.chmod(0o755)
    (tmp_path / "traceviz-1").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "libc.so.6")
    threads = [threading.Thread(target=stop, args=(str(nsys), "traceviz-1")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.read_text().split() == ["begin", "end"] * 3
