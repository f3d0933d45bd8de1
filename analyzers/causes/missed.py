"""The missed overlap of each rank shared over its causes, each with its evidence, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analyzers.arrays.shares import shares
from analyzers.arrays.types import Ints
from analyzers.causes.causes import CAUSES, Explained, Explainer
from analyzers.causes.evidence import EvidenceWriter
from analyzers.overlap.measure import Missed, MissedGaps, RankOverlap

LATE = CAUSES.index("late-launch")
AFTER = len(CAUSES)  # late launches that follow a host sync are weighed apart, then added to the others


def explain_missed(explainer: Explainer, ranks: Sequence[RankOverlap], names: tuple[str, str]) -> list[RankOverlap]:
    """Return the ranks with `missed` and `gaps` filled in; `names` are what to call A and B."""
    story = EvidenceWriter(explainer, names)
    return [_explain_rank(explainer, story, rank) for rank in ranks]


def _explain_rank(explainer: Explainer, story: EvidenceWriter, rank: RankOverlap) -> RankOverlap:
    missed = {instance.index: instance.missed_ns for instance in rank.instances if instance.missed_ns > 0}
    if not missed:
        return rank
    explained = explainer.explain(rank.rank, rank.device)
    numbers = np.array(sorted(missed), np.int64)
    weights = np.zeros((numbers.size, AFTER + 1), np.int64)
    for one in explained:
        _weigh(one, numbers, weights)
    unexplained = weights.sum(axis=1) == 0
    weights[unexplained, CAUSES.index("unknown")] = 1
    total = shares(np.array([missed[number] for number in numbers.tolist()], np.int64), weights).sum(axis=0)
    after = int(total[AFTER])
    total = total[:AFTER]
    total[LATE] += after
    order = [int(cause) for cause in np.argsort(-total, kind="stable") if total[cause]]
    told = tuple(
        _tell(story, explained, numbers, cause, int(total[cause]), after if cause == LATE else 0) for cause in order
    )
    return replace(rank, missed=told, gaps=_gaps(explained, numbers))


def _gaps(explained: Sequence[Explained], numbers: Ints) -> MissedGaps | None:
    """The gaps of some instances in which a side ran alone, by time; None where no gap was found."""
    if not explained:
        return None
    parts = []
    for one in explained:
        alone = one.alone_ns.sum(axis=0)
        kept = np.flatnonzero(np.isin(one.gaps.instance, numbers) & (alone > 0))
        columns = (one.gaps.side, one.gaps.start_ns, one.gaps.end_ns, one.gaps.op, one.alone_ns.argmax(axis=0), alone)
        parts.append([column[kept] for column in columns])
    side, start, end, op, cause, alone = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((side, start))
    return MissedGaps(*(column[order] for column in (side, start, end, op, cause, alone)))


def _weigh(one: Explained, numbers: Ints, weights: Ints) -> None:
    """Add the alone time of each gap to its instance's row, by cause."""
    place = np.searchsorted(numbers, one.gaps.instance)
    place = np.minimum(place, numbers.size - 1)
    counts = numbers[place] == one.gaps.instance
    for cause in range(len(CAUSES)):
        alone = np.where(counts, one.alone_ns[cause], 0)
        follows = one.after_sync & (cause == LATE)
        np.add.at(weights[:, cause], place, np.where(follows, 0, alone))
        np.add.at(weights[:, AFTER], place, np.where(follows, alone, 0))


def _tell(
    story: EvidenceWriter, explained: Sequence[Explained], numbers: Ints, cause: int, ns: int, after: int
) -> Missed:
    """Tell one cause by the longest gap it held."""
    best, gap = None, -1
    for one in explained:
        alone = np.where(np.isin(one.gaps.instance, numbers), one.alone_ns[cause], 0)
        at = int(alone.argmax())
        if alone[at] and (best is None or alone[at] > best.alone_ns[cause, gap]):
            best, gap = one, at
    if best is None:
        return Missed(CAUSES[cause], ns, 0, "nothing in the capture shows why", "", "", 0, 0, -1)
    gaps = best.gaps
    return Missed(
        CAUSES[cause],
        ns,
        after,
        story.evidence(best, gap, CAUSES[cause]),
        story.next_behind(best, gap, CAUSES[cause]),
        story.pairing.label[gaps.instance[gap]],
        int(gaps.start_ns[gap]),
        int(gaps.end_ns[gap]),
        int(gaps.op[gap]),
    )
