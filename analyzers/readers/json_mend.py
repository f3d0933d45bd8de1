"""Read what is whole of JSON events that are not valid JSON: a text not escaped, a comma too many, a log in front.

Slow and simple, for files that `analyzers.readers.json_stream` could not read: the whole file is in memory, events are
taken one by one between borders that look like `}, {"key":`, and what does not decode is skipped.
A file that is cut is not mended: what it lacks is not there. One whose last bracket alone is missing lacks nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.gzipped import whole
from analyzers.readers.json_stream import BORDER, EVENTS_KEY, HINT_AGAIN, RAWS, without_nan

Piece = TypeVar("Piece")
HINT_ESCAPE = (
    "The profiler did not escape a text (a quote, a backslash, a control character): recording again gives the same. "
    "Leave stacks out (with_stack=False), or use a newer torch."
)
_BOM = b"\xef\xbb\xbf"
_TAIL = 1 << 16  # bytes at the end of a file that tell whether it was cut
_AT_ONCE = 4096  # whole events that are decoded at once
_MOST_NESTED = 16  # borders within one event, where its args hold lists of objects
_LIST_END = re.compile(rb"\}\s*(?:,\s*)?\]")
_BEHIND_LIST = re.compile(rb'\s*(?:,?\s*\}?\s*\Z|,\s*"[^"]*"\s*:)')
_START = re.compile(rb'^[ \t]*(?=\{\s*"|\[\s*\{)', re.MULTILINE)
_STRINGS_AND_COMMAS = re.compile(rb'"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])', re.DOTALL)
_NOTHING = re.compile(rb"\s*\Z")
_KEY = re.compile(r'"(\w+)"\s*:\s*')
_TIME, _PHASE = re.compile(rb'"ts"\s*:\s*"?-?\d'), re.compile(rb'"ph"\s*:\s*"')


class Mended(msgspec.Struct, Generic[Piece]):
    """What could be read.

    pieces : what `decode` made of whole events, in order.
    skipped : texts of stretches that could not be read, of an event or several in a row each.
    section_lost : whether some of what stands around the events could not be read, either.
    front : what stood before the JSON, and was passed over. open_end : whether its last bracket is missing.
    """

    header: dict[str, Any]
    pieces: list[Piece]
    skipped: list[bytes]
    section_lost: bool
    front: bytes
    open_end: bool


def mended(path: Path, progress: Progress, decode: Callable[[bytes], Piece], last: bytes = b"") -> Mended[Piece] | None:
    """Read what is whole, maybe nothing; None for a file that is cut.

    Parameters
    ----------
    decode : reads comma-separated events, which are valid JSON, maybe with NaN; what it raises ends it all.
    last : stands in the event that the profiler writes last: behind it the list's end may be missing.
    """
    if not _may_be_whole(path, last):
        return None
    try:
        text = whole(path, progress, HINT_AGAIN)
    except TracevizError:
        return None  # which the caller's own error says better
    text, front = text.removeprefix(_BOM).strip(), b""
    start = _START.search(text)  # of a line with which the JSON begins; what stands before is a program's log
    if start and not EVENTS_KEY.search(text, 0, start.end()):
        front, text = text[: start.end()].strip(), text[start.end() :]
    key = None if text.startswith(b"[") else EVENTS_KEY.search(text)
    if not (key or text.startswith(b"[")):
        return None
    reader = _Reader(text, key.end() if key else 1, _BEHIND_LIST if key else _NOTHING, decode)
    if not reader.read(last):
        return None
    behind = text[reader.list_end :]
    header, all_before = _members(text[1 : key.start()]) if key else ({}, True)
    is_closed = not key or behind.endswith(b"}")
    more, all_behind = _members(behind[:-1] if key and is_closed else behind)
    if key and is_closed and not all_behind and (of_open := _members(behind))[1]:
        (more, all_behind), is_closed = of_open, False  # the brace is that of the last value
    if not (all_behind or is_closed):
        return None
    lost, open_end = not (all_before and all_behind), reader.open_end or not is_closed
    return Mended({**header, **more}, reader.pieces, reader.skipped, lost, front, open_end)


def _may_be_whole(path: Path, last: bytes) -> bool:
    """Whether a file ends as JSON does, or so that its last bracket alone may be missing; a gzipped one may."""
    try:
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                return True
            file.seek(max(0, path.stat().st_size - _TAIL))
            tail = file.read().rstrip()
    except OSError:
        return False
    ends = (end.end() for end in _LIST_END.finditer(tail))
    return tail[-1:] in (b"}", b"]") or (last != b"" and last in tail) or any(_members(tail[end:])[1] for end in ends)


class _Reader(Generic[Piece]):
    """Goes through the list of events; `list_end` is where the list ended, with `open_end` without its bracket."""

    def __init__(self, text: bytes, start: int, behind: re.Pattern[bytes], decode: Callable[[bytes], Piece]) -> None:
        self._text, self._behind, self._decode = text, behind, decode
        borders = [border.span() for border in BORDER.finditer(text, start)]
        self._starts = [start, *(end for _, end in borders)]
        self._ends = [*(at + 1 for at, _ in borders), len(text)]
        self._whole: list[bytes] = []  # events that are not decoded yet
        self._unread: list[int] = []  # numbers of events since the last whole one
        self.pieces: list[Piece] = []
        self.skipped: list[bytes] = []
        self.list_end = -1
        self.open_end = False

    def read(self, last: bytes) -> bool:
        """Whether the list has its end, or ends with the event in which `last` stands."""
        event = 0
        while event < len(self._starts) and self.list_end < 0:
            event = self._one(event)
        if self.list_end < 0 and self._unread:
            self._end_behind_what_is_broken()
        if self.list_end < 0 and last:
            self._end_without_bracket(last)
        self._note_skipped()
        self._decode_whole()
        return self.list_end >= 0

    def _one(self, event: int) -> int:
        """Read one event, or skip it; says which is the next."""
        start, last = self._starts[event], min(event + _MOST_NESTED, len(self._starts))
        for after in range(event + 1, last + 1):
            if self._take(start, self._ends[after - 1]):
                return after
        for end in _LIST_END.finditer(self._text, start, self._ends[last - 1]):
            if self._behind.match(self._text, end.end()) and self._take(start, end.start() + 1):
                self.list_end = end.end()
                return event
        self._unread.append(event)
        return event + 1

    def _take(self, start: int, end: int) -> bool:
        """Add what is whole, but for commas behind the last item of a list or of an object; says whether it is."""
        for text in (self._text[start:end], _without_commas(self._text[start:end])):
            if _is_valid(text):
                self._note_skipped()
                self._whole.append(text)
                if len(self._whole) == _AT_ONCE:
                    self._decode_whole()
                return True
        return False

    def _decode_whole(self) -> None:
        if self._whole:
            self.pieces.append(self._decode(b",".join(self._whole)))
            self._whole = []

    def _note_skipped(self) -> None:
        if self._unread:
            self.skipped.append(self._text[self._starts[self._unread[0]] : self._ends[self._unread[-1]]])
            self._unread = []

    def _end_behind_what_is_broken(self) -> None:
        """Find the list's end where the last event can't be read; nowhere if that may be cut."""
        start = self._starts[self._unread[0]]
        for end in _LIST_END.finditer(self._text, start):
            text = self._text[start : end.start() + 1]  # whole, it has all that an event has, up to its last brace
            looks_whole = text.count(b"{") == text.count(b"}") and _TIME.search(text) and _PHASE.search(text)
            if self._behind.match(self._text, end.end()) and looks_whole:
                self.list_end = end.end()
                self._unread = [event for event in self._unread if self._starts[event] < end.start()]
                self._ends[self._unread[-1]] = end.start() + 1
                return

    def _end_without_bracket(self, last: bytes) -> None:
        """Let the list end where the text does, if the last event is whole and the one that is written last."""
        start, end = self._starts[-1], len(self._text.rstrip(b", \t\r\n"))
        if last in self._text[start:end] and _is_valid(self._text[start:end]):
            if self._unread:  # as a comma stands behind it
                self._unread.pop()
                self._take(start, end)
            self.list_end, self.open_end = len(self._text), True


def _without_commas(text: bytes) -> bytes:
    """The same JSON without commas behind the last item of a list or of an object, where no text is one."""
    return _STRINGS_AND_COMMAS.sub(lambda match: match[0] if match[0].startswith(b'"') else b"", text)


def _is_valid(events: bytes) -> bool:
    """Whether events are valid JSON, maybe with NaN."""
    for text in (events, without_nan(events)):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            RAWS.decode(b"[" + text + b"]")
            return True
    return False


def _members(text: bytes) -> tuple[dict[str, Any], bool]:
    """Members of an object, as far as they can be read, and whether that is all."""
    inside = text.strip().strip(b",").strip()
    for members in (inside, _without_commas(inside)):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(without_nan(b"{" + members + b"}"), type=dict[str, Any]), True
    found: dict[str, Any] = {}
    words, decoder, at = inside.decode(errors="replace"), json.JSONDecoder(), 0
    while key := _KEY.search(words, at):
        try:
            value, at = decoder.raw_decode(words, key.end())
            found.setdefault(key[1], value)
        except (ValueError, RecursionError):
            at = key.end()
    return found, False
