"""All that the order of a trace's work tells: host sync points, unwaited copies, missing waits, the stream plan."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analyzers.cards import card
from analyzers.durations import duration
from analyzers.errors import TraceWarning
from analyzers.forks import Crossings, crossings
from analyzers.ordering import Ordering
from analyzers.stream_plan import StreamPlan, stream_plan
from analyzers.syncs import HostSyncs, host_syncs
from analyzers.syncs_copies import UnwaitedCopies, unwaited_copies
from analyzers.trace import Trace, ints


@dataclass(frozen=True)
class OrderReport:
    """Host sync points (costliest first), copies nobody waits for, forks and joins, and the plan of chunked loops."""

    syncs: HostSyncs
    copies: UnwaitedCopies
    crossings: Crossings
    plan: StreamPlan
    warnings: tuple[TraceWarning, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per host sync point; columns as in `SyncPoint`."""
        return self.syncs.to_frame()

    def _repr_html_(self) -> str:
        table, missing = self.syncs.table, self.crossings.missing
        hidden, idle = int(table["hidden"].sum()), int(table["gpu_idle_ns"].sum())
        text = f"{len(table)} host sync points ({hidden} hidden) left GPUs idle for {duration(idle)}; "
        text += f"{len(self.copies)} copies nobody waits for, {len(missing)} missing waits."
        headers = ("rank", "at", "blocked", "GPU idle", "kind", "call", "from", "in")
        rows = [
            (
                one.rank,
                duration(one.start_ns),
                duration(one.duration_ns),
                duration(one.gpu_idle_ns),
                one.kind,
                one.api,
                one.chain or one.pattern or "–",
                one.range or "–",
            )
            for one in self.syncs
        ]
        found = [TraceWarning("missing-wait", one.message) for one in missing]
        mood = "bad" if missing or len(self.copies) or idle else "good"
        return card("order", text, headers, rows, mood=mood, texts=headers[4:], warnings=(*found, *self.warnings))

    def __repr__(self) -> str:
        return (
            f"<order: {len(self.syncs)} host sync points, {len(self.copies)} unwaited copies, "
            f"{len(self.crossings.missing)} missing waits>"
        )


def order_report(trace: Trace) -> OrderReport:
    """Look into a trace's order; of a part of a trace, only what concerns that part is kept.

    A sync point, copy or crossing belongs to a part by its rank and by its time lying within the part's launches.
    """
    whole = trace.whole or trace
    ordering = Ordering(whole)
    syncs, copies = host_syncs(whole, ordering), unwaited_copies(whole, ordering)
    found, plan = crossings(whole, ordering), stream_plan(whole, ordering)
    if trace.whole is not None:
        syncs = HostSyncs(_part(trace, syncs.table, "start_ns"))
        copies = UnwaitedCopies(_part(trace, copies.table, "launched_ns"))
        found = Crossings(_part(trace, found.table, "at_ns"))
        plan = StreamPlan(_part(trace, plan.table, "start_ns"))
    return OrderReport(syncs, copies, found, plan, trace.warnings)


def _part(trace: Trace, table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows of the part's ranks, from its first launch to its last op's end."""
    launch = ints(trace.ops, "launch")
    launched = ints(trace.api, "start_ns")[launch[launch >= 0]]
    low = int(min(launched.min(initial=ints(trace.ops, "start_ns").min()), ints(trace.ops, "start_ns").min()))
    high = int(ints(trace.ops, "end_ns").max())
    kept = table["rank"].isin(trace.rank_ids) & table[column].between(low, high)
    return table[kept].reset_index(drop=True)
