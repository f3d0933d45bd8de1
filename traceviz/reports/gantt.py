"""The shown instance as a Mermaid gantt chart, which GitHub draws inline."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from analyzers.arrays.intervals import clip, subtract, union
from traceviz.output.quantities import duration
from traceviz.timelines.marks import EARLY, HELD, ROLE, ROLES, Marks, join, make
from traceviz.timelines.picture import Picture
from traceviz.timelines.rows import Band
from traceviz.timelines.texts import short

MOST_TASKS = 90
JOINED = 50  # work of one side on one row is one run up to gaps of this part of the instance
PAUSE = 300  # a side runs alone through pauses of less than this part of the instance
SOLID = 12, 0.9  # a run of at most so many ops, for at least this share of its length, is one bar
SMALLEST = 200  # what is no op and lasts less than this part of the instance is left out
BINS = 12  # across the instance, by which other runs are cut: a bar is as long as what ran in its bin
LETTERS = 110  # from one end of the chart to the other
MOST_TITLE = 60  # letters of an instance's name: Mermaid lets a title run out of the chart
# Mermaid has a few looks for tasks beside the plain one; `legend` tells what they mean.
LOOKS = {
    "a": "active, ",
    "b": "done, ",
    "overlap": "",
    "sync": "crit, ",
    "held": "crit, done, ",
    "early": "crit, done, ",
}
_HELD = [ROLE[role] for role in (*HELD, *EARLY)]
WORDS = {"a": "A", "b": "B", "overlap": "overlap", "sync": "blocked", "held": "held", "early": "held"}
# Letters with no meaning in Mermaid's grammar or in HTML.
_HARMLESS = re.compile(r"[^A-Za-z0-9 _.+*/()=-]+")


def gantt(picture: Picture) -> str:
    """Mermaid source of the shown instance on the rank it was chosen on; "" where there is none."""
    band = next(
        (one for one in picture.bands if (one.rank, one.device) == (picture.shown.rank, picture.shown.device)), None
    )
    if band is None:
        return ""
    low, high = picture.low_ns, picture.high_ns
    unit, name = (1000, "µs") if high - low >= 200_000 else (1, "ns")
    marks = _chosen(picture, band)
    lines = [
        "---",
        "displayMode: compact",
        "config:",
        "  gantt:",
        "    leftPadding: 120",
        "---",
        "gantt",
        f"  title {_text(f'{_cut(picture.shown.label)} on rank {band.rank}')}, {name}",
        "  dateFormat x",
        "  axisFormat %Q",
        "  todayMarker off",
    ]
    for row in band.rows:
        of_row = marks.take(marks.row == row.number)
        if not of_row.size:
            continue
        lines.append(f"  section {'A and B' if row.kind == 'overlap' else _text(row.label)}")
        for k in range(of_row.size):
            start = (max(int(of_row.start[k]), low) - low) // unit
            end = max((min(int(of_row.end[k]), high) - low) // unit, start + 1)
            letters = LETTERS * (end - start) * unit // max(high - low, 1)
            kind = _kind(of_row, k)
            text = _task(picture, of_row, k, kind, letters, alone=row.kind == "overlap")
            lines.append(f"  {text} :{LOOKS[kind]}{start}, {end}")
    return "\n".join(lines)


def legend(picture: Picture) -> str:
    """What the chart's looks mean, in words."""
    a, b = picture.names
    return (
        f"A ({a}) is light, B ({b}) grey, both at once dark; red: where the host was blocked; with a red edge: what "
        "held the one while the other ran. Of many ops in a row a bar is as long as they ran."
    )


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TITLE else f"{text[: MOST_TITLE - 3]}..."


def _chosen(picture: Picture, band: Band) -> Marks:
    """What of a band the chart shows: both sides' ops, sync points, both at once or one alone, and what held a side."""
    shown = [ROLE[role] for role in ("a", "b", "overlap", "sync")] + _HELD
    marks, low, high = picture.marks, picture.low_ns, picture.high_ns
    rows = [row.number for row in band.rows if row.kind not in ("ranges", "projected")]
    of_band = np.isin(marks.row, rows) & np.isin(marks.role, shown) & (marks.start < high) & (marks.end > low)
    found = marks.take(of_band)
    ran = [
        clip(union(found.start[each], found.end[each]), low, high)
        for each in (found.role == 0, found.role == ROLE["b"])
    ]
    row = band.row("overlap")
    alone = [
        make(row, ROLE[role], *subtract(ran[side], ran[1 - side]), name=-1) for side, role in enumerate(("a", "b"))
    ]
    found = join([found.take(found.start < found.end), *alone])
    bins = BINS
    while (fewer := _bars(found, low, high, bins, row)).size > MOST_TASKS and bins > 1:
        bins //= 2
    is_op = np.isin(fewer.role, [ROLE[role] for role in ("a", "b")]) & (fewer.row != row)
    fewer = fewer.take(is_op | (fewer.end - fewer.start >= (high - low) // SMALLEST))
    return fewer.take(np.lexsort((fewer.start, fewer.row)))


def _bars(marks: Marks, low: int, high: int, bins: int, both: int) -> Marks:
    """Make one bar of ops that follow each other; of very many, or with pauses, one a bin, as long as they ran.

    Parameters
    ----------
    both : the row of overlap, on which marks are no ops.
    """
    if not marks.size:
        return marks
    most, share = SOLID
    length = max(high - low, 1)
    same = (marks.row[1:] == marks.row[:-1]) & (marks.role[1:] == marks.role[:-1])
    near = np.where(np.isin(marks.role[1:], _HELD), 1, length // max(JOINED * bins // BINS, 1))
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


def _kind(marks: Marks, k: int) -> str:
    role: str = ROLES[marks.role[k]]
    return role if role in LOOKS else role.partition("-")[0]


def _task(picture: Picture, marks: Marks, k: int, kind: str, letters: int, *, alone: bool) -> str:
    """What stands on a task: Mermaid writes what does not fit over its neighbours."""
    name = _text(short(picture.texts[marks.name[k]])) if marks.name[k] >= 0 else ""
    word, many = WORDS[kind], int(marks.count[k])
    texts: list[str]
    if kind in ("held", "early"):
        cause = "not submitted" if kind == "early" else name
        texts = [f"{cause} {duration(int(marks.whole[k]))}", cause]
    elif kind == "overlap" or alone:
        texts = [f"{word}{' alone' * (kind != 'overlap')} {duration(int(marks.busy[k]))}"]
    else:
        texts = [f"{word} {many} ops from {name}", f"{word} {many} ops"] if many > 1 else [f"{word} {name}"]
    texts += [word, word[0] if letters else "."]
    return next(text for text in texts if len(text) <= max(letters, 1))


def _text(text: str) -> str:
    """A text without what Mermaid could read as its own.

    >>> _text("nvtx:a;b#c<script>")
    'nvtx a b c script'
    """
    return _HARMLESS.sub(" ", text).strip()
