from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectors.errors import CollectError
from tests.collectors.collecting import HOME, environment, running

RUN = """
import os, sys
from collectors.processes import run
outcome = run(sys.argv[2:], os.environ, timeout=float(sys.argv[1]) or None, grace=2)
print("OUTCOME", outcome.returncode, outcome.stopped, outcome.exit_code, flush=True)
"""


def start(*command: str, timeout: float = 0) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", RUN, str(timeout), *command]
    return subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True, cwd=HOME)


def ended(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=60)
    return output.strip().splitlines()


@pytest.mark.parametrize(
    ("ends", "outcome"), [("exit 0", "0  0"), ("exit 77", "77  77"), ("kill -SEGV $$", f"{-signal.SIGSEGV}  139")]
)
def test_the_exit_code_is_the_commands_own_or_tells_the_signal(ends: str, outcome: str) -> None:
    assert ended(start("sh", "-c", ends))[-1] == f"OUTCOME {outcome}"


def test_output_streams_through_while_the_command_runs() -> None:
    process = start("sh", "-c", "echo first; sleep 30")
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    process.send_signal(signal.SIGTERM)
    assert ended(process)[-1] == f"OUTCOME {-signal.SIGTERM} SIGTERM 143"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_command_once(number: signal.Signals) -> None:
    script = (
        "import signal, sys, time\n"
        "got = []\n"
        f"signal.signal({int(number)}, lambda n, f: got.append(n))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.05)\n"
        "time.sleep(0.5)\n"  # for a second one, which must not come
        "print('GOT', len(got), flush=True)\n"
    )
    process = start(sys.executable, "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert "GOT 1" in ended(process)


def test_a_command_that_fails_leaves_nothing_behind_not_even_in_another_session(tmp_path: Path) -> None:
    mark = f"leftover-{os.getpid()}"
    script = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}], start_new_session=True)\n"
        "sys.exit(3)\n"
    )
    assert ended(start(sys.executable, "-c", script))[-1] == "OUTCOME 3  3"
    assert running(mark) == []


def test_a_command_that_ends_well_may_leave_a_daemon() -> None:
    mark = f"daemon-{os.getpid()}"
    script = (
        "import subprocess, sys\n"
        f"daemon = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}],"
        " start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "print(daemon.pid, flush=True)\n"
    )
    daemon, outcome = ended(start(sys.executable, "-c", script))
    assert outcome == "OUTCOME 0  0"
    assert len(running(mark)) == 1
    os.kill(int(daemon), signal.SIGKILL)


@pytest.mark.nightly
def test_one_that_ignores_being_asked_is_killed_after_the_grace() -> None:
    mark = f"deaf-{os.getpid()}"
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    process = start(sys.executable, "-c", script, mark)
    assert process.stdout is not None
    process.stdout.readline()
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert ended(process)[-1].startswith("OUTCOME -9 SIGTERM")
    assert time.monotonic() - began < 30
    assert running(mark) == []


@pytest.mark.nightly
def test_nsys_ends_last_and_writes_what_there_is(tmp_path: Path) -> None:
    """Told by its file: here a shell of that name, whose program is deaf."""
    shutil.copyfile("/bin/sh", tmp_path / "nsys")
    (tmp_path / "nsys").chmod(0o755)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    writes = [str(tmp_path / "nsys"), "-c", '"$@"; sleep 1; echo written', "nsys", sys.executable, "-c", deaf]
    process = start(sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *writes)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert ended(process) == ["written", f"OUTCOME {-signal.SIGTERM} SIGTERM 143"]


def test_a_timeout_ends_like_timeout_does() -> None:
    assert ended(start("sleep", "60", timeout=0.5))[-1] == f"OUTCOME {-signal.SIGTERM} timeout 124"


def test_the_command_sees_the_signal_mask_and_handlers_it_would_have_seen() -> None:
    script = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), signal.getsignal(2))"
    without = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    seen = ended(start(sys.executable, "-c", script))[0]  # "<function default_int_handler at …>": not at the same place
    assert seen.split(" at ")[0] == without.strip().split(" at ")[0]


def test_no_such_command_is_said() -> None:
    from collectors.processes import run

    with pytest.raises(CollectError, match="there is no command 'no-such-program'") as raised:
        run(["no-such-program"], os.environ)
    assert raised.value.exit_code == 127
