"""The shown instance as a Mermaid gantt chart, which GitHub draws inline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.intervals import clip, subtract, union
from traceviz.timelines.marks import EARLY_ROLES, HELD, ROLE, ROLES, Marks, join, make
from traceviz.timelines.picture import Picture
from traceviz.timelines.rows import Band, Row
from traceviz.timelines.texts import MS, US, Unit, amount, short

PARTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # of the instance
MOST_LINES = 14  # of rows and tasks: a chart that is seen at a glance
HEAD_LINES = 6  # above those
JOINED = 50  # work of one side on one row is one run up to gaps of this part of the chart
PAUSE = 300  # a side runs alone through pauses of less than this part of the chart
SOLID = 12, 0.9  # a run of at most so many ops, for at least this share of its length, is one bar
SMALLEST = 200  # what is no op and lasts less than this part of the chart is left out
BINS = (12, 6)  # across the chart, by which other runs are cut: a bar is as long as what ran in its bin
UNITS, FINE = (MS, US, Unit("ns", 1, 0)), 200  # of the axis and of lengths: the first of which so many are seen
LETTERS = 95  # from one end of the chart to the other
MOST_STREAMS = 3  # named in front of a side's row
MOST_TITLE = 60  # letters of an instance's name: Mermaid lets a title run out of the chart
# Mermaid has a few looks for tasks beside the plain one; `legend` tells what they mean: kind -> look, word.
GANTT_KINDS = {
    "a": ("active, ", "A"),
    "b": ("done, ", "B"),
    "overlap": ("", "overlap"),
    "sync": ("crit, ", "blocked"),
    "held": ("crit, done, ", "blocked"),
    "early": ("crit, done, ", "blocked"),
}
KIND_OF = [role if role in GANTT_KINDS else role.partition("-")[0] for role in ROLES]
_HELD = [ROLE[role] for role in (*HELD, *EARLY_ROLES)]
# Letters with no meaning in Mermaid's grammar or in HTML.
_HARMLESS = re.compile(r"[^A-Za-z0-9 _.+*/()=-]+")


def gantt(picture: Picture, *, met: bool = False, most: int = MOST_LINES) -> str:
    """Mermaid source of the shown instance on the rank it was chosen on; "" where there is none.

    Where the whole instance would be too much for one glance, it is the largest part of it that is not, around what
    blocked a side longest.

    Parameters
    ----------
    met : whether the threshold is met: then around the longest overlap. most : lines of rows and tasks.
    """
    band = next(
        (one for one in picture.bands if (one.rank, one.device) == (picture.shown.rank, picture.shown.device)), None
    )
    if band is None:
        return ""
    sides = (max(row.number for row in band.rows) + 1, max(row.number for row in band.rows) + 2)
    both = band.row("overlap")
    whole = picture.low_ns, picture.high_ns
    seen = _within(picture, band, *whole)
    met = met and bool(np.any(seen.role == ROLE["overlap"]))
    focus = _focus(seen, *whole, met=met)
    for part, bins in product(PARTS, BINS):
        low, high = _around(focus, part, *whole)
        marks, names = _chosen(picture, band, sides, bins, (low, high))
        if marks.size + np.unique(marks.row).size <= most:
            break
    marks = _most_told(marks, both, most)
    unit = next(one for one in UNITS if high - low >= FINE * one.ns or one.ns == 1)
    zoomed = "" if (low, high) == whole else f", around the longest {'overlap' if met else 'gap'}"
    label, most_title = picture.shown.label, MOST_TITLE - len(zoomed)
    title = _text(label if len(label) <= most_title else f"{label[: most_title - 3]}...")
    sections = [*zip(sides, names, strict=True)]
    sections += [(one.number, "A and B" if one.kind == "overlap" else _text(one.label)) for one in band.rows]
    lines = [
        '%%{init: {"gantt": {"displayMode": "compact", "leftPadding": 120}}}%%',
        "gantt",
        f"  title {title} on rank {band.rank}{zoomed}, {unit.name}",
        "  dateFormat x",
        "  axisFormat %Q",
        "  todayMarker off",
    ]
    for row, label in sections:
        of_row = marks.take(marks.row == row)
        if of_row.size:
            lines += [f"  section {label}", *_tasks(picture, of_row, unit, (low, high), alone=row == both)]
    return "\n".join(lines)


def _tasks(picture: Picture, marks: Marks, unit: Unit, window: tuple[int, int], *, alone: bool) -> list[str]:
    """A task a mark of a row, from and to in whole units of the window; `alone` on the row of both sides.

    On a row of what blocked a side each cause is named. Mermaid writes what is too long for a bar behind it: there,
    where there is room up to the next bar, and on the longest bar of a cause that is named nowhere.
    """
    low, high = window
    starts, ends = np.maximum(marks.start, low), np.minimum(marks.end, high)
    kinds = [KIND_OF[role] for role in marks.role.tolist()]
    letters = LETTERS * np.maximum(ends - starts, unit.ns) // max(high - low, 1)
    texts = []
    for k, (kind, room) in enumerate(zip(kinds, letters.tolist(), strict=True)):
        told = _words(picture, marks, k, unit, alone=alone)
        word = GANTT_KINDS[kind][1]
        told += [word] if len(word) == 1 and room else ["."] if kind in ("held", "early") else [word, "."]
        texts.append(next(text for text in told if len(text) <= max(room, 1)))
    if set(kinds) <= {"held", "early"}:
        causes = [_words(picture, marks, k, unit, alone=alone)[-1] for k in range(marks.size)]
        until = np.append(marks.start[1:], high)
        free = LETTERS * (until - np.minimum(marks.end, until)) // max(high - low, 1)
        for k, cause in enumerate(causes):
            if texts[k] == "." and len(cause) + 1 < free[k]:
                texts[k] = cause
        for cause in dict.fromkeys(causes):
            own = [k for k, one in enumerate(causes) if one == cause]
            if all(texts[k] == "." for k in own):
                texts[max(own, key=lambda k: int(marks.end[k] - marks.start[k]))] = cause
    begin, until = (starts - low) // unit.ns, (ends - low) // unit.ns
    return [
        f"  {text} :{GANTT_KINDS[kind][0]}{first}, {max(last, first + 1)}"
        for text, kind, first, last in zip(texts, kinds, begin.tolist(), until.tolist(), strict=True)
    ]


def _words(picture: Picture, marks: Marks, k: int, unit: Unit, *, alone: bool) -> list[str]:
    """What a task may say, in words that are fewer and fewer: Mermaid writes what does not fit over its neighbours."""

    def length(ns: int) -> str:
        return amount(ns, unit).replace(",", "")  # commas are Mermaid's own

    kind, many = KIND_OF[marks.role[k]], int(marks.count[k])
    word, name = GANTT_KINDS[kind][1], picture.texts[marks.name[k]] if marks.name[k] >= 0 else ""
    if kind in ("held", "early"):
        cause, blocked = _text(name), f"blocked by {_text(name)}"
        took = f"{blocked} {length(int(marks.whole[k]))}"
        return [f"{took} and not launched yet either"] * (kind == "early") + [took, blocked, cause]
    if kind == "overlap" or alone:
        return [f"{word}{' alone' * (kind != 'overlap')} {length(int(marks.busy[k]))}"]
    name = _text(short(name)) if name else ""
    return [f"{word} {many} ops from {name}", f"{word} {many} ops"] if many > 1 else [f"{word} {name}"]


def legend(picture: Picture) -> str:
    """What the chart's looks mean, in words."""
    a, b = picture.names
    return (
        f"A ({a}) is light, B ({b}) grey, both at once dark; red: where the host was blocked; with a red edge: what "
        "blocked the one while the other ran. Of many ops a bar is as long as they ran; short ones are left out."
    )


def _within(picture: Picture, band: Band, low: int, high: int) -> Marks:
    """What of a band the chart may show: both sides' ops, sync points, overlap, and what blocked a side."""
    shown = [ROLE[role] for role in ("a", "b", "overlap", "sync")] + _HELD
    marks = picture.marks
    rows = [row.number for row in band.rows if row.kind not in ("ranges", "projected")]
    of_band = np.isin(marks.row, rows) & np.isin(marks.role, shown) & (marks.start < high) & (marks.end > low)
    found = marks.take(of_band)
    return found.take(found.start < found.end)


def _focus(marks: Marks, low: int, high: int, *, met: bool) -> tuple[int, int]:
    """From when to when a side was blocked longest, or the longest overlap was; the middle where there is none."""
    found = marks.take(marks.role == ROLE["overlap"] if met else np.isin(marks.role, _HELD))
    if not found.size:
        return (low + high) // 2, (low + high) // 2
    start, end = np.maximum(found.start, low), np.minimum(found.end, high)
    longest = int(np.argmax(end - start))
    return int(start[longest]), int(end[longest])


def _around(focus: tuple[int, int], part: int, low: int, high: int) -> tuple[int, int]:
    """A part of an instance with what has to be seen in its middle, and as much again beside it.

    >>> _around((40, 50), 4, 0, 100), _around((0, 10), 8, 0, 100), _around((40, 50), 1, 0, 100)
    ((32, 57), (0, 20), (0, 100))
    """
    start, end = focus
    length = min(max((high - low) // part, 2 * (end - start)), high - low)
    begin = min(max((start + end - length) // 2, low), high - length)
    return begin, begin + length


def _chosen(
    picture: Picture, band: Band, sides: tuple[int, int], bins: int, window: tuple[int, int]
) -> tuple[Marks, list[str]]:
    """Bars of what a band shows in a window, and what both sides' rows are called, by their streams.

    `sides` are the numbers of the two rows that A's and B's ops are put on; of many ops there is one bar a bin.
    """
    low, high = window
    row = band.row("overlap")
    found = _within(picture, band, low, high)
    is_op = np.isin(found.role, [ROLE["a"], ROLE["b"]]) & (found.row != row)
    labels, of_sides, ran = [], [], []
    for number, role in zip(sides, ("a", "b"), strict=True):
        of_side = found.take(is_op & (found.role == ROLE[role]))
        labels.append(_of_streams(role.upper(), [one for one in band.rows if one.number in of_side.row]))
        of_side = of_side.take(np.argsort(of_side.start, kind="stable"))
        # On one row each op begins where those before it, of whatever stream, have ended.
        ended = np.append(of_side.start[:1], np.maximum.accumulate(of_side.end)[:-1])
        start = np.maximum(of_side.start, ended)
        end = np.maximum(of_side.end, start)
        row_of_side = np.full_like(of_side.row, number)
        busy = np.minimum(of_side.busy, end - start)
        of_sides.append(replace(of_side, row=row_of_side, start=start, end=end, busy=busy))
        ran.append(clip(union(of_side.start, of_side.end), low, high))
    alone = [
        make(row, ROLE[role], *subtract(ran[side], ran[1 - side]), name=-1) for side, role in enumerate(("a", "b"))
    ]
    fewer = _bars(join([found.take(~is_op), *of_sides, *alone]), low, high, bins, row)
    is_op = np.isin(fewer.role, [ROLE["a"], ROLE["b"]]) & (fewer.row != row)
    fewer = fewer.take(is_op | (fewer.end - fewer.start >= (high - low) // SMALLEST))
    return fewer.take(np.lexsort((fewer.start, fewer.row))), labels


def _of_streams(side: str, rows: Sequence[Row]) -> str:
    """A side's name by its streams: "A stream 25", "B streams 7 17"."""
    streams = [row.label.partition(" ")[2].partition(" ")[0] for row in rows]
    if len(streams) == 1:
        return _text(f"{side} {rows[0].label}")
    word = f"{rows[0].label.partition(' ')[0] if rows else 'stream'}s"
    return _text(
        f"{side} {word} {' '.join(streams)}" if len(streams) <= MOST_STREAMS else f"{side} {len(streams)} {word}"
    )


def _most_told(marks: Marks, both: int, most: int) -> Marks:
    """Leave out the shortest bars until the chart has so many lines at most; the longest of each kind stays.

    Overlap, on the row `both`, is the answer and counts for four; that a side is alone its own row shows, too.
    """
    kinds = np.array(
        [f"{GANTT_KINDS[KIND_OF[role]][1]} {row == both}" for role, row in zip(marks.role, marks.row, strict=True)]
    )
    is_overlap, is_alone = marks.role == ROLE["overlap"], (marks.row == both) & (marks.role != ROLE["overlap"])
    worth = (marks.end - marks.start) * np.where(is_overlap, 4.0, np.where(is_alone, 0.1, 1.0))
    order = np.argsort(worth, kind="stable")
    stays = {max(np.flatnonzero(kinds == kind), key=lambda k: worth[k]) for kind in set(kinds.tolist())}
    kept = np.ones(marks.size, bool)
    for k in order:
        if np.count_nonzero(kept) + np.unique(marks.row[kept]).size <= most:
            break
        kept[k] = k in stays
    return marks.take(kept)


def _bars(marks: Marks, low: int, high: int, bins: int, both: int) -> Marks:
    """Make one bar of ops that follow each other; of very many, or with pauses, one a bin, as long as they ran.

    `both` is the row of overlap, on which marks are no ops.
    """
    if not marks.size:
        return marks
    most, share = SOLID
    length = max(high - low, 1)
    same = (marks.row[1:] == marks.row[:-1]) & (marks.role[1:] == marks.role[:-1])
    near = np.where(np.isin(marks.role[1:], _HELD), 1, length // max(JOINED * bins // BINS[0], 1))
    near = np.where(marks.row[1:] == both, length // PAUSE, near)
    begins = np.append(True, ~same | (marks.start[1:] - marks.end[:-1] >= near))
    heads = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1
    count, busy = (np.add.reduceat(column, heads) for column in (marks.count, marks.busy))
    span = np.maximum.reduceat(marks.end, heads) - marks.start[heads]
    is_solid = ((count <= most) | (marks.row[heads] == both)) & (busy >= share * span)
    place = np.where(is_solid[run], 0, (np.maximum(marks.start, low) - low) * bins // length)
    heads = np.flatnonzero(begins | (np.diff(place, prepend=0) != 0))
    count, busy, whole = (np.add.reduceat(column, heads) for column in (marks.count, marks.busy, marks.whole))
    end = np.where(is_solid[run[heads]], np.maximum.reduceat(marks.end, heads), marks.start[heads] + busy)
    return replace(marks.take(heads), end=end, count=count, busy=busy, whole=whole)


def _text(text: str) -> str:
    """A text without what Mermaid could read as its own.

    >>> _text("nvtx:a;b#c<script>")
    'nvtx a b c script'
    """
    return _HARMLESS.sub(" ", text).strip()
