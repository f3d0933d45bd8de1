"""All that the order of a trace's work tells: host sync points, unwaited copies, missing waits, the stream plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.common.errors import TraceWarning
from analyzers.common.notebook import card
from analyzers.common.wording import count_of, duration, instant
from analyzers.syncs.context import table_of
from analyzers.syncs.copies import UnwaitedCopies, UnwaitedCopy, unwaited_copies
from analyzers.syncs.crossings import Crossing, Crossings, crossings
from analyzers.syncs.loops import Chunk, StreamPlan, stream_plan
from analyzers.syncs.points import HostSyncs, SyncPoint, host_syncs
from analyzers.trace.columns import ints
from analyzers.trace.freed_memory import keeping_freed_memory
from analyzers.trace.tables import Trace


@dataclass(frozen=True)
class OrderReport:
    """Host sync points (costliest first), copies nobody waits for, forks and joins, and the plan of chunked loops.

    calls_recorded : of each rank, whether its host calls were recorded; else nothing tells what blocked its host.
    runtime : whose calls those are.
    """

    syncs: HostSyncs
    copies: UnwaitedCopies
    crossings: Crossings
    plan: StreamPlan
    warnings: tuple[TraceWarning, ...]
    calls_recorded: Mapping[int, bool] = field(default_factory=dict)
    runtime: str = "CUDA"

    @property
    def reason(self) -> str:
        """Why nothing can be said of what blocked the host, or not of all ranks; "" where it can."""
        unknown = sorted(rank for rank, recorded in self.calls_recorded.items() if not recorded)
        if not unknown:
            return ""
        of = "" if len(unknown) == len(self.calls_recorded) else f" of rank {', '.join(map(str, unknown))}"
        return f"no {self.runtime} calls{of} were recorded, so nothing tells what blocked the host"

    @property
    def exit_code(self) -> int:
        """What a command ends with: 0, or 3 where no rank's host calls were recorded."""
        return 3 if self.calls_recorded and not any(self.calls_recorded.values()) else 0

    def to_frame(self) -> pd.DataFrame:
        """One row per host sync point; columns as in `SyncPoint`."""
        return self.syncs.to_frame()

    def _repr_html_(self) -> str:
        table, missing = self.syncs.table, self.crossings.missing
        hidden, idle = int(table["hidden"].sum()), int(table["gpu_idle_ns"].sum())
        text = f"{count_of(len(table), 'host sync')} ({hidden} implicit) left GPUs idle for {duration(idle)}; "
        text = f"{self.reason}; " if self.exit_code else text
        copies = count_of(len(self.copies), "copy")
        text += f"{copies} nobody waits for, {count_of(len(missing), 'missing wait')}."
        headers = ("rank", "at", "blocked", "GPU idle", "idle after", "kind", "call", "from", "in")
        rows = [
            (
                one.rank,
                instant(one.start_ns),
                duration(one.duration_ns),
                duration(one.gpu_idle_ns),
                duration(one.after_ns),
                one.kind,
                one.api,
                one.chain or one.pattern or "–",
                one.range or "–",
            )
            for one in self.syncs
        ]
        notes = [one.message for one in missing]
        mood = "bad" if missing or len(self.copies) or idle else "good"
        return card("order", text, headers, rows, mood=mood, texts=headers[5:], notes=notes, warnings=self.warnings)

    def __repr__(self) -> str:
        return (
            f"<order: {len(self.syncs)} host sync points, {len(self.copies)} unwaited copies, "
            f"{len(self.crossings.missing)} missing waits>"
        )


Span = tuple[int, int]


@keeping_freed_memory
def order_report(trace: Trace, span: Span | None = None) -> OrderReport:
    """Look into a trace's order; of a part of a trace, only what concerns that part is kept.

    A sync point, copy or crossing belongs to a part by its rank and by its time lying within the part's launches.

    Parameters
    ----------
    span : of the part's launches, where the trace is only one of the captures that have a share in it.
    """
    whole = trace.whole or trace
    syncs, copies = whole.once(host_syncs), unwaited_copies(whole)
    found, plan = whole.once(crossings), stream_plan(whole)
    if trace.whole is not None:
        span = span or launch_span(trace)
        syncs = HostSyncs(_part(trace, syncs.table, "start_ns", span))
        copies = UnwaitedCopies(_part(trace, copies.table, "launched_ns", span))
        found = Crossings(_part(trace, found.table, "at_ns", span))
        plan = StreamPlan(_part(trace, plan.table, "start_ns", span))
    return OrderReport(syncs, copies, found, plan, trace.warnings, _calls_recorded(trace), whole.runtime)


def _calls_recorded(trace: Trace) -> dict[int, bool]:
    """Of each rank of a trace, whether the capture has host calls of it."""
    calls = np.bincount(ints(trace.api, "process"), minlength=len(trace.processes))
    recorded = dict.fromkeys(trace.rank_ids, False)
    for process, one in enumerate(trace.processes):
        if one.rank in recorded:
            recorded[one.rank] |= bool(calls[process])
    return recorded


def launch_span(trace: Trace) -> Span:
    """From the first launch of a trace's ops to the last op's end, ns."""
    launch = ints(trace.ops, "launch")
    launched = ints(trace.api, "start_ns")[launch[launch >= 0]]
    low = int(min(launched.min(initial=ints(trace.ops, "start_ns").min()), ints(trace.ops, "start_ns").min()))
    return low, int(ints(trace.ops, "end_ns").max())


def joined(reports: Sequence[OrderReport], warnings: tuple[TraceWarning, ...]) -> OrderReport:
    """Reports of captures of one run as that of the run; rows of a capture's tables stay those of its own."""

    def stacked(row: type[Any], tables: Iterable[pd.DataFrame], *by: str) -> pd.DataFrame:
        every = [*tables]

        def column(name: str) -> npt.NDArray[Any]:
            return np.concatenate([table[name].to_numpy() for table in every])

        keys = [-column(name[1:]) if name.startswith("-") else column(name) for name in reversed(by)]
        order = np.lexsort(keys)
        # Column by column: all of them together, and then sorted, would be in memory twice.
        return table_of(row, {each.name: column(each.name)[order] for each in fields(row)})

    return OrderReport(
        HostSyncs(stacked(SyncPoint, (one.syncs.table for one in reports), "-gpu_idle_ns", "-duration_ns", "start_ns")),
        UnwaitedCopies(stacked(UnwaitedCopy, (one.copies.table for one in reports), "launched_ns")),
        Crossings(stacked(Crossing, (one.crossings.table for one in reports), "at_ns", "what")),
        StreamPlan(stacked(Chunk, (one.plan.table for one in reports), "rank", "thread", "start_ns")),
        warnings,
        {rank: recorded for one in reports for rank, recorded in one.calls_recorded.items()},
        " or ".join(dict.fromkeys(one.runtime for one in reports)) or "CUDA",
    )


def _part(trace: Trace, table: pd.DataFrame, column: str, span: Span) -> pd.DataFrame:
    """Rows of the part's ranks within its launches."""
    kept = table["rank"].isin(trace.rank_ids) & table[column].between(*span)
    return table[kept].reset_index(drop=True)
