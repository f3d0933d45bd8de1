"""The Python API; everything here is re-exported by `traceviz` itself.

Results are dataclasses with `.to_frame()`; times are whole nanoseconds in columns ending in `_ns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.errors import TracevizError
from traceviz.terminal import progress

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from distributed import Client

    from analyzers.check import OverlapResult
    from analyzers.collectives import Collectives
    from analyzers.compare_results import Comparison
    from analyzers.concurrency import StreamsResult
    from analyzers.info import TraceInfo
    from analyzers.order_report import OrderReport
    from analyzers.trace import Trace
    from collectors.capture import Capture

__all__ = [
    "TracevizError",
    "capture",
    "check_overlap",
    "check_ranks",
    "collectives",
    "compare",
    "info",
    "load",
    "streams",
    "sync_points",
    "timeline",
]


def load(
    *paths: str | Path,
    nsys: str | None = None,
    align: bool = True,
    workers: int | None = None,
    skip_bad: bool = False,
    cache: bool = True,
) -> Trace:
    """Read captures of one run: Nsight Systems reports or exports, torch.profiler traces, folders, globs, manifests.

    Parameters
    ----------
    paths : what to read; several ranks' captures belong to one run.
    nsys : path of the `nsys` that exports `.nsys-rep` reports; found by itself where not given.
    align : put all clocks on the lowest rank's, by matched collectives; False leaves times as they were recorded.
    workers : processes that read captures side by side; one per processor where not given.
    skip_bad : leave out captures that can't be read, with a warning in `.warnings`, instead of failing.
    cache : False neither uses nor fills the cache of captures read before.

    Returns
    -------
    Trace : tables `ops`, `api`, `ranges`, … (columns in `analyzers.schemas`); narrow it with `.ranks(0, 3)`,
        `.steps(10, 13)` and `.window(low_ns, high_ns)`.

    Raises
    ------
    TracevizError : a file is no trace or damaged, ranks contradict each other, or there is no GPU work.
    """
    from analyzers import load as loading
    from analyzers.reading import Reading

    reading = Reading(nsys, cache, workers, skip_bad)
    with progress() as tell:
        return loading.load(paths, align=align, reading=reading, progress=tell)


def check_overlap(
    trace: Trace, a: str = "comm", b: str = "compute", *, min_overlap: float = 0.6, baseline: Trace | None = None
) -> OverlapResult:
    """Did A and B really overlap on the GPU, and is it enough?

    Parameters
    ----------
    a, b : selectors: "nvtx:DP Embedding", "comm", "compute", "kernel:~gemm", "stream:7+!memcpy", …
    min_overlap : the bar for real overlap / the shorter side's real busy time, in [0, 1].
    baseline : a run of the same work without the overlap; `.gain` then says what the overlap gained.

    Returns
    -------
    OverlapResult : `.verdict`, `.passed`, `.ranks`, `.job`, `.warnings`; `.to_frame()` has a row per rank and device,
        `.instances()` one per paired instance.

    Raises
    ------
    TracevizError : a selector can't be read, or the sides share ops that belong to neither alone.
    """
    from analyzers import check

    return check.check_overlap(trace, a, b, min_overlap=min_overlap, baseline=baseline)


def check_ranks(
    *paths: str | Path,
    a: str = "comm",
    b: str = "compute",
    min_overlap: float = 0.6,
    dask: str | Client | None = None,
    memory: int | None = None,
    workers: int | None = None,
    skip_bad: bool = False,
) -> OverlapResult:
    """The same as `check_overlap(load(...))` for more ranks than memory holds: they are looked at one by one.

    Parameters
    ----------
    paths : as `load` takes them, and URLs that fsspec opens.
    a, b, min_overlap : as `check_overlap` takes them.
    dask : a client of a Dask cluster, or its scheduler's address, whose workers look at the ranks; else this machine's.
    memory : bytes that this machine's processes may take together.
    workers, skip_bad : as `load` takes them.

    Returns
    -------
    OverlapResult : with the same JSON; the gaps behind the causes are left out.

    Raises
    ------
    TracevizError : as `load` and `check_overlap`; no Dask scheduler answers; the memory has no room for one rank.
    """
    from analyzers import parts_answers
    from analyzers.reading import Reading
    from traceviz.opened import run_of

    reading = Reading(workers=workers, skip_bad=skip_bad, memory=memory, dask=dask)
    with progress() as tell, run_of(paths, reading, align=True, progress=tell) as run:
        return parts_answers.check_overlap(run, a, b, min_overlap=min_overlap)


def compare(
    *traces: Trace,
    a: str | None = None,
    b: str | None = None,
    labels: Sequence[str] = (),
    claimed: float | None = None,
) -> Comparison:
    """What changed from the first run to the others, and can a claimed speedup be?

    Parameters
    ----------
    traces : two or more runs; only steps and ranks that all have are compared.
    a, b : selectors of the pair whose overlap is compared; communication against compute where not given.
    labels : a name for each run.
    claimed : a stated speedup of the pair, such as 14.7, to be held against the most that two tasks can gain.

    Returns
    -------
    Comparison : `.runs` with figures, `.changes` against the first, `.lanes`, `.regions_that_differ` and `.gain`;
        `.claim`, `.warnings`; `.to_frame()` has a row per run.

    Raises
    ------
    TracevizError : fewer than two runs, labels that don't fit, a selector that can't be read, a claim that is none.
    """
    from analyzers import compare as comparing

    return comparing.compare(traces, a, b, labels=labels, claimed=claimed)


def streams(trace: Trace) -> StreamsResult:
    """How long 0, 1, 2 … streams were busy at once, and which overlap which, per rank and device.

    Returns
    -------
    StreamsResult : `.to_frame()` per stream, `.concurrency()` per number of busy streams, `.pairs()` per pair.
    """
    from analyzers import concurrency

    return concurrency.streams(trace)


def info(trace: Trace) -> TraceInfo:
    """What is in a trace, which ranges can be selected, and what can't be answered from it."""
    from analyzers import info as look

    return look.info(trace)


def collectives(trace: Trace) -> Collectives:
    """What each collective really cost: fastest rank, last arrival, wait and transfer per rank, bus bandwidth.

    Returns
    -------
    Collectives : iterate for one object each; `.to_frame()` has a row per collective and rank, `.summary.to_frame()`
        one per operation and size; `.clocks` says how the clocks were aligned and how far off they may be.
    """
    from analyzers import collectives as analysis

    return analysis.collectives_of(trace)


def sync_points(trace: Trace) -> OrderReport:
    """Where the host waited and what that cost, copies nobody waits for, missing waits, plan of chunked loops.

    Returns
    -------
    OrderReport : `.to_frame()` has a row per host sync point, costliest first; `.crossings.missing` the missing waits.
    """
    from analyzers import order_report

    return order_report.order_report(trace)


def timeline(
    trace: Trace, a: str = "comm", b: str = "compute", *, min_overlap: float = 0.6, dark: bool = False
) -> go.Figure:
    """Draw an aligned timeline of all ranks, opened on the typical instance.

    Parameters
    ----------
    a, b, min_overlap : as `check_overlap` takes them.
    dark : on dark ground.

    Returns
    -------
    plotly Figure : bars in ms on the trace's clock; `customdata` has whole ns. Where there are too many to draw, marks
        too small to see are drawn as one that says how many they are; narrow the trace to see more. The page that
        `traceviz timeline -o x.html` writes does so by itself as one zooms.

    Raises
    ------
    TracevizError : as `check_overlap`.
    """
    from analyzers import check, order_report
    from traceviz.timelines import draw, palette, picture

    result = check.check_overlap(trace, a, b, min_overlap=min_overlap)
    drawn = picture.picture(trace, result, order_report.order_report(trace))
    return draw.figure(drawn, theme=palette.DARK if dark else palette.LIGHT)


def capture(
    folder: str | Path = "captures",
    *,
    tool: str | None = None,
    name: str = "capture",
    shapes: bool = False,
    stacks: bool = False,
) -> Capture:
    """Capture a `with` block, or each call of a function that this decorates; nothing without torch or a GPU.

    torch.profiler writes `rankN.json.gz` and `manifest.json`; under nsys (with --capture-range=cudaProfilerApi) the
    block is what nsys captures. An exception passes through; the trace is written and NVTX ranges are closed.

    Parameters
    ----------
    folder : where to write.
    tool : "torch" or "nsys"; told by whether nsys runs this program, where not given.
    name : the range around the block.
    shapes, stacks : record ops' shapes, Python stacks.

    Returns
    -------
    Capture : `.range(name)` is a range for both profilers, `.path` the trace once the block has ended.
    """
    from collectors import capture as capturing

    return capturing.capture(folder, tool=tool, name=name, shapes=shapes, stacks=stacks)
