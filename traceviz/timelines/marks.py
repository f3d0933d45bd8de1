"""Marks: what a timeline draws, as plain arrays, and how many of them become one where they are too small to see.

A mark is an interval on a row in a role. Marks of one row and role that are shorter than the resolution and begin in
the same bin of it become one, which keeps how many they were and for how long they were busy: nothing is dropped, the
counts and busy times of a row and role sum to the same at every resolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints, Mask
from analyzers.causes.table import CAUSE_TABLE, CAUSES
from analyzers.common.records import Record, values

# What blocked a side: a role a cause, and another for the time before its op was launched where something else blocked
# it for longer. The host's own causes and a late rank need none.
HELD = tuple(f"held-{cause}" for cause in CAUSES)
EARLY_ROLES = tuple(f"early-{cause.name}" for cause in CAUSE_TABLE if cause.also_unlaunched)
ROLES = (
    "a",
    "a-wait",
    "b",
    "b-wait",
    "other",
    "other-wait",
    "overlap",
    "overlap-wait",
    "launch-a",
    "launch-b",
    "launch-other",
    "sync",
    "sync-end",
    "range-a",
    "range-b",
    "range-other",
    "race",
    *HELD,
    *EARLY_ROLES,
)
ROLE = {name: number for number, name in enumerate(ROLES)}
UNKNOWN_INSTANT = -1 << 62  # an instant that is not known
FINE, COARSE = 1000, 100  # resolution to begin with: bins across what is looked at, and across everything
FASTER = 4  # times as coarse after each try that was too fine by far
NO_PLACES: Mapping[int, Sequence[tuple[int, int]]] = {}


class Marks(Record, frozen=True):
    """Marks sorted by (row, role, start); instants and lengths are ns.

    row, role : where it is drawn (`Row.number`), as what (position in `ROLES`).
    count : how many marks it stands for; busy : how long one of them lasted (their union, on this row and role).
    name, extra : positions in the picture's texts; of many, the longest one's.
    launch, launch_row : when and where the call that launched it began; `UNKNOWN_INSTANT` and -1 where unknown.
    after, after_row : end and row of the op that an event made it wait for, or, of a race, of the op that it did not
        wait for; `UNKNOWN_INSTANT` and -1 where there is none.
    bytes : moved, -1 unknown; wait, whole : of a collective's wait and its run, 0 where it is none. Of what held a side
        `whole` is for how long the other really ran.
    """

    row: Ints
    role: Ints
    start: Ints
    end: Ints
    count: Ints
    busy: Ints
    name: Ints
    extra: Ints
    launch: Ints
    launch_row: Ints
    after: Ints
    after_row: Ints
    bytes: Ints
    wait: Ints
    whole: Ints

    @property
    def size(self) -> int:
        """How many there are."""
        return self.row.size

    def take(self, rows: Ints | np.ndarray) -> Marks:
        """Some of them."""
        return Marks(**{name: column[rows] for name, column in values(self).items()})

    def moved(self, rows: Ints, texts: Ints, zero_ns: int = 0) -> Marks:
        """The same on other rows, with other numbers of texts, and times that count from `zero_ns`.

        rows, texts : the new number of each old one; the last stands for none, and is -1.
        """
        columns = values(self)
        for name in ("row", "launch_row", "after_row"):
            columns[name] = rows[columns[name]]
        for name in ("name", "extra"):
            columns[name] = texts[columns[name]]
        for name in ("start", "end", "launch", "after"):
            columns[name] = np.where(columns[name] == UNKNOWN_INSTANT, UNKNOWN_INSTANT, columns[name] - zero_ns)
        return Marks(**columns)


COLUMNS = Marks.__struct_fields__
DEFAULTS = {
    "count": 1,
    "extra": -1,
    "launch": UNKNOWN_INSTANT,
    "launch_row": -1,
    "after": UNKNOWN_INSTANT,
    "after_row": -1,
    "bytes": -1,
}


def make(row: Ints | int, role: Ints | int, start: Ints, end: Ints, **more: Ints | int) -> Marks:
    """Make marks out of columns and scalars; `busy` is worked out by `join`."""
    given = {"row": row, "role": role, "start": start, "end": end, **more}
    columns = {name: given.get(name, DEFAULTS.get(name, 0)) for name in COLUMNS}
    return Marks(
        **{name: np.broadcast_to(np.asarray(column, np.int64), start.shape) for name, column in columns.items()}
    )


NO_MARKS = make(0, 0, np.empty(0, np.int64), np.empty(0, np.int64))


def concatenated(some: Sequence[Marks]) -> Marks:
    """Marks one behind the other; they stay sorted where rows of the later ones come later."""
    return Marks(**{name: np.concatenate([getattr(one, name) for one in some]) for name in COLUMNS})


def join(parts: Sequence[Marks]) -> Marks:
    """Put marks together, sorted, and say for how long each is the first to keep its row busy in its role."""
    marks = concatenated(parts)
    marks = marks.take(np.lexsort((marks.end, marks.start, marks.role, marks.row)))
    busy = np.zeros(marks.size, np.int64)
    edges = np.flatnonzero(np.diff(marks.row * len(ROLES) + marks.role)) + 1
    for low, high in pairwise([0, *edges.tolist(), marks.size] if marks.size else []):
        start, end = marks.start[low:high], marks.end[low:high]
        covered_until = np.append(start[:1], np.maximum.accumulate(end)[:-1])
        busy[low:high] = np.maximum(end - np.maximum(start, covered_until), 0)
    return replace(marks, busy=busy)


def coarsen(marks: Marks, resolution: Ints) -> Marks:
    """Make one of marks that are shorter than the resolution and begin in the same bin of it.

    Parameters
    ----------
    resolution : ns, one per mark. Longer marks stay, and nothing is merged across them.
    """
    length = marks.end - marks.start
    short = length < resolution
    joined = np.flatnonzero(short[1:] & short[:-1]) + 1  # to the mark before them, where all else is the same, too
    for key in (marks.row, marks.role, resolution):
        joined = joined[key[joined] == key[joined - 1]]
    joined = joined[marks.start[joined] // resolution[joined] == marks.start[joined - 1] // resolution[joined]]
    if not joined.size:
        return marks
    head = np.ones(marks.size, dtype=bool)
    head[joined] = False
    heads = np.flatnonzero(head)
    sizes = np.diff(np.append(heads, marks.size))
    group = np.repeat(np.arange(heads.size), sizes)
    longest = np.flatnonzero(length == np.maximum.reduceat(length, heads)[group])
    merged = marks.take(longest[np.append(True, np.diff(group[longest]) > 0)])  # the first such stands for its group
    many = sizes > 1
    columns = values(merged)
    columns["start"] = marks.start[heads]
    columns["end"] = np.maximum.reduceat(marks.end, heads)
    for name in ("count", "busy", "wait"):
        columns[name] = np.add.reduceat(getattr(marks, name), heads)
    for name in ("launch", "launch_row", "after", "after_row", "bytes"):
        columns[name][many] = DEFAULTS[name]
    return Marks(**columns)


class Pieces:
    """Marks of a picture piece by piece, by row, each row in one of them; in files of a folder where one is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._held: list[Marks | Path] = []

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, number: int) -> Marks:
        found = self._held[number]
        return found if isinstance(found, Marks) else Marks(*np.load(found))

    def __setitem__(self, number: int, marks: Marks) -> None:
        if self.folder is None:
            self._held[number] = marks
        else:
            self._held[number] = self.folder / f"{number}.npy"
            np.save(self.folder / f"{number}.npy", np.stack(list(values(marks).values())))

    def append(self, marks: Marks) -> None:
        """Add the next piece."""
        self._held.append(marks)
        self[len(self) - 1] = marks

    def __iter__(self) -> Iterator[Marks]:
        return (self[number] for number in range(len(self)))


def fit(marks: Marks, low: int, high: int, most: int, *, fine: int | None = None, weights: Ints | None = None) -> Marks:
    """Coarsen until at most so many marks are left, or one per row and role: finely in [low, high), coarsely outside.

    Parameters
    ----------
    fine : the resolution in [low, high) to begin with, ns; a thousandth of it where not given.
    weights : by row and role, how many times as coarse as others marks are.
    """
    if not marks.size:
        return marks
    pieces = Pieces()
    pieces.append(marks)
    fit_pieces(pieces, (int(marks.start.min()), int(marks.end.max())), (low, high), most, fine=fine, weights=weights)
    return pieces[0]


def fit_pieces(
    pieces: Pieces,
    whole: tuple[int, int],
    shown: tuple[int, int],
    most: int,
    *,
    fine: int | None = None,
    coarse: int | None = None,
    also: Mapping[int, Sequence[tuple[int, int]]] = NO_PLACES,
    weights: Ints | None = None,
) -> None:
    """The same with marks in pieces, of which one is in memory at a time.

    Parameters
    ----------
    whole : from when to when there are marks; shown : where they are coarsened finely.
    coarse : the resolution elsewhere to begin with, ns; a hundredth of the whole where not given.
    also : where else marks are coarsened finely, by the number of a piece.
    weights : by row and role, how many times as coarse as others marks are.
    """
    (first, last), (low, high) = whole, shown
    coarse = max((last - first) // COARSE, 1) if coarse is None else coarse
    fine = max((high - low) // FINE, 1) if fine is None else fine
    while True:
        size = near = 0
        for number in range(len(pieces)):
            marks = pieces[number]
            spans = ((low, high), *also.get(number, ()))
            # Of marks before and after a span none become one: nothing is drawn across it.
            passed = np.sum([marks.start > end for _, end in spans], axis=0)
            resolution = np.where(_inside(marks, spans), fine, max(coarse, fine) + passed)
            fewer = coarsen(marks, resolution if weights is None else resolution * weights[marks.row, marks.role])
            if fewer is not marks:  # what became one stays one
                pieces[number] = fewer
            size += fewer.size
            near += int(np.count_nonzero(_inside(fewer, spans)))
        if size <= most or fine > 2 * (last - first):
            return
        if 4 * near > 3 * most or coarse > 2 * (last - first):
            fine *= 2
        else:
            coarse *= 2 if coarse * COARSE > last - first else FASTER


def _inside(marks: Marks, spans: Sequence[tuple[int, int]]) -> Mask:
    """Which marks reach into one of some spans."""
    found = np.zeros(marks.size, bool)
    for low, high in spans:
        found |= (marks.end >= low) & (marks.start <= high)
    return found
