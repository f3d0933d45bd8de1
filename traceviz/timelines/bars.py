"""The bars of one role: their positions, the text on them and where it has room, and their hover texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, subtract, union
from analyzers.arrays.types import Ints, Mask
from traceviz.output.quantities import percent, size
from traceviz.timelines.marks import EARLY_ROLES, HELD, ROLES, UNKNOWN_INSTANT, Marks
from traceviz.timelines.picture import Picture
from traceviz.timelines.rows import Row
from traceviz.timelines.texts import (
    MIN_NAME_LETTERS,
    Unit,
    amount,
    fixed_name,
    full,
    instant,
    long,
    safe,
    short,
    wrapped,
)

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
MIN_READABLE_ROWS = 0.62  # rows; what is lower carries no text
# A bar that is not drawn: a trace without any would lose its legend entry.
NOTHING: dict[str, Any] = {"base": [None], "x": [None], "y": [None], "width": [0], "text": [""], "customdata": [[]]}
# What `customdata` holds, in this order; the page's script fills it in the same way.
HOVER = "<b>%{customdata[0]}</b><br>%{customdata[1]} · %{customdata[6]}%{customdata[4]}<extra>%{customdata[5]}</extra>"


def bars(
    picture: Picture, marks: Marks, role: int, pixels: int, free: Union, unit: Unit
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The data of a role's traces: single marks, marks that stand for many, and texts that stand above all marks.

    Positions are ms on the axis, and in `customdata` whole ns. Above all marks is written where there is room on those
    that the view cuts or others cover, and on what blocked a side.

    Parameters
    ----------
    pixels : how wide the plot is.
    free : where on each mark a text has room; unit : in which lengths are told.
    """
    rows = {row.number: row for band in picture.bands for row in band.rows}
    low, high = picture.low_ns, picture.high_ns
    held, is_launch = is_held(role), ROLES[role].startswith("launch")
    is_many = marks.count > 1
    is_whole = (free.starts == marks.start) & (free.ends == marks.end)
    # What blocks in a call that launches lies on it and on its text: that stays on the mark where the view cuts it.
    is_cut = (free.starts == np.maximum(marks.start, low)) & (free.ends == np.minimum(marks.end, high))
    letters = ((free.ends - free.starts) * (pixels / max(high - low, 1)) - INSIDE_PIXELS) / LETTER_PIXELS
    tall, fixed = heights(marks, role), fixed_name(ROLES[role], apparent=picture.apparent)
    names = [fixed or (picture.texts[name] if name >= 0 else "") for name in marks.name.tolist()]
    texts = [_text_of(role, names[k], marks, k, tall[k], int(letters[k]), unit) for k in range(marks.size)]
    is_on_mark = is_whole | is_cut if is_launch else is_whole
    is_above = (marks.whole > 0) & ~is_many if held else ~(is_whole | is_launch)
    is_above &= (free.ends > free.starts) & np.array([bool(text) for text in texts], bool)
    if held:
        is_on_mark = is_on_mark & is_many

    def data(which: Mask, starts: Ints, ends: Ints, *, has_hover: bool) -> dict[str, Any]:
        chosen = np.flatnonzero(which)
        if not chosen.size:
            return NOTHING
        hovers = [_hover(picture, marks, k, names[k], rows, unit) if has_hover else [] for k in chosen.tolist()]
        return {
            "base": starts[chosen] / NS_PER_MS,
            "x": (ends - starts)[chosen] / NS_PER_MS,
            "y": [rows[row].y for row in marks.row[chosen].tolist()],
            "width": tall[chosen],
            "text": [texts[k] if is_on_mark[k] or not has_hover else "" for k in chosen.tolist()],
            "customdata": hovers,
        }

    one, many = (data(of, marks.start, marks.end, has_hover=True) for of in (~is_many, is_many))
    return one, many, data(is_above, free.starts, free.ends, has_hover=False)


def _text_of(role: int, name: str, marks: Marks, k: int, high: float, letters: int, unit: Unit) -> str:
    """What stands on a mark that has room for so many letters; of what blocked a side with for how long."""
    count, whole = int(marks.count[k]), int(marks.whole[k])
    if count > 1:
        busy = percent(round(marks.busy[k] / max(marks.end[k] - marks.start[k], 1), 2))
        text = f"{count:,} × {busy}"
        return safe(text) if high >= MIN_READABLE_ROWS and letters >= len(text) else ""
    text = label(role, name if is_named_in_full(role) else short(name))
    if is_held(role):
        length = amount(whole, unit)
        return safe(next((one for one in (f"{text} {length}", text, length) if whole and letters >= len(one)), ""))
    if letters >= len(text):
        return safe(text)
    if text.startswith(RACE):
        return RACE if letters > 0 else ""
    return safe(f"{text[: letters - 1]}…") if letters >= MIN_NAME_LETTERS else ""


def _hover(picture: Picture, marks: Marks, k: int, name: str, rows: dict[int, Row], unit: Unit) -> list[Any]:
    """The hover text of a mark, as `HOVER` takes it."""
    role, count = int(marks.role[k]), int(marks.count[k])
    start, length = int(marks.start[k]), int(marks.end[k] - marks.start[k])
    wait, whole, held = int(marks.wait[k]), int(marks.whole[k]), is_held(role)
    lines = []
    if count == 1 and held and whole:
        lines.append(f"{amount(whole, unit)} in which the other side ran alone")
    elif count == 1 and not held and whole > 0:
        lines.append(f"waits {amount(wait, unit)} for the last rank, then transfers {amount(whole - wait, unit)}")
    if ROLES[role] in EARLY_ROLES and count == 1:
        lines.append(EARLY_MEANS)
    if marks.launch[k] != UNKNOWN_INSTANT:
        ago, row = int(start - marks.launch[k]), int(marks.launch_row[k])
        lines.append(f"launched {amount(ago, unit)} before" + (f", by {rows[row].label}" if row in rows else ""))
    if marks.bytes[k] >= 0:
        lines.append(size(int(marks.bytes[k])))
    if marks.extra[k] >= 0 and count == 1:
        lines += [safe(line) for line in wrapped(picture.texts[marks.extra[k]])]
    more = "".join(f"<br>{line}" for line in lines)
    name = long(name) if is_named_in_full(role) else full(name)
    if count > 1:
        name = f"{count:,} marks drawn as one, the longest {name}"
    busy = f"{amount(int(marks.busy[k]), unit)} busy" if count > 1 else ""
    when = f"from {instant(start, unit)} · {amount(length, unit)} long"
    return [safe(name), rows[int(marks.row[k])].label, start, length, more, busy, when]


def is_named_in_full(role: int) -> bool:
    """Whether a role's marks carry names as they are: those of kernels are cut to what tells most."""
    return ROLES[role].startswith("range-") or is_held(role)


def is_held(role: int) -> bool:
    """Whether a role's marks are of what blocked a side."""
    return ROLES[role] in HELD or ROLES[role] in EARLY_ROLES


def label(role: int, name: str) -> str:
    """What stands on a mark of a role."""
    word = ROLES[role]
    if word in EARLY_ROLES:
        return "not launched"
    if word == "overlap":
        return "overlap"
    if word.endswith("-wait"):
        return "waits"
    if word == "race":
        return f"{RACE} no wait"
    return f"blocked: {name}" if word.startswith("sync") else name


def full_height(role: int) -> float:
    """How high a single mark of a role is, in rows."""
    return HEIGHT.get(ROLES[role].partition("-")[0], FULL)


def heights(marks: Marks, role: int) -> Any:
    """How high marks are: those of many by their busy share."""
    full = full_height(role)
    share = marks.busy / np.maximum(marks.end - marks.start, 1)
    many = full * (HEIGHT["many"] + (1 - HEIGHT["many"]) * np.minimum(share, 1))
    return np.where(marks.count > 1, many, full)


def in_front(marks: Marks, order: dict[str, int]) -> Ints:
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
