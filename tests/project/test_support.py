"""What the tests rest on: no exception taken for an answer, an oracle that counts rightly, fixtures that stay small."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.errors import TracevizError
from tests.support import oracle
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


@pytest.mark.nightly
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


def test_the_oracle_on_cases_counted_by_hand() -> None:
    a, b = [(0, 10), (5, 12), (20, 30), (25, 25)], [(11, 22), (30, 40)]
    assert oracle.busy(a) == 12 + 10
    assert oracle.busy(b) == 11 + 10
    assert oracle.overlap(a, b) == 1 + 2
    assert oracle.levels({"x": a, "y": b}) == {1: 11 + 8 + 8 + 10, 2: 3}
    assert oracle.alone({"x": a, "y": b}, "x") == 22 - 3
    assert oracle.innermost([(0, 10), (3, 5), (3, 9)], 4) == (3, 5)
    assert oracle.innermost([(0, 10)], 11) is None


def test_a_gap_between_all_lanes_counts_at_level_zero() -> None:
    assert oracle.levels({"x": [(0, 1)], "y": [(4, 6)]}) == {0: 3, 1: 3}


spans = st.lists(st.tuples(st.integers(-9, 20), st.integers(0, 9)).map(lambda one: (one[0], sum(one))), max_size=9)


@given(spans, spans)
def test_counting_starts_and_ends_agrees_with_cutting_into_pieces(
    a: list[oracle.Interval], b: list[oracle.Interval]
) -> None:
    assert oracle.sweep(a, b) == (oracle.busy(a), oracle.busy(b), oracle.overlap(a, b))
    assert oracle.busy(a) == len(oracle.instants(a))
    assert oracle.overlap(a, b) == len(oracle.instants(a) & oracle.instants(b))


DATA = Path(__file__).parents[1] / "data"
MOST = 30_000_000  # bytes


def test_fixtures_take_at_most_30_mb() -> None:
    assert (
        sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        <= MOST
    )
