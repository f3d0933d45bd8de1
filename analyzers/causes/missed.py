"""The missed overlap of each rank shared over its causes, each with its evidence, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.arrays.shares import shares
from analyzers.arrays.types import Ints
from analyzers.causes.causes import Explained, Explainer
from analyzers.causes.evidence import EvidenceWriter
from analyzers.causes.table import CAUSES, TABLE, Cause, alone_by, cause_of_parts
from analyzers.causes.without import gain_without
from analyzers.common.wording import percent
from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.trace.freed_memory import LARGE, give_back_freed_memory

AT_ONCE = 1 << 18  # ops of both sides: what is worked out of so many stays in the processor's cache
LATE, PEER, UNKNOWN = (CAUSES.index(name) for name in ("late-launch", "peer-wait", "unknown"))
LOOKED_AT = 32  # gaps of a cause, the longest, that tell what is most of it
NEARLY_ALL, NAMED = 0.9, 0.25  # of a cause's time: from here on one place is all of it; below, none stands for it
AFTER = len(CAUSES)  # late launches that follow a host sync are weighed apart, then added to the others

NOTHING_SHOWS = "nothing in the capture shows why"


class Held(NamedTuple):
    """A gap that a cause held; `most` is for how long alone, ns, and less the side."""

    gap: Explained
    most: tuple[int, int]


def explain_missed(explainer: Explainer, ranks: Sequence[RankOverlap], names: tuple[str, str]) -> list[RankOverlap]:
    """Return the ranks with `missed` filled in; `names` are what to call A and B."""
    writer = EvidenceWriter(explainer, names)
    return [_explain_rank(explainer, writer, rank) for rank in ranks]


def _explain_rank(explainer: Explainer, writer: EvidenceWriter, rank: RankOverlap) -> RankOverlap:
    missed_ns = rank.instances.missed_ns
    some = missed_ns > 0
    if not some.any():
        return rank
    numbers = rank.instances.index[some]
    weights = np.zeros((numbers.size, AFTER + 1), np.int64)
    longest: dict[int, list[Held]] = {}
    count = 0
    for one in explainer.explain(rank.rank, rank.device, AT_ONCE):
        _weigh(one, numbers, weights, longest)
        count += one.parts.gap.size
    total_ns = _shared(missed_ns[some], weights).sum(axis=0)
    if total_ns.sum() != rank.missed_ns:  # instances overlapped one another, as they do where pairs are moved by one
        total_ns = shares(np.array([rank.missed_ns]), total_ns[np.newaxis])[0]
    after_sync_ns = int(total_ns[AFTER])
    total_ns = total_ns[:AFTER]
    total_ns[LATE] += after_sync_ns
    order = [int(cause) for cause in np.argsort(-total_ns, kind="stable") if total_ns[cause]]
    alone_ns = weights.sum(axis=0)
    alone_ns[LATE] += alone_ns[AFTER]
    # What that left fits badly what evidence takes.
    give_back_freed_memory(count, LARGE)
    by_cause = tuple(
        _missed_by(
            writer,
            longest.get(cause, []),
            cause,
            int(total_ns[cause]),
            after_sync_ns if cause == LATE else 0,
            int(alone_ns[cause]),
        )
        for cause in order
    )
    return replace(rank, missed=tuple(sorted(by_cause, key=lambda one: -one.weight_ns)))


def _shared(missed_ns: Ints, weights: Ints) -> Ints:
    """What each instance missed, by cause: waiting for late ranks in full, what is left in proportion to alone time.

    Each nanosecond of that waiting would, on time, have overlapped; the longer side is alone for more than is missed.

    Parameters
    ----------
    missed_ns : of each instance.
    weights : alone time of each instance by cause, ns.
    """
    waited, others = np.zeros_like(weights), weights.copy()
    waited[:, PEER], others[:, PEER] = np.minimum(missed_ns, weights[:, PEER]), 0
    others[~others.any(axis=1), UNKNOWN] = 1
    return waited + shares(missed_ns - waited[:, PEER], others)


def _weigh(one: Explained, numbers: Ints, weights: Ints, longest: dict[int, list[Held]]) -> None:
    """Add the alone time of each gap to its instance's row, by cause; keep the gaps that each cause held longest."""
    row = np.searchsorted(numbers, one.gaps.instance)
    row = np.minimum(row, numbers.size - 1)
    is_counted = numbers[row] == one.gaps.instance
    causes = cause_of_parts(one.parts)
    for cause in distinct(causes).tolist():
        alone = np.where(is_counted, alone_by(one, causes == cause), 0)
        after_sync = one.after_sync & (cause == LATE)
        np.add.at(weights[:, cause], row, np.where(after_sync, 0, alone))
        np.add.at(weights[:, AFTER], row, np.where(after_sync, alone, 0))
        known = longest.setdefault(cause, [])
        least = known[-1].most if len(known) == LOOKED_AT else (0, -1)
        order = np.lexsort((one.gaps.side, -alone))[:LOOKED_AT].tolist()  # of gaps held as long, A's first
        found = ((gap, (int(alone[gap]), -int(one.gaps.side[gap]))) for gap in order)
        known += [Held(one.only(gap), most) for gap, most in found if most[0] and most > least]
        known.sort(key=lambda each: each.most, reverse=True)  # stable: of like ones the first stays first
        del known[LOOKED_AT:]


def _missed_by(
    writer: EvidenceWriter, held: Sequence[Held], cause: int, ns: int, after_sync_ns: int, alone_ns: int
) -> Missed:
    """Tell one cause by the gaps that it held longest: by the longest of those that most of its time is of one kind."""
    if not held:
        return Missed(CAUSES[cause], ns, 0, NOTHING_SHOWS, "", None, None, "", 0, 0, -1, finding=NOTHING_SHOWS)
    rule = TABLE[cause]
    chosen, share, seen = _most_alike(writer, held, rule, alone_ns)
    one, most = chosen.gap, chosen.most[0]
    gain = None if rule.removed is None else gain_without(writer.explainer, one, 0, rule.removed)
    return Missed(
        rule.name,
        ns,
        after_sync_ns,
        rule.evidence(writer, one, 0, most),
        "" if gain is None else writer.next_behind(one, 0, gain),
        None if gain is None else gain.sooner_ns,
        (gain.next_cause or None) if gain else None,
        writer.pairing.label[one.gaps.instance[0]],
        int(one.gaps.start_ns[0]),
        int(one.gaps.end_ns[0]),
        int(one.gaps.op[0]),
        writer.inferred(one, 0, rule.removed),
        finding=_of_so_much(rule.finding(writer, one, 0, most), share, seen),
        share=share,
    )


def _most_alike(writer: EvidenceWriter, held: Sequence[Held], rule: Cause, alone_ns: int) -> tuple[Held, float, float]:
    """The longest of the gaps that say the same and take most time.

    Returns
    -------
    The gap; how much of the time of all that are looked at such gaps are; how much of the cause's time these are.
    """
    of_each: dict[str, list[Held]] = {}
    for one in held:
        label = rule.alike(writer, one.gap, 0, one.most[0]) if len(held) > 1 else ""
        of_each.setdefault(label, []).append(one)
    alike = max(of_each.values(), key=lambda some: sum(one.most[0] for one in some))
    looked_at = sum(one.most[0] for one in held)
    return alike[0], sum(one.most[0] for one in alike) / looked_at, min(looked_at / max(alone_ns, 1), 1.0)


def _of_so_much(finding: str, share: float, seen: float = 1.0) -> str:
    """A finding that says how much of its cause it is; of little of it, that there is no one place.

    Parameters
    ----------
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
    if share < NAMED:
        return f"{title}, in many places: the most is {of_it}, {rest}"
    return f"{title}, {of_it} this one: {rest}"
