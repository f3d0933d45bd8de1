"""The numbers of a timeline: rows and marks of a trace, for a pair that has been checked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.causes import CAUSES
from analyzers.check import OverlapResult
from analyzers.intervals import Union, intersect, subtract, union
from analyzers.nesting import lanes
from analyzers.order_report import OrderReport
from analyzers.ordering import Ordering
from analyzers.overlap import MissedGaps, RankOverlap
from analyzers.regions import launches
from analyzers.selection import select
from analyzers.sides import without_shared
from analyzers.trace import Ints, Trace, codes, ints
from traceviz.quantities import duration, percent
from traceviz.timelines.marks import NEVER, ROLE, Marks, fit, join, make
from traceviz.timelines.rows import Band, bands
from traceviz.timelines.shown import Shown, typical
from traceviz.timelines.texts import Texts
from traceviz.views.overlap import sentence

MOST_MARKS = 60_000  # in a page; some 55 bytes each
PADDING = 0.04  # of the instance, on both sides of it
MOST_LEAD = 0.6  # of the instance: how far before it the picture opens, to show its launches


@dataclass(frozen=True)
class Picture:
    """A timeline as numbers.

    marks : as detailed as a page can be; whole ns on the trace's clock.
    low_ns, high_ns : what it opens on; first_ns, last_ns : all that there is.
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
    found = bands(trace, _blocked_threads(order), titles, missed)
    by_place = {(one.rank, one.device): one for one in result.ranks}
    parts: list[Marks] = []
    for band in found:
        parts += _ops(trace, band, side, texts) + _overlap(trace, band, side)
        parts += [_calls(trace, band, side, texts), _syncs(order, band, texts)]
        gaps = getattr(by_place.get((band.rank, band.device)), "gaps", None)
        if gaps is not None:
            parts.append(_missed(trace, band, gaps, texts, by_place[band.rank, band.device]))
    marks = join(parts)
    first, last = int(marks.start.min()), int(marks.end.max())
    shown = typical(result, (int(ints(trace.ops, "start_ns").min()), int(ints(trace.ops, "end_ns").max())))
    low, high = window or _opening(marks, shown)
    if window is not None:
        shown = replace(shown, start_ns=low, end_ns=high, text="the window that was asked for")
    marks = fit(marks, low, high, MOST_MARKS, fine=1)
    verdict = f"{result.verdict.upper()}: {sentence(result)}"
    lines, names = tuple(texts.lines), (result.a, result.b)
    return Picture(
        found, _behind(trace, found, marks), lines, names, verdict, shown, low, high, first, last, _clock(trace)
    )


def _blocked_threads(order: OrderReport) -> dict[int, list[int]]:
    """Process -> threads that were blocked somewhere."""
    table = order.syncs.table
    places = lanes(ints(table, "process"), ints(table, "thread"))
    found: dict[int, list[int]] = {}
    for process, thread in places:
        found.setdefault(process, []).append(thread)
    return found


def _title(rank: RankOverlap) -> str:
    text = f"rank {rank.rank}, device {rank.device}: overlap {duration(rank.overlap_ns)}"
    text += f" = {percent(rank.overlap_ratio)} of the shorter side"
    if rank.a.wait_ns or rank.b.wait_ns:
        text += f"; real {duration(rank.real_overlap_ns)} = {percent(rank.real_overlap_ratio)}"
    return text


def _missed_sides(rank: RankOverlap) -> str:
    return "".join(
        side for number, side in enumerate("ab") if rank.gaps is not None and np.any(rank.gaps.side == number)
    )


def _clock(trace: Trace) -> str:
    aligned = trace.clocks is not None and trace.clocks.method == "collectives"
    return f"the clock of rank {min(trace.rank_ids)}" if aligned else "the trace's clock"


def _ops(trace: Trace, band: Band, side: Ints, texts: Texts) -> list[Marks]:
    """The ops of a band; of a collective that waited the wait and the transfer apart."""
    ops, rows = trace.ops, band.ops
    start, end, wait, stream, context = (
        ints(ops, name)[rows] for name in ("start_ns", "end_ns", "wait_ns", "stream", "context")
    )
    row = np.zeros(rows.size, np.int64)
    for (where, which), number in band.streams.items():
        row[(context == where) & (stream == which)] = number
    thread, launched, _ = launches(trace)
    known = ints(ops, "launch")[rows] >= 0
    caller = np.full(rows.size, -1, np.int64)
    for which, number in band.threads.items():
        caller[known & (thread[rows] == which)] = number
    code, names = codes(ops, "name")
    more = {
        "name": texts.numbers(code[rows], names),
        "launch": np.where(known, launched[rows], NEVER),
        "launch_row": caller,
        "bytes": ints(ops, "bytes")[rows],
        "wait": wait,
        "whole": np.where(wait > 0, end - start, 0),
        "after_row": rows,  # for now: see `_behind`
    }
    run = make(row, side[rows] * 2, start + wait, end, **more)
    waits = np.flatnonzero(wait > 0)
    waiting = make(row, side[rows] * 2 + 1, start, start + wait, **more).take(waits)
    return [run, waiting]


def _calls(trace: Trace, band: Band, side: Ints, texts: Texts) -> Marks:
    """The calls that launched a band's ops, on their threads."""
    launch = ints(trace.ops, "launch")[band.ops]
    rows, first = np.unique(launch, return_index=True)
    rows, first = rows[rows >= 0], band.ops[first[rows >= 0]]
    thread, row = ints(trace.api, "thread")[rows], np.zeros(rows.size, np.int64)
    for which, number in band.threads.items():
        row[thread == which] = number
    api_code, api_names = codes(trace.api, "name")
    code, names = codes(trace.ops, "name")
    start, end = ints(trace.api, "start_ns")[rows], ints(trace.api, "end_ns")[rows]
    name, extra = texts.numbers(api_code[rows], api_names), texts.numbers(code[first], names)
    return make(row, ROLE["launch-a"] + side[first], start, end, name=name, extra=extra)


def _syncs(order: OrderReport, band: Band, texts: Texts) -> Marks:
    """Where the host was blocked, on its threads; `extra` says for what and what it cost."""
    points = [one for one in order.syncs if one.process == band.process and one.device in (band.device, -1)]
    extra = []
    for one in points:
        why = one.chain or one.pattern or ("" if one.hidden else "written as such")
        what = f"{one.kind} sync" + (f", from {why}" if why else "") + (f", in {one.range}" if one.range else "")
        cost = f"GPU idle {duration(one.gpu_idle_ns)}"
        extra.append(texts.number(f"{what}; {cost}" + (f"; it delayed {one.delayed}" if one.delayed else "")))
    start = np.array([one.start_ns for one in points], np.int64)
    length = np.array([one.duration_ns for one in points], np.int64)
    row = np.array([band.threads[one.thread] for one in points], np.int64)
    name = np.array([texts.number(one.op or one.api) for one in points], np.int64)
    return make(row, ROLE["sync"], start, start + length, name=name, extra=np.array(extra, np.int64))


def _overlap(trace: Trace, band: Band, side: Ints) -> list[Marks]:
    """What lies in A and in B: with waits left out, and the rest, where one of them only waited."""
    starts, ends, waits = (ints(trace.ops, name)[band.ops] for name in ("start_ns", "end_ns", "wait_ns"))
    sides = [side[band.ops] == which for which in (0, 1)]
    plain = intersect(*(union(starts[mine], ends[mine]) for mine in sides))
    real = intersect(*(union((starts + waits)[mine], ends[mine]) for mine in sides))
    row = band.row("overlap")
    found: list[tuple[str, Union]] = [("overlap", real), ("overlap-wait", subtract(plain, real))]
    return [make(row, ROLE[role], some.starts, some.ends, name=-1) for role, some in found]


def _missed(trace: Trace, band: Band, gaps: MissedGaps, texts: Texts, rank: RankOverlap) -> Marks:
    """Gaps of missed overlap, named by cause; the longest of each cause has its evidence."""
    cause = np.array([texts.number(one) for one in CAUSES], np.int64)[gaps.cause]
    whole = trace.whole or trace
    code, names = codes(whole.ops, "name")
    extra = texts.numbers(code[gaps.op], names)
    for one in rank.missed:
        told = (gaps.start_ns == one.start_ns) & (gaps.op == one.op)
        told &= gaps.cause == CAUSES.index(one.cause)
        extra[told] = texts.number(f"{one.evidence}. {one.next_behind}".strip())
    row = np.array([band.row(f"missed-{side}") if np.any(gaps.side == k) else -1 for k, side in enumerate("ab")])[
        gaps.side
    ]
    return make(row, ROLE["missed-a"] + gaps.side, gaps.start_ns, gaps.end_ns, name=cause, extra=extra)


def _opening(marks: Marks, shown: Shown) -> tuple[int, int]:
    """The instance, the launches of its A and B where they are not too far before it, and some room."""
    length = max(shown.end_ns - shown.start_ns, 1)
    sides = (marks.role <= ROLE["b-wait"]) & (marks.launch != NEVER)
    mine = sides & (marks.start < shown.end_ns) & (marks.end > shown.start_ns)
    low = max(int(marks.launch[mine].min(initial=shown.start_ns)), shown.start_ns - int(length * MOST_LEAD))
    room = max(int((shown.end_ns - low) * PADDING), 1)
    return low - room, shown.end_ns + room


def _behind(trace: Trace, found: tuple[Band, ...], marks: Marks) -> Marks:
    """For each op that is a mark of its own: the op that an event made it wait for (end and row)."""
    single = np.flatnonzero((marks.role <= ROLE["other-wait"]) & (marks.count == 1) & (marks.after_row >= 0))
    after, after_row = np.full(marks.size, NEVER), np.full(marks.size, -1, np.int64)
    if single.size:
        whole = trace.whole or trace
        here = np.arange(len(trace.ops)) if trace.rows is None else trace.rows
        op = here[marks.after_row[single]]
        waited = Ordering(whole).released_by(op).waited
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
