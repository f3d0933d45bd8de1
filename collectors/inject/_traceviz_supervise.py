"""Run nsys with a program, and pass signals to the program, never to nsys: NSYS-WORDS... -- PROGRAM...

nsys loses its report when it is told to end twice, or while it writes; of SIGHUP, SIGUSR1 and SIGUSR2 it dies.
Launchers and batch systems do all of this. A program that a signal ends takes the GPU's events along, so `nsys stop`
comes first. Run as a file by the Python of a rank or of the collector, and loaded by the hook in a rank: Linux, and
the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
STOPPING = (signal.SIGINT, signal.SIGTERM)  # the others may be warnings, which a program outlives
SESSION = "TRACEVIZ_SESSION"  # in the environment of the program, and of nothing that nsys runs for itself
STOP_SECONDS = 25  # torchrun kills a rank 30 seconds after it told it to end


def run(nsys: list[str], program: list[str]) -> int:
    """Run to the end; returns nsys' exit code, which is the program's, or 128 and the signal that ended it."""
    with tempfile.NamedTemporaryFile(prefix="traceviz-") as lock:  # its name is the session's, so no other has it
        return _run(nsys, program, Path(lock.name).name)


def _run(nsys: list[str], program: list[str], session: str) -> int:
    watched = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    mark = f"{SESSION}={session}"
    process = subprocess.Popen(
        [*nsys, f"--session-new={session}", f"--env-var={mark}", *program],
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
                if number in STOPPING:
                    stop(nsys[0], session)
                send(pid, number)
            held.clear()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def stop(nsys: str, session: str) -> None:
    """Let nsys take what it has recorded out of the session's programs, which run on, and write its report.

    Where another process is at it, as several ranks are that end at once, this waits: nsys refuses a second stop
    before the first is over.
    """
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # nsys' own, in a rank
    with contextlib.suppress(OSError, subprocess.TimeoutExpired), open(Path(tempfile.gettempdir(), session)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            [nsys, "stop", f"--session={session}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            timeout=STOP_SECONDS,
            check=False,
        )


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


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it still runs; to its children, too, where it ends them, as a terminal does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number in ENDING and os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


if __name__ == "__main__":
    end_of_nsys = sys.argv.index("--")
    sys.exit(run(sys.argv[1:end_of_nsys], sys.argv[end_of_nsys + 1 :]))
