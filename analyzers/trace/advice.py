"""What a capture can't show, and how to capture it: waits, calls, what ran in a graph, migrations of pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of
from analyzers.trace.tables import WSL, Trace

# What to advise where a capture lacks something: another vendor's profiler may have no setting for it.

NO_ROWS = "no-gpu-rows"  # a run of calls alone
_NSYS = "nsys records it (nsys profile -t cuda,nvtx)"
_CALLS = {"CUDA": "nsys profile -t cuda,nvtx, or ", "HIP": "rocprofv3 --hip-trace, or "}
_TRACERS = {"CUDA": "nsys -t cuda,nvtx; ", "HIP": "rocprofv3 --kernel-trace; "}
_SYNC_EVENTS = "torch.profiler records it with experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"


def records_waits(trace: Trace) -> bool:
    """Whether a setting of the profiler has it recorded which stream waits for what."""
    return trace.runtime == "CUDA" and all(one.waits_logged for one in trace.captures)


def recording_waits(trace: Trace) -> str:
    """How to have it recorded which stream waits for what."""
    if records_waits(trace):
        return _SYNC_EVENTS
    return _NSYS if trace.runtime == "CUDA" else f"no profiler records that of {trace.runtime}"


def without_calls(trace: Trace) -> str:
    """What can't be told where host calls are missing, and how to have them recorded."""
    text = f"the capture holds no {trace.runtime} calls, so nothing tells what each op waited for"
    if trace.runtime == "CANN":  # torch_npu's say by arrows alone what launched a task, and these are not read
        return text
    return f"{text}; capture them as well: {_CALLS.get(trace.runtime, '')}torch.profiler with CPU activities"


def about_launches_alone(trace: Trace) -> str:
    """What a capture holds where calls launched work and nothing of that work is there; "" where none did."""
    launches = sum(one.launches for one in trace.processes)
    if not launches or len(trace.ops):
        return ""
    wsl = next((one.metadata[WSL] for one in trace.captures if WSL in one.metadata), "")
    why = f" On WSL2 ({wsl}) this nsys and this driver record none." if wsl else ""
    holds = f"{launches:,} launch{'es' * (launches != 1)} of kernels and copies, and no row of what they launched"
    return f"There is no GPU work in this capture: it holds {holds}.{why}"


def recording_work(trace: Trace) -> str:
    """What to look into where a capture holds no work of a GPU."""
    tracers = _TRACERS.get(trace.runtime, "")
    if about_launches_alone(trace):
        return f"Was the GPU traced ({tracers}torch.profiler with its activity)? traceviz syncs answers from the calls."
    return f"Was the GPU traced ({tracers}torch.profiler with its activity), and did it work meanwhile?"


# CUDA graphs that a capture shows as one row each: what ran inside is unknown, and no figure may pretend otherwise.

ADVICE = "capture with --cuda-graph-trace=node to see inside"


def about_rows(trace: Trace) -> Trace:
    """Warn of a capture's graphs that are one row each."""
    count = int(np.count_nonzero(trace.ops.kind.is_one_of(("graph",))))
    if not count:
        return trace
    return trace.warn(
        "graph-as-one-row",
        f"{count:,} CUDA graph launches of {trace.captures[0].path} are one row each: each counts as one op, and what "
        f"ran inside (kernels, collectives, waits) as nothing; {ADVICE}.",
    )


def but_rows(warnings: Iterable[TraceWarning]) -> tuple[TraceWarning, ...]:
    """Warnings without `about_rows`, for answers that say themselves what graphs mean for them."""
    return tuple(one for one in warnings if one.code != "graph-as-one-row")


def only_rows(warnings: Iterable[TraceWarning]) -> tuple[TraceWarning, ...]:
    """Warnings of `about_rows` alone."""
    return tuple(one for one in warnings if one.code == "graph-as-one-row")


# In which processes PyTorch is seen at work: where it is not, nothing is said in its words.

_NAME = re.compile(r"\b(at|aten|c10|c10d|torch)::|\btorch/|\bProfilerStep#|\bautograd::engine")


def torch_seen(trace: Trace) -> Mask:
    """Whether each process runs PyTorch: its operators, kernels or frames are on record, or its profiler wrote them.

    Frames of Python alone are no sign: CuPy and JAX run in Python, too.
    """
    made = [trace.captures[one.capture].producer.startswith("torch") for one in trace.processes]
    found = np.array(made, dtype=bool)
    ranges = trace.ranges.kind.is_one_of(["op"]) | trace.ranges.name.matching(_NAME.search)
    for process in (trace.ranges.process[ranges], trace.ops.process[trace.ops.name.matching(_NAME.search)]):
        found[process] = True
    return found


# Migrations of pages of unified memory: the driver moves them, so they are no copies of the program.
#
# A kernel that touches a page which is elsewhere stands still until it was moved. The migration then runs beside that
# kernel, and that it does is no overlap. Nothing records which kernel it was. A program can also ask for pages ahead of
# time (`cudaMemPrefetchAsync`); nobody need wait for these.

KIND = "migration"
NO_STREAM = -1  # they run on no stream of the program's
CAUSES = ("cause not said", "asked for by the program", "page fault", "prefetch by the driver", "eviction",
          "access counters")  # fmt: skip
BY_PROGRAM = 1


def migration_name(direction: str, cause: int) -> str:
    """What a migration is called, by which `migration:TEXT` picks it.

    >>> migration_name("HtoD", 2), migration_name("", 9)
    ('Page migration HtoD (page fault)', 'Page migration (cause not said)')
    """
    return f"Page migration {direction}".rstrip() + f" ({CAUSES[cause if cause < len(CAUSES) else 0]})"


def is_migration(trace: Trace) -> Mask:
    """Ops that are migrations."""
    return trace.ops.kind.is_one_of((KIND,))


def may_hold_kernels(trace: Trace) -> Mask:
    """Migrations that the program did not ask for: a kernel may stand still for each."""
    return is_migration(trace) & ~trace.ops.name.matching(lambda name: f"({CAUSES[BY_PROGRAM]})" in name)


def about_migrations(trace: Trace) -> Trace:
    """Warn of a capture's migrations, with how many there were of each cause."""
    rows = np.flatnonzero(is_migration(trace))
    if not rows.size:
        return trace
    found = Counter[str]()
    for one, count in zip(*np.unique(trace.ops.name.codes[rows], return_counts=True), strict=True):
        found[trace.ops.name.texts[one].rpartition("(")[2].removesuffix(")")] += int(count)
    causes = ", ".join(f"{count:,} {cause}" for cause, count in found.most_common())
    warning = TraceWarning(
        "page-migrations",
        f"{count_of(rows.size, 'page migration')} of unified memory ({causes}): the driver moves pages, and kernels "
        "that touch them stand still meanwhile. They are no copies of the program, and count on a side only as "
        "'migration'.",
    )
    return trace.warn(warning.code, warning.message)


def held_kernels(count: int) -> str:
    """Why a pair can't be judged of which so many ops are migrations that kernels may have stood still for."""
    if not count:
        return ""
    return (
        f"{count_of(count, 'op')} of the sides {'is a page migration' if count == 1 else 'are page migrations'} that "
        "the program did not ask for: a kernel that touches such a page stands still until it is there, and which one "
        "did is not recorded, so running beside them can't be told from waiting for them"
    )
