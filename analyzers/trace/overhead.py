"""What the profiler itself took: both tools record spans in which they stopped the program to allocate or flush."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, clip, coverage, measure, union
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import duration, percent, ranks_in_words
from analyzers.trace.columns import as_int64, ints, ints_at
from analyzers.trace.schemas import Overhead
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Process, Trace

MATTERS = 0.05  # share of the GPU work's span worth a warning
DISTORTS = 0.1  # share of a step above which its figures are the profiler's as well
MOST_STEPS = 4  # named
ALL_OF_IT = -1  # the number of the one step of a capture without step marks
DISTORTED = "profiler-distorts"  # of the warning that a verdict has with its first lines
# How Kineto names its events of category "overhead".
KINETO = (
    "Activity Buffer Request",
    "Buffer Flush",
    "Command Buffer Full",
    "CUPTI_Overhead",
    "Instrumentation",
    "Resource",
    "UVM Activity Init",
)


def with_overhead(trace: Trace, starts: Ints, ends: Ints, owners: Ints | None = None) -> Trace:
    """A trace of one capture that keeps the spans in which the profiler held each process up.

    Parameters
    ----------
    starts, ends : spans of overhead, ns; some may overlap, or lie outside the GPU work.
    owners : the process that each held up; -1, or None for all, where that is not known: of a capture of one process
        it is that one.
    """
    if not starts.size or not len(trace.ops):
        return trace
    ends = np.maximum(starts, ends)
    owners = np.full(starts.size, -1) if owners is None else owners
    if len(trace.processes) == 1:
        owners = np.zeros(starts.size, np.int64)
    trace = replace(trace, overhead=_table(len(trace.processes), starts, ends, owners))
    low, high = int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())
    took = measure(clip(union(starts, ends), low, high))  # before the first op it held nothing up
    if not took:
        return trace
    share = f"{duration(took)} of {duration(high - low)} ({percent(took / (high - low))})"
    if took <= MATTERS * (high - low):
        (capture,) = trace.captures
        unanswered = f"how long it takes without the profiler, whose own work took {share}"
        return replace(trace, captures=(replace(capture, lacks=(*capture.lacks, unanswered)),))
    text = f"The profiler's own work took {share}, in which threads of the program stood still: gaps there are not its."
    return trace.warn("profiler-overhead", text)


def _table(processes: int, starts: Ints, ends: Ints, owners: Ints) -> Overhead:
    """The table `overhead` of spans of known processes, joined where they overlap."""
    parts = [union(starts[owners == process], ends[owners == process]) for process in range(processes)]
    return Overhead.of(
        {
            "process": np.repeat(np.arange(processes), [one.starts.size for one in parts]),
            "start_ns": np.concatenate([one.starts for one in parts]),
            "end_ns": np.concatenate([one.ends for one in parts]),
        },
    )


def overhead_in_steps(trace: Trace) -> Floats:
    """The share of each of `find_steps` that the profiler's own work took; empty where none is recorded."""
    steps = find_steps(trace)
    if not len(trace.overhead) or not steps.size:
        return np.empty(0)
    share = np.zeros(steps.size)
    process, starts, ends = (ints(trace.overhead, column) for column in ("process", "start_ns", "end_ns"))
    of_spans = rows_by_key(process)
    for key, rows in rows_by_key(steps.process).items():
        spans = of_spans.get(key, np.empty(0, np.int64))
        low, high = steps.start_ns[rows], steps.end_ns[rows]
        share[rows] = coverage(low, high, Union(starts[spans], ends[spans])) / np.maximum(high - low, 1)
    return share


def with_distorted_steps(trace: Trace) -> Trace:
    """Note of each process which steps the profiler distorts, and warn of them; ranks and window have to be known."""
    processes = tuple(replace(one, distorted=_distorted(trace, number)) for number, one in enumerate(trace.processes))
    left_out = [one.step for one in find_steps(trace).left_out]
    found = replace(trace, processes=processes)
    return replace(found, warnings=(*found.warnings, *distorted_steps(found.processes, left_out=left_out)))


def _distorted(trace: Trace, process: int) -> tuple[tuple[int, float], ...]:
    """Steps of a process of which the profiler's own work took more than `DISTORTS`, and its share in each."""
    spans = np.flatnonzero(as_int64(trace.overhead.process) == process)
    of_process: Mask = as_int64(trace.ops.process) == process
    if not spans.size or not of_process.any():
        return ()
    steps = find_steps(trace)
    own = steps.process == process
    numbers, share = steps.numbers[own], trace.once(overhead_in_steps)
    share = share[own] if share.size else share
    if not numbers.size:
        numbers = np.array([ALL_OF_IT])
        low = trace.ops.start_ns[of_process].min(keepdims=True)
        high = trace.ops.end_ns[of_process].max(keepdims=True)
        runs = Union(*(ints_at(trace.overhead, column, spans) for column in ("start_ns", "end_ns")))
        share = coverage(low, high, runs) / np.maximum(high - low, 1)
    much = np.flatnonzero(share > DISTORTS)
    return tuple(zip(numbers[much].tolist(), share[much].tolist(), strict=True))


def distorted_steps(
    processes: Iterable[Process],
    among: Collection[tuple[int, int]] | None = None,
    left_out: Collection[int] = (),
) -> tuple[TraceWarning, ...]:
    """Say of which steps of which ranks the profiler's own work took much; nothing where of none.

    Parameters
    ----------
    among : the (rank, step) that are looked at; all where not given.
    left_out : steps that figures leave out by default.
    """
    by_step: dict[int, dict[int, float]] = {}
    for one in processes:
        for step, share in one.distorted:
            if among is None or (one.rank, step) in among:
                by_step.setdefault(step, {})[one.rank] = share
    if not by_step:
        return ()
    worst_first = sorted(by_step, key=lambda step: (-max(by_step[step].values()), step))
    shares = "; ".join(_in_words(step, by_step[step]) for step in worst_first[:MOST_STEPS])
    more = f"; and over {percent(DISTORTS)} of {len(by_step) - MOST_STEPS} more" if len(by_step) > MOST_STEPS else ""
    others = sorted({step for _, step in among or ()} - set(by_step))
    remedy = _remedy(set(by_step), others if among is not None else None, left_out)
    text = f"The profiler's own work took {shares}{more}. Times in these steps include it: {remedy}."
    return (TraceWarning(DISTORTED, text),)


def _in_words(step: int, shares: Mapping[int, float]) -> str:
    low, high = f"{100 * min(shares.values()):.0f}", f"{100 * max(shares.values()):.0f}"
    took = f"{high} %" if low == high else f"{low}–{high} %"
    return f"{took} of {'the capture' if step == ALL_OF_IT else f'step {step}'} on {ranks_in_words(shares)}"


def _remedy(distorted: Collection[int], others: Sequence[int] | None, left_out: Collection[int]) -> str:
    """How to do without the steps that the profiler distorts; `others` are looked at, too, None where not known."""
    if set(distorted) <= set(left_out):
        return f"by default figures leave {'it' if len(distorted) == 1 else 'them'} out"
    if ALL_OF_IT in distorted or others == []:
        return "record less"
    it = "it" if len(distorted) == 1 else "them"
    if others and others[-1] - others[0] == len(others) - 1:  # no other step between them
        return f"--steps {others[0]}:{others[-1] + 1} leaves {it} out"
    return f"leave {it} out (--steps), or record less"
