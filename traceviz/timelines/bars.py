"""The bars of one role: their positions, the text on them and where it has room, and their hover texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, subtract, union
from analyzers.arrays.types import Ints
from traceviz.output.quantities import percent, size
from traceviz.timelines.marks import EARLY, HELD, NEVER, ROLES, Marks
from traceviz.timelines.picture import Picture
from traceviz.timelines.texts import LEAST, Unit, amount, fixed_name, full, instant, long, safe, short, wrapped

LETTER_PIXELS, INSIDE_PIXELS = 7, 8  # by which it is judged what text a mark has room for
NS_PER_MS = 1e6
HEIGHT = {
    "launch": 0.5,
    "range": 0.78,
    "race": 0.6,
    "many": 0.2,
}  # in rows; marks of many grow from this with their busy share
FULL = 0.84
EARLY_MEANS = "not launched yet either; what blocked it for longer counts"
RACE = "⚠"  # stands where its words have no room
READABLE = 0.62  # rows; what is lower carries no text
# A bar that is not drawn: a trace without any would lose its legend entry.
NOTHING: dict[str, Any] = {"base": [None], "x": [None], "y": [None], "width": [0], "text": [""], "customdata": [[]]}
# What `customdata` holds, in this order; the page's script fills it in the same way.
HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]} · %{customdata[6]}%{customdata[4]}<extra>%{customdata[5]}</extra>"


def bars(picture: Picture, marks: Marks, role: int, pixels: int, free: Union, unit: Unit) -> dict[str, Any]:
    """The data of a trace: positions in ms on the axis, and in `customdata` whole ns.

    Parameters
    ----------
    pixels : how wide the plot is.
    free : where on each mark a text has room; unit : in which lengths are told.
    """
    rows = {row.number: row for band in picture.bands for row in band.rows}
    length = marks.end - marks.start
    letters, whole = (
        _letters(picture, free, pixels),
        _is_whole(marks, free) | _is_cut_launch(picture, marks, role, free),
    )
    high = heights(marks, role)
    texts, custom, held = [], [], is_held(role)
    fixed = fixed_name(ROLES[role], apparent=picture.apparent)
    for k in range(marks.size):
        count, row = int(marks.count[k]), rows[int(marks.row[k])]
        name = fixed or (picture.texts[marks.name[k]] if marks.name[k] >= 0 else "")
        text = (
            ""
            if not whole[k] or (held and count == 1)
            else _text_of(role, name, marks, k, high[k], int(letters[k]), unit)
        )
        name = _hover_name(role, name)
        if count > 1:
            name = f"{count:,} marks drawn as one, the longest {name}"
        texts.append(text)
        busy = f"{amount(int(marks.busy[k]), unit)} busy" if count > 1 else ""
        start, ns = int(marks.start[k]), int(length[k])
        when = f"from {instant(start, unit)} · {amount(ns, unit)} long"
        custom.append([safe(name), row.label, start, ns, _more(picture, marks, k, rows, unit), busy, when])
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


def labels(picture: Picture, marks: Marks, role: int, pixels: int, free: Union, unit: Unit) -> dict[str, Any]:
    """The data of a trace that writes above all marks: where there is room on those that the view cuts or others
    cover, and on what blocked a side."""
    wanted = (marks.whole > 0) & (marks.count == 1) if is_held(role) else ~_is_whole(marks, free) & ~is_launch(role)
    chosen = np.flatnonzero(wanted & (free.ends > free.starts))
    some, rows = marks.take(chosen), {row.number: row for band in picture.bands for row in band.rows}
    start, end = free.starts[chosen], free.ends[chosen]
    fixed, high = fixed_name(ROLES[role], apparent=picture.apparent), heights(some, role)
    texts = [
        _text_of(role, fixed or (picture.texts[name] if name >= 0 else ""), some, k, high[k], int(letters), unit)
        for k, (name, letters) in enumerate(
            zip(some.name.tolist(), _letters(picture, Union(start, end), pixels), strict=True)
        )
    ]
    told = [k for k, text in enumerate(texts) if text]
    if not told:
        return NOTHING
    return {
        "base": start[told] / NS_PER_MS,
        "x": (end - start)[told] / NS_PER_MS,
        "y": [rows[row].y for row in some.row[told].tolist()],
        "width": high[told],
        "text": [texts[k] for k in told],
        "customdata": [[]] * len(told),
    }


def _text_of(role: int, name: str, marks: Marks, k: int, high: float, letters: int, unit: Unit) -> str:
    """What stands on a mark that has room for so many letters."""
    count = int(marks.count[k])
    if count > 1:
        busy = percent(round(marks.busy[k] / max(marks.end[k] - marks.start[k], 1), 2))
        return safe(_cut(f"{count:,} × {busy}", letters, whole=True)) if high >= READABLE else ""
    return safe(_cut(_label_of(role, name, int(marks.whole[k]), letters, unit), letters, whole=False))


def _is_whole(marks: Marks, free: Union) -> Any:
    """Whether a text has room on all of each mark."""
    return (free.starts == marks.start) & (free.ends == marks.end)


def _is_cut_launch(picture: Picture, marks: Marks, role: int, free: Union) -> Any:
    """Whether each is of a call that launches and is cut by the view alone."""
    start, end = np.maximum(marks.start, picture.low_ns), np.minimum(marks.end, picture.high_ns)
    return is_launch(role) & (free.starts == start) & (free.ends == end)


def _letters(picture: Picture, free: Union, pixels: int) -> Any:
    """Letters that have room on each mark."""
    length = free.ends - free.starts
    return (length * (pixels / max(picture.high_ns - picture.low_ns, 1)) - INSIDE_PIXELS) / LETTER_PIXELS


def is_named_in_full(role: int) -> bool:
    """Whether a role's marks carry names as they are: those of kernels are cut to what tells most."""
    return ROLES[role].startswith("range-") or is_held(role)


def is_held(role: int) -> bool:
    """Whether a role's marks are of what blocked a side."""
    return ROLES[role] in HELD or ROLES[role] in EARLY


def is_launch(role: int) -> np.bool_:
    """Whether a role's marks are of calls that launch: what blocks in such a call lies on it and on its text."""
    return np.bool_(ROLES[role].startswith("launch"))


def _hover_name(role: int, name: str) -> str:
    return long(name) if is_named_in_full(role) else full(name)


def _label_of(role: int, name: str, whole: int, letters: int, unit: Unit) -> str:
    """The same of a mark that stands for itself; of what blocked a side with for how long."""
    text = label(role, name if is_named_in_full(role) else short(name))
    if not is_held(role):
        return text
    length = amount(whole, unit)
    return next((one for one in (f"{text} {length}", text, length) if whole and letters >= len(one)), "")


def label(role: int, name: str) -> str:
    """What stands on a mark of a role."""
    word = ROLES[role]
    if word in EARLY:
        return "not launched"
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


def _more(picture: Picture, marks: Marks, k: int, rows: dict[int, Any], unit: Unit) -> str:
    """Further lines of a hover text."""
    lines = []
    wait, whole, held = int(marks.wait[k]), int(marks.whole[k]), is_held(int(marks.role[k]))
    if marks.count[k] == 1 and held and whole:
        lines.append(f"{amount(whole, unit)} in which the other side ran alone")
    elif marks.count[k] == 1 and not held and whole > 0:
        lines.append(f"waits {amount(wait, unit)} for the last rank, then transfers {amount(whole - wait, unit)}")
    if ROLES[marks.role[k]] in EARLY and marks.count[k] == 1:
        lines.append(EARLY_MEANS)
    if marks.launch[k] != NEVER:
        ago, row = int(marks.start[k] - marks.launch[k]), int(marks.launch_row[k])
        launcher = f", by {rows[row].label}" if row in rows else ""
        lines.append(f"launched {amount(ago, unit)} before{launcher}")
    if marks.bytes[k] >= 0:
        lines.append(size(int(marks.bytes[k])))
    if marks.extra[k] >= 0 and marks.count[k] == 1:
        lines += [safe(line) for line in wrapped(picture.texts[marks.extra[k]])]
    return "".join(f"<br>{line}" for line in lines)


def above(marks: Marks, order: dict[str, int]) -> Ints:
    """How far in front each mark is drawn: by the place of its role, those of many in front of single ones."""
    place = np.array([order.get(role, -1) for role in ROLES], np.int64)
    return 2 * place[marks.role] + (marks.count > 1)


def room(marks: Marks, front: Ints, low: int, high: int, least: int) -> tuple[Ints, Ints]:
    """The part of each mark on which a text has room, from and to in ns.

    Parameters
    ----------
    front : how far in front each is drawn; of two of the same that which comes later.
    low, high : what is in view; least : what is seen of marks that are to have a text, ns: the others are left alone.

    Of a mark from 0 to 100 on which another lies from 20 to 30, it is 30 to 100.
    """
    start, end = np.maximum(marks.start, low), np.minimum(marks.end, high)
    free_start, free_end = start.copy(), end.copy()
    for rows in rows_by_key(marks.row).values():
        in_view = rows[(end[rows] > start[rows])]
        for k in in_view[(end - start)[in_view] >= least].tolist():
            in_front = (front[in_view] > front[k]) | ((front[in_view] == front[k]) & (in_view > k))
            covers = in_view[in_front & (start[in_view] < end[k]) & (end[in_view] > start[k])]
            if covers.size:
                left = subtract(Union(start[k : k + 1], end[k : k + 1]), union(start[covers], end[covers]))
                longest = int(np.argmax(left.ends - left.starts)) if left.starts.size else -1
                free_start[k] = left.starts[longest] if longest >= 0 else start[k]
                free_end[k] = left.ends[longest] if longest >= 0 else start[k]
    return free_start, free_end
