"""Run the user's command as if nobody stood between it and its terminal, and leave none of its processes behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from collectors.errors import CollectError, need_linux
from collectors.inject._traceviz_programs import (
    ENDING,
    FORWARDED,
    descendants,
    hold,
    is_nsys,
    parent,
    programs,
    tell,
)

FROM_KERNEL = 0x80  # si_code of a signal that the terminal sent, to every process in its foreground
SET_CHILD_SUBREAPER = 36  # Linux' PR_SET_CHILD_SUBREAPER
POLL_SECONDS = 0.2
TERM_SECONDS = 5.0  # between asking what is left to end and killing it
TIMED_OUT = 124  # as timeout(1) ends


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
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    apart: bool = False,
    timeout: float | None = None,
    grace: float = 60.0,
) -> Outcome:
    """Run a command to its end, its output, input and signals untouched.

    The command stays in our process group: what the terminal sends reaches it without us, and what is sent to us
    alone is passed on. nsys goes `apart`, into a group of its own, and its program is told in its place: told twice to
    end, while it writes its report, or by SIGHUP, SIGUSR1 or SIGUSR2, nsys would lose the report. Where the command
    does not end well (non-zero code, a signal, the timeout), everything it started is stopped, processes in sessions
    of their own included.

    Parameters
    ----------
    timeout : seconds after which the command is asked to end.
    grace : seconds it then has, and after a signal, before it is killed; an nsys whose program had to be killed has as
        long again to write what it captured.

    Raises
    ------
    CollectError : the command can't be started.
    """
    adopt_orphans()
    watched = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    known = descendants(os.getpid())
    try:
        process = _start(command, environment, before, apart)
        stopped = _wait(process, watched, timeout, grace, apart)
        failed = stopped or process.returncode != 0
        killed = stop_all(os.getpid(), known, spare_writers=True) if failed else 0
        _let_finish(os.getpid(), known, grace)
        if failed:
            stop_all(os.getpid(), known)
        _reap_orphans(process.pid)
        return Outcome(process.returncode, stopped, killed)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(
    command: Sequence[str], environment: Mapping[str, str], mask: Iterable[int], apart: bool
) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        if apart:
            os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(list(command), env=dict(environment), preexec_fn=prepare)
    except FileNotFoundError as error:
        raise CollectError(f"there is no command {command[0]!r}.", exit_code=127) from error
    except OSError as error:
        raise CollectError(f"{command[0]!r} can't be run: {error.strerror}.", exit_code=126) from error


def _wait(
    process: subprocess.Popen[bytes], watched: Collection[int], timeout: float | None, grace: float, apart: bool
) -> str:
    """Pass signals on until the command has ended; returns what it was stopped for.

    Behind nsys they go to its program: what comes before that runs waits, what comes after it has ended is dropped.
    """
    end = None if timeout is None else time.monotonic() + timeout
    stopped, deadline, killed = "", None, False
    held: list[int] = []
    while process.poll() is None:
        info = signal.sigtimedwait(watched, POLL_SECONDS)
        _reap_orphans(process.pid)
        now = time.monotonic()
        if info is not None and info.si_signo in FORWARDED:
            if apart or info.si_code != FROM_KERNEL:
                hold(held, info.si_signo)
            if info.si_signo in ENDING:
                stopped = stopped or signal.Signals(info.si_signo).name
                deadline = deadline or now + grace
        if end is not None and now > end and not stopped:
            hold(held, signal.SIGTERM)
            stopped, deadline = "timeout", now + grace
        if held and (told := programs(process.pid) if apart else {process.pid}):
            for number in held:
                tell(told, number, groups=apart)
            held.clear()
        if deadline is not None and now > deadline:
            if stop_all(process.pid, spare_writers=True) and apart and not killed:
                killed, deadline = True, time.monotonic() + grace  # nsys has as long again to write what there is
                continue
            if apart:
                stop_all(process.pid)
            process.kill()
            process.wait()
    return stopped


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that none can slip away."""
    need_linux()
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_all(root: int, keep: Collection[int] = (), *, spare_writers: bool = False) -> int:
    """Ask every descendant to end, kill what is left after a while; returns how many there were.

    Writers are spared together with those that stand for them, whose signals reach them.
    """

    def left() -> set[int]:
        running = descendants(root) - set(keep)
        if not spare_writers:
            return running
        writers = {pid for pid in running if is_nsys(pid)}
        return running - writers - {parent(pid) for pid in writers}

    asked = left()
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + TERM_SECONDS
        tell(left(), number, groups=False)
        while left() and time.monotonic() < end:
            time.sleep(POLL_SECONDS / 10)
            _reap_orphans(root)
    return len(asked)


def _let_finish(root: int, keep: Collection[int], patience: float) -> None:
    """Wait for an nsys that still writes its report."""
    end = time.monotonic() + patience
    while any(is_nsys(pid) for pid in descendants(root) - set(keep)) and time.monotonic() < end:
        time.sleep(POLL_SECONDS / 4)
        _reap_orphans(root)


def _reap_orphans(command: int) -> None:
    """Wait for orphans that ended; the command itself is waited for by its `Popen`."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != command:
            os.waitpid(ended.si_pid, 0)
