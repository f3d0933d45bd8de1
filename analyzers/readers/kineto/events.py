"""What is kept of a Kineto event: which categories, which of their fields, and as which numpy columns."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints
from analyzers.readers.json_stream import typed
from analyzers.readers.kineto.times import nanoseconds
from analyzers.trace.sizes import MAX_SIZES, sizes_number

# Category, as printed by Kineto (capitalized before 2022) -> which table its rows go to; "span" is kept for its times.
GROUPS = {
    "kernel": "op",
    "Kernel": "op",
    "gpu_memcpy": "op",
    "Memcpy": "op",
    "gpu_memset": "op",
    "Memset": "op",
    "cuda_runtime": "api",
    "cuda_driver": "api",
    "hip_runtime": "api",
    "xpu_runtime": "api",
    "xpu_driver": "api",
    "mtia_runtime": "api",
    "privateuse1_runtime": "api",
    "privateuse1_driver": "api",
    "mtia_ccp_events": "op",
    "hpu_op": "op",
    "xpu_sync": "xpu_sync",
    "collective_comm": "range",
    "Runtime": "api",
    "cpu_op": "range",
    "Operator": "range",
    "user_annotation": "range",
    "python_function": "range",
    "cuda_sync": "sync",
    "cpu_instant_event": "memory",
}
# Integer fields of each group: attributes of Args; grid and block are numbers of blocks and threads, sizes one of
# `analyzers.trace.sizes`.
FIELDS: dict[str, tuple[str, ...]] = {
    "op": (
        *("device", "context", "stream", "correlation", "bytes", "registers", "shared", "graph", "grid", "block"),
        *("context_in", "device_in", "device_from", "device_to", "submitted"),
    ),
    "api": ("correlation",),
    "range": ("external", "sequence", "forward", "sizes"),
    "xpu_sync": ("correlation", "stream", "sync_type"),
    "hip": ("correlation", "bytes", "copy_kind", "grid", "block"),
    "sync": ("device", "context", "stream", "correlation", "wait_stream", "wait_record", "wait_event"),
    "span": (),
    "memory": ("device_type", "memory_device", "allocated", "reserved"),
}
HOST_CALL_GROUPS = ("api", "hip")  # groups of host calls: HIP's say of a copy or launch what its op does not
BY_TEXTS = ("xpu_sync",)  # groups whose fields are texts
SYNC_TYPES = ("HOST_EVENT", "HOST_FENCE", "HOST_COMMAND_QUEUE")  # of Intel's, that block the host
GROUPS_WITH_ARGS = ("op", "range")  # groups whose args may tell about communication


PYTHON = "python_function"  # frames, which no selector knows
MEMORY_CHANGED = ("cpu_instant_event", "[memory]")  # category and name of the only instants that are kept

SPANNING = "BEbeSTFp"  # phases of events that last but say so in two or more parts: none is read
_INTEGER = re.compile(r"-?[0-9]{1,20}")


class Args(msgspec.Struct, frozen=True, gc=False):
    """The fields of an event's `args` that some table needs.

    Of any type here: operators and user events carry the same names with other meanings ("grid": "grid(100,)"), and
    ROCm prints numbers with quotes. `whole` makes numbers of them.
    """

    external: Any = msgspec.field(name="External id", default=-1)
    external_old: Any = msgspec.field(name="external id", default=-1)
    sequence: Any = msgspec.field(name="Sequence number", default=-1)
    forward: Any = msgspec.field(name="Fwd thread id", default=-1)
    sizes: Any = msgspec.field(name="Input Dims", default=None)
    sizes_old: Any = msgspec.field(name="Input dims", default=None)  # until torch 1.13
    device: Any = -1
    context: Any = -1
    context_in: Any = msgspec.field(name="inContext", default=-1)  # of a copy between GPUs, in place of `context`,
    device_in: Any = msgspec.field(name="inDevice", default=-1)  # and of `device`
    device_from: Any = msgspec.field(name="fromDevice", default=-1)
    device_to: Any = msgspec.field(name="toDevice", default=-1)
    stream: Any = -1
    correlation: Any = -1
    bytes: Any = -1
    submitted: Any = -1
    sync_type: Any = msgspec.field(name="Type", default="")
    copy_kind: Any = msgspec.field(name="kind", default=-1)
    registers: Any = msgspec.field(name="registers per thread", default=-1)
    shared: Any = msgspec.field(name="shared memory", default=-1)
    graph: Any = msgspec.field(name="graph id", default=-1)
    grid: Any = None
    block: Any = None
    wait_stream: Any = msgspec.field(name="wait_on_stream", default=-1)
    wait_record: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=-1)
    wait_event: Any = msgspec.field(name="wait_on_cuda_event_id", default=-1)
    device_type: Any = msgspec.field(name="Device Type", default=-1)
    memory_device: Any = msgspec.field(name="Device Id", default=-1)
    allocated: Any = msgspec.field(name="Total Allocated", default=-1)
    reserved: Any = msgspec.field(name="Total Reserved", default=-1)
    collective: Any = msgspec.field(name="Collective name", default="")
    in_elements: Any = msgspec.field(name="In msg nelems", default=-1)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=-1)
    dtype: Any = ""
    group: Any = msgspec.field(name="Process Group Name", default="")
    group_description: Any = msgspec.field(name="Process Group Description", default="")
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default="")
    group_size: Any = msgspec.field(name="Group size", default=-1)
    seq: Any = msgspec.field(name="Seq", default=-1)
    source: Any = msgspec.field(name="Src Rank", default=-1)
    target: Any = msgspec.field(name="Dst Rank", default=-1)

    @property
    def is_communication(self) -> bool:
        """Whether the event's args describe a collective or point-to-point call."""
        return isinstance(self.collective, str) and self.collective != ""


def whole(value: Any) -> int:
    """An integer as int64, from a number or its text; -1 where it is none. Unsigned 64-bit ids wrap around.

    >>> whole(7), whole("7"), whole(2**64 - 1), whole("0x0"), whole([1])
    (7, 7, -1, -1, -1)
    """
    if isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value) else -1
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**64:
        return -1
    return value - 2**64 if value >= 2**63 else value


class Rows(msgspec.Struct, frozen=True):
    """Rows of one group; times are ns.

    head : each row's number in `registry`. comm : its place in the list of communication args, -1 for none.
    fields : the columns that `FIELDS` has for the group.
    """

    registry: Heads
    head: Ints
    start: Ints
    duration: Ints
    comm: Ints
    fields: Mapping[str, Ints]

    def __len__(self) -> int:
        return self.head.size

    def __getitem__(self, which: Ints) -> Rows:
        fields = {name: values[which] for name, values in self.fields.items()}
        return Rows(self.registry, self.head[which], self.start[which], self.duration[which], self.comm[which], fields)

    @property
    def heads(self) -> dict[int, Head]:
        """The heads that some row has, by their numbers."""
        return {number: self.registry.all[number] for number in np.flatnonzero(np.bincount(self.head)).tolist()}

    @property
    def counts(self) -> list[tuple[Head, int]]:
        """Those heads, and how many rows each has."""
        count = np.bincount(self.head).tolist()
        return [(head, count[number]) for number, head in self.heads.items()]

    def numbers(self, of: Callable[[Head], int]) -> Ints:
        """A number that each row's head has."""
        heads = self.heads
        found = np.zeros(max(heads, default=0) + 1, np.int64)
        found[[*heads]] = [of(head) for head in heads.values()]
        return found[self.head]

    def having(self, fits: Callable[[Head], bool]) -> Rows:
        """The rows whose heads fit."""
        return self[np.flatnonzero(self.numbers(fits) > 0)]

    def texts(self, of: Callable[[Head], str], known: Sequence[str] = ()) -> Names:
        """A text that each row's head has; `known` are all there may be, where these are few."""
        heads = self.heads
        text_of = {number: of(head) for number, head in heads.items()}
        texts = [*dict.fromkeys(known or sorted({*text_of.values()}))]  # threads number heads as they meet them
        code_of = {text: code for code, text in enumerate(texts)}
        found = np.zeros(max(heads, default=0) + 1, np.int64)
        found[[*heads]] = [code_of[text] for text in text_of.values()]
        return Names(found[self.head], texts)


class Batch(msgspec.Struct):
    """What one piece of the file held; `at` is each row's place among the piece's events.

    unreadable : events whose name, thread or time is none.
    unused : events of other phases than those that are read, by phase. unread : of these and of the unreadable, those
        that may be work of a device, in words. unread_ranges : those that name ranges.
    """

    rows: dict[str, Rows] = msgspec.field(default_factory=dict)
    at: dict[str, Ints] = msgspec.field(default_factory=dict)
    comms: list[Args] = msgspec.field(default_factory=list)
    events: int = 0
    unreadable: int = 0
    unused: Counter[str] = msgspec.field(default_factory=Counter)
    unread: Counter[str] = msgspec.field(default_factory=Counter)
    unread_ranges: int = 0

    def count(self, more: Batch) -> None:
        """Add what another one counted."""
        for name in ("events", "unreadable", "unused", "unread", "unread_ranges"):
            setattr(self, name, getattr(self, name) + getattr(more, name))


class Broken(msgspec.Struct, frozen=True):
    """Events that are no valid JSON, by category; of them, how many may be work of a GPU, and how many name ranges.

    section : whether something beside the events could not be read, either. front : what stood before the JSON.
    open_end : whether its last bracket is missing.
    """

    events: Counter[str] = msgspec.field(default_factory=Counter)
    work: int = 0
    ranges: int = 0
    section: bool = False
    front: str = ""
    open_end: bool = False


class FileEvents(msgspec.Struct, frozen=True):
    """The events of a file, what stands around them, and what of it is no valid JSON."""

    header: dict[str, Any]
    batch: Batch
    broken: Broken = Broken()


class Head(msgspec.Struct, frozen=True, order=True):
    """What many events share: category, name, process and thread (device and stream for those of the GPU)."""

    category: str
    name: str
    pid: int | str
    tid: int | str

    @property
    def group(self) -> str:
        """Table the event's row goes to."""
        return group_of(self.category, self.name)


def group_of(category: str, name: str) -> str:
    """Table that the rows of a category and name go to."""
    group = GROUPS.get(category, "span")
    return "hip" if group == "api" and name.startswith("hip") else group


class Heads:
    """Numbers every distinct Head; may be asked from several threads."""

    def __init__(self) -> None:
        self.all: list[Head] = []
        self._number: dict[tuple[str, str, int | str, int | str], int] = {}
        self._lock = threading.Lock()

    def number(self, category: str, name: str, pid: int | str, tid: int | str) -> int:
        """The Head's number, a new one the first time."""
        key = (category, name, pid, tid)
        found = self._number.get(key)
        if found is None:
            with self._lock:
                found = self._number.setdefault(key, len(self.all))
                if found == len(self.all):
                    self.all.append(Head(*key))
        return found


def join(batches: list[Batch], registry: Heads) -> Batch:
    """Stack batches in the order of the file; every group is there, if only empty.

    The batches lose their rows, so that what those of one group took is there for the next group.
    """
    joined = Batch()
    for batch in batches:
        joined.count(batch)
        batch.at.clear()
        for group in GROUPS_WITH_ARGS if joined.comms else ():
            if group in batch.rows:
                comm = batch.rows[group].comm
                comm[comm >= 0] += len(joined.comms)
        joined.comms += batch.comms
    for group, names in FIELDS.items():
        joined.rows[group] = stack(registry, [batch.rows.pop(group) for batch in batches if group in batch.rows], names)
    return joined


def interleave(first: Batch, second: Batch) -> Batch:
    """Put the rows of two parts of a piece in the order of their events; only `second` may have communication args."""
    for group, more in second.rows.items():
        if group not in first.rows:
            first.rows[group], first.at[group] = more, second.at[group]
            continue
        at = np.concatenate([first.at[group], second.at[group]])
        order = np.argsort(at)
        first.rows[group] = stack(more.registry, [first.rows[group], more], FIELDS[group])[order]
        first.at[group] = at[order]
    first.comms = second.comms
    first.count(second)
    return first


def stack(registry: Heads, parts: Sequence[Rows], fields: Sequence[str]) -> Rows:
    """Rows of one group below each other."""

    def below(columns: list[Ints]) -> Ints:
        return np.concatenate(columns) if columns else np.empty(0, np.int64)

    own = {name: below([getattr(rows, name) for rows in parts]) for name in ("head", "start", "duration", "comm")}
    return Rows(registry, **own, fields={name: below([rows.fields[name] for rows in parts]) for name in fields})


# Decode a piece of the event list whatever its layout: typed, with msgspec, only the fields some table needs.

_NO_TEXT = msgspec.Raw(b"")
NO_ARGS = Args()


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


class _Category(msgspec.Struct, gc=False):
    cat: Any = ""


_CATEGORY = msgspec.json.Decoder(_Category)
_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)


def decode(events: bytes | memoryview, heads: Heads) -> Batch:
    """Decode comma-separated events.

    Events whose name or thread is neither text nor number, or a time of which is none, are left out and counted.

    Raises
    ------
    msgspec.DecodeError : this is not JSON.
    """
    decoded, others = typed(b"[" + events + b"]", _EVENTS, _EVENT)
    batch = columns(decoded, heads)
    batch.events += len(others)
    batch.unreadable += len(others)
    for raw in others:
        with suppress(msgspec.ValidationError):
            category = _CATEGORY.decode(raw).cat
            if may_be_work(category):
                batch.unread[f"of '{category}' without a readable name or thread"] += 1
    return batch


def may_be_work(category: Any) -> bool:
    """Whether events of a category are work of a device."""
    return isinstance(category, str) and GROUPS.get(category) == "op"


def columns(events: list[Event], heads: Heads) -> Batch:
    """Columns of events; those of which a time is no number are left out and counted."""
    batch = Batch(events=sum(event.ph != "" for event in events))
    rows_of_group: dict[str, list[int]] = {group: [] for group in FIELDS}
    for row, event in enumerate(events):
        if is_kept(event):
            rows_of_group[group_of(event.cat, event.name)].append(row)
        elif event.ph:
            batch.unused[event.ph] += 1
            if event.ph in SPANNING and may_be_work(event.cat):
                batch.unread[f"in phase '{event.ph}' of '{event.cat}'"] += 1
    for group, at in rows_of_group.items():
        if not at:
            continue
        try:
            batch.rows[group] = _rows([events[row] for row in at], group, heads, batch.comms)
        except ValueError:
            at = _timed(events, at, group, batch)
            batch.rows[group] = _rows([events[row] for row in at], group, heads, batch.comms)
        batch.at[group] = np.array(at, np.int64)
    return batch


def _timed(events: list[Event], at: list[int], group: str, batch: Batch) -> list[int]:
    """Of one group's events those whose times are numbers; the others are counted."""
    bad = set()
    for row in at:
        try:
            nanoseconds([events[row].ts, events[row].dur or b"0"])
        except ValueError:
            bad.add(row)
    batch.unreadable += len(bad)
    if group == "range":
        batch.unread_ranges += sum(events[row].cat != PYTHON for row in bad)
    if group == "op":
        batch.unread += Counter(f"of '{events[row].cat}' without a readable time" for row in bad)
    return [row for row in at if row not in bad]


def _rows(events: list[Event], group: str, heads: Heads, comms: list[Args]) -> Rows:
    """Rows of events; ValueError where a time is no number."""
    start = nanoseconds([event.ts for event in events])
    duration = nanoseconds([event.dur or b"0" for event in events])
    args = [event.args for event in events]
    comm = np.full(len(events), -1, np.int64)
    if group in GROUPS_WITH_ARGS:
        telling = [row for row, each in enumerate(args) if each.is_communication]
        comm[telling] = np.arange(len(comms), len(comms) + len(telling))
        comms += [args[row] for row in telling]
    return Rows(
        heads,
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


def flat_sizes(args: Args) -> list[int]:
    """Sizes of an operator's inputs, one after the other, the first `MAX_SIZES`; none where one is no number."""
    left: list[Any] = [args.sizes if args.sizes is not None else args.sizes_old]
    found: list[int] = []
    while left and len(found) < MAX_SIZES:
        value = left.pop()
        if isinstance(value, list):
            left += reversed(value)
        elif (size := whole(value)) >= 0:
            found.append(size)
        else:
            return []
    return found


_GETTERS: dict[str, Callable[[Args], Any]] = {
    **{name: attrgetter(name) for names in FIELDS.values() for name in names},
    "sizes": lambda args: sizes_number(flat_sizes(args)),
    "grid": lambda args: _product(args.grid),
    "block": lambda args: _product(args.block),
    "sync_type": lambda args: SYNC_TYPES.index(args.sync_type) if args.sync_type in SYNC_TYPES else -1,
    "external": lambda args: args.external if args.external != -1 else args.external_old,
}
