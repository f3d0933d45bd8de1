"""Decode a piece of the event list, as torch or json.dumps prints it, without an object per event.

A quote inside a JSON string is escaped, so a bare "ph" or "ts" before a colon is a key, and the brace before "ph" opens
an event. What stands from there to "ts" (the *head*: category, name, process, thread) repeats a lot: distinct ones are
parsed once. The others (the *rest*: times and args) are read by their shapes. What does not fit (an odd shape, other
order of keys, args that tell of communication, which are texts) is decoded event by event, with the same result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyzers.arrays.types import Ints, Mask
from analyzers.readers.kineto.events import (
    BY_TEXTS,
    FIELDS,
    MEMORY_CHANGED,
    MOST_DIGITS,
    MOST_WHOLE,
    NO_ARGS,
    TELLING,
    Batch,
    Bytes,
    Event,
    Heads,
    Rows,
    count_events,
    decode,
    digits,
    flat_sizes,
    in_reach,
    interleave,
    is_kept,
    whole,
)
from analyzers.trace.sizes import MOST, sizes_numbers

_MEMORY = b"".join((b'"', MEMORY_CHANGED[1].encode(), b'"'))
_BLANK = b" \t\r\n"
_IS_BLANK = np.zeros(256, bool)
_IS_BLANK[list(_BLANK)] = True
_QUOTE, _COLON, _BRACE = b'":{'
_MANY, _FEW = 5, 100  # one of so many events may be distinct or not fit, beside so many that always may
_LARGEST = 2**31 - 1  # offsets are int32


class Known:
    """Heads and shapes met so far; may be asked from several threads."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads
        self._heads: dict[bytes, int] = {}
        self._plans: dict[bytes, Plan] = {}

    def head(self, text: bytes) -> int:
        """Number of the head in `heads`; -1 for what is no head."""
        number = self._heads.get(text)
        if number is None:
            number = self._heads[text] = self._parse(text)
        return number

    def plan(self, shape: bytes, example: bytes) -> Plan:
        """How to read the texts of a shape, from one of them."""
        known = self._plans.get(shape)
        if known is None:
            known = self._plans[shape] = plan(example)
        return known

    def _parse(self, text: bytes) -> int:
        members = text.strip()
        if not members.endswith(b","):
            return -1
        try:
            event = msgspec.json.decode(b"{" + members[:-1] + b"}", type=Event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return -1
        if not is_kept(event) or event.ts or event.dur or event.args != NO_ARGS:
            return -1
        return self.heads.number(event.cat, event.name, event.pid, event.tid)


def scan(piece: bytes, known: Known) -> Batch | None:
    """Decode comma-separated events; None for a piece that is written otherwise, or where this way doesn't pay.

    Raises
    ------
    msgspec.DecodeError : an event that does not fit is not JSON.
    """
    if len(piece) > _LARGEST:
        return None
    text = np.frombuffer(piece, np.uint8)
    starts, letter, times, phases = _events(text)
    if starts.size == 0:
        return None
    ends = np.append(starts[1:], text.size)
    alone = np.searchsorted(phases, ends) - np.searchsorted(phases, starts) == 1
    time = np.append(times, text.size)[np.searchsorted(times, starts)]
    instant = letter == ord("i")
    candidates = np.flatnonzero(((letter == ord("X")) | instant) & (time < ends))
    batch = Batch()
    fit = _decode_fitting(piece, np.stack([starts + 1, time, ends])[:, candidates], known, batch)
    if fit is None:
        return None
    batch.at = {group: candidates[at] for group, at in batch.at.items()}
    is_other = (letter == 0) | (letter == ord("X")) | ~alone  # only what is surely one event is left out unread
    is_other[candidates[fit]] = False
    unfitting = candidates[~fit & instant[candidates]]
    if unfitting.size and _MEMORY in piece:  # an instant of memory in an odd shape may be among them
        is_other[unfitting] = True
    others = np.flatnonzero(is_other)
    if _is_much(others.size, starts.size):
        return None
    slow = _decode_others(piece, starts, ends, others, known.heads)
    batch.events = starts.size - others.size
    return interleave(batch, slow)


def _decode_others(piece: bytes, starts: Ints, ends: Ints, others: Ints, heads: Heads) -> Batch:
    texts = [piece[start:end].strip(_BLANK) for start, end in zip(starts[others], ends[others], strict=True)]
    texts = [text.removesuffix(b",") for text in texts]  # one that lacks it is not one JSON value
    counts = [count_events(text) for text in texts]  # events with another first key stand behind those found
    slow = decode(b",".join(texts), heads)
    order = np.repeat(others, counts)
    slow.at = {group: order[at] for group, at in slow.at.items()}
    return slow


def _events(text: Bytes) -> tuple[Ints, Bytes, Ints, Ints]:
    """Where events start, the letter of their "ph" (0 for text before the first), where "ts" keys and all "ph" are."""
    is_quote = text == _QUOTE
    words = np.flatnonzero(is_quote[:-3] & is_quote[3:])
    second = text[words + 1]
    phases = words[second == ord("p")]
    phases = phases[text[phases + 2] == ord("h")]
    last = text.size - len('"ph": "X"')
    times = words[(second == ord("t")) & (words < last)]
    times = times[(text[times + 2] == ord("s")) & (text[times + 4] == _COLON)]
    keys = phases[phases < last]
    keys = keys[text[keys + 4] == _COLON]
    value = keys + 5 + _IS_BLANK[text[keys + 5]]
    keys, value = (each[(text[value] == _QUOTE) & (text[value + 2] == _QUOTE)] for each in (keys, value))
    starts = _before_blanks(text, keys)
    opens = text[starts] == _BRACE
    starts, letter = starts[opens], text[value[opens] + 1]
    if starts.size and not _IS_BLANK[text[: starts[0]]].all():
        starts, letter = np.append(0, starts), np.append(np.uint8(0), letter)
    return starts, letter, times, phases


def _before_blanks(text: Bytes, at: Ints) -> Ints:
    """The last byte before each place that is not blank; a blank one where the text begins with blanks."""
    at = np.maximum(at - 1, 0)
    blank = np.flatnonzero(_IS_BLANK[text[at]])
    while blank.size:
        at[blank] = np.maximum(at[blank] - 1, 0)
        blank = blank[_IS_BLANK[text[at[blank]]] & (at[blank] > 0)]
    return at


def _decode_fitting(piece: bytes, events: Ints, known: Known, batch: Batch) -> Mask | None:
    """Put the events that fit into `batch`; says which do, or None where it doesn't pay.

    Parameters
    ----------
    events : where the head, the rest and what follows begin, 3 x n.
    """
    number = events.shape[1]
    fit = np.zeros(number, bool)
    if number == 0:
        return fit
    ends = events[2]
    edges = np.append(events.T.ravel(), len(piece))
    code, texts, _ = Texts.cut(piece, edges, np.arange(0, 3 * number, 3)).distinct()
    if _is_much(len(texts), number):
        return None
    head = np.array([known.head(each) for each in texts], np.int64)[code]
    rests = Texts.cut(piece, edges, np.arange(1, 3 * number, 3))
    shapes, runs = rests.shapes()
    code, distinct, first = shapes.distinct()
    if _is_much(len(distinct), number) or not _is_list(distinct, code, ends, len(piece)):
        return None
    plans = [known.plan(shape, rests[row]) for shape, row in zip(distinct, first, strict=True)]
    reader = Reader(rests.data, runs, plans, code)
    readable = reader.readable & (head >= 0)
    group_of = np.array([*(each.group for each in known.heads.all), ""])  # the last answers for head -1
    for group in FIELDS:
        if group in BY_TEXTS:
            continue
        of_group = readable & (group_of == group)[head]
        if group in TELLING:
            of_group &= ~reader.tells
        at = np.flatnonzero(of_group)
        if at.size:
            rows = _rows(reader, group, head[at], at)
            fine = np.flatnonzero(~reader.odd[at])
            batch.rows[group], batch.at[group] = (rows, at) if fine.size == at.size else (rows[fine], at[fine])
            fit[batch.at[group]] = True
    return fit


def _rows(reader: Reader, group: str, head: Ints, at: Ints) -> Rows:
    return Rows(
        head=head,
        start=reader.times("ts", at),
        duration=reader.times("dur", at),
        comm=np.full(at.size, -1, np.int64),
        fields={name: reader.numbers(name, at) for name in FIELDS[group]},
    )


def _is_list(shapes: list[bytes], code: Ints, ends: Ints, size: int) -> bool:
    """Whether a comma follows every event but the last of the piece."""
    followed = np.array([shape.rstrip().endswith(b"},") for shape in shapes])[code]
    return bool(np.array_equal(followed, ends < size))


def _is_much(count: int, of: int) -> bool:
    return count > of // _MANY + _FEW


# Read many texts that differ in little but their digits without an object per text.
#
# With each run of digits replaced by "0" few distinct *shapes* remain. Each is parsed once, with its runs numbered,
# and that tells for every text of the shape which run holds which field.

Plan = list[int]
Offsets = npt.NDArray[np.int32]
_ZERO = ord("0")
_TAG = 10**12  # the i-th run of a shape is parsed as the number _TAG + i
_RUN = re.compile(rb"[0-9]+")
_TIME = re.compile(rb"([0-9]+)(?:\.([0-9]+))?")
_EXTENTS, _AXES = ("grid", "block"), 3
_SIZES = "sizes"
_TIMES = ("ts", "ts decimals", "dur", "dur decimals")
_NUMBERS = tuple(dict.fromkeys(name for names in FIELDS.values() for name in names if name not in (*_EXTENTS, _SIZES)))
_TELLS = "tells of communication"  # not a run: 1 where it does
_COLUMNS = (
    *_TIMES,
    *_NUMBERS,
    *(f"{name}{axis}" for name in _EXTENTS for axis in range(_AXES)),
    *(f"{_SIZES}{at}" for at in range(MOST)),
    _TELLS,
)
_COLUMN_INDEX = {name: i for i, name in enumerate(_COLUMNS)}
_NONE = -1


@dataclass(frozen=True)
class Runs:
    """Runs of digits: where each starts, how long it is, and which is the first at or after each text's start."""

    starts: Ints
    lengths: Ints
    first: Ints


@dataclass(frozen=True)
class Texts:
    """Texts end to end: text i is data[offsets[i]:offsets[i + 1]]."""

    data: Bytes
    offsets: Offsets

    @classmethod
    def cut(cls, text: bytes, edges: Ints, which: Ints) -> Texts:
        """Copy some of the stretches between edges: stretch i is text[edges[i]:edges[i + 1]]."""
        buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(text)]
        taken = pa.Array.from_buffers(pa.binary(), edges.size - 1, buffers).take(pa.array(which))
        _, offsets, data = taken.buffers()
        return cls(np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int32)[: which.size + 1])

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def distinct(self) -> tuple[Ints, list[bytes], Ints]:
        """For each text the number of its value, the distinct values, and for each of those its first text."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        encoded = pa.Array.from_buffers(pa.binary(), len(self), buffers).dictionary_encode()
        code = encoded.indices.to_numpy().astype(np.int64)
        first = np.empty(len(encoded.dictionary), np.int64)
        first[code[::-1]] = np.arange(code.size)[::-1]
        return code, encoded.dictionary.to_pylist(), first

    def shapes(self) -> tuple[Texts, Runs]:
        """The texts with every run of digits as one "0", and those runs; no text may start with a digit."""
        is_digit = np.zeros(self.data.size + 2, bool)
        np.less_equal(self.data - np.uint8(_ZERO), 9, out=is_digit[1:-1])
        edges = np.flatnonzero(is_digit[1:] != is_digit[:-1])
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        keep = ~is_digit[1:-1]
        keep[starts] = True
        data = self.data.copy()
        data[starts] = _ZERO
        first = np.searchsorted(starts, self.offsets)
        removed = np.append(0, np.cumsum(lengths - 1))
        return Texts(data[keep], (self.offsets - removed[first]).astype(np.int32)), Runs(starts, lengths, first)


def plan(example: bytes) -> Plan:
    """For each of `_COLUMNS`, which run of the example's shape holds it.

    -1 is none; a run with a minus sign is -2 - run. Without a run for "ts" the shape can't be read by runs.
    """
    numbers = count(_TAG)
    text = b"{" + _RUN.sub(lambda _: b"%d" % next(numbers), example).strip().rstrip(b",")
    found = dict.fromkeys(_COLUMNS, _NONE)
    nothing = list(found.values())
    try:
        event = msgspec.json.decode(text, type=Event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return nothing
    if (event.ph, event.cat, event.name, event.pid, event.tid) != ("", "", "", -1, -1):
        return nothing
    for name, time in (("ts", event.ts), ("dur", event.dur or b"")):
        time_match = _TIME.fullmatch(bytes(time))
        if time and time_match is None:
            return nothing
        if time_match:
            found[name] = int(time_match[1]) - _TAG
            found[f"{name} decimals"] = int(time_match[2]) - _TAG if time_match[2] else _NONE
    args = event.args
    for name in _NUMBERS:
        found[name] = _run(args.external_old if name == "external" and args.external == -1 else getattr(args, name))
    for name in _EXTENTS:
        sizes = getattr(args, name)
        if isinstance(sizes, list) and len(sizes) > _AXES:
            return nothing
        runs = [_run(size) for size in sizes] if isinstance(sizes, list) else []
        if all(run >= 0 for run in runs):
            found |= {f"{name}{axis}": run for axis, run in enumerate(runs)}
    found |= {f"{_SIZES}{at}": _run(size) for at, size in enumerate(flat_sizes(args))}
    found[_TELLS] = int(args.is_communication)
    return list(found.values())


def _run(value: Any) -> int:
    number = whole(value)
    if number >= _TAG:
        return number - _TAG
    return -2 - (-number - _TAG) if number <= -_TAG else _NONE


class Reader:
    """Reads columns of many texts by their shapes' plans. `odd` collects texts whose digits don't fit."""

    def __init__(self, data: Bytes, runs: Runs, plans: list[Plan], code: Ints) -> None:
        self._data, self._runs, self._code = data, runs, code
        self._plans = np.array(plans, np.int64).reshape(len(plans), len(_COLUMNS))
        self.odd = np.zeros(code.size, bool)

    @cached_property
    def readable(self) -> Mask:
        """Texts whose shape has a plan."""
        return (self._plans[:, _COLUMN_INDEX["ts"]] >= 0)[self._code]

    @cached_property
    def tells(self) -> Mask:
        """Texts whose args describe communication."""
        return (self._plans[:, _COLUMN_INDEX[_TELLS]] == 1)[self._code]

    def times(self, name: str, texts: Ints) -> Ints:
        """Start ("ts") or duration ("dur") in ns; one that is missing is 0."""
        value, _ = self._values(name, texts, MOST_WHOLE)
        self.odd[texts[~in_reach(value)]] = True
        decimals, length = self._values(f"{name} decimals", texts, 3)
        return np.maximum(value, 0) * 1000 + np.maximum(decimals, 0) * 10 ** (3 - length)

    def numbers(self, name: str, texts: Ints) -> Ints:
        """A field of `args`, -1 where it is missing; grid and block as a product, sizes as one number."""
        if name == _SIZES:
            return self._sizes(texts)
        if name not in _EXTENTS:
            return self._values(name, texts, MOST_DIGITS)[0]
        product, _ = self._values(f"{name}0", texts, 9)
        for axis in range(1, _AXES):
            size, length = self._values(f"{name}{axis}", texts, 9)
            product = np.where(length > 0, product * size, product)
        return product

    def _sizes(self, texts: Ints) -> Ints:
        found = np.full(texts.size, -1, np.int64)
        has = np.flatnonzero(self._plans[:, _COLUMN_INDEX[f"{_SIZES}0"]][self._code[texts]] != _NONE)
        values, count = [], np.zeros(has.size, np.int64)
        for at in range(MOST if has.size else 0):
            value, length = self._values(f"{_SIZES}{at}", texts[has], MOST_DIGITS)
            values.append(value)
            count += length > 0
        found[has] = sizes_numbers(values, count)
        return found

    def _values(self, column: str, texts: Ints, most: int) -> tuple[Ints, Ints]:
        """Value (-1: none) and number of digits (0: none)."""
        run = self._plans[:, _COLUMN_INDEX[column]][self._code[texts]]
        value, length = np.full(texts.size, -1, np.int64), np.zeros(texts.size, np.int64)
        present = np.flatnonzero(run != _NONE)
        if present.size == 0:
            return value, length
        minus = run[present] < _NONE
        at = self._runs.first[texts[present]] + np.where(minus, -2 - run[present], run[present])
        size = self._runs.lengths[at]
        self.odd[texts[present[size > most]]] = True
        size = np.minimum(size, most)
        number = digits(self._data, self._runs.starts[at], size)
        value[present], length[present] = np.where(minus, -number, number), size
        return value, length
