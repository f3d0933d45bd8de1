"""The `nsys profile` command line: what is asked for, in the options that the installed version knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectors.errors import CollectError
from collectors.nsys_find import Nsys

# What is wanted of every capture: no CPU samples, which cost much and answer nothing here, and each event record
# and wait, without which an order between streams can't be proven.
WANTED = (("--sample", "none"), ("--cpuctxsw", "none"), ("--cuda-event-trace", "true"), ("--force-overwrite", "true"))
LOST = {
    "--cuda-event-trace": "waits between streams won't be linked to their records, so an order can't always be proven",
    "--cuda-graph-trace": "graphs are traced as this nsys does it by default",
    "--capture-range-end": "nsys may end the command when the captured steps are over",
}


@dataclass(frozen=True)
class Request:
    """What to capture: `trace` APIs, CUDA `graphs` as one row each (graph) or kernel by kernel (node)."""

    output: str
    trace: Sequence[str] = ("cuda", "nvtx")
    graphs: str = "graph"
    between_calls: bool = False  # only between cudaProfilerStart and cudaProfilerStop


def build(nsys: Nsys, request: Request) -> tuple[list[str], list[str]]:
    """The words in front of the user's command, and notes on what this nsys lacks.

    Raises
    ------
    CollectError : without an option there would be no capture as asked.
    """
    wanted = [("--trace", ",".join(request.trace)), *WANTED]
    if "cuda" in request.trace:
        wanted.append(("--cuda-graph-trace", request.graphs))
    if request.between_calls:
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
    return [*words, "--output=" + request.output.replace("%", "%%")], notes


def _lacking(nsys: Nsys, option: str, value: str) -> str:
    """The option, or its value, that a version does not know; "" where it knows both."""
    if option not in nsys.options:
        return option
    said = nsys.options[option]
    known = "Possible values" not in said or all(part in said for part in value.split(","))
    return "" if known else f"{option}={value}"
