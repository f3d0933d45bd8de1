"""Run the user's command as if nobody stood between it and its terminal, and leave none of its processes behind."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.errors import CollectError, need_linux
from collectors.inject._traceviz_supervise import ENDING, FORWARDED, descendants

FROM_KERNEL = 0x80  # si_code of a signal that the terminal sent, to every process in its foreground
SET_CHILD_SUBREAPER = 36  # Linux' PR_SET_CHILD_SUBREAPER
POLL_SECONDS = 0.2
TERM_SECONDS = 5.0  # between asking what is left to end and killing it
TIMED_OUT = 124  # as timeout(1) ends
NSYS = ("nsys", "Qdstrm")  # its programs that record events, and turn them into a report


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `returncode` is negative where a signal ended it, `stopped` says what we stopped it for."""

    returncode: int
    stopped: str = ""
    killed: int = 0

    @property
    def exit_code(self) -> int:
        """What a shell would report."""
        if self.stopped == "timeout":
            return TIMED_OUT
        return self.returncode if self.returncode >= 0 else 128 - self.returncode


def run(
    command: Sequence[str], environment: Mapping[str, str], *, timeout: float | None = None, grace: float = 60.0
) -> Outcome:
    """Run a command to its end, its output, input and signals untouched.

    The command stays in our process group: what the terminal sends reaches it without us, and what is sent to us
    alone is passed on. Where it does not end well (non-zero code, a signal, the timeout), everything it started is
    stopped, processes in sessions of their own included.

    Parameters
    ----------
    timeout : seconds after which the command is asked to end.
    grace : seconds it then has, and after a signal, before it is killed; nsys has as long again to write its report.

    Raises
    ------
    CollectError : the command can't be started.
    """
    need_linux()
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that no orphan of the command's can slip away
    watched = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        process = _start(command, environment, before)
        stopped = _wait(process, watched, timeout, grace)
        killed = end_all(process.pid, grace) if stopped or process.returncode != 0 else 0
        return Outcome(process.wait(), stopped, killed)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(command: Sequence[str], environment: Mapping[str, str], mask: Collection[int]) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(list(command), env=dict(environment), preexec_fn=prepare)
    except FileNotFoundError as error:
        raise CollectError(f"there is no command {command[0]!r}.", exit_code=127) from error
    except OSError as error:
        raise CollectError(f"{command[0]!r} can't be run: {error.strerror}.", exit_code=126) from error


def _wait(process: subprocess.Popen[bytes], watched: Collection[int], timeout: float | None, grace: float) -> str:
    """Pass signals on until the command has ended, or its time is over; returns what it was stopped for."""
    limit = math.inf if timeout is None else time.monotonic() + timeout
    stopped = ""
    while process.poll() is None:
        info = signal.sigtimedwait(watched, POLL_SECONDS)
        _reap_orphans(process.pid)
        if info is not None and info.si_signo in FORWARDED:
            if info.si_code != FROM_KERNEL:
                process.send_signal(info.si_signo)
            if info.si_signo in ENDING and not stopped:
                stopped, limit = signal.Signals(info.si_signo).name, time.monotonic() + grace
        if time.monotonic() > limit:
            if stopped:
                break
            stopped, limit = "timeout", time.monotonic() + grace
            process.terminate()
    return stopped


def end_all(command: int, grace: float) -> int:
    """Ask all that still runs to end, kill what does not, nsys last: it writes its report when its program is gone.

    Returns how many processes there were, nsys' own not counted.
    """

    def left() -> list[int]:
        return descendants(os.getpid())

    def but_nsys() -> list[int]:
        return [pid for pid in left() if not _file_of(pid).startswith(NSYS)]

    asked = but_nsys()
    _send(asked, signal.SIGTERM)
    _wait_until_none(but_nsys, TERM_SECONDS, command)
    _send(but_nsys(), signal.SIGKILL)
    _wait_until_none(left, grace, command)
    _send(left(), signal.SIGKILL)
    _wait_until_none(left, TERM_SECONDS, command)
    return len(asked)


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _wait_until_none(left: Callable[[], list[int]], seconds: float, command: int) -> None:
    end = time.monotonic() + seconds
    while left() and time.monotonic() < end:
        time.sleep(POLL_SECONDS / 10)
        _reap_orphans(command)


def _file_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


def _reap_orphans(command: int) -> None:
    """Wait for orphans that ended; the command itself is waited for by its `Popen`."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != command:
            os.waitpid(ended.si_pid, 0)
