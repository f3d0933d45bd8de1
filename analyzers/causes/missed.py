"""The missed overlap of each rank shared over its causes, each with its evidence, worst first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.arrays.shares import shares
from analyzers.arrays.types import Ints
from analyzers.causes.cause import Cause
from analyzers.causes.evidence import EvidenceWriter, ToldGap
from analyzers.causes.explain import Explained, Explainer
from analyzers.causes.free_to_run import PEER_WAIT, UNKNOWN
from analyzers.causes.not_launched import LATE_LAUNCH
from analyzers.causes.queued import inferred_link
from analyzers.causes.table import CAUSES, TABLE, alone_by, cause_of_parts
from analyzers.causes.without import gain_without, next_behind
from analyzers.common.wording import percent
from analyzers.overlap.measure import Missed, RankOverlap

LATE_COLUMN, PEER_COLUMN, UNKNOWN_COLUMN = (TABLE.index(cause) for cause in (LATE_LAUNCH, PEER_WAIT, UNKNOWN))
GAPS_LOOKED_AT = 32  # gaps of a cause, the longest, that tell what is most of it
NEARLY_ALL = 0.9  # of a cause's time: from here on one place is all of it
MIN_NAMED_SHARE = 0.25  # of a cause's time: below, no place stands for it
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
    longest: dict[int, list[ToldGap]] = {}
    for explained in writer.explainer.explain(rank.rank, rank.device):
        _weigh(writer, explained, numbers, weights, longest)
    total_ns = _shared(missed_ns[some], weights).sum(axis=0)
    if total_ns.sum() != rank.missed_ns:  # instances overlapped one another, as they do where pairs are moved by one
        total_ns = shares(np.array([rank.missed_ns]), total_ns[np.newaxis])[0]
    alone_ns = weights.sum(axis=0)
    after_sync_ns = int(total_ns[AFTER_SYNC])
    for by_cause in (total_ns, alone_ns):
        by_cause[LATE_COLUMN] += by_cause[AFTER_SYNC]
    missed = [
        _missed_by(longest.get(cause, []), TABLE[cause], int(total_ns[cause]), int(alone_ns[cause]))
        for cause in np.argsort(-total_ns[:AFTER_SYNC], kind="stable").tolist()
        if total_ns[cause]
    ]
    missed = [replace(one, after_sync_ns=after_sync_ns) if one.cause == CAUSES[LATE_COLUMN] else one for one in missed]
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


def _weigh(
    writer: EvidenceWriter, explained: Explained, numbers: Ints, weights: Ints, longest: dict[int, list[ToldGap]]
) -> None:
    """Add the alone time of each gap to its instance's row, by cause; keep the gaps that each cause held longest."""
    gaps = explained.gaps
    row = np.minimum(np.searchsorted(numbers, gaps.instance), numbers.size - 1)
    is_counted = numbers[row] == gaps.instance
    causes = cause_of_parts(explained.parts)
    for cause in distinct(causes).tolist():
        alone = np.where(is_counted, alone_by(explained, causes == cause), 0)
        after_sync = explained.after_sync & (cause == LATE_COLUMN)
        np.add.at(weights[:, cause], row, np.where(after_sync, 0, alone))
        np.add.at(weights[:, AFTER_SYNC], row, np.where(after_sync, alone, 0))
        known = longest.setdefault(cause, [])
        order = np.lexsort((gaps.side, -alone))[:GAPS_LOOKED_AT]  # of gaps held as long, A's first
        order = order[alone[order] >= (known[-1].ns if len(known) == GAPS_LOOKED_AT else 1)]
        known += [ToldGap(writer, explained, gap, int(alone[gap])) for gap in order.tolist()]
        known.sort(key=lambda held: (-held.ns, held.idle_side))  # stable: of like ones the first stays first
        del known[GAPS_LOOKED_AT:]


def _missed_by(held: Sequence[ToldGap], cause: Cause, ns: int, alone_ns: int) -> Missed:
    """Tell one cause by the gaps that it held longest: by the longest of those that most of its time is of one kind."""
    if not held:
        return Missed(cause.name, ns, 0, NOTHING_SHOWS, "", None, None, "", 0, 0, -1, finding=NOTHING_SHOWS)
    gap, share, seen = _most_alike(held, cause, alone_ns)
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
        finding=_of_so_much(cause.finding(gap), share, seen),
        share=share,
    )


def _most_alike(held: Sequence[ToldGap], cause: Cause, alone_ns: int) -> tuple[ToldGap, float, float]:
    """The longest of the gaps that say the same and take most time.

    Returns
    -------
    The gap; how much of the time of all that are looked at such gaps are; how much of the cause's time these are.
    """
    of_each: dict[str, list[ToldGap]] = {}
    for one in held:
        of_each.setdefault(cause.alike(one) if len(held) > 1 else "", []).append(one)
    totals = {label: sum(one.ns for one in alike) for label, alike in of_each.items()}
    most, looked_at = max(totals, key=lambda label: totals[label]), sum(totals.values())
    return of_each[most][0], totals[most] / looked_at, min(looked_at / max(alone_ns, 1), 1.0)


def _of_so_much(finding: str, share: float, seen: float = 1.0) -> str:
    """A finding that says how much of its cause it is; of little of it, that there is no one place.

    seen : how much of the cause's time was looked at: where that is not nearly all, shares are of its longest gaps.

    >>> _of_so_much("late rank: Broadcast only waited for rank 1", 0.62)
    'late rank, 62 % of it this one: Broadcast only waited for rank 1'
    >>> _of_so_much("late rank: Broadcast only waited for rank 1", 0.12, 0.4)
    'late rank, in many places: the most is 12 % of its longest gaps, Broadcast only waited for rank 1'
    """
    title, _, rest = finding.partition(": ")
    if share >= NEARLY_ALL or not rest:
        return finding
    of_it = f"{percent(share)} of {'it' if seen >= NEARLY_ALL else 'its longest gaps'}"
    if share < MIN_NAMED_SHARE:
        return f"{title}, in many places: the most is {of_it}, {rest}"
    return f"{title}, {of_it} this one: {rest}"
