"""Look one finding up by its id, and tell all that the capture says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints, Mask
from analyzers.causes.evidence import EvidenceWriter, ToldGap
from analyzers.causes.explain import Explained
from analyzers.causes.free_to_run import PEER_WAIT
from analyzers.causes.not_launched import HOST_SYNC
from analyzers.causes.pieces import Link, links_of
from analyzers.causes.table import CAUSE_TABLE, CAUSES, alone_by_cause, cause_of_parts
from analyzers.causes.without import gain_without, next_behind
from analyzers.collectives.costs import Collective, RankCall, collectives_of
from analyzers.common.errors import TracevizError
from analyzers.common.ids import FindingId, collective_id, gap_id, instance_id, read_id, sync_id
from analyzers.common.wording import count_of, duration, size
from analyzers.matching.match import MATCHED_BY
from analyzers.overlap.pairing import Instance
from analyzers.show.result import Piece, Related, Shown
from analyzers.syncs.points import SyncPoint, host_syncs
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.kernels import function
from analyzers.trace.narrow import Narrowing, counted
from analyzers.trace.ranks import labels_of
from analyzers.trace.run import ALL
from analyzers.trace.steps import find_steps, step_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.part import explaining

MOST_PIECES, MOST_RELATED = 8, 5
PEER, BLOCKED = CAUSE_TABLE.index(PEER_WAIT), CAUSE_TABLE.index(HOST_SYNC)


class FoundGap(NamedTuple):
    """A gap, and how long each cause held in it, ns, in the order of `CAUSES`; `explained` has those beside it, too."""

    gap: ToldGap
    by_cause: Ints
    explained: Explained


def show(trace: Trace, finding: str, a: str = "comm", b: str = "compute", *, narrowing: Narrowing = ALL) -> Shown:
    """Tell all that a trace says of one finding.

    Parameters
    ----------
    finding : its id, such as "gap:r0.d0:1876012" (`analyzers.common.ids`).
    a, b : selectors of the pair that a gap or an instance is of; of a sync, the pair whose gaps it is held against.
    narrowing : the part of the trace that findings are of; those of a pair, by default, as `check_overlap` has them.

    Raises
    ------
    TracevizError : that is no id, the trace has no such finding, or a selector can't be read.
    """
    wanted = read_id(finding)
    if wanted.kind == "coll":
        return _collective(narrowing.of(trace), wanted)
    if wanted.kind == "sync":
        return _sync(narrowing.of(trace), wanted, a, b)
    found = _Pair(counted(trace, narrowing).of(trace), a, b)
    return found.gap(wanted) if wanted.kind == "gap" else found.instance(wanted)


class _Pair:
    """Gaps and instances of a pair of sides in one trace."""

    def __init__(self, trace: Trace, a: str, b: str) -> None:
        self.trace, self.whole = trace, trace.whole or trace
        self.result = check_overlap(trace, a, b, explain=False)
        self.writer: EvidenceWriter = explaining(trace, a, b)
        self.names = self.result.names  # what people call the sides

    def gap(self, wanted: FindingId) -> Shown:
        """One gap: which side was idle, what each part of it was held by, and how the op that ended it got there."""
        here = [found for found in self._gaps(wanted) if found.gap.start_ns == wanted.start_ns]
        if not here:
            raise _unknown(wanted, "gap", (self.result.a, self.result.b))
        found = max(here, key=lambda one: int(one.by_cause.sum()))
        gap, by_cause, _ = found
        causes = _by_time(by_cause)
        alone_ns, waited_ns = int(by_cause.sum() - by_cause[PEER]), int(by_cause[PEER])
        late = f", and waiting for a late rank cost {duration(waited_ns)} of overlap" if waited_ns else ""
        sentence = (
            f"{gap.side} had nothing{_but_trivial(gap)} running for {duration(gap.end_ns - gap.start_ns)} on "
            f"{self._named(wanted)}; {gap.other} ran alone for {duration(alone_ns)} of it{late}. Then {gap.op_name} "
            f"began on stream {gap.stream}."
        )
        figures = {"length_ns": gap.end_ns - gap.start_ns, "alone_ns": alone_ns, "peer_wait_ns": waited_ns}
        evidence = [_link_words(gap, link) for link in links_of(gap)]
        if causes and (removed := CAUSE_TABLE[causes[0]].removed) is not None:
            gain = gain_without(gap, removed)
            if gain is not None:
                figures["sooner_ns"] = gain.sooner_ns
                evidence.append(f"{CAUSES[causes[0]]}: {next_behind(gap, gain)}")
        return self._shown(
            wanted,
            "gap",
            start_ns=gap.start_ns,
            end_ns=gap.end_ns,
            steps=_steps_of(self.whole, np.array([gap.op])),
            sentence=sentence,
            figures=figures,
            pieces=tuple(self._piece(found, cause) for cause in causes),
            evidence=tuple(evidence),
            related=tuple(self._related_to_gap(wanted, gap)),
        )

    def _shown(self, wanted: FindingId, kind: str, **found: Any) -> Shown:
        a, b = self.result.a, self.result.b
        return Shown(id=str(wanted), kind=kind, a=a, b=b, rank=wanted.rank, device=wanted.device, **found)

    def instance(self, wanted: FindingId) -> Shown:
        """One instance: what ran beside what, and its gaps, those first in which one side ran alone for longest."""
        found = {number: one for number, one in self._instances(wanted).items() if one.start_ns == wanted.start_ns}
        if not found:
            raise _unknown(wanted, "instance", (self.result.a, self.result.b))
        number, instance = next(iter(found.items()))
        gaps = [one for one in self._gaps(wanted) if one.gap.instance == number]
        gaps.sort(key=lambda one: -int(one.by_cause.sum()))
        by_cause = np.sum([one.by_cause for one in gaps], axis=0) if gaps else np.zeros(len(CAUSES), np.int64)
        longest = {cause: max(gaps, key=lambda one: int(one.by_cause[cause])) for cause in _by_time(by_cause)}
        picked = np.flatnonzero((self.writer.pairing.a == number) | (self.writer.pairing.b == number))
        figures = ("a_busy_ns", "b_busy_ns", "real_overlap_ns", "achievable_ns", "missed_ns")
        return self._shown(
            wanted,
            "instance",
            start_ns=instance.start_ns,
            end_ns=instance.end_ns,
            steps=_steps_of(self.whole, picked),
            sentence=self._instance_words(wanted, instance),
            figures={name: getattr(instance, name) for name in figures},
            pieces=tuple(replace(self._piece(one, cause), ns=int(by_cause[cause])) for cause, one in longest.items()),
            related=tuple(self._related_gap(wanted, one) for one in gaps[:MOST_RELATED]),
        )

    def _instances(self, wanted: FindingId) -> dict[int, Instance]:
        """The instances of a rank's device by their numbers."""
        ranks = [rank for rank in self.result.ranks if (rank.rank, rank.device) == (wanted.rank, wanted.device)]
        every = [one for rank in ranks for one in rank.instances]
        numbers = self.writer.explainer.instances_of(wanted.rank, wanted.device).tolist()
        return dict(zip(numbers, every, strict=True))

    def _instance_words(self, wanted: FindingId, found: Instance) -> str:
        return (
            f"{found.label} on {self._named(wanted)}: {self.names[0]} ran for {duration(found.a_busy_ns)}, "
            f"{self.names[1]} for {duration(found.b_busy_ns)}, waits left out; {duration(found.real_overlap_ns)} of "
            f"a possible {duration(found.achievable_ns)} overlapped."
        )

    def gaps_beside(self, sync: SyncPoint) -> list[Related]:
        """Gaps of a sync's rank in which the host was blocked while it lasted, those it held longest first."""
        beside = [
            (int(found.by_cause[BLOCKED]), self._related_gap(wanted, found))
            for wanted in (FindingId("gap", one.rank, one.device) for one in self.result.ranks if one.rank == sync.rank)
            for found in self._gaps(wanted)
            if found.by_cause[BLOCKED]
            and found.gap.start_ns < sync.start_ns + sync.duration_ns
            and found.gap.end_ns > sync.start_ns
        ]
        return [gap for _, gap in sorted(beside, key=lambda one: -one[0])[:MOST_RELATED]]

    def _gaps(self, wanted: FindingId) -> Iterator[FoundGap]:
        if explained := self.writer.explainer.explain(wanted.rank, wanted.device):
            by_cause = alone_by_cause(explained)
            for gap in np.flatnonzero(by_cause.any(axis=0)).tolist():
                yield FoundGap(ToldGap(self.writer, explained, gap), by_cause[:, gap], explained)

    def _piece(self, found: FoundGap, cause: int) -> Piece:
        parts, ns = found.explained.parts, int(found.by_cause[cause])
        of_cause = (parts.gap == found.gap.index) & (cause_of_parts(parts) == cause) & (parts.ns > 0)
        low, high = int(parts.low_ns[of_cause].min()), int(parts.high_ns[of_cause].max())
        told = ToldGap(self.writer, found.explained, found.gap.index, ns)
        return Piece(CAUSES[cause], ns, low, high, CAUSE_TABLE[cause].evidence(told))

    def _related_gap(self, wanted: FindingId, found: FoundGap) -> Related:
        most = int(found.by_cause.argmax())
        words = f"{CAUSES[most]} held {found.gap.side} for {duration(int(found.by_cause[most]))}"
        return Related(gap_id(wanted.rank, wanted.device, found.gap.start_ns), words)

    def _related_to_gap(self, wanted: FindingId, gap: ToldGap) -> Iterator[Related]:
        if (instance := self._instances(wanted).get(gap.instance)) is not None:
            id_ = instance_id(wanted.rank, wanted.device, instance.start_ns)
            yield Related(id_, f"its instance, {instance.label}")
        thread = int(self.writer.explainer.hosts.thread[gap.op])
        yield from _syncs_within(self.whole, wanted.rank, gap.start_ns, gap.end_ns, thread)
        if (number := self.writer.op_column("collective", gap.op)) >= 0:
            yield Related(collective_id(number), "the collective whose op ended the gap")

    def _named(self, wanted: FindingId) -> str:
        return self.result.device_labels.name(wanted.rank, wanted.device)


def _by_time(by_cause: Ints) -> list[int]:
    """Causes that held at all, the longest first."""
    return [cause for cause in np.argsort(-by_cause, kind="stable").tolist() if by_cause[cause]]


def _but_trivial(gap: ToldGap) -> str:
    """That short ops of the idle side ran in a gap, which end none; "" where none did."""
    explainer, ops = gap.explainer, gap.writer.trace.ops
    rows = explainer.room.started_beside(gap.op, gap.start_ns, gap.end_ns)
    rows = rows[(explainer.a, explainer.b)[gap.idle_side][rows]]
    start, end, wait = (ints_at(ops, column, rows) for column in ("start_ns", "end_ns", "wait_ns"))
    ran_ns = (end - start - wait)[(end <= gap.end_ns) & (end > start + wait)]
    return f" but {count_of(ran_ns.size, 'short op')} ({duration(int(ran_ns.sum()))})" if ran_ns.size else ""


def _link_words(gap: ToldGap, link: Link) -> str:
    def when(instant: int) -> str:
        since = instant - gap.start_ns
        return f"{duration(since)} into the gap" if since >= 0 else f"{duration(-since)} before it"

    writer = gap.writer
    if link.kind == "launch":
        return (
            f"{writer.op_name(link.to_op)} was launched {when(link.from_ns)} by thread {link.from_thread}, and began "
            f"{duration(link.to_ns - link.from_ns)} later on stream {writer.op_column('stream', link.to_op)}"
        )
    if link.kind == "event":
        return (
            f"it waited, by an event, for {writer.op_name(link.from_op)} on stream "
            f"{writer.op_column('stream', link.from_op)}, which ended {when(link.from_ns)}"
        )
    return f"that event was recorded {when(link.from_ns)}, and the stream told to wait {when(link.to_ns)}"


def _sync(trace: Trace, wanted: FindingId, a: str, b: str) -> Shown:
    """One call that blocked the host: where it came from, what it waited for, what it cost, which gaps it held."""
    whole = trace.whole or trace
    syncs, steps = whole.once(host_syncs), find_steps(whole)
    found = syncs.take((syncs.rank == wanted.rank) & (syncs.start_ns == wanted.start_ns))
    one: SyncPoint | None = next(iter(found), None)
    if one is None:
        raise _unknown(wanted, "sync")
    inside = (steps.process == one.process) & (steps.start_ns <= one.start_ns) & (one.start_ns < steps.end_ns)
    try:
        gaps = _Pair(trace, a, b).gaps_beside(one)
    except TracevizError:  # a sync is no matter of sides: those that can't be told apart have no gaps
        gaps = []
    return Shown(
        id=str(wanted),
        kind="sync",
        a="",
        b="",
        rank=one.rank,
        device=None if one.device < 0 else one.device,
        start_ns=one.start_ns,
        end_ns=one.start_ns + one.duration_ns,
        steps=tuple(np.unique(steps.numbers[inside]).tolist()),
        sentence=_sync_words(one),
        figures={
            "duration_ns": one.duration_ns,
            "gpu_idle_ns": one.gpu_idle_ns,
            "after_ns": one.after_ns,
            **({"bytes": one.bytes} if one.bytes >= 0 else {}),
        },
        evidence=tuple(_about_sync(one)),
        related=tuple(gaps),
    )


def _sync_words(one: SyncPoint) -> str:
    kind = "an implicit host sync" if one.hidden else "a host sync"
    by = f", from {one.chain or one.pattern}" if one.chain or one.pattern else ""
    where = f" in '{one.range}'" if one.range else ""
    idle = f"The GPU was idle for {duration(one.gpu_idle_ns)} of it"
    if one.unrecorded_ns:
        idle = (
            f"Its last {duration(one.unrecorded_ns)} a CUDA graph still ran what was not recorded, so how long the GPU "
            "was idle can't be told"
        )
    return (
        f"{one.api}, {kind}, blocked thread {one.thread} of rank {one.rank} for "
        f"{duration(one.duration_ns)}{by}{where}. {idle}, and for {duration(one.after_ns)} after it."
    )


def _about_sync(one: SyncPoint) -> Iterator[str]:
    if one.frame:
        yield f"called at {one.frame}"
    if one.copy:
        yield f"a copy {one.copy} of {size(one.bytes)}" if one.bytes >= 0 else f"a copy {one.copy}"
    if one.waited_name:
        on = f" on stream {one.waited_stream}" if one.waited_stream >= 0 else ""
        yield f"it waited for {function(one.waited_name)}{on}"
    if one.delayed:
        yield f"what the thread launched next was of '{one.delayed}'"


def _syncs_within(whole: Trace, rank: int, low: int, high: int, thread: int | None = None) -> list[Related]:
    """Syncs of a rank that blocked its host between two instants, those that did for longest first."""
    syncs = whole.once(host_syncs)
    within = np.minimum(syncs.start_ns + syncs.duration_ns, high) - np.maximum(syncs.start_ns, low)
    is_one: Mask = (syncs.rank == rank) & (within > 0)
    if thread is not None:
        is_one &= syncs.thread == thread
    rows = np.flatnonzero(is_one)
    rows = rows[np.argsort(-within[rows], kind="stable")][:MOST_RELATED]
    return [
        Related(
            sync_id(one.rank, one.start_ns),
            f"{one.api} blocked rank {one.rank}'s host for {duration(int(ns))} of that time"
            + (f", from {one.op}" if one.op else ""),
        )
        for one, ns in zip(syncs.take(rows), within[rows].tolist(), strict=True)
    ]


def _collective(trace: Trace, wanted: FindingId) -> Shown:
    """One collective over its ranks: who came last, how long the others waited, what kept the last one."""
    whole = trace.whole or trace
    found = None
    if whole.clocks is not None and whole.matches is not None:
        found = next((one for one in collectives_of(whole) if one.index == wanted.index), None)
    if found is None or whole.matches is None:
        raise _unknown(wanted, "collective")
    start = min(call.start_ns for call in found.ranks)
    end = max(call.start_ns + call.duration_ns for call in found.ranks)
    arrived = max(call.start_ns for call in found.ranks)
    of_calls = whole.matches.calls.collective == found.index
    order = sorted(found.ranks, key=lambda call: (-call.wait_ns, call.rank))
    last = [call for call in order if (call.rank, call.device) == (found.last_arrival_rank, found.last_arrival_device)]
    order = last + [call for call in order if call not in last]
    related = []
    if found.last_arrival_rank is not None:
        related = _syncs_within(whole, found.last_arrival_rank, start, arrived)
    return Shown(
        id=str(wanted),
        kind="collective",
        a="",
        b="",
        rank=None,
        device=None,
        start_ns=start,
        end_ns=end,
        steps=_steps_of(whole, as_int64(whole.matches.calls.op)[of_calls]),
        sentence=_collective_words(whole, found),
        figures={
            "ranks": len(found.ranks),
            "fastest_ns": found.fastest_ns,
            "longest_wait_ns": max(call.wait_ns for call in found.ranks),
            "last_arrival_lead_ns": found.last_arrival_lead_ns,
            "end_skew_ns": found.end_skew_ns,
            **({} if found.bytes is None else {"bytes": found.bytes}),
        },
        pieces=tuple(_rank_piece(whole, call) for call in order[:MOST_PIECES]),
        more_pieces=max(len(order) - MOST_PIECES, 0),
        evidence=tuple(_about_collective(found)),
        related=tuple(related),
    )


def _collective_words(whole: Trace, found: Collective) -> str:
    what = f"{found.operation or 'a collective'}{'' if found.bytes is None else f' of {size(found.bytes)}'}"
    labels = labels_of(whole)
    fastest = f"fastest on {labels.name(found.fastest_rank, found.fastest_device)}, {duration(found.fastest_ns)}"
    if found.last_arrival_rank is None or found.last_arrival_device is None:
        return f"{what}, seen on one rank only, so that nothing tells waiting from transfer; {fastest}."
    last = labels.name(found.last_arrival_rank, found.last_arrival_device)
    wait = max(call.wait_ns for call in found.ranks)
    return (
        f"{what} over {len(found.ranks)} ranks: {fastest}; {last} came last, {duration(found.last_arrival_lead_ns)} "
        f"behind the one before it; others waited for up to {duration(wait)}."
    )


def _about_collective(found: Collective) -> Iterator[str]:
    sure = "" if found.sure else ", which is not sure"
    yield f"matched over ranks by {MATCHED_BY[found.matched_by]}{sure}"
    if found.bus_gb_s is not None:
        yield f"bus bandwidth {found.bus_gb_s:.1f} GB/s, over the fastest rank's duration"
    if found.group_size and found.group_size > len(found.ranks):
        yield f"{len(found.ranks)} of its {found.group_size} ranks were captured"


def _rank_piece(whole: Trace, call: RankCall) -> Piece:
    waits = f"waited for {duration(call.wait_ns)}, then ran for {duration(call.transfer_ns)}"
    name = labels_of(whole).name(call.rank, call.device)
    return Piece(name, call.duration_ns, call.start_ns, call.start_ns + call.duration_ns, waits)


def _unknown(wanted: FindingId, what: str, names: Sequence[str] = ()) -> TracevizError:
    beside = f" of '{names[0]}' beside '{names[1]}'" if names else ""
    command = {"coll": "collectives", "sync": "syncs"}.get(wanted.kind, "check-overlap")
    sides = "Give the -a and -b that it was named with; " if names else ""
    return TracevizError(
        f"These captures have no {what} {wanted}{beside}.",
        hint=f"{sides}traceviz {command} TRACE... --format json --brief lists ids.",
    )


def _steps_of(trace: Trace, ops: Ints) -> tuple[int, ...]:
    """The steps that some ops were launched in."""
    steps = find_steps(trace)
    position = step_of_ops(trace)[ops]
    return tuple(np.unique(steps.numbers[position[position >= 0]]).tolist())
