"""The numbers of a timeline: rows and marks of a trace, for a pair that has been checked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TraceWarning
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.measure import RankOverlap
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.syncs.points import SyncPoint
from analyzers.syncs.report import OrderReport
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult
from traceviz.output.quantities import duration, percent
from traceviz.timelines import parts
from traceviz.timelines.fold import representative_ranks
from traceviz.timelines.marks import NEVER, ROLE, Marks, fit, join
from traceviz.timelines.ranges import user_ranges
from traceviz.timelines.rows import Band, bands, placed
from traceviz.timelines.shown import Shown, typical
from traceviz.timelines.texts import Texts

NOT_ALIGNED = {
    "session": "clocks that only session start times tie: ranks may be shifted against each other",
    "off": "each rank's own clock, not aligned: ranks may be shifted against each other",
}
MOST_MARKS = 60_000  # in a page; some 55 bytes each
PADDING = 0.04  # of the instance, on both sides of it
MOST_LEAD = 0.6  # of the instance: how far before it the picture opens, to show its launches


@dataclass(frozen=True)
class Picture:
    """A timeline as numbers.

    marks : as detailed as a page can be; whole ns on the trace's clock.
    low_ns, high_ns : what it opens on; first_ns, last_ns : all that there is.
    warnings : what limits what it shows.
    apparent : whether its overlap may be waiting for ranks that were not captured.
    names : what A and B are called; texts : what `marks.name` and `marks.extra` count.
    """

    bands: tuple[Band, ...]
    marks: Marks
    texts: tuple[str, ...]
    names: tuple[str, str]
    headline: str
    shown: Shown
    low_ns: int
    high_ns: int
    first_ns: int
    last_ns: int
    clock: str
    warnings: tuple[TraceWarning, ...] = ()
    apparent: bool = False


def picture(
    trace: Trace, result: OverlapResult, order: OrderReport, *, window: tuple[int, int] | None = None
) -> Picture:
    """Work out a timeline.

    Parameters
    ----------
    result, order : what `check_overlap` and `order_report` found in this trace.
    window : what to open on, ns; the typical instance where not given.
    """
    a, b, _ = without_shared(trace, select(trace, result.a), select(trace, result.b))
    side = np.where(a.picked, 0, np.where(b.picked, 1, 2))
    texts = Texts()
    titles = {(one.rank, one.device): _title(one) for one in result.ranks}
    missed = {(one.rank, one.device): _missed_sides(one) for one in result.ranks}
    ranges = user_ranges(trace, side)
    depths = {key: int(of_thread.depth.max()) + 1 for key, of_thread in ranges.items()}
    found = _told_apart(bands(trace, _blocked_threads(order), titles, missed, depths), representative_ranks(result))
    by_device = {(one.rank, one.device): one for one in result.ranks}
    points: dict[int, list[SyncPoint]] = {}
    for point in order.syncs:
        points.setdefault(point.process, []).append(point)
    missing_waits = order.crossings.table[order.crossings.table["status"] == "unordered"]
    found_marks: list[Marks] = []
    for band in found:
        found_marks += parts.ops(trace, band, side, texts) + parts.overlap(trace, band, side)
        found_marks += parts.ranges(trace, band, ranges, texts)
        found_marks += [parts.calls(trace, band, side, texts), parts.syncs(points.get(band.process, []), band, texts)]
        found_marks.append(parts.races(trace, missing_waits, band, texts))
        gaps = getattr(by_device.get((band.rank, band.device)), "gaps", None)
        if gaps is not None:
            found_marks.append(parts.missed(trace, band, gaps, texts, by_device[band.rank, band.device]))
    marks = join(found_marks)
    first, last = int(marks.start.min()), int(marks.end.max())
    shown = typical(result, (int(ints(trace.ops, "start_ns").min()), int(ints(trace.ops, "end_ns").max())))
    low, high = window or _opening(marks, shown)
    if window is not None:
        shown = replace(shown, start_ns=low, end_ns=high, text="the window that was asked for")
    if marks.size > MOST_MARKS:
        marks = fit(marks, low, high, MOST_MARKS, fine=1)
    verdict = f"{result.verdict.upper()}: {result.sentence}"
    lines, names = tuple(texts.lines), (result.a, result.b)
    return Picture(
        found,
        _behind(trace, found, marks),
        lines,
        names,
        verdict,
        shown,
        low,
        high,
        first,
        last,
        _clock(trace),
        result.warnings,
        result.job.apparent,
    )


def folded(picture: Picture) -> Picture:
    """The picture with those bands alone that are shown at first."""
    kept = placed([band for band in picture.bands if band.shown])
    rows = [row.number for band in kept for row in band.rows]
    return replace(picture, bands=kept, marks=picture.marks.take(np.isin(picture.marks.row, rows)))


def _told_apart(found: tuple[Band, ...], why: dict[tuple[int, int], str]) -> tuple[Band, ...]:
    """Of too many bands, say which are shown at first and why."""
    if not why:
        return found
    kept = [why.get((band.rank, band.device), "") for band in found]
    return tuple(
        replace(band, shown=bool(word), title=f"{band.title} ({word})" if word else band.title)
        for band, word in zip(found, kept, strict=True)
    )


def _blocked_threads(order: OrderReport) -> dict[int, list[int]]:
    """Process -> threads that were blocked somewhere."""
    table = order.syncs.table
    threads = rows_by_key(ints(table, "process"), ints(table, "thread"))
    found: dict[int, list[int]] = {}
    for process, thread in threads:
        found.setdefault(process, []).append(thread)
    return found


def _title(rank: RankOverlap) -> str:
    text = f"rank {rank.rank}, device {rank.device}: overlap {duration(rank.overlap_ns)}"
    text += f" = {percent(rank.overlap_ratio, apparent=rank.is_apparent)} of the shorter side"
    if rank.a.wait_ns or rank.b.wait_ns:
        text += f"; real {duration(rank.real_overlap_ns)} = {percent(rank.real_overlap_ratio)}"
    return text


def _missed_sides(rank: RankOverlap) -> str:
    return "".join(
        side for number, side in enumerate("ab") if rank.gaps is not None and np.any(rank.gaps.side == number)
    )


def _clock(trace: Trace) -> str:
    method = trace.clocks.method if trace.clocks is not None else "one"
    if trace.clocks is not None and trace.clocks.aligned:
        return f"the clock of rank {min(trace.rank_ids)}"
    return NOT_ALIGNED.get(method, "the trace's clock")


def _opening(marks: Marks, shown: Shown) -> tuple[int, int]:
    """The instance, the launches of its A and B where they are not too far before it, and some room."""
    length = max(shown.end_ns - shown.start_ns, 1)
    sides = (marks.role <= ROLE["b-wait"]) & (marks.launch != NEVER)
    shown_marks = sides & (marks.start < shown.end_ns) & (marks.end > shown.start_ns)
    low = max(int(marks.launch[shown_marks].min(initial=shown.start_ns)), shown.start_ns - int(length * MOST_LEAD))
    room = max(int((shown.end_ns - low) * PADDING), 1)
    return low - room, shown.end_ns + room


def _behind(trace: Trace, found: tuple[Band, ...], marks: Marks) -> Marks:
    """For each op that is a mark of its own: the op that an event made it wait for (end and row)."""
    single = np.flatnonzero((marks.role <= ROLE["other-wait"]) & (marks.count == 1) & (marks.after_row >= 0))
    race = marks.role == ROLE["race"]
    after, after_row = np.where(race, marks.after, NEVER), np.where(race, marks.after_row, -1)
    if single.size:
        whole = trace.whole or trace
        here = np.arange(len(trace.ops)) if trace.rows is None else trace.rows
        op = here[marks.after_row[single]]
        waited = whole.once(Ordering).released_by(op).waited
        row = _rows_of_ops(whole, found, waited)
        known = row >= 0
        after[single[known]] = ints(whole.ops, "end_ns")[waited[known]]
        after_row[single[known]] = row[known]
    return Marks(**{**vars(marks), "after": after, "after_row": after_row})


def _rows_of_ops(trace: Trace, found: tuple[Band, ...], ops: Ints) -> Ints:
    """The row of each op (-1: of none), on which it would be drawn."""
    row = np.full(ops.size, -1, np.int64)
    keys = [np.where(ops >= 0, ints(trace.ops, name)[ops], -1) for name in ("process", "device", "context", "stream")]
    for band in found:
        for (context, stream), number in band.streams.items():
            wanted = (band.process, band.device, context, stream)
            here = ops >= 0
            for key, value in zip(keys, wanted, strict=True):
                here &= key == value
            row[here] = number
    return row
