"""The bars of one role: their positions, the text on them, and their hover texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceviz.output.quantities import percent, size
from traceviz.timelines.marks import EARLY, HELD, NEVER, ROLES, Marks
from traceviz.timelines.picture import Picture
from traceviz.timelines.texts import LEAST, fixed_name, full, long, micros, safe, short, wrapped

LETTER_PIXELS, INSIDE_PIXELS = 7, 8  # by which it is judged what text a mark has room for
NS_PER_MS = 1e6
HEIGHT = {
    "launch": 0.5,
    "range": 0.78,
    "race": 0.6,
    "many": 0.2,
}  # in rows; marks of many grow from this with their busy share
FULL = 0.84
EARLY_MEANS = "not submitted by then either; what held it for longer counts"
RACE = "⚠"  # stands where its words have no room
READABLE = 0.5  # rows; what is lower carries no text
# A bar that is not drawn: a trace without any would lose its legend entry.
NOTHING: dict[str, Any] = {"base": [None], "x": [None], "y": [None], "width": [0], "text": [""], "customdata": [[]]}
# What `customdata` holds, in this order; the page's script fills it in the same way.
HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]} · %{customdata[6]}%{customdata[4]}<extra>%{customdata[5]}</extra>"


def bars(picture: Picture, marks: Marks, role: int, pixels: int) -> dict[str, Any]:
    """The data of a trace: positions in ms on the axis, and in `customdata` whole ns.

    Parameters
    ----------
    pixels : how wide the plot is.
    """
    rows = {row.number: row for band in picture.bands for row in band.rows}
    length = marks.end - marks.start
    letters, cut = _room(picture, marks, pixels), _is_cut(picture, marks) & ~is_launch(role)
    high = heights(marks, role)
    texts, custom, held = [], [], is_held(role)
    fixed = fixed_name(ROLES[role], apparent=picture.apparent)
    for k in range(marks.size):
        count, row = int(marks.count[k]), rows[int(marks.row[k])]
        name = fixed or (picture.texts[marks.name[k]] if marks.name[k] >= 0 else "")
        if count > 1:
            text = f"{count:,} × {percent(round(marks.busy[k] / max(length[k], 1), 2))}" if high[k] >= READABLE else ""
            name = f"{count:,} marks drawn as one, the longest {_hover_name(role, name)}"
        else:
            text = "" if cut[k] or held else _label_of(role, name, int(marks.whole[k]), int(letters[k]))
            name = _hover_name(role, name)
        texts.append(safe(_cut(text, int(letters[k]), whole=count > 1)))
        busy = f"{micros(int(marks.busy[k]))} busy" if count > 1 else ""
        start, ns = int(marks.start[k]), int(length[k])
        when = f"from {start / 1000:,.3f} µs · {micros(ns)} long"
        custom.append([safe(name), row.label, start, ns, _more(picture, marks, k, rows), busy, when])
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


def labels(picture: Picture, marks: Marks, role: int, pixels: int) -> dict[str, Any]:
    """The data of a trace that writes above all marks: in the middle of what is seen of those that the view cuts, and
    on what held a side, where a shorter piece may lie on a longer one."""
    wanted = marks.whole > 0 if is_held(role) else _is_cut(picture, marks) & ~is_launch(role)
    cut_marks = marks.take(wanted & (marks.start < picture.high_ns) & (marks.end > picture.low_ns))
    if not cut_marks.size:
        return NOTHING
    rows = {row.number: row for band in picture.bands for row in band.rows}
    start, end = np.maximum(cut_marks.start, picture.low_ns), np.minimum(cut_marks.end, picture.high_ns)
    fixed = fixed_name(ROLES[role], apparent=picture.apparent)
    texts = [fixed or (picture.texts[name] if name >= 0 else "") for name in cut_marks.name.tolist()]
    room = [int(letters) for letters in _room(picture, cut_marks, pixels)]
    texts = [
        _label_of(role, text, ns, letters)
        for text, ns, letters in zip(texts, cut_marks.whole.tolist(), room, strict=True)
    ]
    return {
        "base": start / NS_PER_MS,
        "x": (end - start) / NS_PER_MS,
        "y": [rows[row].y for row in cut_marks.row.tolist()],
        "width": heights(cut_marks, role),
        "text": [safe(_cut(text, letters, whole=False)) for text, letters in zip(texts, room, strict=True)],
        "customdata": [[]] * cut_marks.size,
    }


def _is_cut(picture: Picture, marks: Marks) -> Any:
    return (marks.start < picture.low_ns) | (marks.end > picture.high_ns)


def _room(picture: Picture, marks: Marks, pixels: int) -> Any:
    """Letters that have room on what is seen of each mark."""
    visible = np.minimum(marks.end, picture.high_ns) - np.maximum(marks.start, picture.low_ns)
    return (visible * (pixels / max(picture.high_ns - picture.low_ns, 1)) - INSIDE_PIXELS) / LETTER_PIXELS


def is_named_in_full(role: int) -> bool:
    """Whether a role's marks carry names as they are: those of kernels are cut to what tells most."""
    return ROLES[role].startswith("range-")


def is_held(role: int) -> bool:
    """Whether a role's marks are of what held a side."""
    return ROLES[role] in HELD or ROLES[role] in EARLY


def is_launch(role: int) -> np.bool_:
    """Whether a role's marks are of calls that launch: what blocks in such a call lies on it and on its text."""
    return np.bool_(ROLES[role].startswith("launch"))


def _hover_name(role: int, name: str) -> str:
    return long(name) if is_named_in_full(role) else full(name)


def _label_of(role: int, name: str, whole: int, letters: int) -> str:
    """What stands on a mark that has room for so many letters; of what held a side with for how long."""
    text = label(role, name if is_named_in_full(role) else short(name))
    if not is_held(role):
        return text
    told = f"{text} {micros(whole)}"
    return told if letters >= len(told) else micros(whole) if letters >= len(micros(whole)) else ""


def label(role: int, name: str) -> str:
    """What stands on a mark of a role."""
    word = ROLES[role]
    if word in EARLY:
        return "not submitted"
    if word == "overlap":
        return "overlap"
    if word.endswith("-wait"):
        return "waits"
    if word == "race":
        return f"{RACE} no wait"
    return f"blocked: {name}" if word.startswith("sync") else name


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
    wait, whole, held = int(marks.wait[k]), int(marks.whole[k]), is_held(int(marks.role[k]))
    if marks.count[k] == 1 and held and whole:
        lines.append(f"{micros(whole)} in which the other side ran alone")
    elif marks.count[k] == 1 and not held and whole > 0:
        lines.append(f"waits {micros(wait)} for the last rank, then transfers {micros(whole - wait)}")
    if ROLES[marks.role[k]] in EARLY and marks.count[k] == 1:
        lines.append(EARLY_MEANS)
    if marks.launch[k] != NEVER:
        ago, row = int(marks.start[k] - marks.launch[k]), int(marks.launch_row[k])
        launcher = f", by {rows[row].label}" if row in rows else ""
        lines.append(f"launched {micros(ago)} before{launcher}")
    if marks.bytes[k] >= 0:
        lines.append(size(int(marks.bytes[k])))
    if marks.extra[k] >= 0 and marks.count[k] == 1:
        lines += [safe(line) for line in wrapped(picture.texts[marks.extra[k]])]
    return "".join(f"<br>{line}" for line in lines)
