"""What is drawn of one part of a run: its bands with their marks and gaps, numbered as if there were no other part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import first_of_each, label, rows_by_key
from analyzers.arrays.intervals import Union, intersect, subtract, union
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.free_to_run import PEER_WAIT
from analyzers.causes.pieces import GapPieces
from analyzers.causes.table import CAUSE_TABLE, CAUSES
from analyzers.common.records import Record
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.crossings import Crossings
from analyzers.syncs.order_report import OrderReport
from analyzers.syncs.points import SyncPoint
from analyzers.trace.columns import as_int64
from analyzers.trace.narrow import in_whole
from analyzers.trace.ranges import launch_span, launches
from analyzers.trace.run import First
from analyzers.trace.steps import step_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult
from analyzers.verdict.part import sides_of
from analyzers.verdict.with_order import held_by_device
from traceviz.output.quantities import duration
from traceviz.timelines.areas import SHOWN, present
from traceviz.timelines.marks import HELD, ROLE, UNKNOWN_INSTANT, Marks, join, make
from traceviz.timelines.ranges import OTHER, A, B, RangesInRows, ranges_by_thread, ranges_on_gpu
from traceviz.timelines.rows import Band, bands, rows_of_ops
from traceviz.timelines.texts import Texts

# What tells one missing wait from another in words.
NAMED_IN_MESSAGE = ("what", "stream", "other", "exact", "name", "range", "behind_name", "behind_range")
Span = tuple[int, int]
LONG_WAIT = 8  # a wait for a peer is long in a piece if so many of it are longer than that
MOST_GAPS = 400  # to jump to
_HELD = [ROLE[role] for role in HELD]


class DrawnWork(Record, frozen=True):
    """From when to when a run, or a part of it, works, ns.

    launched : from the first launch to the last op's end; ops : of ops alone; steps : of those in steps, None where
        there are none.
    """

    launched: Span
    ops: Span
    steps: Span | None

    def active(self, first: int, last: int) -> Span:
        """From when to when steps work, and some room, where much is before or after; else from first to last, ns."""
        low, high = self.steps or self.ops
        room = max((high - low) // 20, 1)
        return (low - room if low - first > 2 * room else first), (high + room if last - high > 2 * room else last)


def work_of(trace: Trace) -> DrawnWork:
    """That of a part."""
    start, end = trace.ops.start_ns, trace.ops.end_ns
    rows = np.flatnonzero(step_of_ops(trace) >= 0)
    steps = (int(start[rows].min()), int(end[rows].max())) if rows.size else None
    return DrawnWork(launch_span(trace), (int(start.min()), int(end.max())), steps)


def join_work(found: Sequence[DrawnWork]) -> DrawnWork:
    """That of all parts."""

    def around(spans: Sequence[Span]) -> Span:
        return min(low for low, _ in spans), max(high for _, high in spans)

    steps = [one.steps for one in found if one.steps is not None]
    launched, ops = ([getattr(one, name) for one in found] for name in ("launched", "ops"))
    return DrawnWork(around(launched), around(ops), around(steps) if steps else None)


class Gap(Record, frozen=True):
    """A gap in which a side was blocked: its row, from when to when, how long the other side ran alone, and links.

    links : (kind, from, row, to, row), as the capture records them.
    decides : whether it is on the rank that decides the verdict: the links of others are drawn where one asks for them.
    """

    row: int
    low_ns: int
    high_ns: int
    alone_ns: int
    links: tuple[tuple[str, int, int, int, int], ...]
    decides: bool = False

    def moved(self, rows: Ints, zero_ns: int = 0) -> Gap:
        """The same on other rows, each by its old number, and with times that count from `zero_ns`."""
        links = tuple(
            (kind, start - zero_ns, int(rows[from_row]), end - zero_ns, int(rows[to_row]))
            for kind, start, from_row, end, to_row in self.links
        )
        row = int(rows[self.row])
        return replace(self, row=row, low_ns=self.low_ns - zero_ns, high_ns=self.high_ns - zero_ns, links=links)


class DrawnBand(Record, frozen=True):
    """A band and what stands on it; marks name rows of its part, and texts of its own.

    sampled : its GPU counters, one a row.
    """

    band: Band
    marks: Marks
    texts: tuple[str, ...]
    gaps: tuple[Gap, ...]
    sampled: tuple[str, ...]


def drawn_bands(
    trace: Trace,
    first: First,
    work: DrawnWork,
    result: OverlapResult,
    order: OrderReport,
    titles: Mapping[tuple[int, int], str],
    counters: Sequence[str],
) -> Iterator[DrawnBand]:
    """The bands of a part of a run, by rank.

    Parameters
    ----------
    trace : with processes numbered as in the run. first : where its ops begin in the run. work : of the run.
    result, order : of the run. titles : (rank, device) -> what stands above its band.
    counters : which GPU counters to show.
    """
    a, b = sides_of(trace, result.a, result.b, result.agreed)
    side = np.where(a.picked, A, np.where(b.picked, B, OTHER))
    held = held_by_device(trace, result)
    missed = {
        key: "".join(letter for k, letter in enumerate("ab") if np.any(one.side == k)) for key, one in held.items()
    }
    of_threads, on_gpu = ranges_by_thread(trace, side, work.launched), ranges_on_gpu(trace, side)
    devices = rows_by_key(as_int64(trace.ops.process), as_int64(trace.ops.device))
    here = {process for process, _ in devices}
    sampled = {(process, device): present(trace, process, device, counters) for process, device in devices}
    labels = {key: [SHOWN[name][0] for name in names] for key, names in sampled.items()}
    points: dict[int, list[SyncPoint]] = {process: [] for process in here}
    for point in order.syncs:
        if point.process in here:
            points[point.process].append(point)
    blocked = {process: [one.thread for one in of_process] for process, of_process in points.items()}
    crossings = order.crossings
    missing = crossings.take(crossings.status.is_one_of(["unordered"]) & np.isin(crossings.process, [*here]))
    # Ops of the run become the part's; -1 stays.
    op, behind = (np.where(rows >= 0, rows - first.op, rows) for rows in (missing.op, missing.behind))
    missing = missing.having(op=op, behind=behind)
    last_launch = _last_launches(trace, has_steps=work.steps is not None)
    found = bands(trace, titles, blocked, of_threads, on_gpu, missed, labels)
    for band in found:
        texts, where, last = Texts(), (band.rank, band.device), last_launch.get(band.process, UNKNOWN_INSTANT)
        marks = [*op_marks(trace, band, side, texts), *overlap_marks(trace, band, side)]
        for thread, numbers in band.ranges.items():
            marks.append(range_marks(trace, of_threads[band.process, thread], numbers, texts))
        marks += [call_marks(trace, band, side, texts), sync_marks(points[band.process], band, texts, last)]
        if (band.process, *where) in on_gpu:
            rows = [row.number for row in band.rows if row.kind == "projected"]
            marks.append(range_marks(trace, on_gpu[(band.process, *where)], rows, texts))
        marks.append(race_marks(trace, missing, band, found, texts))
        gaps: list[Gap] = []
        if where in held:
            marks.append(blocked_marks(band, held[where], texts))
            gaps = gaps_of(trace, band, held[where])
        joined = _behind(trace, found, join(marks))
        yield DrawnBand(band, joined, tuple(texts.lines), tuple(gaps), tuple(sampled[band.process, band.device]))


def _last_launches(trace: Trace, *, has_steps: bool) -> dict[int, int]:
    """When the last op of each process was launched, ns, of those in steps where the run has any."""
    launch = as_int64(trace.ops.launch)
    known = np.flatnonzero((launch >= 0) & (step_of_ops(trace) >= 0) if has_steps else launch >= 0)
    launched = trace.api.start_ns[launch[known]]
    by_process = rows_by_key(as_int64(trace.ops.process)[known])
    return {process: int(launched[rows].max()) for (process,), rows in by_process.items()}


def _behind(trace: Trace, found: Sequence[Band], marks: Marks) -> Marks:
    """For each op: the op that an event made it wait for (end and row)."""
    single = np.flatnonzero((marks.role <= ROLE["other-wait"]) & (marks.after_row >= 0))
    race = marks.role == ROLE["race"]
    after, after_row = np.where(race, marks.after, UNKNOWN_INSTANT), np.where(race, marks.after_row, -1)
    if single.size:
        whole = trace.whole or trace
        op = marks.after_row[single] if trace.rows is None else trace.rows[marks.after_row[single]]
        waited = whole.once(Ordering).released_by(op).waited
        row = rows_of_ops(whole, found, waited)
        known = row >= 0
        after[single[known]] = whole.ops.end_ns[waited[known]]
        after_row[single[known]] = row[known]
    return replace(marks, after=after, after_row=after_row)


def op_marks(trace: Trace, band: Band, side: Ints, texts: Texts) -> list[Marks]:
    """The ops of a band; of a collective that waited the wait and the transfer apart."""
    table, rows = trace.ops, band.ops
    start, end, wait = (as_int64(column)[rows] for column in (table.start_ns, table.end_ns, table.wait_ns))
    row = rows_of_ops(trace, [band], rows)
    thread, launched, _ = launches(trace)
    known = table.launch[rows] >= 0
    more = {
        "name": texts.numbers(table.name.codes[rows], table.name.texts),
        "launch": np.where(known, launched[rows], UNKNOWN_INSTANT),
        "launch_row": np.where(known, band.rows_of_threads(thread[rows]), -1),
        "bytes": as_int64(table.bytes)[rows],
        "wait": wait,
        "whole": np.where(wait > 0, end - start, 0),
        "after_row": rows,  # the op itself, for `_behind`
    }
    run = make(row, side[rows] * 2, start + wait, end, **more)
    waits = np.flatnonzero(wait > 0)
    waiting = make(row, side[rows] * 2 + 1, start, start + wait, **more).take(waits)
    return [run, waiting]


def call_marks(trace: Trace, band: Band, side: Ints, texts: Texts) -> Marks:
    """The calls that launched a band's ops, on their threads."""
    launch = as_int64(trace.ops.launch)[band.ops]
    rows, first = np.unique(launch, return_index=True)
    rows, first = rows[rows >= 0], band.ops[first[rows >= 0]]
    row = band.rows_of_threads(as_int64(trace.api.thread)[rows])
    calls, ops = trace.api.name, trace.ops.name
    start, end = trace.api.start_ns[rows], trace.api.end_ns[rows]
    name, extra = texts.numbers(calls.codes[rows], calls.texts), texts.numbers(ops.codes[first], ops.texts)
    return make(row, ROLE["launch-a"] + side[first], start, end, name=name, extra=extra)


def range_marks(trace: Trace, found: RangesInRows, rows: Sequence[int], texts: Texts) -> Marks:
    """The user's ranges of a thread, or on a device, on its rows by level."""
    name = texts.numbers(trace.ranges.name.codes[found.rows], trace.ranges.name.texts)
    row = np.array(rows, np.int64)[found.level]
    return make(row, ROLE["range-a"] + found.side, found.start_ns, found.end_ns, name=name)


def sync_marks(found: Sequence[SyncPoint], band: Band, texts: Texts, last_launch_ns: int) -> Marks:
    """Where the host of a band's process was blocked, on its threads; `extra` says for what and what it cost."""
    points = [one for one in found if one.device in (band.device, -1)]
    extra = []
    for one in points:
        why = one.chain or one.pattern or ("" if one.hidden else "written as such")
        what = f"{one.kind} sync" + (f", from {why}" if why else "") + (f", in {one.range}" if one.range else "")
        cost = "GPU idle: can't tell" if one.unrecorded_ns else f"GPU idle {duration(one.gpu_idle_ns)}"
        cost += f", then {duration(one.after_ns)} to the next launch" if one.after_ns else ""
        extra.append(texts.number(f"{what}; {cost}" + (f"; it delayed {one.delayed}" if one.delayed else "")))
    start = np.array([one.start_ns for one in points], np.int64)
    length = np.array([one.duration_ns for one in points], np.int64)
    row = np.array([band.threads[one.thread] for one in points], np.int64)
    name = np.array([texts.number(one.op or one.api) for one in points], np.int64)
    # What blocks the host once all is launched delays nothing: a profiler that ends synchronizes the device.
    is_end = np.array([one.kind == "device" and one.start_ns >= last_launch_ns for one in points], dtype=bool)
    role = np.where(is_end, ROLE["sync-end"], ROLE["sync"])
    return make(row, role, start, start + length, name=name, extra=np.array(extra, np.int64))


def race_marks(trace: Trace, missing: Crossings, band: Band, bands: Sequence[Band], texts: Texts) -> Marks:
    """Ops that a stream took without waiting for what another had in flight; `after` says which."""
    here = in_whole(trace, np.arange(len(trace.ops)))
    found = missing.take(missing.process == band.process)
    op = here[found.op]
    of_band = np.flatnonzero((op >= 0) & np.isin(op, band.ops))
    found, op = found.take(of_band), op[of_band]
    whole = trace.whole or trace
    after_row = rows_of_ops(whole, bands, found.behind)
    return make(
        rows_of_ops(trace, [band], op),
        ROLE["race"],
        trace.ops.start_ns[op],
        trace.ops.end_ns[op],
        name=texts.numbers(trace.ops.name.codes[op], trace.ops.name.texts),
        extra=_messages(found, texts),
        after=np.where(after_row >= 0, whole.ops.end_ns[found.behind], UNKNOWN_INSTANT),
        after_row=after_row,
    )


def _messages(found: Crossings, texts: Texts) -> Ints:
    """The number of each crossing's text; the same pair of ops is put into words once."""
    kind = label(*(found.columns[name] for name in NAMED_IN_MESSAGE))
    numbers = [texts.number(f"Missing wait: {one.message}.") for one in found.take(first_of_each(kind))]
    return np.array(numbers, np.int64)[kind]


def overlap_marks(trace: Trace, band: Band, side: Ints) -> list[Marks]:
    """What lies in A and in B: with waits left out, and the rest, where one of them only waited."""
    ops = trace.ops
    starts, ends, waits = (as_int64(column)[band.ops] for column in (ops.start_ns, ops.end_ns, ops.wait_ns))
    sides = [side[band.ops] == which for which in (0, 1)]
    plain = intersect(*(union(starts[side_ops], ends[side_ops]) for side_ops in sides))
    real = intersect(*(union((starts + waits)[side_ops], ends[side_ops]) for side_ops in sides))
    row = band.row("overlap")
    found: list[tuple[str, Union]] = [("overlap", real), ("overlap-wait", subtract(plain, real))]
    return [make(row, ROLE[role], some.starts, some.ends, name=-1) for role, some in found]


def blocked_marks(band: Band, found: GapPieces, texts: Texts) -> Marks:
    """What blocked a side, piece by piece, each with its evidence."""
    cause = np.array([texts.number(one.label) for one in CAUSE_TABLE], np.int64)[found.cause]
    early = np.array([ROLE.get(f"early-{one}", held) for one, held in zip(CAUSES, _HELD, strict=True)], np.int64)
    role = np.where(found.early, early[found.cause], np.array(_HELD)[found.cause])
    words = np.append(np.array([texts.number(text) for text in found.evidence], np.int64), -1)[found.words]
    meanings = np.array([texts.number(one.meaning) for one in CAUSE_TABLE], np.int64)[found.cause]
    row = np.array([band.row(f"missed-{side}") if np.any(found.side == k) else -1 for k, side in enumerate("ab")])
    extra = np.where(words < 0, meanings, words)
    made = []
    for side in range(2):
        waits = (found.side == side) & (found.cause == CAUSE_TABLE.index(PEER_WAIT))
        other = np.flatnonzero((found.side == side) & ~waits)
        piece, low, high, longest = around(
            found.start_ns[other], found.end_ns[other], union(found.start_ns[waits], found.end_ns[waits])
        )
        of = np.append(other[piece], np.flatnonzero(waits))
        low, high = np.append(low, found.start_ns[waits]), np.append(high, found.end_ns[waits])
        whole = np.where(np.append(longest, waits[waits]), found.alone_ns[of], 0)
        made.append(make(row[side], role[of], low, high, name=cause[of], extra=extra[of], whole=whole))
    return join(made)


def around(start: Ints, end: Ints, waits: Union) -> tuple[Ints, Ints, Ints, Mask]:
    """Cut pieces where a collective waited for a peer for long: that is a piece of its own, and would hide them.

    >>> waits = Union(np.array([30, 80]), np.array([60, 81]))
    >>> piece, low, high, longest = around(np.array([0]), np.array([100]), waits)
    >>> low.tolist(), high.tolist(), longest.tolist()  # 80 to 81 is short
    ([0, 60], [30, 100], [False, True])

    Returns
    -------
    Of what is left: of which piece it is, from when to when, and whether it is the longest of its piece.
    """
    first = np.searchsorted(waits.ends, start, side="right")
    inside = np.maximum(np.searchsorted(waits.starts, end, side="left") - first, 0)
    piece = np.repeat(np.arange(start.size), inside + 1)
    nth = np.arange(piece.size) - np.repeat(np.cumsum(inside + 1) - inside - 1, inside + 1)
    after = first[piece] + nth  # the wait that ends this part
    starts, ends = (np.append(each, 0) for each in waits)
    is_last = nth == inside[piece]
    low = np.where(nth == 0, start[piece], ends[after - 1])
    high = np.where(is_last, end[piece], starts[after])
    is_short = ~is_last & (LONG_WAIT * (ends - starts)[after] < (end - start)[piece])
    heads = np.flatnonzero(np.append(True, ~is_short)[:-1])
    lasts = np.append(heads, piece.size)[1:] - 1
    piece, low, high = piece[heads], low[heads], high[lasts]
    left = np.flatnonzero(high > low)
    piece, low, high = piece[left], low[left], high[left]
    longest = np.zeros(piece.size, bool)
    order = np.lexsort((low - high, piece))
    longest[order[np.diff(piece[order], prepend=-1) > 0]] = True
    return piece, low, high, longest


def gaps_of(trace: Trace, band: Band, found: GapPieces) -> list[Gap]:
    """The gaps that have words, the longest first, each with the links that the capture records."""
    ops = sorted({op for links in found.links.values() for one in links for op in (one.from_op, one.to_op)} - {-1})
    rows = rows_of_ops(trace.whole or trace, [band], np.array(ops, np.int64))
    row_of = dict(zip(ops, rows.tolist(), strict=True))
    pieces, made = np.flatnonzero(np.isin(found.gap, list(found.links))), []
    for (gap,), own in rows_by_key(found.gap[pieces]).items():
        of_gap = pieces[own]
        links = []
        for one in found.links[gap]:
            from_row = row_of[one.from_op] if one.from_op >= 0 else band.threads.get(one.from_thread, -1)
            to_row = row_of[one.to_op] if one.to_op >= 0 else band.threads.get(one.to_thread, -1)
            if min(from_row, to_row) >= 0:
                links.append((one.kind, one.from_ns, from_row, one.to_ns, to_row))
        low, high = int(found.start_ns[of_gap].min()), int(found.end_ns[of_gap].max())
        row = band.row(f"missed-{'ab'[found.side[of_gap[0]]]}")
        made.append(Gap(row, low, high, int(found.alone_ns[of_gap].sum()), tuple(links)))
    return sorted(made, key=lambda one: -one.alone_ns)


def longest_gaps(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """The longest gaps: first those of the rank that decides, then others, at least as many as these leave room for."""
    longest = sorted(gaps, key=lambda one: -one.alone_ns)
    others = [one for one in longest if not one.decides][: MOST_GAPS // 2]
    return (*[one for one in longest if one.decides][: MOST_GAPS - len(others)], *others)
