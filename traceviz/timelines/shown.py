"""What a picture shows at first: the typical instance, not the one that flatters, and of many ranks a few."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from analyzers.common.records import Record
from analyzers.overlap.measure import RankOverlap
from analyzers.overlap.pairing import Instance
from analyzers.trace.devices import DeviceKey
from analyzers.verdict.check import OverlapResult
from traceviz.output.quantities import duration, part_of, percent
from traceviz.timelines.marks import ROLE, UNKNOWN_INSTANT, Marks, concatenated

MOST_BANDS = 8  # that are shown without folding
FENCE = 1.5  # quartile ranges beyond the quartiles from which on a rank is an outlier (Tukey)
PADDING_SHARE = 0.04  # of the instance, on both sides of it
SLIVER = 100  # a side is a sliver if it is shorter than one of so many parts of what would be shown
AROUND = 4  # of a sliver's length: what is shown before and after it
MOST_LEAD = 0.6  # of the instance: how far before it the picture opens, to show its launches


class Shown(Record, frozen=True):
    """The instance shown: its span over all ranks, ns, and in words which it is and why.

    `rank`, `device` and `label` are None and "" where there is no instance, and the whole trace is shown.
    """

    start_ns: int
    end_ns: int
    text: str
    rank: int | None = None
    label: str = ""
    device: int | None = None
    title: str = ""  # what is seen of it, for a picture's title


def deciding_rank(result: OverlapResult) -> RankOverlap | None:
    """The rank that decides the verdict, else the first that has instances."""
    with_instances = [rank for rank in result.ranks if rank.instances]
    where = result.job.deciding
    critical = [rank for rank in with_instances if (rank.rank, rank.device) == where]
    return next(iter(critical + with_instances), None)


def typical(result: OverlapResult, span: tuple[int, int]) -> Shown:
    """The median instance by real overlap / achievable (the lower one of two; by length where they are equal).

    Parameters
    ----------
    span : of the whole trace, ns, shown where no instance has both sides.
    """
    rank = deciding_rank(result)
    ranked = sorted(rank.instances, key=lambda one: (_ratio(one), one.end_ns - one.start_ns)) if rank else []
    if rank is None or not ranked:
        return Shown(*span, "the whole capture: no instance has both sides", title="the whole capture")
    chosen = ranked[(len(ranked) - 1) // 2]
    together = [_nearest(other, chosen) for other in result.ranks]
    spans = [(one.start_ns, one.end_ns) for one in together if one is not None]
    text = f"{chosen.label} on {result.device_labels.name(rank.rank, rank.device)}"
    if len(ranked) > 1:
        least, most = (percent(_ratio(one)) for one in (ranked[0], ranked[-1]))
        text += f", the median of {len(ranked)} by real overlap: {percent(_ratio(chosen))} ({least} to {most})"
    else:
        text += f", the only instance: real overlap {percent(_ratio(chosen))}"
    title = f"{chosen.label} on {result.device_labels.name(rank.rank, rank.device)}: "
    title += f"{part_of(chosen.real_overlap_ns, chosen.achievable_ns, 'of')} achievable overlapped"
    return Shown(
        min(low for low, _ in spans), max(high for _, high in spans), text, rank.rank, chosen.label, rank.device, title
    )


def _ratio(instance: Instance) -> float:
    return instance.real_overlap_ns / instance.achievable_ns if instance.achievable_ns else 0.0


def _nearest(rank: RankOverlap, chosen: Instance) -> Instance | None:
    """The same instance on another rank: of those with its label the one nearest in time."""
    same = [one for one in rank.instances if one.label == chosen.label]
    return min(same, key=lambda one: abs(one.start_ns - chosen.start_ns), default=None)


def opened(pieces: Iterable[Marks], shown: Shown, window: tuple[int, int] | None) -> tuple[int, int, Shown]:
    """What a picture opens on, and what is said of that."""
    if window is not None:
        low, high = window
        title = f"{duration(high - low)} that were asked for"
        return low, high, replace(shown, start_ns=low, end_ns=high, text="the window that was asked for", title=title)
    sides = [
        some.take((some.role <= ROLE["b-wait"]) & (some.start < shown.end_ns) & (some.end > shown.start_ns))
        for some in pieces
    ]
    marks = concatenated(sides)
    # The instance, the launches of its A and B where they are not too far before it, and some room.
    length = max(shown.end_ns - shown.start_ns, 1)
    launches = marks.launch[marks.launch != UNKNOWN_INSTANT]
    low = max(int(launches.min(initial=shown.start_ns)), shown.start_ns - int(length * MOST_LEAD))
    room = max(int((shown.end_ns - low) * PADDING_SHARE), 1)
    low, high = low - room, shown.end_ns + room
    near = _close_up(marks, shown, (low, high))
    if near:
        low, high = near[:2]
        shown = replace(shown, text=f"{shown.text}, close up on {near[2]}")
    return low, high, shown


def _close_up(marks: Marks, shown: Shown, opening: tuple[int, int]) -> tuple[int, int, str] | None:
    """Where to open instead, and on which side, if that is a sliver beside the other: only so is it seen at all."""
    low, high = opening
    run = [
        marks.take((marks.role == ROLE[side]) & (marks.end > shown.start_ns) & (marks.start < shown.end_ns))
        for side in ("a", "b")
    ]
    for side, other in ((0, 1), (1, 0)):
        if not run[side].size:
            continue
        start, end = int(run[side].start.min()), int(run[side].end.max())
        room = AROUND * max(end - start, 1)
        near = max(start - room, low), min(end + room, high)
        beside = np.any((run[other].end > near[0]) & (run[other].start < near[1]))
        if SLIVER * (end - start) < high - low and beside:
            return (*near, "AB"[side])
    return None


def representative_ranks(result: OverlapResult) -> dict[DeviceKey, str]:
    """(rank, device) -> why it is shown, where there are too many to show all; {} where there are not.

    The worst rank, which decides, then by time (from the first to the last of each instance, added up) the fastest, the
    median and the slowest, then outliers of that time or of the real overlap ratio, furthest from the median first.
    """
    if len(result.ranks) <= MOST_BANDS:
        return {}
    devices = [(one.rank, one.device) for one in result.ranks]
    times = np.array([(one.instances.end_ns - one.instances.start_ns).sum() for one in result.ranks], float)
    ratios = np.array([one.real_overlap_ratio or 0.0 for one in result.ranks])
    worst = deciding_rank(result)
    order = np.argsort(times, kind="stable")
    first = [(devices.index((worst.rank, worst.device)), "worst")] if worst else []
    first += [(int(order[0]), "fastest"), (int(order[(order.size - 1) // 2]), "median"), (int(order[-1]), "slowest")]
    far = np.maximum(_beyond(times), _beyond(ratios))
    first += [(int(row), "outlier") for row in np.argsort(-far, kind="stable") if far[row] > FENCE]
    why: dict[DeviceKey, str] = {}
    for row, word in first:
        if devices[row] in why and word != "outlier":
            why[devices[row]] += f" and {word}"
        elif len(why) < MOST_BANDS:
            why.setdefault(devices[row], word)
    return why


def _beyond(values: np.ndarray) -> np.ndarray:
    """How many quartile ranges each value lies beyond the quartiles; 0 between them."""
    low, high = np.quantile(values, [0.25, 0.75])
    distance = np.maximum(np.maximum(low - values, values - high), 0)
    return distance / (high - low) if high > low else np.where(distance > 0, np.inf, 0.0)
