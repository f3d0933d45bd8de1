"""Decode a piece of the event list whatever its layout: typed, with msgspec, only the fields some table needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import prod
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from analyzers.kineto_events import FIELDS, GROUPS, MEMORY_CHANGED, TELLING, Args, Batch, Heads, Rows, whole
from analyzers.kineto_times import nanoseconds
from analyzers.trace import Ints

_NO_TEXT = msgspec.Raw(b"")
NO_ARGS = Args()


class BadTime(Exception):
    """A time of an event is no number."""


class Event(msgspec.Struct, gc=False):
    """A Chrome trace event; times stay text until all of them are converted at once."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: msgspec.Raw = _NO_TEXT
    dur: msgspec.Raw = _NO_TEXT
    args: Args = NO_ARGS


def is_kept(event: Event) -> bool:
    """Whether an event is one with a length, or an instant at which memory in use changed."""
    return event.ph == "X" or (event.ph == "i" and (event.cat, event.name) == MEMORY_CHANGED)


_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


def decode(events: bytes, heads: Heads) -> Batch:
    """Decode comma-separated events.

    Events whose name or thread is neither text nor number are left out and counted.

    Raises
    ------
    msgspec.DecodeError : this is not JSON.
    BadTime : a time is no number.
    """
    text = b"[" + events + b"]"
    try:
        decoded, unreadable = _EVENTS.decode(text), 0
    except msgspec.ValidationError:
        decoded, unreadable = _decode_each(text)
    return _columns(decoded, heads, unreadable)


def count(events: bytes) -> int:
    """How many comma-separated values there are.

    Raises
    ------
    msgspec.DecodeError : this is not JSON.
    """
    return len(_RAWS.decode(b"[" + events + b"]"))


def _decode_each(text: bytes) -> tuple[list[Event], int]:
    decoded, unreadable = [], 0
    for raw in _RAWS.decode(text):
        try:
            decoded.append(_EVENT.decode(raw))
        except msgspec.ValidationError:
            unreadable += 1
    return decoded, unreadable


def _columns(events: list[Event], heads: Heads, unreadable: int) -> Batch:
    readable = sum(event.ph != "" for event in events)
    batch = Batch(events=readable + unreadable, unreadable=unreadable)
    places: dict[str, list[int]] = {group: [] for group in FIELDS}
    for place, event in enumerate(events):
        if is_kept(event):
            places[GROUPS.get(event.cat, "span")].append(place)
    for group, at in places.items():
        if at:
            batch.rows[group] = _rows([events[place] for place in at], group, heads, batch.comms)
            batch.at[group] = np.array(at, np.int64)
    return batch


def _rows(events: list[Event], group: str, heads: Heads, comms: list[Args]) -> Rows:
    args = [event.args for event in events]
    comm = np.full(len(events), -1, np.int64)
    if group in TELLING:
        telling = [row for row, each in enumerate(args) if each.is_communication]
        comm[telling] = np.arange(len(comms), len(comms) + len(telling))
        comms += [args[row] for row in telling]
    try:
        start = nanoseconds([event.ts for event in events])
        duration = nanoseconds([event.dur or b"0" for event in events])
    except ValueError as error:
        raise BadTime(str(error)) from error
    return Rows(
        head=_ints(heads.number(event.cat, event.name, event.pid, event.tid) for event in events),
        start=start,
        duration=duration,
        comm=comm,
        fields={name: _ints(map(_GETTERS[name], args)) for name in FIELDS[group]},
    )


def _ints(values: Iterable[Any]) -> Ints:
    listed = list(values)
    if all(type(value) is int for value in listed):
        with suppress(OverflowError):
            return np.array(listed, np.int64)
    return np.array([whole(value) for value in listed], np.int64)


def _product(numbers: Any) -> int:
    if not isinstance(numbers, list) or not numbers:
        return -1
    sizes = [whole(number) for number in numbers]
    return prod(sizes) if min(sizes) >= 0 else -1


def _getter(name: str) -> Callable[[Args], Any]:
    if name in ("grid", "block"):
        return lambda args: _product(getattr(args, name))
    if name == "external":
        return lambda args: args.external if args.external != -1 else args.external_old
    return attrgetter(name)


_GETTERS = {name: _getter(name) for names in FIELDS.values() for name in names}
