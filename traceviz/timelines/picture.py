"""The numbers of a timeline: rows and marks of a trace, for a pair that has been checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.measure import RankOverlap
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.syncs.points import SyncPoint
from analyzers.syncs.report import OrderReport
from analyzers.trace.columns import ints
from analyzers.trace.steps import find_steps, step_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult
from analyzers.verdict.held import held_by_device
from traceviz.output.quantities import duration, percent
from traceviz.timelines import parts
from traceviz.timelines.areas import DEFAULT, SHOWN, Area, area, points_for, present
from traceviz.timelines.fold import representative_ranks
from traceviz.timelines.marks import NEVER, ROLE, Marks, fit, join
from traceviz.timelines.ranges import on_gpu, user_ranges
from traceviz.timelines.rows import Band, bands, placed, seen, without_host
from traceviz.timelines.shown import Shown, deciding_rank, typical
from traceviz.timelines.texts import Texts

NOT_ALIGNED = {
    "session": "clocks that only session start times tie: ranks may be shifted against each other",
    "off": "each rank's own clock, not aligned: ranks may be shifted against each other",
}
MOST_MARKS = 60_000  # in a page; some 55 bytes each
MOST_GAPS, MOST_INSTANCES = 400, 4000  # to jump to
SEEN = 200  # of what is shown: what is shorter than one of so many parts of it is a hair
SEEN_RANGES = 50  # likewise of all the ranges of a row together
WORTHLESS_UNSEEN = ("ranges", "projected", "stream", "missed-a", "missed-b")  # kinds of rows
PADDING = 0.04  # of the instance, on both sides of it
SLIVER = 100  # a side is a sliver if it is shorter than one of so many parts of what would be shown
AROUND = 4  # of a sliver's length: what is shown before and after it
MOST_LEAD = 0.6  # of the instance: how far before it the picture opens, to show its launches


@dataclass(frozen=True)
class Picture:
    """A timeline as numbers.

    marks : as detailed as a page can be; whole ns on the trace's clock.
    low_ns, high_ns : what it opens on; first_ns, last_ns : all that there is.
    warnings : what limits what it shows.
    apparent : whether its overlap may be waiting for ranks that were not captured.
    gaps : in which a side was held, those told in words, the longest first.
    instances : (label, from, to) by time, on the rank that decides.
    areas : GPU counters, each on a row.
    active_ns : from when to when there is work, without an empty lead-in and end.
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
    gaps: tuple[parts.Gap, ...] = ()
    instances: tuple[tuple[str, int, int], ...] = ()
    active_ns: tuple[int, int] = (0, 0)
    areas: tuple[Area, ...] = ()


def picture(
    trace: Trace,
    result: OverlapResult,
    order: OrderReport,
    *,
    window: tuple[int, int] | None = None,
    counters: Sequence[str] = DEFAULT,
) -> Picture:
    """Work out a timeline.

    Parameters
    ----------
    result, order : what `check_overlap` and `order_report` found in this trace.
    window : what to open on, ns; the typical instance where not given.
    counters : which GPU counters to show, where they were captured: keys of `areas.SHOWN`.
    """
    a, b, _ = without_shared(trace, select(trace, result.a), select(trace, result.b))
    side = np.where(a.picked, 0, np.where(b.picked, 1, 2))
    texts = Texts()
    titles = {(one.rank, one.device): _title(one) for one in result.ranks}
    held = held_by_device(trace, result)
    missed = {
        key: "".join(letter for k, letter in enumerate("ab") if np.any(one.side == k)) for key, one in held.items()
    }
    ranges = user_ranges(trace, side)
    depths = {key: int(of_thread.depth.max()) + 1 for key, of_thread in ranges.items()}
    on_device = on_gpu(trace, side)
    levels = {key: int(one.level.max()) + 1 for key, one in on_device.items()}
    devices = rows_by_key(ints(trace.ops, "process"), ints(trace.ops, "device"))
    sampled = {(process, device): present(trace, process, device, counters) for process, device in devices}
    labels = {key: [SHOWN[name][0] for name in names] for key, names in sampled.items()}
    laid_out = bands(trace, _blocked_threads(order), titles, missed, depths, levels, labels)
    found = _told_apart(laid_out, representative_ranks(result))
    points: dict[int, list[SyncPoint]] = {}
    for point in order.syncs:
        points.setdefault(point.process, []).append(point)
    missing_waits = order.crossings.table[order.crossings.table["status"] == "unordered"]
    found_marks: list[Marks] = []
    gaps: list[parts.Gap] = []
    for band in found:
        found_marks += parts.ops(trace, band, side, texts) + parts.overlap(trace, band, side)
        found_marks += parts.ranges(trace, band, ranges, texts)
        found_marks.append(parts.calls(trace, band, side, texts))
        found_marks.append(parts.syncs(points.get(band.process, []), band, texts, _last_launch(trace, band)))
        if (band.process, band.rank, band.device) in on_device:
            of_band = on_device[band.process, band.rank, band.device]
            found_marks.append(parts.projected(trace, band, of_band, texts))
        found_marks.append(parts.races(trace, missing_waits, band, texts))
        if (band.rank, band.device) in held:
            found_marks.append(parts.missed(band, held[band.rank, band.device], texts))
            gaps += parts.gaps(trace, band, held[band.rank, band.device])
    marks = join(found_marks)
    first, last = int(marks.start.min()), int(marks.end.max())
    shown = typical(result, (int(ints(trace.ops, "start_ns").min()), int(ints(trace.ops, "end_ns").max())))
    low, high = window or _opening(marks, shown)
    near = None if window else _near(marks, shown, (low, high))
    if near:
        low, high = near[:2]
        shown = replace(shown, text=f"{shown.text}, close up on {near[2]}")
    if window is not None:
        title = f"{duration(high - low)} that were asked for"
        shown = replace(shown, start_ns=low, end_ns=high, text="the window that was asked for", title=title)
    if marks.size > MOST_MARKS:
        marks = fit(marks, low, high, MOST_MARKS, fine=1)
    verdict = f"{result.verdict.upper()}: {result.sentence}"
    room = points_for(sum(len(names) for names in sampled.values()))
    areas = [
        area(trace, band.process, band.device, name, row.number, (first, last), opening=(low, high), points=room)
        for band in found
        for name, row in zip(
            sampled[band.process, band.device], (row for row in band.rows if row.kind == "counter"), strict=True
        )
    ]
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
        tuple(sorted(gaps, key=lambda one: -one.alone_ns)[:MOST_GAPS]),
        _instances(result),
        _active(trace, first, last),
        tuple(areas),
    )


def _instances(result: OverlapResult) -> tuple[tuple[str, int, int], ...]:
    """All instances of the rank that decides, by time."""
    rank = deciding_rank(result)
    found = [(one.label, one.start_ns, one.end_ns) for one in rank.instances] if rank else []
    return tuple(sorted(found, key=lambda one: one[1:])[:MOST_INSTANCES])


def _last_launch(trace: Trace, band: Band) -> int:
    """When the last op of a band's process was launched, ns, of those in steps where there are any."""
    launch, of_process = ints(trace.ops, "launch"), ints(trace.ops, "process") == band.process
    known = of_process & (launch >= 0) & _worked(trace)
    return int(ints(trace.api, "start_ns")[launch[known]].max(initial=NEVER))


def _worked(trace: Trace) -> Mask:
    """Ops in steps, where there are any; else all."""
    in_step = step_of_ops(trace, find_steps(trace)) >= 0
    return in_step if in_step.any() else np.ones(len(trace.ops), dtype=bool)


def _active(trace: Trace, first: int, last: int) -> tuple[int, int]:
    """From when to when steps work, and some room, where what is before or after is long; else all there is."""
    worked = _worked(trace)
    low, high = int(ints(trace.ops, "start_ns")[worked].min()), int(ints(trace.ops, "end_ns")[worked].max())
    room = max((high - low) // 20, 1)
    return (low - room if low - first > 2 * room else first), (high + room if last - high > 2 * room else last)


def folded(picture: Picture) -> Picture:
    """The picture with those bands alone that are shown at first."""
    kept = placed([band for band in picture.bands if band.shown])
    return _with_bands(picture, kept)


def on_gpu_only(picture: Picture) -> Picture:
    """The picture without its host rows."""
    return _with_bands(picture, without_host(picture.bands))


def _with_bands(picture: Picture, kept: tuple[Band, ...]) -> Picture:
    rows = [row.number for band in kept for row in band.rows]
    gaps = tuple(one for one in picture.gaps if one.row in rows)
    areas = tuple(one for one in picture.areas if one.row in rows)
    marks = picture.marks.take(np.isin(picture.marks.row, rows))
    return replace(picture, bands=kept, marks=marks, gaps=gaps, areas=areas)


def in_view(picture: Picture) -> Picture:
    """What is seen as the picture opens, without rows on which that is nothing: for one that stands still.

    Rows of ranges, of what held a side and of streams without A or B go, too, where all on them is too short to see,
    and rows of ranges that are as good as empty.
    """
    marks = picture.marks.take((picture.marks.end > picture.low_ns) & (picture.marks.start < picture.high_ns))
    length = np.minimum(marks.end, picture.high_ns) - np.maximum(marks.start, picture.low_ns)
    is_seen = SEEN * length >= picture.high_ns - picture.low_ns
    is_side = np.isin(marks.role, [ROLE[name] for name in ("a", "a-wait", "b", "b-wait", "race")])
    rows = np.unique(marks.row[marks.role != ROLE["sync-end"]])
    clear = np.unique(marks.row[is_seen | is_side])
    in_row = np.bincount(marks.row, np.maximum(length, 0), minlength=int(marks.row.max(initial=0)) + 1)
    sparse = {*np.flatnonzero(SEEN_RANGES * in_row < picture.high_ns - picture.low_ns).tolist()}
    small = {
        row.number
        for band in picture.bands
        for row in band.rows
        if row.kind in WORTHLESS_UNSEEN
        and (row.number not in clear or (row.kind in ("ranges", "projected") and row.number in sparse))
    }
    kept = [replace(band, rows=tuple(row for row in band.rows if row.number not in small)) for band in picture.bands]
    return _with_bands(replace(picture, marks=marks), seen(kept, rows))


def worst_gap(picture: Picture) -> parts.Gap | None:
    """Of the gaps whose end is seen as it opens, the one in which the other side ran longest."""
    return next((one for one in picture.gaps if picture.low_ns < one.high_ns < picture.high_ns), None)


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
    if rank.overlap_ratio is None:
        return f"rank {rank.rank}, device {rank.device}: not both sides ran"
    text = f"rank {rank.rank}, device {rank.device}: overlap {duration(rank.overlap_ns)}"
    text += f" = {percent(rank.overlap_ratio, apparent=rank.is_apparent)} of the shorter side"
    if rank.a.wait_ns or rank.b.wait_ns:
        text += f"; real {duration(rank.real_overlap_ns)} = {percent(rank.real_overlap_ratio)}"
    return text


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


def _near(marks: Marks, shown: Shown, opening: tuple[int, int]) -> tuple[int, int, str] | None:
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
