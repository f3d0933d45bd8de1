"""What a captured process does when SIGTERM ends it, with a GPU and communicators that only pretend to be there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

INJECT = Path("collectors/inject").resolve()
# The mutex is a GPU that a host waits for; `abort` ends its work, as ncclCommAbort ends NCCL's kernels.
HEAD = f"""
import ctypes, os, signal, sys, threading, time, types

def say(line):
    os.write(1, (line + "\\n").encode())

libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)

def abort():
    say("ABORTED")
    libc.pthread_mutex_unlock(mutex)

c10d = types.SimpleNamespace(_abort_process_group=abort)
distributed = types.SimpleNamespace(distributed_c10d=c10d, is_initialized=lambda: True)
sys.modules["torch"] = types.SimpleNamespace(distributed=distributed)
sys.path.insert(0, {str(INJECT)!r})
import _traceviz_ending as ending

ending.IDLE_SECONDS = 0.3

def before_sigterm(then, blocked=ending.abort_collectives):
    return ending.BeforeSigterm(then, blocked)
"""
TOLD = "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"


def run(body: str) -> tuple[list[str], int]:
    """What a program said, and how it ended."""
    command = [sys.executable, "-c", HEAD + body]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not ran.stderr, ran.stderr
    return ran.stdout.splitlines(), ran.returncode


def test_before_sigterm_ends_it_the_function_runs_and_nothing_is_aborted() -> None:
    output, code = run(f"before_sigterm(lambda: say('SAVED'))\n{TOLD}time.sleep(10)")
    assert (output, code) == (["SAVED"], -signal.SIGTERM)


def test_a_host_blocked_in_a_call_is_freed_and_saves() -> None:
    """A second lock of a mutex blocks as a CUDA call does: no signal interrupts it."""
    blocked = "libc.pthread_mutex_lock(mutex)\nlibc.pthread_mutex_lock(mutex)\nsay('FREE')\ntime.sleep(10)"
    output, code = run(f"before_sigterm(lambda: say('SAVED'))\n{TOLD}{blocked}")
    assert [one for one in output if one != "FREE"] == ["ABORTED", "SAVED"]
    assert code == -signal.SIGTERM


def test_what_is_being_written_is_finished_first() -> None:
    body = "one = before_sigterm(lambda: say('SAVED'))\n" + TOLD
    output, code = run(body + "with one.hold():\n    time.sleep(1)\n    say('WRITTEN')\ntime.sleep(10)")
    assert (output, code) == (["WRITTEN", "SAVED"], -signal.SIGTERM)


def test_a_signal_the_program_handles_is_left_to_it() -> None:
    body = "handled = threading.Event()\nsignal.signal(signal.SIGTERM, lambda *_: (say('MINE'), handled.set()))\n"
    body += "before_sigterm(lambda: say('SAVED'))\n"
    assert run(body + TOLD + "handled.wait(30)\ntime.sleep(0.5)") == (["MINE"], 0)


def test_a_wakeup_file_of_the_program_stays_and_saving_works_without_ours() -> None:
    body = "inbox, own = os.pipe()\nos.set_blocking(own, False)\nsignal.set_wakeup_fd(own)\n"
    body += "before_sigterm(lambda: say(f'SAVED {os.read(inbox, 1)[0]} {signal.set_wakeup_fd(-1) == own}'))\n"
    assert run(body + TOLD + "time.sleep(10)") == ([f"SAVED {int(signal.SIGTERM)} True"], -signal.SIGTERM)


def test_a_wakeup_file_that_the_program_sets_meanwhile_stays() -> None:
    body = "one = before_sigterm(lambda: say('SAVED'))\ninbox, own = os.pipe()\nos.set_blocking(own, False)\n"
    body += "signal.set_wakeup_fd(own)\none.restore()\nsay(str(signal.set_wakeup_fd(-1) == own))\n"
    assert run(body) == (["True"], 0)


def test_behind_the_window_all_is_as_before() -> None:
    body = "files = len(os.listdir('/proc/self/fd'))\none = before_sigterm(lambda: say('SAVED'))\n"
    body += "one.restore()\nsay(str(signal.set_wakeup_fd(-1)))\ntime.sleep(0.3)\n"
    body += "say(f\"{threading.active_count()} {len(os.listdir('/proc/self/fd')) - files}\")\n"
    assert run(body + TOLD + "time.sleep(10)") == (["-1", "1 0"], -signal.SIGTERM)


def test_a_torch_without_a_way_to_abort_ends_all_the_same() -> None:
    assert run("del c10d._abort_process_group\nending.abort_collectives()\nsay('ON')") == (["ON"], 0)


def test_a_host_that_stays_blocked_may_be_ended_from_the_thread() -> None:
    """As under nsys: what it has recorded is handed over, and the process needs no Python to end."""
    ends = "def ends():\n    say('HANDED OVER')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    blocked = "libc.pthread_mutex_lock(mutex)\nlibc.pthread_mutex_lock(mutex)\n"
    output, code = run(f"{ends}before_sigterm(lambda: say('SAVED'), ends)\n{TOLD}{blocked}")
    assert (output, code) == (["HANDED OVER"], -signal.SIGKILL)
