"""Arguments and options that commands share, and how their texts are read."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from analyzers.common.errors import TracevizError

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


Format = Literal["text", "json", "md"]  # how a result is printed
A = Annotated[str, typer.Option("-a", metavar="SEL", help="One side.")]
B = Annotated[str, typer.Option("-b", metavar="SEL", help="The other side.")]
MinOverlap = Annotated[
    str, typer.Option(metavar="SHARE", help="The threshold: real overlap / the shorter side's busy time.")
]
AcceptApparent = Annotated[
    bool,
    typer.Option(
        "--accept-apparent",
        help="Where ranks were not captured, count their unseen waiting as overlap.",
    ),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACE", help="A run without the overlap, to say what it gained; repeatable.", show_default=False
    ),
]
RequireFaster = Annotated[
    bool,
    typer.Option(
        "--require-faster",
        help="End with 1 unless the step is FASTER than the baseline's, with 3 where that can't be told.",
    ),
]
Claimed = Annotated[
    str | None,
    typer.Option(
        metavar="SPEEDUP",
        help="A stated speedup to check, such as 14.7x; 30% is 1.3x. Of the pair with -a or -b, else of the step.",
        show_default=False,
    ),
]
Brief = Annotated[
    bool,
    typer.Option(
        "--brief",
        help="Only the first lines; with --format json at most 2,000 tokens, with ids for traceviz show.",
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", "-f", help="How to print the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="All rows, evidence and caveats at length.")]
Nsys = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="The nsys that exports .nsys-rep reports.", show_default="$TRACEVIZ_NSYS, else found"
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither use nor fill the cache (see: traceviz cache).")]
Comm = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SEL",
        help="Count these ops as communication, too; repeatable. A project's traceviz.toml can name them for good.",
        show_default=False,
    ),
]


def is_pair_given(context: typer.Context) -> bool:
    """Whether the user names a side: then a claim is about the pair."""
    sources = [context.get_parameter_source(name) for name in ("a", "b")]
    return any(source is not None and source.name != "DEFAULT" for source in sources)


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


def read_step_range(text: str) -> str:
    """The name of a range that is to bound steps; "nvtx:" in front is no part of it.

    >>> read_step_range("nvtx:## forward # ##"), read_step_range("Optimizer.step#Adam.step")
    ('## forward # ##', 'Optimizer.step#Adam.step')
    """
    name = text.strip().removeprefix("nvtx:").strip().strip('"')
    if not name:
        raise TracevizError(f"{text!r} names no range.", hint='Name one as info lists it: --step-by "train_step".')
    return name


def read_bytes(text: str) -> int:
    """A number of bytes.

    >>> read_bytes("8GB"), read_bytes("512 MiB"), read_bytes("1.5g")
    (8000000000, 536870912, 1500000000)

    Raises
    ------
    TracevizError : no number, or one other than 0 without its unit.
    """
    if re.fullmatch(r"\s*\d{1,15}(?:\.\d{1,6})?\s*", text) and float(text):
        raise TracevizError(
            f"{text.strip()} what?", hint=f"Say {text.strip()}GB, or another unit: KB, MB, GB, TB, GiB."
        )
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?i?)b?\s*", text, re.IGNORECASE)
    unit = _BYTES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise TracevizError(f"{text!r} is no number of bytes.", hint="Write it as 8GB or 512MiB.")
    return int(float(match[1]) * unit)
