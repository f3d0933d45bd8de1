"""Stand between a launcher and the nsys of one rank: the rank's signals reach nsys, but never while it writes.

Launchers end every rank when one has failed. nsys hands that on to the program and then writes its report, unless it
is told once more; then the report is lost.
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
        if held and runs_program(process.pid):
            for number in held:
                process.send_signal(number)
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


def runs_program(root):
    """Whether something but nsys itself runs below it."""
    parents, names = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    name, _, rest = file.read().partition("(")[2].rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            if fields[0] not in ("Z", "X"):
                parents[int(entry)], names[int(entry)] = int(fields[1]), name
    return any(not name.startswith(("nsys", "Qdstrm")) and below(pid, root, parents) for pid, name in names.items())


def below(pid, root, parents):
    """Whether a process descends from another."""
    while pid in parents:
        pid = parents[pid]
        if pid == root:
            return True
    return False
