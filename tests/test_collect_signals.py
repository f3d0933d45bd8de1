"""What nsys is told before its program runs waits until that does; while it writes its report it is told nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collecting import HOME, environment
from tests.waiting import soon

INJECT = Path(__file__).parents[1] / "collectors" / "inject"
NSYS = """#!{python}
import os, signal, subprocess, sys, time
told = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: told.append(number))
print("starting", flush=True)
while not os.path.exists(sys.argv[0] + ".go"):
    time.sleep(0.02)
print("told", len(told), "before the program", flush=True)
if len(sys.argv) > 1:
    program = subprocess.Popen(["sleep", sys.argv[1]])
    while program.poll() is None:
        if told:
            program.kill()
        time.sleep(0.02)
    print("told", len(told), "by its end", flush=True)
print("writing", flush=True)
time.sleep(3)
print("told", len(told), "in all", flush=True)
"""
COLLECTOR = """
import os, sys
from collectors.processes import run
outcome = run(sys.argv[2:], os.environ, apart=True, timeout=float(sys.argv[1]) or None, grace=30)
print("stopped by", outcome.stopped or "nothing", flush=True)
"""
RANK = f"""
import sys
sys.path.insert(0, {str(INJECT)!r})
from _traceviz_supervise import run_as_rank
run_as_rank(sys.argv[2:])
"""


@pytest.fixture
def nsys(tmp_path: Path) -> str:
    """Its name is what tells it from the program."""
    (tmp_path / "nsys").write_text(NSYS.format(python=sys.executable))
    (tmp_path / "nsys").chmod(0o755)
    return str(tmp_path / "nsys")


@pytest.fixture
def go(nsys: str) -> Path:
    """Where this file is, nsys has started."""
    return Path(nsys + ".go")


def start(script: str, *command: str, timeout: float = 0) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", script, str(timeout), *command]
    return subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True, cwd=HOME)


def taken(pid: int) -> bool:
    """Whether a process has taken every signal that it was sent."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return not any(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def told(process: subprocess.Popen[str], go: Path, after: str, *numbers: int) -> list[str]:
    """All it said, where it was sent these signals after it had said so much; only then may nsys go on."""
    assert process.stdout is not None
    said = []
    while after and after not in said:
        said.append(process.stdout.readline().strip())
        assert said[-1], said
    for number in numbers:
        process.send_signal(number)
        assert soon(lambda: taken(process.pid))
    go.touch()
    output, _ = process.communicate(timeout=60)
    return [*said, *output.split("\n")][:-1]


@pytest.mark.parametrize("script", [COLLECTOR, RANK], ids=["collector", "rank"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_as_nsys_starts_ends_the_program_once_it_runs(script: str, nsys: str, go: Path, number: int) -> None:
    """Told twice to end it would lose the report."""
    said = told(start(script, nsys, "60"), go, "starting", number, signal.SIGINT)
    assert said[1:5] == ["told 0 before the program", "told 1 by its end", "writing", "told 1 in all"]


@pytest.mark.parametrize("script", [COLLECTOR, RANK], ids=["collector", "rank"])
def test_what_comes_while_nsys_writes_is_not_said(script: str, nsys: str, go: Path) -> None:
    go.touch()
    assert "told 0 in all" in told(start(script, nsys, "0.1"), go, "writing", signal.SIGINT)


def test_a_timeout_that_ends_while_nsys_writes_is_not_said_either(nsys: str, go: Path) -> None:
    said = told(start(COLLECTOR, nsys, timeout=0.5), go, "")
    assert said[-2:] == ["told 0 in all", "stopped by timeout"]
