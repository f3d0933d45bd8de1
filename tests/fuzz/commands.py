"""Run a command in this process or a real one, and judge how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any
from unittest import mock

from tests.fuzz.contract import broken
from traceviz import cli

RULES = str(Path(__file__).with_name("contract.toml"))
LIMIT = 30.0  # seconds a command may take on a small capture
TEXT = ("text", "md", "json")


class Hang(BaseException):
    """A command took too long."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; `crash` is what escaped it."""

    code: int
    out: str
    err: str
    seconds: float
    crash: str = ""

    @property
    def answer(self) -> dict[str, Any]:
        return json.loads(self.out) if self.out.startswith("{") else {}


def in_process(words: Sequence[str]) -> Ended:
    """Run the command line here, as its entry point does."""
    out, err = io.StringIO(), io.StringIO()
    code, crash, began = 0, "", time.monotonic()
    argv = mock.patch.object(sys, "argv", ["traceviz", *words])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _time_limit():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 99
        except BaseException as error:
            code, crash = -1, "".join(traceback.format_exception(error))
    return Ended(code, out.getvalue(), err.getvalue(), time.monotonic() - began, crash)


def in_subprocess(words: Sequence[str]) -> Ended:
    """Run a real process."""
    began = time.monotonic()
    command = [sys.executable, "-m", "traceviz", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    try:
        ran = subprocess.run(command, capture_output=True, timeout=4 * LIMIT, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return Ended(-1, "", "", 4 * LIMIT, "a hang")
    out, err = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
    return Ended(ran.returncode, out, err, time.monotonic() - began, err if "Traceback" in err else "")


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang(f"not ended after {LIMIT:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def commands(
    rng: Random, files: Sequence[str], original: Sequence[str], pair: tuple[str, str], out: Path
) -> list[list[str]]:
    """The verdict, and one of the other commands."""
    sides = ["-a", pair[0], "-b", pair[1]]
    form = ["--format", rng.choice(TEXT)]
    others = [
        ["info", *files, *form],
        ["info", *files, "--format", "json"],
        ["streams", *files, *form],
        ["syncs", *files, *form],
        ["collectives", *files, *form],
        ["syncs", *files, "--format", "json"],
        ["collectives", *files, "--format", "json"],
        ["check-overlap", *files, *sides, *form, "--no-align"],
        ["check-overlap", *files, *sides, *form, "--steps", "0:3"],
        ["check-overlap", *files, *sides, *form, "--window", "0us:1s", "--ranks", "0-7"],
        ["check-overlap", *files, *sides, "--format", "json", "--baseline", original[0]],
        ["check-overlap", *files, *sides, "--save", str(out / "runs.db")],
        ["what-if", *files, *sides, "--critical-path", "--format", "json"],
        ["what-if", *files, *sides, *form, "--change", "scale comm 0.5", "--change", "on-time all"],
        ["contract", *files, RULES, "--format", "json"],
        ["contract", *files, RULES, *form],
        ["compare", original[0], files[0], *sides, *form],
        ["timeline", *files, *sides, "-o", str(out / "page.html")],
        ["report", *files, *sides, "-o", str(out / "report")],
    ]
    return [["check-overlap", *files, *sides, "--format", "json"], rng.choice(others)]


def judged(words: Sequence[str], ended: Ended) -> str:
    """What is wrong with how a command ended; "" where nothing is."""
    if ended.crash:
        return f"crash: {ended.crash.strip().splitlines()[-1][:200]}"
    if ended.code not in (0, 1, 2, 3):
        return f"exit code {ended.code}"
    if ended.code == 2:
        is_one_line = ended.err.count("\n") == 1 and len(ended.err) > 20 and not ended.out
        return "" if is_one_line else f"not one line: {ended.err!r}"
    if not ended.out.strip():
        return "no answer"
    if ended.err.strip() and "timeline.png" not in ended.err:
        return f"noise: {ended.err[:200]!r}"
    if words[words.index("--format") + 1 if "--format" in words else 0] == "json":
        try:
            return broken(ended.out, ended.code)
        except ValueError as error:
            return f"no JSON: {error}"
    return "NaN in an answer" if " nan" in ended.out.lower() and "name" not in ended.out.lower() else ""


def figures(ended: Ended) -> object:
    """What a verdict rests on."""
    if ended.code == 2 or not ended.answer:
        return None
    sides = [
        (rank["rank"], rank["a"]["busy_ns"], rank["b"]["busy_ns"], rank["overlap_ns"]) for rank in ended.answer["ranks"]
    ]
    return ended.answer["verdict"], sides


def silently_changed(before: Ended, after: Ended) -> str:
    """Whether figures moved and neither a warning, a reason nor an error says why."""
    if after.code in (2, 3) or figures(before) == figures(after):
        return ""
    known = [warning["message"] for warning in before.answer["warnings"]]
    if any(warning["message"] not in known for warning in after.answer["warnings"]):
        return ""
    return f"changed without a word: {figures(before)} -> {figures(after)}"
