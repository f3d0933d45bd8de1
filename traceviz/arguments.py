"""Options that commands share, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analyzers.common.errors import TracevizError

if TYPE_CHECKING:
    from analyzers.trace.tables import Trace

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}


class Format(str, Enum):
    """How a result is printed."""

    text = "text"
    json = "json"
    md = "md"


Traces = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE",
        help="Captures of one run: .nsys-rep, .sqlite, torch.profiler .json[.gz], a glob, folder, manifest or URL.",
        show_default=False,
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", "-f", help="How to print the result.")]
Ranks = Annotated[
    str | None, typer.Option(metavar="LIST", help="Only these ranks, such as 0,2 or 0-3.", show_default=False)
]
StepRange = Annotated[
    str | None,
    typer.Option(
        "--steps", metavar="A:B", help="Only steps A up to, not including, B; or one step.", show_default=False
    ),
]
Window = Annotated[
    str | None,
    typer.Option(metavar="FROM:TO", help="Clip to this time of the trace, such as 10ms:25ms.", show_default=False),
]
NoAlign = Annotated[
    bool, typer.Option("--no-align", help="Leave the clocks of captures and devices as they were recorded.")
]
Nsys = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="The nsys that exports .nsys-rep reports.", show_default="$TRACEVIZ_NSYS, else found"
    ),
]


def read_ratio(text: str) -> float:
    """A bar such as 60%, 0.6 or 60.

    >>> read_ratio("60%"), read_ratio("0.6"), read_ratio("60"), read_ratio("1")
    (0.6, 0.6, 0.6, 1.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    value = float(match[1]) if match else -1.0
    if match and (match[2] or value > 1):
        value /= 100
    if not 0 <= value <= 1:
        raise TracevizError(f"{text!r} is no share between 0 and 100 %.", hint="Write it as 60% or 0.6.")
    return value


def read_numbers(text: str) -> tuple[int, ...]:
    """A list of ranks.

    >>> read_numbers("0,2-4")
    (0, 2, 3, 4)
    """
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if high < low or high - low > 10**6:
            raise TracevizError(f"{text!r} is no list of ranks.", hint="Write it as 0,2 or 0-3.")
        numbers += range(low, high + 1)
    return tuple(dict.fromkeys(numbers))


def read_steps(text: str) -> tuple[int, int]:
    """A range of steps, the second not included.

    >>> read_steps("10:13"), read_steps("4")
    ((10, 13), (4, 5))
    """
    match = re.fullmatch(r"\s*(\d{1,15})\s*(?::\s*(\d{1,15})\s*)?", text)
    first, last = (int(match[1]), int(match[2]) if match[2] else int(match[1]) + 1) if match else (0, 0)
    if last <= first:
        raise TracevizError(f"{text!r} is no range of steps.", hint="Write it as 10:13 (10, 11 and 12) or 10.")
    return first, last


def read_window(text: str) -> tuple[int, int]:
    """A window of time, ns.

    >>> read_window("10ms:25.5ms"), read_window("-1us:2s")
    ((10000000, 25500000), (-1000, 2000000000))
    """
    parts = text.split(":")
    if len(parts) != 2:
        raise TracevizError(f"{text!r} is no window of time.", hint="Write it as 10ms:25ms.")
    return _read_time(parts[0], text), _read_time(parts[1], text)


def _read_time(part: str, text: str) -> int:
    match = re.fullmatch(r"\s*(-?)(\d{1,12})(?:\.(\d{1,9}))?\s*(ns|us|µs|μs|ms|s)\s*", part)
    if match is None:
        raise TracevizError(f"{part!r} in {text!r} is no time.", hint="Write it with its unit: 10ms, 250us, 1.5s.")
    unit = _UNITS[match[4]]
    fraction = int((match[3] or "").ljust(9, "0")) * unit // 10**9
    return (-1 if match[1] else 1) * (int(match[2]) * unit + fraction)


def narrowed(trace: Trace, ranks: str | None, steps: str | None, window: str | None) -> Trace:
    """The part of a trace that the options ask for."""
    if ranks is not None:
        trace = trace.ranks(*read_numbers(ranks))
    if steps is not None:
        trace = trace.steps(*read_steps(steps))
    if window is not None:
        trace = trace.window(*read_window(window))
    return trace


def shown(paths: Sequence[str | Path]) -> list[str]:
    """Paths as texts."""
    return [str(path) for path in paths]
