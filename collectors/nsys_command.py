"""The `nsys profile` command line: what is asked for, in the options that the installed version knows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.errors import CollectError

# What is wanted of every capture: no CPU samples, which cost much and answer nothing here, and each event record
# and wait, without which an order between streams can't be proven.
WANTED = (("--sample", "none"), ("--cpuctxsw", "none"), ("--cuda-event-trace", "true"), ("--force-overwrite", "true"))
NEEDED = ("--session-new", "--env-var")  # of the supervisor, to find the program and to end the recording
HELP_SECONDS = 60
_OPTION = re.compile(r"^\t(?:\([^)]*\) )?(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)
LOST = {
    "--cuda-event-trace": "waits between streams won't be linked to their records, so an order can't always be proven",
    "--cuda-graph-trace": "graphs are traced as this nsys does it by default",
    "--cuda-memory-usage": "memory won't be recorded",
    "--capture-range-end": "nsys may end the command when the captured steps are over",
}


@dataclass(frozen=True)
class Nsys:
    """The nsys that captures; `options` are those `nsys profile` takes, each with what its help says."""

    path: Path
    version: tuple[int, ...]
    options: dict[str, str]

    @property
    def release(self) -> str:
        """Its version as people write it."""
        return ".".join(map(str, self.version[:3]))


def options_of(path: Path) -> dict[str, str]:
    """Options that `nsys profile` takes, with their help; none where it does not say."""
    words = [str(path), "profile", "--help"]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=HELP_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parse_options(ran.stdout.decode(errors="replace")) if ran.returncode == 0 else {}


def parse_options(text: str) -> dict[str, str]:
    r"""Options in the help of `nsys profile`.

    >>> parse_options("\t-t, --trace=\n\n\t   Possible values are 'cuda'\n\n\t--kill=\n\t   x\n")["--trace"]
    "Possible values are 'cuda'"
    """
    heads = list(_OPTION.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    options = zip(heads, ends, strict=False)
    return {head[1]: " ".join(text[head.end() : end].lstrip("=").split()) for head, end in options}


def build(
    nsys: Nsys,
    *,
    trace: Sequence[str] = ("cuda", "nvtx"),
    graphs: str = "graph",
    memory: bool = False,
    between_calls: bool = False,
) -> tuple[list[str], list[str]]:
    """The words in front of `--output` and the user's command, and notes on what this nsys lacks.

    Parameters
    ----------
    trace : APIs.
    graphs : "graph" for a row a CUDA graph, "node" for one a kernel.
    memory : each allocation and release on the GPU.
    between_calls : only between cudaProfilerStart and cudaProfilerStop.

    Raises
    ------
    CollectError : without an option there would be no capture as asked.
    """
    if absent := [option for option in NEEDED if option not in nsys.options]:
        raise CollectError(
            f"nsys {nsys.release} lacks {' and '.join(absent)}, which collecting needs.",
            hint="Give a newer one with --nsys.",
        )
    if _lacking(nsys, "--trace", ",".join(trace)):
        raise CollectError(f"nsys {nsys.release} can't trace {','.join(trace)!r}.", hint="See nsys profile --help.")
    wanted = [("--trace", ",".join(trace)), *WANTED]
    if "cuda" in trace:
        wanted.append(("--cuda-graph-trace", graphs))
    if memory:
        if "cuda" not in trace:
            raise CollectError("memory is recorded with CUDA only.", hint="Trace cuda too, or leave --memory out.")
        wanted.append(("--cuda-memory-usage", "true"))
    if between_calls:
        if "--capture-range" not in nsys.options:
            raise CollectError(f"nsys {nsys.release} can't capture single steps.", hint="Leave --steps out.")
        wanted += [("--capture-range", "cudaProfilerApi"), ("--capture-range-end", "stop")]
    words, notes = [str(nsys.path), "profile"], []
    for option, value in wanted:
        lacking = _lacking(nsys, option, value)
        if lacking:
            notes.append(f"nsys {nsys.release} lacks {lacking}: {LOST.get(option, 'left out')}.")
        else:
            words.append(f"{option}={value}")
    return words, notes


def _lacking(nsys: Nsys, option: str, value: str) -> str:
    """The option, or its value, that a version does not know; "" where it knows both."""
    if option not in nsys.options:
        return option
    text = nsys.options[option]
    known = "Possible values" not in text or all(part in text for part in value.split(","))
    return "" if known else f"{option}={value}"
