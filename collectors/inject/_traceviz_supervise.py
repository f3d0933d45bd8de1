"""Run nsys with a program, and pass signals to the program, never to nsys: NSYS-WORDS... -- PROGRAM...

nsys loses its report when it is told to end twice, or while it writes; of SIGHUP, SIGUSR1 and SIGUSR2 it dies.
Launchers and batch systems do all of this. Run as a file by the Python of a rank or of the collector: Linux, and the
standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
MARK = "TRACEVIZ_SUPERVISOR"  # in the environment of the program, and of nothing that nsys runs for itself


def run(nsys: list[str], program: list[str]) -> int:
    """Run to the end; returns nsys' exit code, which is the program's, or 128 and the signal that ended it."""
    watched = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    mark = f"{MARK}={os.getpid()}"
    process = subprocess.Popen(
        [*nsys, f"--env-var={mark}", *program],
        start_new_session=True,  # a signal to our group or terminal must not reach nsys
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
    )
    pid, held = None, []  # what comes before the program runs is held
    while process.poll() is None:
        info = signal.sigtimedwait(watched, 0.2)
        if info is not None and info.si_signo in FORWARDED:
            held.append(info.si_signo)
        pid = pid or first_with(mark, process.pid)
        if pid:
            for number in held:
                tell(pid, number)
            held.clear()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def first_with(mark: str, root: int) -> int | None:
    """The first process below one that has a variable in its environment; None where none has."""
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return pid
    return None


def descendants(root: int) -> list[int]:
    """Processes that a process started, then those that they did, and so on, without those that have ended."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_bytes().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(path.parent.name))
    found = [root]
    for pid in found:  # grows meanwhile
        found += children.get(pid, [])
    return found[1:]


def tell(pid: int, number: int) -> None:
    """Send a signal to a process, if it still runs; to its children, too, where it ends them, as a terminal does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number in ENDING and os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


if __name__ == "__main__":
    end_of_nsys = sys.argv.index("--")
    sys.exit(run(sys.argv[1:end_of_nsys], sys.argv[end_of_nsys + 1 :]))
