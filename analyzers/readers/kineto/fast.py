"""Decode a piece of the event list, as torch or json.dumps prints it, without an object per event.

A quote inside a JSON string is escaped, so a bare "ph" or "ts" before a colon is a key, and the brace before "ph" opens
an event. What stands from there to "ts" (the *head*: category, name, process, thread) repeats a lot: distinct ones are
parsed once. The others (the *rest*: times and args) are read by their forms. What does not fit (an odd shape, other
order of keys, args that tell of communication, which are texts) is decoded event by event, with the same result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import count, pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays.groups import as_slice
from analyzers.arrays.types import Ints, Mask
from analyzers.readers.json_stream import RAWS
from analyzers.readers.kineto.events import (
    BY_TEXTS,
    FIELDS,
    GROUPS_WITH_ARGS,
    MEMORY_CHANGED,
    NO_ARGS,
    SPANNING,
    Batch,
    Event,
    Heads,
    Rows,
    decode,
    flat_sizes,
    interleave,
    is_kept,
    whole,
)
from analyzers.readers.kineto.times import MOST_DECIMALS, MOST_DIGITS, MOST_WHOLE, REACH, Bytes, digits
from analyzers.trace.sizes import MAX_SIZES, sizes_numbers

_MEMORY = b"".join((b'"', MEMORY_CHANGED[1].encode(), b'"'))
_SPANNING = np.zeros(256, bool)
_SPANNING[list(SPANNING.encode())] = True
_BLANK = b" \t\r\n"
_IS_BLANK = np.zeros(256, bool)
_IS_BLANK[list(_BLANK)] = True
_QUOTE, _COLON, _BRACE = b'":{'
_ALIKE = np.uint8(0xFF ^ ord("p") ^ ord("t"))  # the bits in which "p" and "t" are alike
_BLOCK = 1 << 19  # bytes that stay in the processor's cache while they are gone over several times
_LARGEST = 2**31 - 1  # offsets are int32
SCANNED_BYTES = 1 << 12  # of a piece: to scan the last event, mostly alone, takes as long as to scan a hundred


class QuickDecoder:
    """Decodes the pieces of a file, each text of a head once; may be asked from several threads."""

    def __init__(self) -> None:
        self.heads = Heads()
        self._numbers: dict[bytes, int] = {}

    def decode(self, piece: memoryview) -> Batch:
        """Decode comma-separated events, by their bytes where they are written as torch or json.dumps does.

        Raises
        ------
        msgspec.DecodeError, UnicodeDecodeError : this is not JSON.
        """
        if len(piece) < SCANNED_BYTES:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                return decode(piece, self.heads)
        batch = scan(piece, self)
        return decode(piece, self.heads) if batch is None else batch

    def head(self, text: bytes) -> int:
        """Number of the head in `heads`; -1 for what is no head."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = self._parse(text)
        return number

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


def scan(piece: bytes | memoryview, decoder: QuickDecoder) -> Batch | None:
    """Decode comma-separated events; None for a piece that is written otherwise."""
    if len(piece) > _LARGEST:
        return None
    text = np.frombuffer(piece, np.uint8)
    starts, letter, time, alone = _events(text)
    if starts.size == 0:
        return None
    ends = np.append(starts[1:], text.size)
    instant = letter == ord("i")
    candidates = np.flatnonzero(((letter == ord("X")) | instant) & (time < ends))
    batch = Batch()
    fit = _decode_fitting(text, np.stack([starts + 1, time, ends])[:, candidates], decoder, batch)
    if fit is None:
        return None
    batch.at = {group: candidates[at] for group, at in batch.at.items()}
    is_other = (letter == 0) | (letter == ord("X")) | ~alone  # only what is surely one event is left out unread
    is_other |= _SPANNING[letter]  # nor is what may be work
    is_other[candidates[fit]] = False
    unfitting = candidates[~fit & instant[candidates]]
    if unfitting.size and _MEMORY in bytes(piece):  # an instant of memory in an odd shape may be among them
        is_other[unfitting] = True
    others = np.flatnonzero(is_other)
    is_other[candidates[fit]] = True
    unused = np.bincount(letter[~is_other], minlength=1)
    batch.unused = Counter({chr(each): int(unused[each]) for each in np.flatnonzero(unused).tolist()})
    slow = _decode_others(text, starts, ends, others, decoder.heads)
    batch.events = starts.size - others.size
    return interleave(batch, slow)


def _decode_others(text: Bytes, starts: Ints, ends: Ints, others: Ints, heads: Heads) -> Batch:
    texts = [text[start:end].tobytes().strip(_BLANK) for start, end in zip(starts[others], ends[others], strict=True)]
    texts = [each.removesuffix(b",") for each in texts]  # one that lacks it is not one JSON value
    # events with another first key stand behind those found
    counts = [len(RAWS.decode(b"[" + each + b"]")) for each in texts]
    slow = decode(b",".join(texts), heads)
    order = np.repeat(others, counts)
    slow.at = {group: order[at] for group, at in slow.at.items()}
    return slow


def _events(text: Bytes) -> tuple[Ints, Bytes, Ints, Mask]:
    """Where events start, the letter of their "ph" (0 for text before the first), and where the next "ts" key is.

    Last comes whether no other "ph" stands before the next start.
    """
    words = _words(text)
    second, third = text[words + 1], text[words + 2]
    is_key = (text[np.minimum(words + 4, text.size - 1)] == _COLON) & (words < text.size - len('"ph": "X"'))
    times = np.where(is_key & (second == ord("t")) & (third == ord("s")), words, text.size)
    next_time = np.minimum.accumulate(times[::-1])[::-1]
    phases = np.flatnonzero((second == ord("p")) & (third == ord("h")))
    which = np.flatnonzero(is_key[phases])
    keys = words[phases[which]]
    value = keys + 5 + _IS_BLANK[text[keys + 5]]
    starts = _before_blanks(text, keys)
    opens = (text[value] == _QUOTE) & (text[value + 2] == _QUOTE) & (text[starts] == _BRACE)
    which, starts, letter = which[opens], starts[opens], text[value[opens] + 1]
    time, alone = next_time[phases[which]], np.diff(which, append=phases.size) == 1
    if starts.size and not _IS_BLANK[text[: starts[0]]].all():
        starts, letter = np.append(0, starts), np.append(np.uint8(0), letter)
        time, alone = np.append(text.size, time), np.append(False, alone)
    return starts, letter, time, alone


def _words(text: Bytes) -> Ints:
    """Where two letters stand between quotes, the first of them "p" or "t"."""
    found = [np.empty(0, np.int64)]
    for start in range(0, text.size - 3, _BLOCK):
        block = text[start : start + _BLOCK + 3]
        is_quote = block == _QUOTE
        is_word = is_quote[:-3] & is_quote[3:]
        is_word &= (block[1:-2] & _ALIKE) == ord("p")
        found.append(np.flatnonzero(is_word) + start)
    return np.concatenate(found)


def _before_blanks(text: Bytes, at: Ints) -> Ints:
    """The last byte before each place that is not blank; a blank one where the text begins with blanks."""
    at = np.maximum(at - 1, 0)
    while at.size and at[0] > 0 and _IS_BLANK[text[at]].all():  # as long as all are indented alike
        at -= 1
    blank = np.flatnonzero(_IS_BLANK[text[at]])
    while blank.size:
        at[blank] = np.maximum(at[blank] - 1, 0)
        blank = blank[_IS_BLANK[text[at[blank]]] & (at[blank] > 0)]
    return at


def _decode_fitting(text: Bytes, events: Ints, decoder: QuickDecoder, batch: Batch) -> Mask | None:
    """Put the events that fit into `batch`; says which do, or None where the piece is no list of events.

    Parameters
    ----------
    events : where the head, the rest and what follows begin, 3 x n.
    """
    number = events.shape[1]
    fit = np.zeros(number, bool)
    if number == 0:
        return fit
    edges = np.append(events.T.astype(np.int32), np.int32(text.size))
    code, texts = Texts(text, edges).distinct(0, 3)
    head = np.array([decoder.head(each) for each in texts], np.int64)[code]
    form, forms = Texts(with_nines(text), edges).distinct(1, 3)
    shapes, runs = forms.shapes()
    shape, texts = shapes.distinct()
    followed = np.array([each.rstrip().endswith(b"},") for each in texts])[shape[form]]
    if not np.array_equal(followed, events[2] < text.size):  # a comma follows every event but the last of the piece
        return None
    plans = Plans(np.array([plan(each) for each in texts])[shape], runs)
    readable = plans.readable[form] & (head >= 0)
    group_of = np.array([*(each.group for each in decoder.heads.all), ""])  # the last answers for head -1
    for group in FIELDS:
        if group in BY_TEXTS:
            continue
        of_group = readable & (group_of == group)[head]
        if group in GROUPS_WITH_ARGS:
            of_group &= ~plans.tells[form]
        at = np.flatnonzero(of_group)
        if at.size:
            reader = Reader(text, events[1][at], form[at], plans)
            rows = Rows(
                decoder.heads,
                head=head[at],
                start=reader.times("ts"),
                duration=reader.times("dur"),
                comm=np.full(at.size, -1, np.int64),
                fields={name: reader.numbers(name) for name in FIELDS[group]},
            )
            fine = np.flatnonzero(~reader.odd)
            batch.rows[group], batch.at[group] = (rows, at) if fine.size == at.size else (rows[fine], at[fine])
            fit[batch.at[group]] = True
    return fit


# Read many texts that differ in little but their digits without an object per text.
#
# With each digit replaced by "9" few distinct *forms* remain: texts of one form have each number at the same place.
# With each run of digits of a form replaced by "0" still fewer *shapes* remain. Each is parsed once, with its runs
# numbered, and that tells for every form of the shape which run holds which field.

Plan = list[int]
Offsets = npt.NDArray[np.int32]
_ZERO, _NINE, _HIGHEST = np.frombuffer(b"09\xff", np.uint8)
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
    *(f"{_SIZES}{at}" for at in range(MAX_SIZES)),
    _TELLS,
)
_COLUMN_INDEX = {name: i for i, name in enumerate(_COLUMNS)}
_NONE = -1
_FEW_TEXTS = 30_000  # that are told apart by hand sooner than pyarrow is loaded


class Runs(msgspec.Struct, frozen=True):
    """Runs of digits of many texts: where in its text each starts, how long it is, and which is each text's first."""

    starts: Ints
    lengths: Ints
    first: Ints


class Texts(msgspec.Struct, frozen=True):
    """Texts end to end: text i is data[offsets[i]:offsets[i + 1]]."""

    data: Bytes
    offsets: Offsets

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __iter__(self) -> Iterator[bytes]:
        for start, end in pairwise(self.offsets):
            yield self.data[start:end].tobytes()

    def distinct(self, first: int = 0, step: int = 1) -> tuple[Ints, Texts]:
        """For every so many texts from one on the number of its value, and the distinct values."""
        return self._by_hand(first, step) if len(self) <= _FEW_TEXTS else self._by_arrow(first, step)

    def _by_hand(self, first: int, step: int) -> tuple[Ints, Texts]:
        data, edges = self.data.tobytes(), self.offsets.tolist()
        each = [data[low:high] for low, high in zip(edges[first:-1:step], edges[first + 1 :: step], strict=True)]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(each))}
        number = np.array([*map(numbers.__getitem__, each)], np.int64)
        offsets = np.cumsum([0, *map(len, numbers)], dtype=np.int32)
        return number, Texts(np.frombuffer(b"".join(numbers), np.uint8), offsets)

    def _by_arrow(self, first: int, step: int) -> tuple[Ints, Texts]:
        import pyarrow as pa  # which takes as long to load as to read a small capture

        asked = np.zeros(len(self), bool)
        asked[first::step] = True
        buffers = [pa.py_buffer(each) for each in (np.packbits(asked, bitorder="little"), self.offsets, self.data)]
        encoded = pa.Array.from_buffers(pa.binary(), len(self), buffers).dictionary_encode()
        number = np.frombuffer(encoded.indices.buffers()[1], np.int32)[: len(self)][asked].astype(np.int64)
        _, offsets, data = encoded.dictionary.buffers()
        offsets = np.frombuffer(offsets, np.int32)[: len(encoded.dictionary) + 1]
        return number, Texts(np.frombuffer(data, np.uint8)[: offsets[-1]], offsets)

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
        shapes = Texts(data[keep], (self.offsets - removed[first]).astype(np.int32))
        return shapes, Runs(starts - np.repeat(self.offsets[:-1], np.diff(first)), lengths, first[:-1])


def with_nines(text: Bytes) -> Bytes:
    """The text with every digit as "9"."""
    found = np.empty_like(text)
    for start in range(0, text.size, _BLOCK):
        block = np.subtract(text[start : start + _BLOCK], _ZERO, out=found[start : start + _BLOCK])
        np.clip(block, _NINE - _ZERO, _HIGHEST, out=block)  # what comes before "0" is beyond "9" now, too
        block += _ZERO
    return found


@lru_cache(maxsize=1_000)
def plan(shape: bytes) -> Plan:
    """For each of `_COLUMNS`, which run of the shape holds it.

    -1 is none; a run with a minus sign is -2 - run. Without a run for "ts" the shape can't be read by runs. The shapes
    of one rank are mostly the next one's, too.
    """
    numbers = count(_TAG)
    text = b"{" + _RUN.sub(lambda _: b"%d" % next(numbers), shape).strip().rstrip(b",")
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


class Plans:
    """The plans of many forms, and the runs of digits these speak of."""

    def __init__(self, plans: Ints, runs: Runs) -> None:
        self._plans, self._runs = plans, runs
        self.readable = self.column("ts") != _NONE
        self.tells = self.column(_TELLS) == 1  # of communication

    def column(self, name: str) -> Ints:
        """Run that holds one of `_COLUMNS`, of each form."""
        found: Ints = self._plans[:, _COLUMN_INDEX[name]]
        return found

    def places(self, run: Ints) -> tuple[Ints, Ints]:
        """Where the run of each form starts in its text, and how long it is (0: none)."""
        places = np.zeros((2, run.size), np.int64)
        having = np.flatnonzero(run != _NONE)
        at = self._runs.first[having] + np.where(run < _NONE, -2 - run, run)[having]
        places[:, having] = self._runs.starts[at], self._runs.lengths[at]
        return places[0], places[1]


class Reader:
    """Reads columns of texts by the plans of their forms. `odd` collects texts whose digits don't fit.

    Parameters
    ----------
    starts : where in `text` each of the texts begins.
    form : the number of its form.
    """

    def __init__(self, text: Bytes, starts: Ints, form: Ints, plans: Plans) -> None:
        self._text, self._starts, self._form, self._plans = text, starts, form, plans
        self.odd = np.zeros(form.size, bool)

    def times(self, name: str) -> Ints:
        """Start ("ts") or duration ("dur") in ns; one that is missing is 0."""
        starts, before = self._plans.places(self._plans.column(name))  # before the point
        _, decimals = self._plans.places(self._plans.column(f"{name} decimals"))
        is_odd = (before > MOST_WHOLE) | (decimals > MOST_DECIMALS)
        starts, before, decimals = (np.where(is_odd, 0, each) for each in (starts, before, decimals))
        lengths = before + decimals + (decimals > 0)
        time = np.zeros(self._form.size, np.int64)
        for number in np.unique(decimals).tolist():
            at = as_slice(np.flatnonzero((decimals == number)[self._form]))
            form = self._form[at]
            value = digits(self._text, self._starts[at] + starts[form], lengths[form], number)
            time[at] = value * 10 ** (MOST_DECIMALS - number)
        self.odd |= is_odd[self._form] | (time < 0) | (time >= REACH)  # those that int64 can't hold came out below 0
        return time

    def numbers(self, name: str) -> Ints:
        """A field of `args`, -1 where it is missing; grid and block as a product, sizes as one number."""
        if name == _SIZES:
            return self._sizes()
        if name not in _EXTENTS:
            return self._values(name, MOST_DIGITS)[0]
        product, _ = self._values(f"{name}0", 9)
        for axis in range(1, _AXES):
            size, length = self._values(f"{name}{axis}", 9)
            product = np.where(length > 0, product * size, product)
        return product

    def _sizes(self) -> Ints:
        found = np.full(self._form.size, -1, np.int64)
        has = np.flatnonzero((self._plans.column(f"{_SIZES}0") != _NONE)[self._form])
        if has.size:
            part = Reader(self._text, self._starts[has], self._form[has], self._plans)
            values, lengths = zip(*(part._values(f"{_SIZES}{at}", MOST_DIGITS) for at in range(MAX_SIZES)), strict=True)
            found[has] = sizes_numbers(values, np.count_nonzero(lengths, axis=0))
            self.odd[has] |= part.odd
        return found

    def _values(self, column: str, most: int) -> tuple[Ints, Ints]:
        """Value (-1: none) and number of digits (0: none)."""
        run = self._plans.column(column)
        if (run == _NONE).all():
            return np.full(self._form.size, -1, np.int64), np.zeros(self._form.size, np.int64)
        starts, lengths = self._plans.places(run)
        if (lengths > most).any():
            self.odd |= (lengths > most)[self._form]
            lengths = np.minimum(lengths, most)
        length = lengths[self._form]
        value = digits(self._text, self._starts + starts[self._form], length)
        if (run < _NONE).any():
            value *= np.where(run < _NONE, -1, 1)[self._form]
        value[length == 0] = -1
        return value, length
