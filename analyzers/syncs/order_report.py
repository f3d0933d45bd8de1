"""All that the order of a trace's work tells: host sync points, unwaited copies, missing waits, the stream plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints
from analyzers.common.errors import TraceWarning
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import count_of, duration, instant
from analyzers.ordering.calls import call_kind
from analyzers.syncs.context import Findings
from analyzers.syncs.copies import UnwaitedCopies, unwaited_copies
from analyzers.syncs.crossings import Crossings, crossings, missing_crossings
from analyzers.syncs.loops import StreamPlan, stream_plan
from analyzers.syncs.points import HostSyncs, about_unrecorded, host_syncs
from analyzers.syncs.rests import RestingOrders, in_sentences, resting_orders
from analyzers.trace.advice import NO_ROWS
from analyzers.trace.columns import as_int64
from analyzers.trace.narrow import Narrowing
from analyzers.trace.ranges import launch_span
from analyzers.trace.run import ALL, Question, Run
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import calls_without_names, untrusted, without_names

if TYPE_CHECKING:
    import pandas as pd


class OrderReport(Record, frozen=True):
    """Host sync points (costliest first), copies nobody waits for, forks and joins, and the plan of chunked loops.

    resting : order that rests on host syncs alone.
    calls_recorded : of each rank, whether its host calls were recorded; else nothing tells what blocked its host.
    only_launches : ranks of which no calls but launches were. runtime : whose calls those are.
    unnamed : of ranks that have calls without a name, how many, and how many calls.
    untrusted : why GPU work may be missing, so that nothing tells how long GPUs were idle; "" where all is there.
    """

    syncs: HostSyncs
    copies: UnwaitedCopies
    crossings: Crossings
    plan: StreamPlan
    resting: RestingOrders
    warnings: tuple[TraceWarning, ...]
    calls_recorded: Mapping[int, bool] = msgspec.field(default_factory=dict)
    runtime: str = "CUDA"
    only_launches: frozenset[int] = frozenset()
    unnamed: Mapping[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    untrusted: str = ""

    @property
    def without_work(self) -> bool:
        """Whether no GPU work is on record: calls tell what blocked hosts, and nothing how long GPUs were idle."""
        return any(one.code == NO_ROWS for one in self.warnings)

    @property
    def idle_unknown(self) -> str:
        """Why nothing tells how long GPUs were idle; "" where it can be told."""
        return "no GPU work was recorded" if self.without_work else self.untrusted

    @property
    def reason(self) -> str:
        """Why nothing can be said of what blocked the host, or not of all ranks; "" where it can."""
        if self._lost:
            return self._lost
        unknown = sorted(rank for rank, recorded in self.calls_recorded.items() if not recorded)
        if not unknown:
            return ""
        of = "" if len(unknown) == len(self.calls_recorded) else f" of rank {', '.join(map(str, unknown))}"
        but = " but launches" if self.only_launches.intersection(unknown) else ""
        return f"no {self.runtime} calls{but}{of} were recorded, so nothing tells what blocked the host"

    @property
    def _lost(self) -> str:
        """What of the calls or, where no sync point was found, of GPU work was lost, by which one would be known."""
        if lost := without_names(self.unnamed, self.runtime, least=0.0):
            return lost
        unsure = self.untrusted and not len(self.syncs)
        return f"whether anything blocked the host can't be told: {self.untrusted}" if unsure else ""

    @property
    def untold(self) -> str:
        """For how many host syncs it can't be told how long GPUs were idle, and why; "" where it can for all."""
        unrecorded = self.syncs.unrecorded_ns
        count = int(np.count_nonzero(unrecorded > 0))
        if not count:
            return ""
        which = "" if count == len(unrecorded) else f" for {count} of them"
        return (
            f"how long they left GPUs idle can't be told{which}: up to {duration(int(unrecorded.max()))} after the "
            "last op on record a CUDA graph still ran what was not recorded"
        )

    @property
    def exit_code(self) -> int:
        """What a command ends with: 0, or 3 where no rank's host calls were recorded, or a loss leaves them open."""
        if self._lost and (not len(self.syncs) or without_names(self.unnamed, self.runtime)):
            return 3
        return 3 if self.calls_recorded and not any(self.calls_recorded.values()) else 0

    def to_frame(self) -> pd.DataFrame:
        """One row per host sync point; columns as in `SyncPoint`."""
        return self.syncs.to_frame()

    def _repr_html_(self) -> str:
        missing = self.crossings.missing
        hidden, idle = int(self.syncs.hidden.sum()), int(self.syncs.gpu_idle_ns.sum())
        text = f"{count_of(len(self.syncs), 'host sync')} ({hidden} implicit) left GPUs idle for {duration(idle)}; "
        text = f"{self.idle_unknown}, so how long GPUs were idle can't be told; " if self.idle_unknown else text
        text += f"{self.untold}; " if self.untold else ""
        text = f"{self.reason}; " if self.exit_code else text
        copies = count_of(len(self.copies), "copy")
        text += f"{copies} nobody waits for, {count_of(len(missing), 'missing wait')}."
        headers = ("rank", "at", "blocked", "GPU idle", "idle after", "kind", "call", "from", "in")
        rows = [
            (
                one.rank,
                instant(one.start_ns),
                duration(one.duration_ns),
                "can't tell" if one.unrecorded_ns else duration(one.gpu_idle_ns),
                duration(one.after_ns),
                one.kind,
                one.api,
                one.chain or one.pattern or "–",
                one.range or "–",
            )
            for one in self.syncs
        ]
        notes = [*(one.message for one in missing), *in_sentences(self.resting)]
        mood = "bad" if missing or len(self.copies) or idle else "good"
        return card("order", text, headers, rows, mood=mood, texts=headers[5:], notes=notes, warnings=self.warnings)

    def __repr__(self) -> str:
        return (
            f"<order: {len(self.syncs)} host sync points, {len(self.copies)} unwaited copies, "
            f"{len(self.crossings.missing)} missing waits>"
        )


Span = tuple[int, int]
FOUND: dict[str, type[Findings]] = {
    "syncs": HostSyncs,
    "copies": UnwaitedCopies,
    "crossings": Crossings,
    "plan": StreamPlan,
    "resting": RestingOrders,
}


def order_report(trace: Trace, span: Span | None = None, *, missing_only: bool = False) -> OrderReport:
    """Look into a trace's order; of a part of a trace, only what concerns that part is kept.

    A sync point, copy or crossing belongs to a part by its rank and by its time lying within the part's launches.

    Parameters
    ----------
    span : of the part's launches, where the trace is only one of the captures that have a share in it.
    missing_only : leave out the forks and joins that lack no wait.
    """
    whole = trace.whole or trace
    # What takes most room comes first, while nothing else is kept.
    found: dict[str, Any] = {"crossings": whole.once(missing_crossings if missing_only else crossings)}
    found |= {"plan": stream_plan(whole), "syncs": whole.once(host_syncs), "copies": unwaited_copies(whole)}
    found["resting"] = resting_orders(whole)
    if trace.whole is not None:
        found = {name: each.within(trace.rank_ids, span or launch_span(trace)) for name, each in found.items()}
    recorded, launches = calls_recorded(trace)
    unnamed = {rank: counts for rank, counts in calls_without_names(trace).items() if rank in recorded}
    return OrderReport(
        **found,
        warnings=trace.warnings,
        calls_recorded=recorded,
        runtime=whole.runtime,
        only_launches=launches,
        unnamed=unnamed,
    )


def order_of(run: Run, narrowing: Narrowing = ALL, *, missing_only: bool = False) -> OrderReport:
    """The order of a run's work, part by part; rows and processes that it names are the run's.

    Parameters
    ----------
    missing_only : leave out the forks and joins that lack no wait.
    """
    question = order_question(run, narrowing, missing_only=missing_only)
    return order_from(run, run.by_rank().map(question, narrowing), narrowing)


def order_question(run: Run, narrowing: Narrowing = ALL, *, missing_only: bool = False) -> Question:
    """What each part is asked for `order_of`, so that another question can be asked with it; see `order_from`."""
    parts = run.by_rank()
    span = None
    if narrowing != ALL and len(parts.handles) > 1:
        spans = parts.map(launch_span, narrowing).values()
        span = min(low for low, _ in spans), max(high for _, high in spans)
    return partial(order_report, span=span, missing_only=missing_only)


def order_from(run: Run, reports: Mapping[int, OrderReport], narrowing: Narrowing = ALL) -> OrderReport:
    """The order of a run's work, or of a part of it, by what its captures answer to `order_question`."""
    parts = run.by_rank()
    if len(parts.handles) == 1:
        joined = replace(reports[0], warnings=run.trace.warnings)
    else:
        joined = _joined(run, reports, [parts.handles[part].rows for part in reports])
    unrecorded = about_unrecorded(joined.syncs.rank, joined.syncs.unrecorded_ns)
    return replace(joined, warnings=(*joined.warnings, *unrecorded), untrusted=untrusted(run, narrowing))


def calls_recorded(trace: Trace) -> tuple[dict[int, bool], frozenset[int]]:
    """Of each rank of a trace, whether the capture has its host calls; and the ranks of which it has launches alone.

    These say of no other call that it would be there, where a stream's waits would not show either.
    """
    orders_work = trace.api.name.matching(lambda name: call_kind(name) != "")
    owner, size = as_int64(trace.api.process), len(trace.processes)
    calls, ordering = (np.bincount(one, minlength=size) > 0 for one in (owner, owner[orders_work]))
    ranks = trace.rank_ids if len(trace.ops) else [one.rank for one in trace.processes if one.rank >= 0]
    recorded, launches = dict.fromkeys(ranks, False), set()
    for process, one in enumerate(trace.processes):
        if one.rank in recorded and calls[process]:
            launches.add(one.rank)
            recorded[one.rank] |= bool(ordering[process]) or trace.captures[one.capture].waits_logged
    return recorded, frozenset(launches.difference(rank for rank, known in recorded.items() if known))


def _joined(run: Run, parts: Mapping[int, OrderReport], rows_in: Sequence[Callable[[str, Ints], Ints]]) -> OrderReport:
    """Reports of parts of one run as that of the run."""
    reports = [*parts.values()]
    found: dict[str, Any] = {
        name: kind.of_run([getattr(one, name) for one in reports], rows_in) for name, kind in FOUND.items()
    }
    return OrderReport(
        **found,
        warnings=run.trace.warnings,
        calls_recorded={rank: recorded for one in reports for rank, recorded in one.calls_recorded.items()},
        runtime=" or ".join(dict.fromkeys(one.runtime for one in reports)) or "CUDA",
        only_launches=frozenset[int]().union(*(one.only_launches for one in reports)),
        unnamed={rank: counts for one in reports for rank, counts in one.unnamed.items()},
    )
