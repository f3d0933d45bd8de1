"""The shown instance as a Mermaid gantt chart, which GitHub draws inline."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from traceviz.output.quantities import duration
from traceviz.timelines.marks import ROLE, ROLES, Marks
from traceviz.timelines.picture import Picture
from traceviz.timelines.rows import Band
from traceviz.timelines.texts import short

MOST_TASKS = 60
JOINED = 50  # work of one side on one row is one task up to gaps of this part of the instance
LETTERS = 110  # from one end of the chart to the other
MOST_TITLE = 60  # letters of an instance's name: Mermaid lets a title run out of the chart
# Mermaid has three looks for tasks beside the plain one; `legend` tells what they mean.
LOOKS = {"a": "active, ", "b": "done, ", "overlap": "crit, ", "sync": "crit, ", "other": ""}
WORDS = {"a": "A", "b": "B", "other": "other", "overlap": "overlap", "sync": "blocked"}
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
        lines.append(f"  section {_text(row.label)}")
        for k in range(of_row.size):
            start = (max(int(of_row.start[k]), low) - low) // unit
            end = max((min(int(of_row.end[k]), high) - low) // unit, start + 1)
            letters = LETTERS * (end - start) * unit // max(high - low, 1)
            lines.append(f"  {_task(picture, of_row, k, letters)} :{LOOKS[ROLES[of_row.role[k]]]}{start}, {end}")
    return "\n".join(lines)


def legend(picture: Picture) -> str:
    """What the chart's looks mean, in words."""
    a, b = picture.names
    return f"A ({a}) is light, B ({b}) grey; overlap, and where the host was blocked, are red."


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TITLE else f"{text[: MOST_TITLE - 3]}..."


def _chosen(picture: Picture, band: Band) -> Marks:
    """What of a band the chart shows: ops, real overlap and sync points, few enough to read."""
    shown = ["a", "b", "other", "overlap", "sync"]
    marks = picture.marks
    of_band = np.isin(marks.row, [row.number for row in band.rows]) & np.isin(
        marks.role, [ROLE[role] for role in shown]
    )
    of_band &= (marks.start < picture.high_ns) & (marks.end > picture.low_ns)
    marks, gap = marks.take(of_band), max((picture.high_ns - picture.low_ns) // JOINED, 1)
    while (found := _joined(marks, gap)).size > MOST_TASKS and gap < picture.high_ns - picture.low_ns:
        gap *= 2
    return found


def _joined(marks: Marks, gap: int) -> Marks:
    """Make one of marks that follow each other on a row in a role with less than a gap between them."""
    if not marks.size:
        return marks
    same = (marks.row[1:] == marks.row[:-1]) & (marks.role[1:] == marks.role[:-1])
    heads = np.flatnonzero(np.append(True, ~same | (marks.start[1:] - marks.end[:-1] >= gap)))
    ends = np.maximum.reduceat(marks.end, heads)
    count, busy = (np.add.reduceat(column, heads) for column in (marks.count, marks.busy))
    return replace(marks.take(heads), end=ends, count=count, busy=busy)


def _task(picture: Picture, marks: Marks, k: int, letters: int) -> str:
    """What stands on a task: Mermaid writes what does not fit over its neighbours."""
    kind = ROLES[marks.role[k]]
    name = _text(short(picture.texts[marks.name[k]])) if marks.name[k] >= 0 else ""
    many = f"{int(marks.count[k])} ops from " if marks.count[k] > 1 else ""
    description = (
        f"overlap {duration(int(marks.busy[k]))}" if kind == "overlap" else f"{WORDS[kind]} {many}{name}".strip()
    )
    return next((text for text in (description, f"{WORDS[kind]} {name}") if len(text) <= letters), WORDS[kind])


def _text(text: str) -> str:
    """A text without what Mermaid could read as its own.

    >>> _text("nvtx:a;b#c<script>")
    'nvtx a b c script'
    """
    return _HARMLESS.sub(" ", text).strip()
