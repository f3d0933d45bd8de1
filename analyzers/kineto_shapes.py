"""Read many texts that differ in little but their digits without an object per text.

With each run of digits replaced by "0" few distinct *shapes* remain. Each is parsed once, with its runs numbered, and
that tells for every text of the shape which run holds which field.
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

from analyzers.kineto_decode import Event
from analyzers.kineto_events import FIELDS, whole
from analyzers.kineto_times import MOST_DIGITS, MOST_WHOLE, Bytes, digits, in_reach
from analyzers.trace import Ints, Mask

Plan = list[int]
Offsets = npt.NDArray[np.int32]
_ZERO = ord("0")
_TAG = 10**12  # the i-th run of a shape is parsed as the number _TAG + i
_RUN = re.compile(rb"[0-9]+")
_TIME = re.compile(rb"([0-9]+)(?:\.([0-9]+))?")
_SIZES, _AXES = ("grid", "block"), 3
_TIMES = ("ts", "ts decimals", "dur", "dur decimals")
_NUMBERS = tuple(dict.fromkeys(name for names in FIELDS.values() for name in names if name not in _SIZES))
_TELLS = "tells of communication"  # not a run: 1 where it does
_COLUMNS = (*_TIMES, *_NUMBERS, *(f"{name}{axis}" for name in _SIZES for axis in range(_AXES)), _TELLS)
_PLACES = {name: place for place, name in enumerate(_COLUMNS)}
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
        said = _TIME.fullmatch(bytes(time))
        if time and said is None:
            return nothing
        if said:
            found[name] = int(said[1]) - _TAG
            found[f"{name} decimals"] = int(said[2]) - _TAG if said[2] else _NONE
    args = event.args
    for name in _NUMBERS:
        found[name] = _run(args.external_old if name == "external" and args.external == -1 else getattr(args, name))
    for name in _SIZES:
        sizes = getattr(args, name)
        if isinstance(sizes, list) and len(sizes) > _AXES:
            return nothing
        runs = [_run(size) for size in sizes] if isinstance(sizes, list) else []
        if all(run >= 0 for run in runs):
            found |= {f"{name}{axis}": run for axis, run in enumerate(runs)}
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
        return (self._plans[:, _PLACES["ts"]] >= 0)[self._code]

    @cached_property
    def tells(self) -> Mask:
        """Texts that tell of communication."""
        return (self._plans[:, _PLACES[_TELLS]] == 1)[self._code]

    def times(self, name: str, texts: Ints) -> Ints:
        """Start ("ts") or duration ("dur") in ns; one that is missing is 0."""
        value, _ = self._values(name, texts, MOST_WHOLE)
        self.odd[texts[~in_reach(value)]] = True
        decimals, length = self._values(f"{name} decimals", texts, 3)
        return np.maximum(value, 0) * 1000 + np.maximum(decimals, 0) * 10 ** (3 - length)

    def numbers(self, name: str, texts: Ints) -> Ints:
        """A field of `args`, -1 where it is missing; grid and block as a product."""
        if name not in _SIZES:
            return self._values(name, texts, MOST_DIGITS)[0]
        product, _ = self._values(f"{name}0", texts, 9)
        for axis in range(1, _AXES):
            size, length = self._values(f"{name}{axis}", texts, 9)
            product = np.where(length > 0, product * size, product)
        return product

    def _values(self, column: str, texts: Ints, most: int) -> tuple[Ints, Ints]:
        """Value (-1: none) and number of digits (0: none)."""
        run = self._plans[:, _PLACES[column]][self._code[texts]]
        value, length = np.full(texts.size, -1, np.int64), np.zeros(texts.size, np.int64)
        there = np.flatnonzero(run != _NONE)
        if there.size == 0:
            return value, length
        minus = run[there] < _NONE
        at = self._runs.first[texts[there]] + np.where(minus, -2 - run[there], run[there])
        size = self._runs.lengths[at]
        self.odd[texts[there[size > most]]] = True
        size = np.minimum(size, most)
        number = digits(self._data, self._runs.starts[at], size)
        value[there], length[there] = np.where(minus, -number, number), size
        return value, length
