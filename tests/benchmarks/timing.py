"""Run commands and compare their wall time and peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One run of a command: seconds from start to exit, seconds of processors, and its largest resident set."""

    seconds: float
    busy_seconds: float
    peak_bytes: int
    output: str


@dataclass(frozen=True)
class Summary:
    """Medians over the runs of one command. CPU seconds tell where a busy machine stretches the wall time."""

    name: str
    seconds: float
    fastest: float
    slowest: float
    busy_seconds: float
    peak_bytes: int
    output: str


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, answers: Sequence[int] = (0,)) -> Run:
    """Run a command to its end; what it prints is kept, and a failure raises with it.

    Parameters
    ----------
    answers : exit codes that are no failure.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    assert process.stdout is not None and process.stderr is not None
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in answers:
        raise RuntimeError(f"{' '.join(command)[:200]} exited {process.returncode}:\n{output}\n{errors}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output)


def compare(commands: Mapping[str, Sequence[str]], repeats: Callable[[str], int]) -> list[Summary]:
    """Run several commands in turn, so that a slow moment of the machine hits all of them.

    Parameters
    ----------
    repeats : how often to run the command of a name.
    """
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(max(map(repeats, commands))):
        for name, command in commands.items():
            if turn < repeats(name):
                runs[name].append(run(command))
    return [_summary(name, each) for name, each in runs.items()]


def bar(what: str, seconds: float, most: float) -> str:
    """Whether a bar is met, in words."""
    return f"{'met' if seconds <= most else 'not met'}: {what}: {seconds:.2f} s, at most {most:.2f} s"


def table(summaries: Sequence[Summary], ours: str) -> str:
    """Lay out seconds and memory of each command, and how many times those of `ours` they are."""
    base = next(summary for summary in summaries if summary.name == ours)
    width = max(len(summary.name) for summary in summaries)
    lines = [
        f"{'':{width}}  {'wall s':>7}  {'min-max':>13}  {'time x':>7}  {'CPU s':>7}  {'peak MB':>8}  {'memory x':>8}"
    ]
    lines += [
        f"{each.name:{width}}  {each.seconds:7.2f}  {f'{each.fastest:.2f}-{each.slowest:.2f}':>13}  "
        f"{each.seconds / base.seconds:7.1f}  {each.busy_seconds:7.2f}  "
        f"{each.peak_bytes / 1e6:8.0f}  {each.peak_bytes / base.peak_bytes:8.1f}"
        for each in summaries
    ]
    return "\n".join(lines)


def _summary(name: str, runs: Sequence[Run]) -> Summary:
    seconds = [run.seconds for run in runs]
    return Summary(
        name=name,
        seconds=statistics.median(seconds),
        fastest=min(seconds),
        slowest=max(seconds),
        busy_seconds=statistics.median(run.busy_seconds for run in runs),
        peak_bytes=round(statistics.median(run.peak_bytes for run in runs)),
        output=runs[-1].output,
    )
