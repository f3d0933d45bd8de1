"""Read what is whole of JSON events that are not valid JSON: a text not escaped, a comma too many, a log in front.

Slow and simple, for files that `analyzers.readers.json_stream` could not read: the whole file is in memory, events are
taken between borders that look like `}, {"key":`, first many at once, then one by one; what does not decode is skipped.
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
import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.gzipped import whole
from analyzers.readers.json_stream import EVENTS_KEY, HINT_AGAIN, PIECE, without_nan

Piece = TypeVar("Piece")
HINT_ESCAPE = (
    "The profiler did not escape a text (a quote, a backslash, a control character): recording again gives the same. "
    "Leave stacks out (with_stack=False), or use a newer torch."
)
Decoder = msgspec.json.Decoder[Any]
Members = tuple[dict[str, Any], bool]  # of an object, as far as they can be read, and whether that is all
_ALL: Decoder = msgspec.json.Decoder(list[msgspec.Raw])
_ONE: Decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BOM = b"\xef\xbb\xbf"
_TAIL = 1 << 16  # bytes at the end of a file that tell whether it was cut
_SIZES = (4096, 64)  # events that are tried at once
_MOST_NESTED = 16  # borders within one event, where its args hold lists of objects
_BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"\w+"\s*:)')
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
    decode : reads comma-separated events, which are valid JSON, maybe with NaN.
    last : stands in the event that the profiler writes last: behind it the list's end may be missing.

    Raises
    ------
    TracevizError : what `decode` raises.
    """
    if not _may_be_whole(path, last):
        return None
    try:
        text = whole(path, progress, HINT_AGAIN)
    except TracevizError:
        return None  # which the caller's own error says better
    front, text = _without_front(text.removeprefix(_BOM).strip())
    is_list = text.startswith(b"[")
    key = None if is_list else EVENTS_KEY.search(text)
    if not (is_list or key):
        return None
    reader = _Reader(text, key.end() if key else 1, _NOTHING if is_list else _BEHIND_LIST, decode)
    if not reader.read(last):
        return None
    before = _members(text[1 : key.start()]) if key else ({}, True)
    behind, is_closed = _behind(text[reader.list_end :], is_list)
    if not (behind[1] or is_closed):
        return None
    section_lost, open_end = not (before[1] and behind[1]), reader.open_end or not is_closed
    return Mended({**before[0], **behind[0]}, reader.pieces, reader.skipped, section_lost, front, open_end)


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


def _without_front(text: bytes) -> tuple[bytes, bytes]:
    """What stands before the JSON, as a program's log does, and the JSON, which begins a line."""
    start = _START.search(text)
    if not start or EVENTS_KEY.search(text, 0, start.end()):
        return b"", text
    return text[: start.end()].strip(), text[start.end() :]


def _behind(text: bytes, is_list: bool) -> tuple[Members, bool]:
    """What stands behind the list of events, and whether the object's own brace closes it."""
    if is_list or not text.endswith(b"}"):
        return _members(text), is_list
    inside = _members(text[:-1])
    if not inside[1] and (open_end := _members(text))[1]:
        return open_end, False
    return inside, True


class _Reader(Generic[Piece]):
    """Goes through the list of events; `list_end` is where the list ended, with `open_end` without its bracket."""

    def __init__(self, text: bytes, start: int, behind: re.Pattern[bytes], decode: Callable[[bytes], Piece]) -> None:
        self._text, self._behind, self._decode = text, behind, decode
        edges = np.fromiter((at for border in _BORDER.finditer(text, start) for at in border.span()), np.int64)
        self._starts: Ints = np.append(start, edges[1::2])
        self._ends: Ints = np.append(edges[::2] + 1, len(text))
        self.pieces: list[Piece] = []
        self._run = (start, start)  # whole events, not yet decoded
        self.skipped: list[bytes] = []
        self._unread: list[int] = []  # chunks since the last whole event
        self.list_end = -1
        self.open_end = False

    def read(self, last: bytes) -> bool:
        """Whether the list has its end, or ends with the event in which `last` stands."""
        at, known_bad = 0, dict.fromkeys(_SIZES, 0)
        while at < self._starts.size and self.list_end < 0:
            for size in _SIZES:
                if at >= known_bad[size]:
                    upto = min(at + size, self._starts.size)
                    if self._take(int(self._starts[at]), int(self._ends[upto - 1]), _ALL):
                        at = upto
                        break
                    known_bad[size] = upto
            else:
                at = self._one(at)
        if self.list_end < 0:
            self._end_behind_what_is_broken()
        if self.list_end < 0 and last:
            self._end_without_bracket(last)
        self._note_skipped()
        self._decode_run()
        return self.list_end >= 0

    def _take(self, start: int, end: int, decoder: Decoder) -> bool:
        """Add whole events to the run, if they are; says whether."""
        text = self._text[start:end]
        if not _is_valid(b"[" + text + b"]" if decoder is _ALL else text, decoder):
            return _has_trailing_comma(text) and self._take_without_commas(start, end)
        if self._unread or end - self._run[0] > PIECE:
            self._decode_run()
            self._run = (start, end)
        self._note_skipped()
        self._run = (self._run[0], end)
        return True

    def _take_without_commas(self, start: int, end: int) -> bool:
        """Decode at once what is whole but for commas behind the last item of a list or of an object."""
        text = _without_commas(self._text[start:end])
        if not _is_valid(b"[" + text + b"]", _ALL):
            return False
        self._decode_run()
        self._note_skipped()
        self.pieces.append(self._decode(text))
        self._run = (end, end)
        return True

    def _decode_run(self) -> None:
        start, end = self._run
        if end > start:
            self.pieces.append(self._decode(self._text[start:end]))

    def _note_skipped(self) -> None:
        if self._unread:
            self.skipped.append(self._text[self._starts[self._unread[0]] : self._ends[self._unread[-1]]])
            self._unread = []

    def _one(self, at: int) -> int:
        """Read one event, or skip it; says where the next begins."""
        start, last = int(self._starts[at]), min(at + _MOST_NESTED, self._starts.size)
        for upto in range(at + 1, last + 1):
            if self._take(start, int(self._ends[upto - 1]), _ONE):
                return upto
        for end in _LIST_END.finditer(self._text, start, int(self._ends[last - 1])):
            if self._behind.match(self._text, end.end()) and self._take(start, end.start() + 1, _ALL):
                self.list_end = end.end()
                return at
        self._unread.append(at)
        return at + 1

    def _end_behind_what_is_broken(self) -> None:
        """Find the list's end where the last event can't be read; nowhere if that may be cut."""
        if not self._unread:
            return
        start = int(self._starts[self._unread[0]])
        for end in _LIST_END.finditer(self._text, start):
            if self._behind.match(self._text, end.end()) and _looks_whole(self._text[start : end.start() + 1]):
                self.list_end = end.end()
                self._unread = [at for at in self._unread if self._starts[at] < end.start()]
                self._ends[self._unread[-1]] = end.start() + 1
                return

    def _end_without_bracket(self, last: bytes) -> None:
        """Let the list end where the text does, if the last event is whole and the one that is written last."""
        start, end = int(self._starts[-1]), len(self._text.rstrip(b", \t\r\n"))
        if last not in self._text[start:end] or not _is_valid(self._text[start:end], _ONE):
            return
        if self._unread:  # as a comma stands behind it
            self._unread.pop()
            self._take(start, end, _ONE)
        self.list_end, self.open_end = len(self._text), True


def _looks_whole(text: bytes) -> bool:
    """Whether events that can't be read have all that an event has, up to its last brace."""
    return text.count(b"{") == text.count(b"}") and bool(_TIME.search(text)) and bool(_PHASE.search(text))


def _has_trailing_comma(text: bytes) -> bool:
    return re.search(rb",\s*[\]}]", text) is not None


def _without_commas(text: bytes) -> bytes:
    """The same JSON without commas behind the last item of a list or of an object, where no text is one."""
    return _STRINGS_AND_COMMAS.sub(lambda match: match[0] if match[0].startswith(b'"') else b"", text)


def _is_valid(text: bytes, decoder: Decoder) -> bool:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        decoder.decode(text)
        return True
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        decoder.decode(without_nan(text))
        return True
    return False


def _members(text: bytes) -> Members:
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
