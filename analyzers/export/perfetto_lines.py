"""Events of a Chrome trace as lines of JSON, written column by column: no object per event is made.

Format: "Trace Event Format", Google. Times are decimal microseconds with all three decimals, so that a whole
nanosecond is written as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, starmap
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.trace.ranges import levels

ROWS_PER_WRITE = 1 << 16  # written at once
_DECIMALS = pa.array([f".{number:03d}" for number in range(1000)])

Column = Any  # int64 array, float64 array, Categorical, or list of texts


class Events(Record, frozen=True):
    """Events of one phase and category.

    pid, tid, start_ns, duration_ns : arrays of one length; `duration_ns` None where the phase has none.
    category, name : one text, or a column of them.
    args : what else is said; a value that equals its entry in `defaults` is left out, and so is a missing text there.
    head : fields of the event itself, such as "id" of a flow.
    """

    phase: str
    category: str | pd.Categorical
    name: str | pd.Categorical
    pid: Ints
    tid: Ints
    start_ns: Ints
    duration_ns: Ints | None = None
    args: Mapping[str, Column] = msgspec.field(default_factory=dict)
    defaults: Mapping[str, Any] = msgspec.field(default_factory=dict)
    head: Mapping[str, Column] = msgspec.field(default_factory=dict)


def text(value: Any) -> str:
    """A value as JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a character, from a name that was cut
        return msgspec.json.encode(str(value).encode("utf-8", "replace").decode()).decode()


Piece = Any  # a piece of each line: one text for all, or an Arrow array of texts


def lines(events: Events, zero: int) -> Iterator[memoryview]:
    """The events as bytes, each preceded by a comma and a new line.

    Parameters
    ----------
    zero : the time that becomes 0.
    """
    columns = {"cat": events.category, "name": events.name, "pid": events.pid, "tid": events.tid}
    for low in range(0, events.start_ns.size, ROWS_PER_WRITE):
        rows = slice(low, low + ROWS_PER_WRITE)
        parts: list[Piece] = [f',\n{{"ph":{text(events.phase)}']
        for key, values in columns.items():
            parts += [f',"{key}":', _json(values if isinstance(values, str) else values[rows])]
        parts += [',"ts":', *_microseconds(events.start_ns[rows] - zero)]
        if events.duration_ns is not None:
            parts += [',"dur":', *_microseconds(events.duration_ns[rows])]
        for key, values in events.head.items():
            parts += [f",{text(key)}:", _json(values if isinstance(values, str) else values[rows])]
        parts += [',"args":{', *_arguments(events, rows), "}}"] if events.args else ["}"]
        line = _joined(parts)
        offsets = np.frombuffer(line.buffers()[1], np.int32)[line.offset : line.offset + len(line) + 1]
        yield memoryview(line.buffers()[2])[offsets[0] : offsets[-1]]  # the texts, end to end


def _joined(parts: Sequence[Piece]) -> pa.Array:
    """The lines, of pieces of which at least one is an array; joining takes its time for each piece."""
    pieces: list[Piece] = []
    for part in parts:
        if isinstance(part, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += part
        else:
            pieces.append(part)
    return pc.binary_join_element_wise(*pieces, "")


def _arguments(events: Events, rows: slice) -> list[Piece]:
    """All args as `"key":value,…`, in pieces; every one begins with a comma, of which the first is cut off."""
    parts: list[Piece] = []
    for key, values in events.args.items():
        some = values[rows]
        said = _differs(some, events.defaults[key]) if key in events.defaults else None
        if said is None or said.all():
            parts += [f",{text(key)}:", _json(some)]
        elif said.any():
            parts.append(pc.if_else(pa.array(said), _joined([f",{text(key)}:", _json(some)]), ""))
    if parts and isinstance(parts[0], str):
        return [parts[0][1:], *parts[1:]]
    return [pc.utf8_slice_codeunits(_joined([pa.array([""] * len(events.start_ns[rows])), *parts]), 1)]


def _differs(values: Column, default: Any) -> Mask:
    if isinstance(values, pd.Categorical):
        other = np.array([each != default for each in values.categories] + [False], bool)  # the last: a missing text
        return other[values.codes]
    if isinstance(values, list):
        return np.array([each != default for each in values], bool)
    return np.asarray(values != default)


def _json(values: Column) -> Piece:
    """Each value as JSON text."""
    if isinstance(values, str):
        return text(values)
    if isinstance(values, pd.Categorical):
        known = [*(text(str(each)) for each in values.categories), "null"]
        return pa.array(known, pa.string()).take(pa.array(values.codes.astype(np.int64) % len(known)))
    if isinstance(values, list):
        return pa.array([text(each) for each in values], pa.string())
    array = pa.array(values)
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_finite(array), pc.cast(array, pa.string()), "null")
    return pc.cast(array, pa.string())


def _microseconds(times: Ints) -> list[Piece]:
    """Times as decimal microseconds, exactly, in pieces, one of them an array."""
    whole, rest = np.divmod(np.abs(times), 1000)
    pieces = [pc.cast(pa.array(whole), pa.string()), _DECIMALS.take(pa.array(rest))]
    return [pc.if_else(pa.array(times < 0), "-", ""), *pieces] if (times < 0).any() else pieces


# Tracks of a Chrome trace: numbers and names of its processes and threads, and room for what crosses.
#
# Slices of one track must nest: Perfetto drops one that begins inside another and ends after it. Such slices go to a
# further track of the same name. No number is used for two tracks, and none is 0, which Perfetto takes for idle.


@dataclass
class Tracks:
    """Hands out numbers; `metadata` are the events that name them, in the order they are to be shown."""

    metadata: list[dict[str, Any]] = field(default_factory=list)
    _processes: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _threads: dict[tuple[int, str], int] = field(default_factory=dict)

    def process(self, key: tuple[Any, ...], name: str) -> int:
        """The pid of a group of tracks, a new one the first time."""
        if key not in self._processes:
            pid = self._processes[key] = len(self._processes) + 1
            self._name("process", pid, pid, name, pid)
        return self._processes[key]

    def thread(self, pid: int, name: str) -> int:
        """The tid of a track by its name, a new one the first time."""
        key = (pid, name)
        if key not in self._threads:
            tid = self._threads[key] = len(self._threads) + 1
            self._name("thread", pid, tid, name, tid)
        return self._threads[key]

    def pids(self, tid: Ints) -> Ints:
        """The pid of each of some tracks."""
        return np.array([0, *(pid for pid, _ in self._threads)])[tid]

    def spread(self, pid: int, name: str, starts: Ints, ends: Ints) -> Ints:
        """The tid of each slice of a track: the track's own, or a further one's where it would cross another."""
        tid, left, turn = np.zeros(starts.size, np.int64), np.arange(starts.size), 0
        while left.size:
            nested = nesting(starts[left], ends[left])
            tid[left[nested]] = self.thread(pid, f"{name} ({turn + 1})" if turn else name)
            left, turn = left[~nested], turn + 1
        return tid

    def _name(self, what: str, pid: int, tid: int, name: str, sort_index: int) -> None:
        for key, args in ((f"{what}_name", {"name": name}), (f"{what}_sort_index", {"sort_index": sort_index})):
            self.metadata.append({"ph": "M", "name": key, "pid": pid, "tid": tid, "ts": 0, "args": args})


def nesting(starts: Ints, ends: Ints) -> Mask:
    """Which of some intervals to keep so that none begins inside another and ends after it; the outer ones stay."""
    by_level = levels(np.arange(starts.size), starts, ends)
    if all(starmap(_lie_within, pairwise(by_level))):
        return np.ones(starts.size, dtype=bool)
    kept: Mask = np.zeros(starts.size, dtype=bool)
    shallower: list[tuple[Ints, Ints]] = []
    for rows, low, high in by_level:
        fits = np.ones(rows.size, dtype=bool)
        for other_low, other_high in shallower:
            fits &= ~(
                _crosses(low, high, other_low, other_high, low) | _crosses(low, high, other_low, other_high, high)
            )
        kept[rows[fits]] = True
        shallower.append((low[fits], high[fits]))
    return kept


def _lie_within(outer: tuple[Ints, Ints, Ints], inner: tuple[Ints, Ints, Ints]) -> bool:
    """Whether each interval of a level lies in one of the level above, as it does wherever nothing crosses."""
    (_, outer_low, outer_high), (_, low, high) = outer, inner
    around = np.searchsorted(outer_low, low, side="right") - 1
    return bool((around >= 0).all() and (high <= outer_high[around]).all())


def _crosses(low: Ints, high: Ints, other_low: Ints, other_high: Ints, at: Ints) -> npt.NDArray[np.bool_]:
    """Whether the one of some disjoint intervals around an instant neither holds its interval nor lies in it."""
    if not other_low.size:
        return np.zeros(low.size, dtype=bool)
    around = np.searchsorted(other_low, at, side="right") - 1
    start, end = other_low[around], other_high[around]
    meets = (around >= 0) & (start < high) & (low < end)
    return meets & ~((start <= low) & (high <= end)) & ~((low <= start) & (end <= high))
