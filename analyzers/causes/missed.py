"""The missed overlap of each rank shared over its causes, each with its evidence, worst first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.shares import shares
from analyzers.arrays.types import Ints
from analyzers.causes.cause import Cause
from analyzers.causes.evidence import EvidenceWriter, ToldGap
from analyzers.causes.explain import Explainer
from analyzers.causes.free_to_run import PEER_WAIT, UNKNOWN
from analyzers.causes.not_launched import LATE_LAUNCH
from analyzers.causes.queued import inferred_link
from analyzers.causes.table import CAUSE_TABLE, CAUSES, alone_by_cause
from analyzers.causes.without import gain_without, next_behind
from analyzers.common.wording import percent
from analyzers.overlap.measure import Missed, RankOverlap

LATE_COLUMN, PEER_COLUMN, UNKNOWN_COLUMN = (CAUSE_TABLE.index(cause) for cause in (LATE_LAUNCH, PEER_WAIT, UNKNOWN))
GAPS_LOOKED_AT = 32  # gaps of a cause, the longest, that tell what is most of it
MIN_NAMED_SHARE = 0.25  # of a cause's time: below, no place stands for it
NEARLY_ALL_OF_CAUSE = 0.9  # of a cause's time: from here on one place is all of it
AFTER_SYNC = len(CAUSES)  # late launches that follow a host sync are weighed apart, then added to the others

NOTHING_SHOWS = "nothing in the capture shows why"


def explain_missed(explainer: Explainer, ranks: Sequence[RankOverlap], names: tuple[str, str]) -> list[RankOverlap]:
    """Return the ranks with `missed` filled in; `names` are what to call A and B."""
    writer = EvidenceWriter(explainer, names)
    return [_explain_rank(writer, rank) for rank in ranks]


def _explain_rank(writer: EvidenceWriter, rank: RankOverlap) -> RankOverlap:
    missed_ns = rank.instances.missed_ns
    some = missed_ns > 0
    if not some.any():
        return rank
    numbers = rank.instances.index[some]
    weights = np.zeros((numbers.size, AFTER_SYNC + 1), np.int64)
    longest: list[list[ToldGap]] = [[] for _ in CAUSE_TABLE]
    if explained := writer.explainer.explain(rank.rank, rank.device):
        gaps, alone = explained.gaps, alone_by_cause(explained)
        row = np.minimum(np.searchsorted(numbers, gaps.instance), numbers.size - 1)
        alone[:, numbers[row] != gaps.instance] = 0
        after_sync = np.where(explained.after_sync, alone[LATE_COLUMN], 0)
        for cause, ns in enumerate((*alone, after_sync)):
            np.add.at(weights[:, cause], row, ns - after_sync if cause == LATE_COLUMN else ns)
        for cause, ns in enumerate(alone):
            held = np.flatnonzero(ns)
            held = held[np.lexsort((gaps.side[held], -ns[held]))[:GAPS_LOOKED_AT]]  # of those held as long, A's first
            longest[cause] = [ToldGap(writer, explained, gap, int(ns[gap])) for gap in held.tolist()]
    total_ns = _shared(missed_ns[some], weights).sum(axis=0)
    if total_ns.sum() != rank.missed_ns:  # instances overlapped one another, as they do where pairs are moved by one
        total_ns = shares(np.array([rank.missed_ns]), total_ns[np.newaxis])[0]
    alone_ns, after_sync_ns = weights.sum(axis=0), int(total_ns[AFTER_SYNC])
    for by_cause in (total_ns, alone_ns):
        by_cause[LATE_COLUMN] += by_cause[AFTER_SYNC]
    missed = [
        replace(
            _missed_by(longest[cause], CAUSE_TABLE[cause], int(total_ns[cause]), int(alone_ns[cause])),
            after_sync_ns=after_sync_ns if cause == LATE_COLUMN else 0,
        )
        for cause in np.argsort(-total_ns[:AFTER_SYNC], kind="stable").tolist()
        if total_ns[cause]
    ]
    return replace(rank, missed=tuple(sorted(missed, key=lambda one: -one.weight_ns)))


def _shared(missed_ns: Ints, weights: Ints) -> Ints:
    """What each instance missed, by cause: waiting for late ranks in full, what is left in proportion to alone time.

    Each nanosecond of that waiting would, on time, have overlapped; the longer side is alone for more than is missed.

    missed_ns : of each instance. weights : alone time of each instance by cause, ns.
    """
    waited, others = np.zeros_like(weights), weights.copy()
    waited[:, PEER_COLUMN], others[:, PEER_COLUMN] = np.minimum(missed_ns, weights[:, PEER_COLUMN]), 0
    others[~others.any(axis=1), UNKNOWN_COLUMN] = 1
    return waited + shares(missed_ns - waited[:, PEER_COLUMN], others)


def _missed_by(held: Sequence[ToldGap], cause: Cause, ns: int, alone_ns: int) -> Missed:
    """Tell one cause by the gaps that it held longest: by the longest of those that most of its time is of one kind."""
    if not held:
        return Missed(cause.name, ns, 0, NOTHING_SHOWS, "", None, None, "", 0, 0, -1, finding=NOTHING_SHOWS)
    of_each: dict[str, list[ToldGap]] = {}
    for one in held:
        of_each.setdefault(cause.alike(one) if len(held) > 1 else "", []).append(one)
    totals = {label: sum(one.ns for one in alike) for label, alike in of_each.items()}
    most, looked_at = max(totals, key=lambda label: totals[label]), sum(totals.values())
    gap, share = of_each[most][0], totals[most] / looked_at
    finding = cause.finding(gap)
    title, _, rest = finding.partition(": ")
    if share < NEARLY_ALL_OF_CAUSE and rest:
        of_it = "it" if looked_at >= NEARLY_ALL_OF_CAUSE * alone_ns else "its longest gaps"
        finding = f"{title}, {percent(share)} of {of_it} this one: {rest}"
        if share < MIN_NAMED_SHARE:
            finding = f"{title}, in many places: the most is {percent(share)} of {of_it}, {rest}"
    gain = None if cause.removed is None else gain_without(gap, cause.removed)
    return Missed(
        cause=cause.name,
        ns=ns,
        after_sync_ns=0,
        evidence=cause.evidence(gap),
        next_behind="" if gain is None else next_behind(gap, gain),
        sooner_ns=None if gain is None else gain.sooner_ns,
        next_cause=(gain.next_cause or None) if gain else None,
        instance=gap.writer.pairing.label[gap.instance],
        start_ns=gap.start_ns,
        end_ns=gap.end_ns,
        op=gap.op,
        inferred=inferred_link(gap, cause.removed),
        finding=finding,
        share=share,
    )
