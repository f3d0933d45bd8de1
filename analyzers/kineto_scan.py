"""Decode a piece of the event list as torch prints it, or as json.dumps prints it again, without an object per event.

A quote inside a JSON string is escaped, so a bare "ph" or "ts" before a colon is a key, and the brace before "ph" opens
an event. What stands from there to "ts" (the *head*: category, name, process, thread) repeats a lot: distinct ones are
parsed once. The others (the *rest*: times and args) are read by their shapes. What does not fit (an odd shape, other
order of keys, args that tell of communication, which are texts) is decoded event by event, with the same result.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.kineto_decode import NO_ARGS, Event, count, decode, is_kept
from analyzers.kineto_events import FIELDS, MEMORY_CHANGED, TELLING, Batch, Heads, Rows, interleave
from analyzers.kineto_shapes import Plan, Reader, Texts, plan
from analyzers.kineto_times import Bytes
from analyzers.trace import Ints, Mask

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
    odd = candidates[~fit & instant[candidates]]
    if odd.size and _MEMORY in piece:  # an instant of memory in an odd shape may be among them
        is_other[odd] = True
    others = np.flatnonzero(is_other)
    if _is_much(others.size, starts.size):
        return None
    slow = _decode_others(piece, starts, ends, others, known.heads)
    batch.events = starts.size - others.size
    return interleave(batch, slow)


def _decode_others(piece: bytes, starts: Ints, ends: Ints, others: Ints, heads: Heads) -> Batch:
    texts = [piece[start:end].strip(_BLANK) for start, end in zip(starts[others], ends[others], strict=True)]
    texts = [text.removesuffix(b",") for text in texts]  # one that lacks it is not one JSON value
    counts = [count(text) for text in texts]  # events with another first key stand behind those found
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
        mine = readable & (group_of == group)[head]
        if group in TELLING:
            mine &= ~reader.tells
        at = np.flatnonzero(mine)
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
