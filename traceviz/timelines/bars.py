"""The bars of one role: their positions, the text on them, and their hover texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceviz.output.quantities import size
from traceviz.timelines.marks import NEVER, ROLES, Marks
from traceviz.timelines.picture import Picture
from traceviz.timelines.texts import LEAST, fixed_name, long, safe, short, wrapped

PLOT_PIXELS, LETTER_PIXELS, INSIDE_PIXELS = 1000, 7, 8  # by which it is judged what text a mark has room for
NS_PER_MS = 1e6
HEIGHT = {
    "launch": 0.5,
    "range": 0.78,
    "race": 0.6,
    "many": 0.2,
}  # in rows; marks of many grow from this with their busy share
FULL = 0.84
RACE = "⚠"  # stands where its words have no room
READABLE = 0.5  # rows; what is lower carries no text
# A bar that is not drawn: a trace without any would lose its legend entry.
NOTHING: dict[str, Any] = {"base": [None], "x": [None], "y": [None], "width": [0], "text": [""], "customdata": [[]]}
# What `customdata` holds, in this order; the page's script fills it in the same way.
HOVER = (
    "<b>%{customdata[0]}</b><br>%{customdata[1]} · from %{customdata[2]:,} ns · %{customdata[3]:,} ns"
    "%{customdata[4]}<extra>%{customdata[5]}</extra>"
)


def bars(picture: Picture, marks: Marks, role: int) -> dict[str, Any]:
    """The data of a trace: positions in ms on the axis, and in `customdata` whole ns."""
    rows = {row.number: row for band in picture.bands for row in band.rows}
    length = marks.end - marks.start
    letters, cut = _room(picture, marks), _is_cut(picture, marks)
    high = heights(marks, role)
    texts, custom = [], []
    fixed = fixed_name(ROLES[role], apparent=picture.apparent)
    for k in range(marks.size):
        count, row = int(marks.count[k]), rows[int(marks.row[k])]
        name = fixed or (picture.texts[marks.name[k]] if marks.name[k] >= 0 else "")
        if count > 1:
            text = f"{count:,} × {marks.busy[k] / max(length[k], 1):.0%}" if high[k] >= READABLE else ""
            name = f"{count:,} marks drawn as one, the longest {long(name)}"
        else:
            text = "" if cut[k] else label(role, name if is_named_in_full(role) else short(name))
        texts.append(safe(_cut(text, int(letters[k]), whole=count > 1)))
        busy = f"{int(marks.busy[k]):,} ns busy" if count > 1 else ""
        hover = (safe(long(name)), row.label, int(marks.start[k]), int(length[k]), _more(picture, marks, k, rows), busy)
        custom.append(list(hover))
    if not marks.size:
        return NOTHING
    return {
        "base": marks.start / NS_PER_MS,
        "x": length / NS_PER_MS,
        "y": [rows[row].y for row in marks.row.tolist()],
        "width": high,
        "text": texts,
        "customdata": custom,
    }


def labels(picture: Picture, marks: Marks, role: int) -> dict[str, Any]:
    """The data of a trace that writes on those marks that the view cuts, in the middle of what is seen of them."""
    cut_marks = marks.take(_is_cut(picture, marks) & (marks.start < picture.high_ns) & (marks.end > picture.low_ns))
    if not cut_marks.size:
        return NOTHING
    rows = {row.number: row for band in picture.bands for row in band.rows}
    start, end = np.maximum(cut_marks.start, picture.low_ns), np.minimum(cut_marks.end, picture.high_ns)
    fixed = fixed_name(ROLES[role], apparent=picture.apparent)
    texts = [fixed or (picture.texts[name] if name >= 0 else "") for name in cut_marks.name.tolist()]
    texts = [label(role, text if is_named_in_full(role) else short(text)) for text in texts]
    return {
        "base": start / NS_PER_MS,
        "x": (end - start) / NS_PER_MS,
        "y": [rows[row].y for row in cut_marks.row.tolist()],
        "width": heights(cut_marks, role),
        "text": [
            safe(_cut(text, int(room), whole=False))
            for text, room in zip(texts, _room(picture, cut_marks), strict=True)
        ],
        "customdata": [[]] * cut_marks.size,
    }


def _is_cut(picture: Picture, marks: Marks) -> Any:
    return (marks.start < picture.low_ns) | (marks.end > picture.high_ns)


def _room(picture: Picture, marks: Marks) -> Any:
    """Letters that have room on what is seen of each mark."""
    visible = np.minimum(marks.end, picture.high_ns) - np.maximum(marks.start, picture.low_ns)
    return (visible * (PLOT_PIXELS / max(picture.high_ns - picture.low_ns, 1)) - INSIDE_PIXELS) / LETTER_PIXELS


def is_named_in_full(role: int) -> bool:
    """Whether a role's marks carry names as they are: those of kernels are cut to what tells most."""
    return ROLES[role].startswith("range-")


def label(role: int, name: str) -> str:
    """What stands on a mark of a role."""
    word = ROLES[role]
    if word == "overlap":
        return "overlap"
    if word.endswith("-wait"):
        return "waits"
    if word == "race":
        return f"{RACE} no wait"
    return f"blocked: {name}" if word == "sync" else name


def _cut(text: str, letters: int, *, whole: bool) -> str:
    """A text cut to so many letters; nothing where too little would be left, or it has to be `whole`."""
    if letters >= len(text):
        return text
    if text.startswith(RACE):
        return RACE if letters > 0 else ""
    return f"{text[: letters - 1]}…" if letters >= LEAST and not whole else ""


def full_height(role: int) -> float:
    """How high a single mark of a role is, in rows."""
    return HEIGHT.get(ROLES[role].partition("-")[0], FULL)


def heights(marks: Marks, role: int) -> Any:
    """How high marks are: those of many by their busy share."""
    full = full_height(role)
    share = marks.busy / np.maximum(marks.end - marks.start, 1)
    many = full * (HEIGHT["many"] + (1 - HEIGHT["many"]) * np.minimum(share, 1))
    return np.where(marks.count > 1, many, full)


def _more(picture: Picture, marks: Marks, k: int, rows: dict[int, Any]) -> str:
    """Further lines of a hover text."""
    lines = []
    if marks.count[k] == 1 and marks.whole[k] > 0:
        wait, whole = int(marks.wait[k]), int(marks.whole[k])
        lines.append(f"waits {wait:,} ns for the last rank, then transfers {whole - wait:,} ns")
    if marks.launch[k] != NEVER:
        ago, row = int(marks.start[k] - marks.launch[k]), int(marks.launch_row[k])
        lines.append(f"launched {ago:,} ns before" + (f", by {rows[row].label}" if row >= 0 else ""))
    if marks.bytes[k] >= 0:
        lines.append(size(int(marks.bytes[k])))
    if marks.extra[k] >= 0 and marks.count[k] == 1:
        lines += [safe(line) for line in wrapped(picture.texts[marks.extra[k]])]
    return "".join(f"<br>{line}" for line in lines)
