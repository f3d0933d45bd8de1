"""What the profiler itself took: both tools record spans in which they stopped the program to allocate or flush."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, clip, coverage, measure, union
from analyzers.arrays.types import Floats, Ints
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import duration, percent, ranks_in_words
from analyzers.trace.schemas import Overhead
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Process, Trace

OVERHEAD_SHARE_THAT_MATTERS = 0.05  # share of the GPU work's span worth a warning
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
    ends, count = np.maximum(starts, ends), len(trace.processes)
    owners = np.full(starts.size, -1) if owners is None else owners
    if count == 1:
        owners = np.zeros(starts.size, np.int64)
    spans = [union(starts[owners == process], ends[owners == process]) for process in range(count)]  # joined
    overhead = Overhead.of(
        {
            "process": np.repeat(np.arange(count), [one.starts.size for one in spans]),
            "start_ns": np.concatenate([one.starts for one in spans]),
            "end_ns": np.concatenate([one.ends for one in spans]),
        },
    )
    trace = replace(trace, overhead=overhead)
    low, high = int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())
    took = measure(clip(union(starts, ends), low, high))  # before the first op it held nothing up
    if not took:
        return trace
    share = f"{duration(took)} of {duration(high - low)} ({percent(took / (high - low))})"
    if took <= OVERHEAD_SHARE_THAT_MATTERS * (high - low):
        (capture,) = trace.captures
        unanswered = f"how long it takes without the profiler, whose own work took {share}"
        return replace(trace, captures=(replace(capture, lacks=(*capture.lacks, unanswered)),))
    text = f"The profiler's own work took {share}, in which threads of the program stood still: gaps there are not its."
    return trace.warn("profiler-overhead", text)


def overhead_in_steps(trace: Trace) -> Floats:
    """The share of each of `find_steps` that the profiler's own work took; empty where none is recorded."""
    steps, overhead = find_steps(trace), trace.overhead
    if not len(overhead) or not steps.size:
        return np.empty(0)
    share, of_spans = np.zeros(steps.size), rows_by_key(overhead.process)
    for key, rows in rows_by_key(steps.process).items():
        spans = of_spans.get(key, np.empty(0, np.int64))
        share[rows] = _share(trace, spans, steps.start_ns[rows], steps.end_ns[rows])
    return share


def _share(trace: Trace, spans: Ints, low: Ints, high: Ints) -> Floats:
    """The share of some times that spans of overhead took."""
    held = Union(trace.overhead.start_ns[spans], trace.overhead.end_ns[spans])
    return np.asarray(coverage(low, high, held) / np.maximum(high - low, 1))


def with_distorted_steps(trace: Trace) -> Trace:
    """Note of each process which steps the profiler distorts, and warn of them; ranks and window have to be known."""
    processes = tuple(replace(one, distorted=_distorted(trace, number)) for number, one in enumerate(trace.processes))
    left_out = [one.step for one in find_steps(trace).left_out]
    warnings = (*trace.warnings, *distorted_steps(processes, left_out=left_out))
    return replace(trace, processes=processes, warnings=warnings)


def _distorted(trace: Trace, process: int) -> tuple[tuple[int, float], ...]:
    """Steps of a process of which the profiler's own work took more than `DISTORTS`, and its share in each."""
    spans, own = np.flatnonzero(trace.overhead.process == process), trace.ops.process == process
    if not spans.size or not own.any():
        return ()
    steps = find_steps(trace)
    numbers = steps.numbers[steps.process == process]
    if numbers.size:
        share = trace.once(overhead_in_steps)[steps.process == process]
    else:
        low, high = trace.ops.start_ns[own].min(keepdims=True), trace.ops.end_ns[own].max(keepdims=True)
        numbers, share = np.array([ALL_OF_IT]), _share(trace, spans, low, high)
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
    named = []
    for step in sorted(by_step, key=lambda step: (-max(by_step[step].values()), step))[:MOST_STEPS]:
        low, high = (f"{100 * end(by_step[step].values()):.0f}" for end in (min, max))
        which = "the capture" if step == ALL_OF_IT else f"step {step}"
        named.append(f"{low if low == high else f'{low}–{high}'} % of {which} on {ranks_in_words(by_step[step])}")
    more = f"; and over {percent(DISTORTS)} of {len(by_step) - MOST_STEPS} more" if len(by_step) > MOST_STEPS else ""
    others = None if among is None else sorted({step for _, step in among} - set(by_step))
    remedy = _remedy(set(by_step), others, left_out)
    text = f"The profiler's own work took {'; '.join(named)}{more}. Times in these steps include it: {remedy}."
    return (TraceWarning(DISTORTED, text),)


def _remedy(distorted: Collection[int], others: Sequence[int] | None, left_out: Collection[int]) -> str:
    """How to do without the steps that the profiler distorts; `others` are looked at, too, None where not known."""
    it = "it" if len(distorted) == 1 else "them"
    if set(distorted) <= set(left_out):
        return f"by default figures leave {it} out"
    if ALL_OF_IT in distorted or others == []:
        return "record less"
    if others and others[-1] - others[0] == len(others) - 1:  # no other step between them
        return f"--steps {others[0]}:{others[-1] + 1} leaves {it} out"
    return f"leave {it} out (--steps), or record less"
