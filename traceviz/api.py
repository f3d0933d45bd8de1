"""The Python API for questions; everything here is re-exported by `traceviz` itself, as is `traceviz.api_making`.

Results are frozen dataclasses with `.to_frame()`, a readable `repr` and, in a notebook, a small table. Times are whole
nanoseconds in columns ending in `_ns`, ratios floats in columns ending in `_ratio`. What a command prints is in the
result of the function of its name. Errors of the user's are `TracevizError`. The examples run in a clone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError
from traceviz.terminal import progress

if TYPE_CHECKING:
    from distributed import Client

    from analyzers.collectives.report import Collectives
    from analyzers.compare.results import Comparison
    from analyzers.info import TraceInfo
    from analyzers.streams import StreamsResult
    from analyzers.syncs.report import OrderReport
    from analyzers.trace.tables import Trace
    from analyzers.verdict.check import OverlapResult
    from traceviz.trends import PairTrend

__all__ = [
    "TracevizError",
    "check_overlap",
    "check_ranks",
    "collectives",
    "compare",
    "info",
    "load",
    "streams",
    "sync_points",
    "trend",
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
    Trace : tables `ops`, `api`, `ranges`, … as data frames (columns and units in `analyzers.trace.schemas`); a part of it
        with `.ranks(0, 3)`, `.steps(10, 13)` and `.window(low_ns, high_ns)`, which give a Trace again; written for
        other tools with `.to_perfetto(path)`, `.to_parquet(folder)`, `.to_sqlite(path)`.

    Raises
    ------
    TracevizError : a file is no trace or damaged, ranks contradict each other, or there is no GPU work.

    Examples
    --------
    >>> trace = load("tests/data/torch/dpmp_overlap.rank*.json.gz")
    >>> trace.rank_ids, len(trace.ops), len(trace.ranks(1).ops)
    ([0, 1], 114, 57)
    >>> sorted(trace.ops["stream"].unique().tolist())
    [7, 17, 25]
    """
    from analyzers import load as loading
    from analyzers.readers.captures import Reading

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
    OverlapResult : `.verdict` ("overlapped", "partial", "serialized", "inconclusive"), `.passed` (None where
        inconclusive; `.reason` says why), `.sentence`, `.ranks`, `.job`, `.gain`, `.clocks`, `.warnings`. `.to_frame()`
        is indexed by (rank, device): busy, wait, overlap, achievable and missed in ns, ops, ratios; `.instances()` has
        a row per paired instance; `.causes()` one per cause of missed overlap, with its evidence.

    Raises
    ------
    TracevizError : a selector can't be read, or the sides share ops that belong to neither alone.

    Examples
    --------
    >>> trace = load("tests/data/torch/dpmp_overlap.rank*.json.gz")
    >>> result = check_overlap(trace, "nvtx:DP Embedding", "nvtx:MP Embedding")
    >>> result.verdict, result.job.real_overlap_ns, result.job.achievable_ns
    ('partial', 161600, 1012379)
    >>> result.to_frame()["overlap_ns"].to_dict()
    {(0, 0): 162879, (1, 1): 212705}
    """
    from analyzers.verdict import check

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
    memory : bytes that this machine's processes may take together; not with `dask`, whose workers have their own limit.
    workers, skip_bad : as `load` takes them.

    Returns
    -------
    OverlapResult : with the same JSON; the gaps behind the causes are left out.

    Raises
    ------
    TracevizError : as `load` and `check_overlap`; no Dask scheduler answers; the memory has no room
        for one rank.

    Examples
    --------
    >>> check_ranks("tests/data/torch/dpmp_overlap.rank*.json.gz", a="nvtx:DP Embedding", b="nvtx:MP Embedding")
    <partial: 'nvtx:DP Embedding' against 'nvtx:MP Embedding', 16.0% of what could overlap did; bar 60%; 2 rank(s)>
    """
    from analyzers.readers.captures import Reading
    from analyzers.scale import answers
    from traceviz.opened import run_of

    reading = Reading(workers=workers, skip_bad=skip_bad, memory=memory, dask=dask)
    with progress() as tell, run_of(paths, reading, align=True, progress=tell) as run:
        return answers.check_overlap(run, a, b, min_overlap=min_overlap)


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
        `.claim`, `.warnings`; `.to_frame()` has a row per run, `.changes_frame()` one per run, rank and figure,
        `.regions_frame()` one per region that changed.

    Raises
    ------
    TracevizError : fewer than two runs, labels that don't fit, a selector that can't be read, a claim that is none.
    """
    from analyzers.compare import compare as comparing

    return comparing.compare(traces, a, b, labels=labels, claimed=claimed)


def streams(trace: Trace) -> StreamsResult:
    """How long 0, 1, 2 … streams were busy at once, and which overlap which, per rank and device.

    Returns
    -------
    StreamsResult : `.to_frame()` is indexed by (rank, device, stream): ops, busy_ns, alone_ns; `.concurrency()` has the
        ns at each number of busy streams, `.pairs()` the ns that each pair of streams overlaps.
    """
    from analyzers import streams as concurrency

    return concurrency.streams(trace)


def info(trace: Trace) -> TraceInfo:
    """What is in a trace, which ranges can be selected, and what can't be answered from it.

    Returns
    -------
    TraceInfo : `.to_frame()` is indexed by rank: op counts, streams, first_ns, last_ns; `.ranges_frame()` by range;
        `.steps`, `.cannot` (in words), `.captures`, `.warnings`.
    """
    from analyzers import info as look

    return look.info(trace)


def collectives(trace: Trace) -> Collectives:
    """What each collective really cost: fastest rank, last arrival, wait and transfer per rank, bus bandwidth.

    Returns
    -------
    Collectives : iterate for one object each; `.to_frame()` is indexed by (collective, rank): start_ns, duration_ns,
        wait_ns, transfer_ns, then the collective's operation, bytes, fastest_ns, last_arrival_rank, bus_gb_s (by
        nccl-tests' factors, over the fastest rank's duration); `.summary.to_frame()` has a row per operation and size;
        `.clocks.to_frame()` one per device, with how far its clock ran ahead and how sure that is.

    Raises
    ------
    ValueError : the trace was not loaded by `load`, so nothing is matched.

    Examples
    --------
    >>> found = collectives(load("tests/data/nsys-stats/config1_one_report_8gpu.txt"))
    >>> [(one.operation, one.fastest_ns) for one in found]
    [('all_reduce', 266689), ('all_reduce', 261377)]
    """
    from analyzers.collectives import report as analysis

    return analysis.collectives_of(trace)


def sync_points(trace: Trace) -> OrderReport:
    """Where the host waited and what that cost, copies nobody waits for, missing waits, plan of chunked loops.

    Returns
    -------
    OrderReport : `.to_frame()` has a row per host sync point, costliest first, columns as in
        `analyzers.syncs.points.SyncPoint`: duration_ns, gpu_idle_ns, api, op, range, delayed …; `.crossings.missing` are the
        missing waits, `.crossings.to_frame()` all forks and joins; `.copies.to_frame()` copies that nobody waits for,
        `.plan.to_frame()` the chunks of stream-parallel loops.
    """
    from analyzers.syncs import report as order_report

    return order_report.order_report(trace)


def trend(database: str | Path, a: str | None = None, b: str | None = None) -> list[PairTrend]:
    """How did a pair's overlap and step time go from run to run? Of what `check-overlap --save` kept.

    Parameters
    ----------
    a, b : only pairs of these sides.

    Returns
    -------
    list of PairTrend : one per pair and set of GPUs: `.runs`, oldest first, `.overlap` and `.step` (the newest value
        and where it was expected), `.call` ("regression", "improvement", "steady", "too-few").

    Raises
    ------
    TracevizError : the file is no history, or a selector can't be read.
    """
    from analyzers.select import language
    from traceviz.history import saved_runs
    from traceviz.trends import trends

    sides = [None if text is None else str(language.parse(text)) for text in (a, b)]
    return trends(saved_runs(Path(database)), *sides)
