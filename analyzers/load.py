"""Read captures of one run into one Trace, whatever their formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from analyzers.clocks.align import align as align_clocks
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress, silent
from analyzers.counters.plateau import waits_by_traffic
from analyzers.readers.captures import read_many
from analyzers.readers.inputs import PARQUET_EXPORT, Input, find_inputs
from analyzers.readers.reading import READING, Reading
from analyzers.select.select import declare
from analyzers.steps.candidates import Candidates
from analyzers.steps.choose import of_run, with_steps
from analyzers.steps.renumber import renumbered
from analyzers.steps.window import with_window
from analyzers.trace.advice import NO_ROWS, about_launches_alone, recording_work
from analyzers.trace.lost import about_lost_work, about_unlinked
from analyzers.trace.merge import merge
from analyzers.trace.one_run import check_one_run, doubt_apart
from analyzers.trace.overhead import with_distorted_steps
from analyzers.trace.ranks import about_ranks_without_work, assign_ranks
from analyzers.trace.settings import about_settings
from analyzers.trace.tables import Trace
from analyzers.trace.times import about_spoiled
from analyzers.trace.unlaunched import about_unlaunched
from analyzers.trace.unread import UNKNOWN_WORK, UNREAD
from analyzers.trace.windows import about_windows, with_windows

NO_WORK = "There is no GPU work in this capture."


def load(
    paths: Iterable[str | Path],
    *,
    align: bool = True,
    reading: Reading = READING,
    progress: Progress = silent,
) -> Trace:
    """Read captures of one run, put them on one clock, and split collectives into waiting and transfer.

    Parameters
    ----------
    paths : files, globs, folders or manifests.
    align : False leaves the times of each capture and device as they were recorded.
    reading : nsys, cache, workers, and what happens to captures that can't be read.
    progress : told of bytes read.

    Raises
    ------
    TracevizError : a file is no trace or damaged, ranks contradict each other, there is no GPU work at all, or
        `reading` wants captures looked at one by one.
    """
    refuse_parts(reading)
    inputs, skipped = find_inputs(paths, keep_bad=reading.skip_bad)
    if any(one.kind == PARQUET_EXPORT for one in inputs):
        return declare(_exported(inputs, align, progress, reading.step_by), reading.comm)
    traces, bad = read_many(inputs, reading, progress)
    traces = [declare(trace, reading.comm) for trace in traces]
    return joined(traces, inputs, skipped, bad, align=align, step_by=reading.step_by, calls_alone=reading.calls_alone)


def refuse_parts(reading: Reading) -> None:
    """Refuse to go capture by capture: predictions, contracts and single findings need all ops at once.

    Raises
    ------
    TracevizError : `reading` bounds the memory or names a Dask scheduler.
    """
    if reading.by_parts:
        raise TracevizError(
            "Predictions, contracts and single findings need all ranks in memory at once.",
            hint="Leave out memory and dask.",
        )


def joined(
    traces: Sequence[Trace],
    inputs: Sequence[Input],
    skipped: Sequence[Path],
    bad: Sequence[TraceWarning],
    *,
    align: bool,
    step_by: str | None = None,
    found: Sequence[Candidates] | None = None,
    calls_alone: bool = False,
) -> Trace:
    """Make one Trace of captures, or of their summaries: ranks named, steps found, clocks aligned, collectives split.

    Parameters
    ----------
    skipped, bad : files that are no trace, and warnings about captures, that were left out.
    step_by : the range by which the user wants steps. calls_alone : see `Reading`.
    found : what may bound those of each trace, where that is known.

    Raises
    ------
    TracevizError : ranks contradict each other, there is no GPU work at all, or `step_by` names no range.
    """
    trace = with_windows(merge(traces))
    later = next((one for one in trace.processes if one.first_window >= 0), None)
    if found is not None and later is not None:  # captures are looked at one by one, each as a rank
        paths = [trace.captures[one.capture].path for one in (trace.processes[later.first_window], later)]
        raise TracevizError(
            f"{paths[0]} and {paths[1]} are windows of one process: they need to be in memory at once.",
            hint="Leave out --memory and --dask.",
        )
    trace = check_one_run(about_windows(assign_ranks(trace)))
    for warning in bad:
        trace = trace.warn(warning.code, warning.message)
    for path in skipped:
        trace = trace.warn("skipped-file", f"{path} is not a trace and was left out.")
    if not len(trace.ops):
        launched = about_launches_alone(trace)
        if launched and calls_alone:
            return trace.warn(NO_ROWS, launched)
        said = {one.code: one.message for one in reversed(trace.warnings)}
        unknown = next((said[code] for code in (UNREAD, "unknown-events", UNKNOWN_WORK) if code in said), "")
        text = "There is no GPU work of a known kind in this capture." if unknown else NO_WORK
        raise TracevizError(
            (unknown and f"{text} {unknown}") or launched or text,
            path=inputs[0].path,
            hint=None if UNREAD in said else recording_work(trace),
            exit_code=3 if UNREAD in said else 2,
        )
    trace = about_ranks_without_work(trace)
    trace = with_steps(
        about_spoiled(about_unlaunched(about_unlinked(about_lost_work(trace)))),
        step_by,
        None if found is None else of_run(trace, traces, found),
    )
    aligned = align_clocks(about_settings(trace), enabled=align)
    matched = replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)
    matched = renumbered(doubt_apart(matched, trace))
    return with_distorted_steps(with_window(waits_by_traffic(matched)))


def _exported(inputs: list[Input], align: bool, progress: Progress, step_by: str | None) -> Trace:
    """Read back a trace that was exported: whole, with its ranks and on one clock."""
    if len(inputs) > 1:
        path = next(one.path for one in inputs if one.kind == PARQUET_EXPORT)
        raise TracevizError("This is an exported trace: it holds all ranks of a run.", path=path, hint="Give it alone.")
    from analyzers.export import parquet

    one = inputs[0]
    trace = parquet.read(one.path, progress)
    aligned = trace.clocks is not None and trace.clocks.aligned
    if not align and aligned:
        text = f"{one.path} was exported with its clocks aligned; they stay so."
        trace = trace.warn("clocks-stay-aligned", text)
    return with_window(renumbered(with_steps(waits_by_traffic(trace), step_by)))
