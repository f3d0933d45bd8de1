"""The JSON that JAX's profiler writes for viewers: `HOST.trace.json.gz`, and `perfetto_trace.json.gz` out of it.

Lines are named by metadata, which stands before the events. Every argument is text; an empty object ends the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.json_stream import HINT_AGAIN, EventStream, malformed, without_nan
from analyzers.readers.xla.profile import PERFETTO, SAID, VIEWER, Events, Line, Profile

_PS = Decimal(10**6)  # of a µs
_MOST_PS = 2**62 * 1000
_MOST_EVENTS = 1_000_000  # that XLA writes for viewers; it leaves out the shortest of more


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    pid: int = -1
    tid: int = -1
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: dict[str, Any] | None = None


_ALL = msgspec.json.Decoder(list[_Event])
_ONE = msgspec.json.Decoder(_Event)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


def profile(path: Path, progress: Progress) -> Profile:
    """Read one file.

    Raises
    ------
    TracevizError : the file can't be read, is empty, truncated, damaged, or not JSON.
    """
    names: dict[tuple[int, int], str] = {}  # of processes (thread -1) and threads
    number: dict[tuple[int, int], int] = {}
    found = Profile([], Events())
    try:
        for event in _events(path, progress, found):
            if event.ph == "M":
                thread = -1 if event.name == "process_name" else event.tid
                if event.name in ("process_name", "thread_name"):
                    names[event.pid, thread] = str((event.args or {}).get("name", ""))
            elif event.ph == "X":
                _add(found, event, number)
    except RecursionError:
        raise TracevizError("nests brackets too deeply for a trace.", path=path, hint=HINT_AGAIN) from None
    found.cut = len(found.events.line) >= _MOST_EVENTS
    found.lines = [Line.of(names.get((pid, -1), ""), names.get((pid, tid), ""), tid) for pid, tid in number]
    found.host = path.name.removesuffix(VIEWER) if path.name.endswith(VIEWER) and path.name != PERFETTO else ""
    return found


def _add(found: Profile, event: _Event, number: dict[tuple[int, int], int]) -> None:
    try:
        start, duration = (_picoseconds(bytes(each)) for each in (event.ts, event.dur))
    except ValueError:
        found.unreadable += 1
        return
    args = event.args or {}
    said = {key: str(args[key]) for key in SAID if key in args}
    line = number.setdefault((event.pid, event.tid), len(number))
    found.events.add(line, event.name, start, start + duration, said)


def _picoseconds(text: bytes) -> int:
    """Decimal µs as whole ps.

    >>> _picoseconds(b"1149.2529999999999"), _picoseconds(b'"9.9999999999999995e-07"')
    (1149253000, 1)
    """
    try:
        value = int((Decimal(text.strip(b'"').decode()) * _PS).to_integral_value())
    except (InvalidOperation, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(text) from error
    if not -_MOST_PS < value < _MOST_PS:
        raise ValueError(text)
    return value


def _events(path: Path, progress: Progress, found: Profile) -> Iterator[_Event]:
    stream = EventStream(path, progress, exact=True)
    for piece in stream.pieces():
        text = b"[" + piece + b"]"
        try:
            try:
                yield from _decoded(text, found)
            except (msgspec.DecodeError, UnicodeDecodeError):
                yield from _decoded(without_nan(text.decode(errors="replace").encode()), found)
        except msgspec.DecodeError as error:
            raise malformed(path, False, stream.events, str(error)) from None


def _decoded(text: bytes, found: Profile) -> list[_Event]:
    try:
        return _ALL.decode(text)
    except msgspec.ValidationError:
        events = []
        for raw in _RAWS.decode(text):
            try:
                events.append(_ONE.decode(raw))
            except msgspec.ValidationError:
                found.unreadable += 1
        return events
