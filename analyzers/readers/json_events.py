"""Events of JSON that says by metadata which device, stream or thread each stands on, whatever else they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.json_mend import mended
from analyzers.readers.json_stream import HINT_AGAIN, EventStream, decoded, malformed, typed
from analyzers.trace.unread import UnreadWork

_ARROWS = "stf"
_SPANNING = "BEbeSTFp"
_PS = Decimal(10**6)  # of a µs
MOST_NS = 2**62  # no time is as far from its zero
_MOST_PS = MOST_NS * 1000


class JsonEvent(msgspec.Struct, gc=False):
    """One event; times stay text."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int = -1
    tid: int = -1
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: dict[str, Any] | None = None

    @property
    def span_ps(self) -> tuple[int, int]:
        """Begin and end in ps; ValueError where a time is none."""
        start = picoseconds(bytes(self.ts))
        return start, start + picoseconds(bytes(self.dur))


_ALL = msgspec.json.Decoder(list[JsonEvent])
_ONE = msgspec.json.Decoder(JsonEvent)


class JsonEvents(msgspec.Struct):
    """The events of a file that last, and what its metadata call processes and threads; complete after `read`.

    unreadable : events whose name, process or thread is none.
    unread : events of other phases than those that are read, by phase and process.
    broken : stretches of one event or several that are no valid JSON.
    """

    path: Path
    progress: Progress
    processes: dict[int, str] = msgspec.field(default_factory=dict)
    threads: dict[tuple[int, int], str] = msgspec.field(default_factory=dict)
    unreadable: int = 0
    broken: int = 0
    unread: Counter[tuple[str, int]] = msgspec.field(default_factory=Counter)

    @property
    def unused(self) -> dict[str, int]:
        """How many events of each kind were not used: arrows between events apart."""
        count = Counter[str]()
        for (phase, _), events in self.unread.items():
            count[f"events in phase '{phase}'"] += events if phase not in _ARROWS else 0
        return dict(+count)

    def work_unread(self, is_device: Callable[[str], bool]) -> UnreadWork:
        """Events of processes that are devices by their names, which last and say so in a begin and an end."""
        count = sum(
            events
            for (phase, pid), events in self.unread.items()
            if phase in _SPANNING and is_device(self.processes.get(pid, ""))
        )
        which = "events of a device in phases that no reader here can use"
        if self.broken:
            which = f"events that are no valid JSON{f', or {which}' if count else ''}"
        return UnreadWork(count + self.broken, which)

    def read(self) -> Iterator[JsonEvent]:
        """Events with a length, in the order of the file."""
        try:
            for event in self._events():
                if event.ph == "X":
                    yield event
                elif event.ph == "M":
                    named = str((event.args or {}).get("name", ""))
                    if event.name == "process_name":
                        self.processes[event.pid] = named
                    elif event.name == "thread_name":
                        self.threads[event.pid, event.tid] = named
                elif event.ph:
                    self.unread[event.ph, event.pid] += 1
        except RecursionError:
            raise TracevizError("nests brackets too deeply for a trace.", path=self.path, hint=HINT_AGAIN) from None

    def _events(self) -> Iterator[JsonEvent]:
        read = 0
        try:
            for piece in EventStream(self.path, self.progress, exact=True).pieces():
                events = decoded(bytes(piece), self._events_of)
                yield from events
                read += len(events)
        except (msgspec.DecodeError, TracevizError) as error:
            self.unreadable, whole = 0, mended(self.path, self.progress, lambda text: decoded(text, self._events_of))
            if whole is None or not whole.pieces:
                if isinstance(error, TracevizError):
                    raise
                raise malformed(self.path, False, read, str(error)) from None
            self.broken = len(whole.skipped)
            yield from islice(chain.from_iterable(whole.pieces), read, None)

    def _events_of(self, piece: bytes) -> list[JsonEvent]:
        events, others = typed(b"[" + piece + b"]", _ALL, _ONE)
        self.unreadable += len(others)
        return events


def picoseconds(text: bytes) -> int:
    """Decimal µs as whole ps.

    >>> picoseconds(b"1149.2529999999999"), picoseconds(b'"9.9999999999999995e-07"')
    (1149253000, 1)
    """
    try:
        value = int((Decimal(text.strip(b'"').strip().decode()) * _PS).to_integral_value())
    except (InvalidOperation, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise ValueError(text) from error
    if not -_MOST_PS < value < _MOST_PS:
        raise ValueError(text)
    return value


def nanoseconds(picoseconds: Iterable[int]) -> Ints:
    """Times in ns, to the next; no farther from zero than `MOST_NS`.

    >>> nanoseconds([1_499, 1_500, -1_000, 10**30]).tolist()
    [1, 2, -1, 4611686018427387904]
    """
    return np.array([max(-MOST_NS, min(MOST_NS, (one + 500) // 1000)) for one in picoseconds], np.int64)
