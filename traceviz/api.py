"""The Python API; everything here is re-exported by `traceviz` itself.

Results are frozen records with `.to_frame()`, a readable `repr` and, in a notebook, a small table. Times are whole
nanoseconds in columns ending in `_ns`, ratios floats in columns ending in `_ratio`. What a command prints is in the
result of the function of its name. Errors of the user's are `TracevizError`. The examples run in a clone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from analyzers import load as loading
from analyzers.collectives.costs import Collectives
from analyzers.common.errors import TracevizError
from analyzers.compare import compare as comparing
from analyzers.compare.against import with_baseline
from analyzers.compare.results import Comparison
from analyzers.contention.neighbours import StreamContention
from analyzers.contracts import checks
from analyzers.contracts.result import ContractResult
from analyzers.contracts.rules import read_contract
from analyzers.counters import by_state as counting
from analyzers.counters.by_state import CountersResult
from analyzers.info import TraceInfo
from analyzers.readers.reading import Reading
from analyzers.replay import answer as replaying
from analyzers.replay.answer import parse_change
from analyzers.replay.change import Change
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.result import Prediction, WhatIf
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Scale, Split
from analyzers.replay.worth import with_worth
from analyzers.scale import answers
from analyzers.select import language
from analyzers.show import show as showing
from analyzers.show.result import Shown
from analyzers.streams import StreamsResult
from analyzers.syncs.order_report import OrderReport
from analyzers.trace.narrow import EVERYTHING, Narrowing
from analyzers.verdict import check
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.with_order import check_with_order
from collectors import capture as capturing
from collectors.capture import Capture
from traceviz.history.database import saved_runs
from traceviz.history.trends import PairTrend, trends
from traceviz.opening import (
    Paths,
    ReadingOfAll,
    ReadingOptions,
    Run,
    loaded,
    opened,
    opened_together,
    paths_of,
    refuse_dask,
)
from traceviz.options.arguments import read_step_range
from traceviz.options.config import communication
from traceviz.output.terminal import progress
from traceviz.reports import files
from traceviz.reports.report import Report, make
from traceviz.trace import Trace

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from typing_extensions import Unpack


# What `traceviz` exports, with `__version__`.
__all__ = [
    "Capture",
    "Collectives",
    "Comparison",
    "ContractResult",
    "CountersResult",
    "DropSync",
    "DropWait",
    "Graph",
    "Level",
    "MoreRoom",
    "MoveWait",
    "OnTime",
    "OrderReport",
    "OverlapResult",
    "OwnStream",
    "PairTrend",
    "Pin",
    "Prediction",
    "Report",
    "Scale",
    "Shown",
    "Split",
    "StreamContention",
    "StreamsResult",
    "Trace",
    "TraceInfo",
    "TracevizError",
    "WhatIf",
    "capture",
    "check_contract",
    "check_overlap",
    "collectives",
    "compare",
    "contention",
    "counters",
    "info",
    "load",
    "report",
    "show",
    "streams",
    "sync_points",
    "timeline",
    "trend",
    "what_if",
]


def load(
    *paths: Paths,
    nsys: str | None = None,
    align: bool = True,
    workers: int | None = None,
    skip_bad: bool = False,
    cache: bool = True,
    counters: bool = False,
    comm: str | Sequence[str] | None = None,
    step_by: str | None = None,
) -> Trace:
    """Read captures of one run: Nsight Systems reports or exports, torch.profiler traces, folders, globs, manifests.

    Parameters
    ----------
    paths : what to read, each a path or a list of them; several ranks' captures belong to one run.
    nsys : path of the `nsys` that exports `.nsys-rep` reports; found by itself where not given.
    align : put all clocks on the lowest rank's, by matched collectives; False leaves times as they were recorded.
    workers : processes that read captures side by side; one per processor where not given.
    skip_bad : leave out captures that can't be read, with a warning in `.warnings`, instead of failing.
    cache : False neither uses nor fills the cache of captures read before.
    counters : read all samples of GPU counters, however long that takes; else those of small captures only.
    comm : a selector, or several, of ops that are communication beside those whose names tell so, such as
        "kernel:my_all_to_all"; the working directory's `traceviz.toml` (or `[tool.traceviz]`) adds its own.
    step_by : the range that a step is told by, such as "train_step" or "## batch # ##", where # stands for a number;
        else steps are those marked, or inferred. An optimizer's range ends a step, any other begins one.

    Returns
    -------
    Trace : tables `ops`, `api`, `ranges`, … as data frames (columns and units in `analyzers.trace.schemas`); a
        part of it with `.only(ranks=(0, 3), steps=(10, 13), window_ns=(low, high))`, which is a Trace again;
        written for other tools with `.to_perfetto(path)`, `.to_parquet(folder)`, `.to_sqlite(path)`.

    Raises
    ------
    TracevizError : a file is no trace or damaged, ranks contradict each other, or there is no GPU work.

    Examples
    --------
    >>> trace = load("tests/data/torch/dpmp_overlap.rank*.json.gz")
    >>> trace.rank_ids, len(trace.ops), len(trace.only(ranks=1).ops)
    ([0, 1], 114, 57)
    >>> sorted(trace.ops["stream"].unique().tolist())
    [7, 17, 25]
    """
    rules = communication(comm, "comm=")
    steps = None if step_by is None else read_step_range(step_by)
    reading = Reading(nsys, cache, workers, skip_bad, counters=counters, comm=rules, step_by=steps)
    with progress() as on_progress:
        return Trace(loading.load(paths_of(paths), align=align, reading=reading, progress=on_progress))


def check_overlap(
    trace: Run,
    a: str | None = None,
    b: str | None = None,
    *,
    min_overlap: float = 0.6,
    baseline: Run | None = None,
    claimed: float | str | None = None,
    require_faster: bool = False,
    accept_apparent: bool = False,
    everything: bool = False,
    **reading: Unpack[ReadingOptions],
) -> OverlapResult:
    """Did A and B really overlap on the GPU, and is it enough?

    Parameters
    ----------
    trace : a Trace, or what `load` takes: a path, or several in a list.
    a, b : selectors: "nvtx:DP Embedding", "comm", "compute", "kernel:~gemm", "stream:7+!memcpy", …;
        communication against compute where not given.
    min_overlap : the bar for real overlap / the shorter side's real busy time, in [0, 1].
    baseline : a run of the same work without the overlap, as `trace`; `.against` then says how the step stands against
        its own (FASTER, SLOWER, CHANGED, SAME, TOO FEW STEPS), `.gain` what the pair gained.
    claimed : a stated speedup over the baseline, such as 14.7, "14.7x" or "30%" (1.3x): of the pair where a or b is
        given, else of the step; `.claim` then says whether it can be and was reached, `.claim_reason` why that can't be
        told.
    require_faster : `.exit_code` is 0 only where the step is FASTER than the baseline's: 1 where it is not, 3 where
        that can't be told.
    accept_apparent : where ranks of the job were not captured, decide by the apparent figure, which counts waiting for
        them as overlap; else a bar that it may not really meet is inconclusive.
    everything : figures of all that was captured, not only of the whole steps.
    reading : for paths, all that `load` takes by name, and for more ranks than memory holds one of these two, with
        which they are looked at one by one, and the gaps behind the causes are left out: `memory`, what this machine's
        processes may take together, bytes or a text such as "8GB"; `dask`, the address of a Dask scheduler or a client
        of one, whose workers look at the ranks.

    Returns
    -------
    OverlapResult : `.verdict` ("overlapped", "partial", "serialized", "inconclusive"), `.passed` (None where
        inconclusive; `.reason` says why), `.sentence`, `.ranks`, `.job`, `.gain`, `.clocks`, `.warnings`. `.to_frame()`
        is indexed by (rank, device): busy, wait, overlap, achievable and missed in ns, ops, ratios; `.instances()` has
        a row per paired instance; `.causes()` one per cause of missed overlap, with its evidence and what it is worth.
        `.remedy` is the change worth most; of large runs `.worth_unknown` says why neither is predicted.

    Raises
    ------
    TracevizError : a selector can't be read, or the sides share ops that belong to neither alone; as `load`; no Dask
        scheduler answers, or the memory has no room for one rank.

    Examples
    --------
    >>> trace = load("tests/data/torch/dpmp_overlap.rank*.json.gz")
    >>> result = check_overlap(trace, "nvtx:DP Embedding", "nvtx:MP Embedding")
    >>> result.verdict, result.job.real_overlap_ns, result.job.achievable_ns
    ('partial', 74816, 341793)
    >>> check_overlap("tests/data/torch/dpmp_overlap.rank*.json.gz", memory="4GB").verdict
    'overlapped'
    >>> result.to_frame()["overlap_ns"].to_dict()
    {(0, 0): 162879, (1, 1): 212705}
    """
    check.check_against(claimed, require_faster=require_faster, has_baseline=baseline is not None)
    pair = ("comm" if a is None else a, "compute" if b is None else b)
    runs = [trace] if baseline is None else [trace, baseline]
    with progress() as on_progress, opened_together(runs, reading, on_progress) as (run, *alone):
        result = check.check_overlap(
            run,
            *pair,
            min_overlap=min_overlap,
            baseline=alone[0] if alone else None,
            accept_apparent=accept_apparent,
            narrowing=_narrowing(everything),
        )
        for one in alone:
            result = with_baseline(
                result,
                run,
                one,
                narrowing=_narrowing(everything),
                claimed=claimed,
                of_pair=a is not None or b is not None,
                accept_apparent=accept_apparent,
                require_faster=require_faster,
            )
        return with_worth(result, run, _narrowing(everything))


def compare(
    *traces: Run,
    a: str | None = None,
    b: str | None = None,
    labels: Sequence[str] = (),
    claimed: float | str | None = None,
    accept_apparent: bool = False,
    everything: bool = False,
    **reading: Unpack[ReadingOptions],
) -> Comparison:
    """What changed from the first run to the others, and can a claimed speedup be?

    Parameters
    ----------
    traces : two or more runs, each a Trace or what `load` takes; only steps and ranks that all have are compared.
    a, b : selectors of the pair whose overlap is compared; communication against compute where not given.
    labels : a name for each run.
    claimed : a stated speedup, such as 14.7, "14.7x" or "30%" (1.3x): of the pair where a or b is given, to be held
        against the most that two tasks can gain; else of the step.
    accept_apparent : as `check_overlap` takes it, of every run.
    everything : figures of all that was captured, not only of the whole steps.
    reading : for paths, all that `load` takes by name, and `memory` and `dask` (see `check_overlap`).

    Returns
    -------
    Comparison : `.runs` with figures, `.changes` against the first, `.lanes`, `.regions_that_differ` and `.gain`;
        `.claim`, `.warnings`; `.to_frame()` has a row per run, `.changes_frame()` one per run, rank and figure,
        `.regions_frame()` one per region that changed.

    Raises
    ------
    TracevizError : fewer than two runs, labels that don't fit, a selector that can't be read, a claim that is none.
    """
    with progress() as on_progress, opened_together(traces, reading, on_progress) as runs:
        narrowing = _narrowing(everything)
        return comparing.compare(
            runs, a, b, labels=labels, claimed=claimed, accept_apparent=accept_apparent, narrowing=narrowing
        )


def streams(trace: Run, *, everything: bool = False, **reading: Unpack[ReadingOptions]) -> StreamsResult:
    """How long 0, 1, 2 … streams were busy at once, and which overlap which, per rank and device.

    Parameters
    ----------
    trace, everything, reading : as `check_overlap` takes them.

    Returns
    -------
    StreamsResult : `.to_frame()` is indexed by (rank, device, stream): ops, busy_ns, alone_ns; `.concurrency()` has the
        ns at each number of busy streams, `.pairs()` the ns that each pair of streams overlaps.
    """
    with progress() as on_progress, opened(trace, reading, on_progress) as run:
        return answers.streams(run, _narrowing(everything))


def contention(trace: Run, *, everything: bool = False, **reading: Unpack[ReadingOptions]) -> StreamContention:
    """Which kernels run longer beside other streams than like ones alone, and beside which.

    Parameters
    ----------
    trace, everything, reading : as `check_overlap` takes them.

    Returns
    -------
    StreamContention : `.to_frame()` has a row per kernel (name, ops, beside_ns, slowdown, paid_ns), `.pairs_frame()`
        one per pair of kernels (name, beside, beside_ns, slowdown, paid_ns); those that lost most first.
    """
    with progress() as on_progress, opened(trace, reading, on_progress) as run:
        return answers.stream_contention(run, _narrowing(everything))


def counters(
    trace: Run, a: str = "comm", b: str = "compute", *, everything: bool = False, **reading: Unpack[ReadingOptions]
) -> CountersResult:
    """What the hardware did while A, B, both or neither ran, where GPU counters were captured.

    Parameters
    ----------
    trace, everything, reading : as `check_overlap` takes them.
    a, b : selectors, as in `check_overlap`.

    Returns
    -------
    CountersResult : `.sentence` names what the sides likely contend for; `.to_frame()` is indexed by (rank, device,
        state, counter), states "a", "b", "both", "waiting", "neither": time_ns, mean and p90 in % or MHz.

    Raises
    ------
    TracevizError : there are no GPU counters; as `check_overlap`.

    Examples
    --------
    >>> result = counters("tests/data/counters/contend_after.sqlite.gz", "comm", "kernel:~nvjet")
    >>> [round(result.to_frame()["mean"][0, 0, state, "tensor_active"]) for state in ("b", "both")]
    [92, 71]
    """
    with progress() as on_progress, opened(trace, reading, on_progress, counters=True) as run:
        return counting.counters(run, a, b, _narrowing(everything))


def info(trace: Run, **reading: Unpack[ReadingOptions]) -> TraceInfo:
    """What is in a trace, which ranges can be selected, and what can't be answered from it.

    Parameters
    ----------
    trace, reading : as `check_overlap` takes them.

    Returns
    -------
    TraceInfo : `.to_frame()` is indexed by rank: op counts, streams, first_ns, last_ns; `.ranges_frame()` by range;
        `.steps`, `.cannot` (in words), `.captures`, `.warnings`.
    """
    with progress() as on_progress, opened(trace, reading, on_progress) as run:
        return answers.info(run)


def collectives(trace: Run, *, everything: bool = False, **reading: Unpack[ReadingOptions]) -> Collectives:
    """What each collective really cost: fastest rank, last arrival, wait and transfer per rank, bus bandwidth.

    Parameters
    ----------
    trace, everything, reading : as `check_overlap` takes them.

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
    with progress() as on_progress, opened(trace, reading, on_progress) as run:
        return answers.collectives(run, _narrowing(everything))


def sync_points(trace: Run, **reading: Unpack[ReadingOptions]) -> OrderReport:
    """Where the host waited and what that cost, copies nobody waits for, missing waits, plan of chunked loops.

    Parameters
    ----------
    trace, reading : as `check_overlap` takes them.

    Returns
    -------
    OrderReport : `.to_frame()` has a row per host sync point, costliest first, columns as in
        `analyzers.syncs.points.SyncPoint`: duration_ns, gpu_idle_ns (from the drain to the call's return), after_ns
        (from there to the next launch), api, op, range, delayed …; `.crossings.missing` are the missing waits,
        `.crossings.to_frame()` all forks and joins; `.copies.to_frame()` copies that nobody waits for,
        `.plan.to_frame()` the chunks of stream-parallel loops.
    """
    with (
        progress() as on_progress,
        opened(trace, reading, on_progress, lists=True, calls_alone=True) as run,
    ):
        return answers.syncs(run)


def show(
    trace: Run,
    finding: str,
    a: str = "comm",
    b: str = "compute",
    *,
    everything: bool = False,
    **reading: Unpack[ReadingOfAll],
) -> Shown:
    """What is this gap, instance, sync or collective?

    Parameters
    ----------
    trace, everything, reading : as `check_overlap` takes them, without `memory` and `dask`.
    finding : its id, as the JSON of check-overlap, syncs and collectives has it: "gap:r0.d0:1876012", "coll:3".
    a, b : selectors of the pair that a gap or an instance is of.

    Returns
    -------
    Shown : `.sentence`, `.start_ns`, `.end_ns`, `.steps`, `.figures`, `.pieces` (causes or ranks, with their evidence),
        `.evidence` and `.related`, with the ids of what else to look at.

    Raises
    ------
    TracevizError : that is no id, the trace has no such finding, or a selector can't be read.

    Examples
    --------
    >>> found = show("tests/data/torch/item_before.rank*.json.gz", "coll:3")
    >>> found.figures["fastest_ns"], found.steps, found.related[0].id
    (298307, (3,), 'sync:r0:18069860')
    """
    return showing.show(loaded(trace, reading), finding, a, b, narrowing=_narrowing(everything))


def check_contract(
    trace: Run, contract: str | Path | Mapping[str, Mapping[str, Any]], **reading: Unpack[ReadingOfAll]
) -> ContractResult:
    """Is the order of the work what a contract says? Structure does not scatter: a capture of a few steps answers.

    Parameters
    ----------
    trace, reading : as `check_overlap` takes them, without `memory` and `dask`.
    contract : a TOML file (see docs/contracts.md), or what such a file would hold, as nested dictionaries.

    Returns
    -------
    ContractResult : `.outcome` ("held", "broken", "inconclusive"), `.sentence`, `.rules` with each rule's `.outcome`,
        `.findings` and `.remedy`, `.warnings`. `.to_frame()` has a row a rule.

    Raises
    ------
    TracevizError : a capture or the contract can't be read; sides of a rule share ops that belong to neither alone.

    Examples
    --------
    >>> rules = {"beside": {"may_run_beside": ["nvtx:DP Embedding", "nvtx:MP Embedding+comm"]}}
    >>> check_contract("tests/data/torch/dpmp_overlap.rank*.json.gz", rules).outcome
    'held'
    """
    rules = read_contract(contract)
    return checks.check_contract(loaded(trace, reading), rules)


def what_if(
    trace: Run,
    *changes: Change | str,
    a: str = "comm",
    b: str = "compute",
    critical_path: bool = False,
    everything: bool = False,
    **reading: Unpack[ReadingOfAll],
) -> WhatIf:
    """What is a fix worth? Step time and real overlap, predicted by running the captured program again with it.

    Parameters
    ----------
    trace : a Trace, or what `load` takes: a path, or several in a list. Of a part of a trace all is run again, and that
        part's ranks and steps count.
    changes : what is tried, all together: `DropSync`, `Pin`, `DropWait`, `MoveWait`, `OwnStream`, `OnTime`, `Scale`,
        `Split`, `Graph`, `Level`, `MoreRoom`, or texts as the command takes them. Without any, each that the capture
        suggests is tried alone, and the first two together.
    a, b : selectors of the pair whose overlap is predicted.
    critical_path : whether `.path` has what the steps rest on as captured.
    everything : figures of all that was captured, not only of the whole steps.
    reading : for paths, all that `load` takes by name.

    Returns
    -------
    WhatIf : `.replay`, how well the replay gives the capture itself; `.changes`, predictions, the largest gain first;
        `.to_try`, the same in the order to try them; `.best`; `.reason`, why nothing is predicted, where nothing is.
        `.to_frame()` has a row per prediction: step_ns, step_low_ns, step_high_ns, gain_ns, tells, suggested, likely,
        ratios of real overlap, next_cause, assumptions; `.ranks_frame()` one per prediction, rank and device;
        `.path.to_frame()` one per segment of the critical path.

    Raises
    ------
    TracevizError : a change or a selector can't be read, or the capture has nothing to change in that way.

    Examples
    --------
    >>> captures = "tests/data/torch/item_before.rank*.json.gz"
    >>> found = what_if(captures, "drop-sync nvtx:MP lookup")
    >>> found.replay.error < 0.01, found.best.gain_ns > 0, found.best.next_cause
    (True, True, 'computation')
    """
    wanted = _changes(changes)
    whole = loaded(trace, reading)
    with progress() as on_progress:
        return replaying.what_if(
            whole, wanted, a, b, critical_path=critical_path, narrowing=_narrowing(everything), progress=on_progress
        )


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
    sides = [None if text is None else str(language.parse(text)) for text in (a, b)]
    return trends(saved_runs(Path(database)), *sides)


def timeline(
    trace: Run,
    a: str = "comm",
    b: str = "compute",
    *,
    min_overlap: float = 0.6,
    accept_apparent: bool = False,
    what_if: Sequence[Change | str] = (),
    dark: bool = False,
    everything: bool = False,
    **reading: Unpack[ReadingOptions],
) -> go.Figure:
    """Draw an aligned timeline of all ranks, opened on the typical instance.

    Parameters
    ----------
    trace : a Trace, or what `load` takes: a path, or several in a list.
    a, b, min_overlap, accept_apparent : as `check_overlap` takes them.
    what_if : changes, all together, as `what_if` takes them: what they would make of it is drawn beneath, predicted.
    dark : on dark ground.
    everything : figures of all that was captured, not only of the whole steps.
    reading : for paths, all that `load` takes by name, and `memory` (see `check_overlap`), but not with `what_if`.

    Returns
    -------
    plotly Figure : bars in ms on the trace's clock; `customdata` has whole ns. Where there are too many to draw, marks
        too small to see are drawn as one that says how many they are; narrow the trace to see more. A notebook shows it
        as the page that `traceviz timeline -o x.html` writes, which shows more as one zooms, and, where no script runs
        and kaleido is installed, as a picture.

    Raises
    ------
    TracevizError : as `check_overlap`.
    """
    from traceviz.timelines import notebook, palette, picture

    refuse_dask(reading)
    with progress() as on_progress, opened(trace, reading, on_progress, lists=True) as run:
        how: dict[str, Any] = {"min_overlap": min_overlap, "accept_apparent": accept_apparent}
        result, order = check_with_order(run, a, b, narrowing=_narrowing(everything), **how)
        drawn = picture.picture(run, result, order)
        if what_if:
            from traceviz.timelines.stack import with_predicted

            if not run.merged:
                raise TracevizError("Predictions need all ranks in memory at once.", hint="Leave out memory and dask.")
            drawn = with_predicted(run.trace, drawn, result, _changes(what_if))
    return notebook.Timeline(drawn, palette.DARK if dark else palette.LIGHT)


def report(
    trace: Run,
    folder: str | Path = "traceviz-report",
    a: str | None = None,
    b: str | None = None,
    *,
    min_overlap: float = 0.6,
    baseline: Run | None = None,
    claimed: float | str | None = None,
    require_faster: bool = False,
    accept_apparent: bool = False,
    everything: bool = False,
    **reading: Unpack[ReadingOptions],
) -> Report:
    """Write the attachment of a pull request: summary.md, report.html, results.json and timeline.png.

    Parameters
    ----------
    trace, everything, reading : as `check_overlap` takes them, without `dask`.
    folder : where to write; made where it is not there. Files of an earlier report in it are replaced.
    a, b, min_overlap, baseline, claimed, require_faster, accept_apparent : as `check_overlap` takes them.

    Returns
    -------
    Report : `.files` were written (no timeline.png where neither a browser nor kaleido can draw it); `.overlap`,
        `.collectives`, `.order`, `.streams`, `.info` and `.what_if` are the results they show.

    Raises
    ------
    TracevizError : as `check_overlap`, or the folder can't be written.
    """
    refuse_dask(reading)
    check.check_against(claimed, require_faster=require_faster, has_baseline=baseline is not None)
    runs = [trace] if baseline is None else [trace, baseline]
    with progress() as on_progress, opened_together(runs, reading, on_progress, lists=True) as (run, *alone):
        made = make(
            run,
            "comm" if a is None else a,
            "compute" if b is None else b,
            min_overlap=min_overlap,
            baseline=alone[0] if alone else None,
            claimed=claimed,
            of_pair=a is not None or b is not None,
            require_faster=require_faster,
            accept_apparent=accept_apparent,
            narrowing=_narrowing(everything),
        )
    return replace(made, files=tuple(files.write(made, Path(folder))))


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
    return capturing.capture(folder, tool=tool, name=name, shapes=shapes, stacks=stacks)


def _narrowing(everything: bool) -> Narrowing:
    """What figures are of: the whole steps of a trace that is no part of another, or everything."""
    return EVERYTHING if everything else Narrowing()


def _changes(given: Sequence[Change | str]) -> list[Change]:
    """Changes, those that are texts read."""
    return [parse_change(one) if isinstance(one, str) else one for one in given]
