"""Run commands in turn and compare processor time and peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run of a command: seconds from start to exit, seconds of processors, and its largest resident set."""

    seconds: float
    busy_seconds: float
    peak_bytes: int


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, answers: Sequence[int] = (0,)) -> Run:
    """Run a command to its end; a failure raises with what it printed.

    Parameters
    ----------
    answers : exit codes that are no failure.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})}
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in answers:
        raise RuntimeError(f"{' '.join(command)[:200]} exited {process.returncode}:\n{output}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def command_of(tree: Path, *words: str) -> list[str]:
    """A command of traceviz, of the working tree in a folder, such as that of an earlier commit."""
    return ["env", f"PYTHONPATH={tree.resolve()}", "PYTHONSAFEPATH=1", sys.executable, "-m", "traceviz", *words]


def in_turn(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Run]]:
    """Run several commands in turn, without a cache, so that a slow minute of the machine falls on all of them."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            runs[name].append(run(command, {"TRACEVIZ_CACHE": "off"}))
    return runs


def ratio(runs: Mapping[str, Sequence[Run]], name: str, base: str, figure: str = "busy_seconds") -> float:
    """How many times a figure of `base` that of `name` is: the median of the rounds' own ratios."""
    pairs = zip(runs[name], runs[base], strict=True)
    return statistics.median(getattr(one, figure) / getattr(other, figure) for one, other in pairs)


def table(runs: Mapping[str, Sequence[Run]], base: str) -> str:
    """Rows of Markdown: medians of each command, beside those of `base` in the same rounds."""
    lines = [f"| | wall | CPU | of {base} | peak memory | of {base} |", "|---|---:|---:|---:|---:|---:|"]
    for name, own in runs.items():
        wall, busy, peak = (
            statistics.median(getattr(one, figure) for one in own)
            for figure in ("seconds", "busy_seconds", "peak_bytes")
        )
        times, room = ratio(runs, name, base), ratio(runs, name, base, "peak_bytes")
        lines.append(f"| {name} | {wall:.2f} s | {busy:.2f} s | {times:.2f} | {peak / 1e9:.2f} GB | {room:.2f} |")
    return "\n".join(lines)


def bar(what: str, value: float, most: float) -> str:
    """Whether a bar is met, in words."""
    return f"{'met' if value <= most else 'NOT MET'}: {what}: {value:.2f}, at most {most:.2f}"
