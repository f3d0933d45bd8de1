"""No test takes an exception for an answer, or runs without the nsys that it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from tests.support.command_lines import invoked
from tests.support.endings import answered, broke_down

ROOT = Path(__file__).parents[2]
BROKEN = """
from traceviz import cli
def broken(*words, **more): raise {error}
cli.with_commands = broken
cli.main()
"""


def ended(error: str) -> subprocess.CompletedProcess[str]:
    """A command that meets an error."""
    words = [sys.executable, "-c", BROKEN.format(error=error)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def test_what_a_command_raises_reaches_the_test() -> None:
    with pytest.raises(TracevizError, match="There is no such file"):
        invoked("info", "nowhere.json")
    assert invoked("info").exit_code == 2, "its own exit codes stay"


def test_a_process_that_breaks_down_did_not_answer() -> None:
    ran = ended("KeyError('x')")
    with pytest.raises(AssertionError, match="KeyError"):
        answered(ran)
    assert broke_down(ran.stderr.encode())


def test_a_refusal_and_a_traceback_of_the_users_program_are_answers() -> None:
    ran = ended("cli.TracevizError('no')")
    assert answered(ran).returncode == 2
    ran.stderr += 'Traceback (most recent call last):\n  File "/home/me/traceviz/train.py", line 1, in <module>\n'
    assert answered(ran) is ran
    assert not broke_down(None)


def test_clicks_own_runner_is_used_by_the_helper_alone() -> None:
    """And by a test that compares apps of its own."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if re.search(r"CliRunner\(", path.read_text("utf-8"))]
    assert {path.name for path in files} == {"command_lines.py", "test_command.py"}


def test_those_marked_nsys_are_skipped_without_one() -> None:
    """Whatever fixtures they ask for: one test exports, one is an example of `--help`, one captures."""
    files = ["analyzers/readers/nsys/test_folder.py", "project/test_help_examples.py", "collectors/test_with_nsys.py"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "nsys", "-p", "no:cacheprovider", *(f"tests/{file}" for file in files)],
        cwd=ROOT,
        env={**os.environ, "TRACEVIZ_NSYS": "/nowhere/nsys"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout
    assert re.fullmatch(r"=+ \d\d skipped, \d+ deselected in .*", lines[-1])
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    assert skipped and all(line.endswith("no nsys runs at '/nowhere/nsys'.") for line in skipped if "torch" not in line)
