"""Stand between a launcher and the nsys of one rank: the rank's signals reach its program, but never nsys.

Launchers end every rank when one has failed, some again after a while. nsys hands that on to the program and then
writes its report, unless it is told once more, or by a signal that it does not know: then the report is lost.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV)


def run_as_rank(command):
    """Run nsys with the rank's program, then end as the program did; never returns."""
    watched = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)

    def apart():  # in a process group of its own, which no launcher signals behind our back
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    process = subprocess.Popen(command, preexec_fn=apart)
    held = []  # what came before the program runs, or while nsys writes: then it is never said
    while process.poll() is None:
        info = signal.sigtimedwait(watched, 0.2)
        if info and info.si_signo in FORWARDED and not (info.si_signo in ENDING and any(one in ENDING for one in held)):
            held.append(info.si_signo)
        programs = programs_of(process.pid) if held else ()
        for pid in programs:
            for number in held:
                tell(pid, number)
        if programs:
            held.clear()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    sys.stdout.flush()
    end_like(process.returncode)


def end_like(code):
    """End with a code, or by the signal that a code above 128 stands for."""
    number = -code if code < 0 else code - 128
    if number in (*ENDS, signal.SIGTERM):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code if code >= 0 else 128 - code)


def tell(pid, number):
    """Send a program a signal; to its process group, too, where it ends it, as a terminal and nsys do."""
    try:
        if number in ENDING and os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return


def programs_of(root):
    """What an nsys, or those below it, runs."""
    parents, writes = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    name, _, rest = file.read().partition("(")[2].rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            if fields[0] not in ("Z", "X"):
                parents[int(entry)], writes[int(entry)] = int(fields[1]), name.startswith(("nsys", "Qdstrm"))
    return [
        pid for pid, parent in parents.items() if not writes[pid] and writes.get(parent) and below(pid, root, parents)
    ]


def below(pid, root, parents):
    """Whether a process descends from another."""
    while pid in parents:
        pid = parents[pid]
        if pid == root:
            return True
    return False
