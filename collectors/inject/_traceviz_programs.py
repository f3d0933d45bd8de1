"""Processes below an nsys: which are its own, and the program, which is told in its place.

nsys loses its report when it is told to end twice or while it writes, and at SIGHUP, SIGUSR1 or SIGUSR2 it dies. The
collector and the rank that stands before its own nsys both use this, the latter in the user's Python: Linux, and the
least of the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
NSYS = ("nsys", "Qdstrm")  # how its programs are called that record events or turn them into a report
MARK = b"NSYS_PROFILING_SESSION_ID="  # in the environment of what it profiles, not of what it runs for itself
STARTED_SECONDS = 1.0  # after which what nsys has put into a program is there: ended before, some leave no report
UNMARKED_SECONDS = 5.0  # likewise where the mark can't be seen: no helper of nsys lives as long


def stat(pid: int) -> list[bytes]:
    """The fields of a process that follow its name, its state and its parent first; none where it is dead or gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return []
    return fields if fields[0] not in (b"Z", b"X") else []


def parent(pid: int) -> int:
    """The process that a living one was started by or left to; 0 where there is none."""
    fields = stat(pid)
    return int(fields[1]) if fields else 0


def descendants(root: int) -> set[int]:
    """Processes that a process started, and they, and so on; the dead ones not yet waited for are left out."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            children.setdefault(parent(int(name)), []).append(int(name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        new = [child for child in children.get(waiting.pop(), []) if child not in found]
        found.update(new)
        waiting += new
    return found


def is_nsys(pid: int) -> bool:
    """Whether a process is nsys' own: by its name, or by its file, as the names of threads pass to what they fork."""
    names = []
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        names.append(file.read())
    with contextlib.suppress(OSError):
        names.append(os.path.basename(os.readlink(f"/proc/{pid}/exe")))
    return any(name.startswith(NSYS) for name in names)


def programs(root: int) -> set[int]:
    """What an nsys, or one below a process, profiles, once it has started."""
    below = descendants(root)
    return {pid for pid in below if not is_nsys(pid) and is_nsys(parent(pid)) and has_started(pid)}


def has_started(pid: int) -> bool:
    """Whether a child of nsys is a program under its eyes, and no helper of its own."""
    fields = stat(pid)
    if not fields:
        return False
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            marked = MARK in file.read()
    except OSError:
        marked = False
    return age > (STARTED_SECONDS if marked else UNMARKED_SECONDS)


def hold(held: list[int], number: int) -> None:
    """Keep a signal until it can be told; one of those that end a program is enough."""
    if number not in ENDING or not any(one in ENDING for one in held):
        held.append(number)


def tell(pids: Iterable[int], number: int, *, groups: bool = True) -> None:
    """Send processes a signal; to their process groups, too, where it ends them, as a terminal and nsys do."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if groups and number in ENDING and os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
