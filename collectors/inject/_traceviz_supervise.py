"""Stand between a launcher and the nsys of one rank: the rank's signals reach its program, but never nsys.

Launchers end every rank when one has failed, and some do so again after a while.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

from _traceviz_programs import FORWARDED, hold, programs, tell

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
        if info and info.si_signo in FORWARDED:
            hold(held, info.si_signo)
        if held and (told := programs(process.pid)):
            for number in held:
                tell(told, number)
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
