"""What the reader of a verdict has to know beside the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from analyzers.causes import Explainer
from analyzers.errors import TraceWarning
from analyzers.forks import crossings
from analyzers.intervals import measure, union
from analyzers.job import Job, last_arrivals
from analyzers.nesting import lanes
from analyzers.overlap import RankOverlap
from analyzers.places import Places
from analyzers.selection import Selection
from analyzers.steps import find_steps, step_of_ops
from analyzers.trace import Mask, Trace, ints

OF_CLOCKS = ("few-collectives", "clocks-not-aligned", "clocks-contradict")
WAITS_MATTER = 0.1  # difference of plain and real ratio worth a word
OUTSIDE_MATTERS = 0.05  # share of a side's busy time outside all steps worth a word


def all_warnings(
    trace: Trace, sides: tuple[Selection, Selection], ranks: list[RankOverlap], job: Job, notes: Sequence[TraceWarning]
) -> list[TraceWarning]:
    """Collect the trace's warnings that bear on this pair, the sides' own, and what the figures call for."""
    compared = any(np.any(side.picked & (last_arrivals(trace) >= 0)) for side in sides)
    said = [one for one in trace.warnings if compared or one.code not in OF_CLOCKS]
    said += [warning for side in sides for warning in side.warnings]
    return [
        *said,
        *notes,
        *_about_ranks(trace, ranks, job),
        *_about_waits(trace, sides, ranks),
        *_outside(trace, sides, job),
    ]


def missing_waits(explainer: Explainer) -> list[TraceWarning]:
    """Work of either side that a fork or join left unordered, each kind once."""
    picked = np.append(explainer.a | explainer.b, False)
    found: Counter[str] = Counter()
    for one in crossings(explainer.trace, explainer.ordering).missing:
        if picked[one.op] or picked[one.behind]:
            found[f"Rank {one.rank}, {one.what}: {one.message}"] += 1
    return [
        TraceWarning("missing-wait", f"{text} ({times} times)." if times > 1 else f"{text}.")
        for text, times in found.items()
    ]


def _about_ranks(trace: Trace, ranks: list[RankOverlap], job: Job) -> list[TraceWarning]:
    if job.critical_rank is None:
        return []
    places = Places.of_trace(trace)
    lacking = [places.short(rank.rank, rank.device) for rank in ranks if rank.real_overlap_ratio is None]
    said = []
    if lacking:
        where = ", ".join(lacking)
        said.append(TraceWarning("empty-side", f"Only one side ran on rank {where}: no overlap is possible there."))
    idle = sorted(set(trace.rank_ids) - {rank.rank for rank in ranks})
    if idle:
        where = ", ".join(map(str, idle))
        said.append(TraceWarning("no-side", f"Neither side ran on rank {where}, which the figures leave out."))
    return said


def _about_waits(trace: Trace, sides: tuple[Selection, Selection], ranks: list[RankOverlap]) -> list[TraceWarning]:
    """Where waiting for late ranks looks like overlap: what the two figures mean, and who was late."""
    said = []
    late = np.zeros(len(trace.ops), dtype=bool)
    places = Places.of_trace(trace)
    for rank in ranks:
        plain, real = rank.overlap_ratio, rank.real_overlap_ratio
        if plain is None or real is None or plain - real < WAITS_MATTER:
            continue
        which = 0 if rank.a.wait_ns >= rank.b.wait_ns else 1
        side = (rank.a, rank.b)[which]
        said.append(
            f"{places.name(rank.rank, rank.device)} ({plain:.0%} looks hidden, {real:.0%} is: "
            f"{side.wait_ns / side.busy_ns:.0%} of its "
            f"'{sides[which].selector}' is waiting)"
        )
        late |= sides[which].picked & _of(trace, rank.rank, rank.device)
    if not said:
        return []
    text = (
        f"On {', '.join(said)}{_mostly_for(trace, late)}. A collective that only waits for a late rank hides nothing."
    )
    return [TraceWarning("waiting-is-not-overlap", text)]


def _mostly_for(trace: Trace, ops: Mask) -> str:
    last = last_arrivals(trace)
    rows = np.flatnonzero(ops & (last >= 0))
    everywhere, waits = (trace.whole or trace).ops, ints(trace.ops, "wait_ns")[rows]
    late = lanes(*(ints(everywhere, column)[last[rows]] for column in ("rank", "device")))
    waited = {place: int(waits[mine].sum()) for place, mine in late.items()}
    total = sum(waited.values())
    if not total:
        return ""
    rank, device = max(waited, key=lambda place: waited[place])
    return f", {waited[rank, device] / total:.0%} of it for {Places.of_trace(trace).name(rank, device)}"


def _of(trace: Trace, rank: int, device: int) -> Mask:
    mine: Mask = (ints(trace.ops, "rank") == rank) & (ints(trace.ops, "device") == device)
    return mine


def _outside(trace: Trace, sides: tuple[Selection, Selection], job: Job) -> list[TraceWarning]:
    """Work outside the step marks counts in busy times; where it is much, say how to leave it out."""
    steps = find_steps(trace)
    if not steps.rows.size or job.critical_rank is None or job.critical_device is None:
        return []
    here = _of(trace, job.critical_rank, job.critical_device)
    outside = (step_of_ops(trace, steps) < 0) & here
    starts, ends = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
    name = Places.of_trace(trace).name(job.critical_rank, job.critical_device)
    for side in sides:
        all_of_it = measure(union(starts[side.picked & here], ends[side.picked & here]))
        part = measure(union(starts[side.picked & outside], ends[side.picked & outside]))
        if all_of_it and part / all_of_it > OUTSIDE_MATTERS:
            first, last = steps.present[0], steps.present[-1] + 1
            text = (
                f"{part / all_of_it:.0%} of the busy time of '{side.selector}' on {name} lies "
                f"outside the step marks; --steps {first}:{last} leaves it out."
            )
            return [TraceWarning("outside-steps", text)]
    return []
