"""Read what is whole of JSON events that are not valid JSON: a profiler that did not escape a text, a comma too many.

Slow and simple, for files that `analyzers.readers.json_stream` could not read: the whole file is in memory, events are
taken between borders that look like `}, {"key":`, first many at once, then one by one; what does not decode is skipped.
A file that is cut is not mended: what it lacks is not there.
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
_ALL: Decoder = msgspec.json.Decoder(list[msgspec.Raw])
_ONE: Decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BOM = b"\xef\xbb\xbf"
_SIZES = (4096, 64)  # events that are tried at once
_MOST_NESTED = 16  # borders within one event, where its args hold lists of objects
_BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"\w+"\s*:)')
_LIST_END = re.compile(rb"\}\s*(?:,\s*)?\]")
_BEHIND_LIST = re.compile(rb'\s*(?:\}\s*\Z|,\s*"[^"]*"\s*:)')
_NOTHING = re.compile(rb"\s*\Z")
_KEY = re.compile(r'"(\w+)"\s*:\s*')
_TIME, _PHASE = re.compile(rb'"ts"\s*:\s*"?-?\d'), re.compile(rb'"ph"\s*:\s*"')
_AS_BEFORE = 1 << 16  # bytes at the end of a file that tell whether it was cut


class Mended(msgspec.Struct, Generic[Piece]):
    """What could be read.

    pieces : what `decode` made of whole events, in order.
    skipped : texts of stretches that could not be read, of an event or several in a row each.
    section_lost : whether some of what stands around the events could not be read, either.
    """

    header: dict[str, Any]
    pieces: list[Piece]
    skipped: list[bytes]
    section_lost: bool


def mended(path: Path, progress: Progress, decode: Callable[[bytes], Piece]) -> Mended[Piece] | None:
    """Read what is whole, maybe nothing; None for a file that is cut.

    Parameters
    ----------
    decode : reads comma-separated events, which are valid JSON, maybe with NaN.

    Raises
    ------
    TracevizError : what `decode` raises.
    """
    if not is_whole_at_its_end(path):
        return None
    try:
        text = whole(path, progress, HINT_AGAIN)
    except TracevizError:
        return None  # which the caller's own error says better
    text = text.removeprefix(_BOM).strip()
    is_list = text.startswith(b"[")
    key = None if is_list else EVENTS_KEY.search(text)
    if not (is_list or key) or not text.endswith(b"]" if is_list else b"}"):
        return None
    reader = _Reader(text, key.end() if key else 1, _NOTHING if is_list else _BEHIND_LIST, decode)
    if not reader.read():
        return None
    before = _members(text[1 : key.start()]) if key else ({}, True)
    behind = ({}, True) if is_list else _members(text[reader.list_end : -1])
    return Mended({**before[0], **behind[0]}, reader.pieces, reader.skipped, not (before[1] and behind[1]))


def is_whole_at_its_end(path: Path) -> bool:
    """Whether a file ends as JSON does; a gzipped one may."""
    try:
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                return True
            file.seek(max(0, path.stat().st_size - _AS_BEFORE))
            return file.read().rstrip()[-1:] in (b"}", b"]")
    except OSError:
        return False


class _Reader(Generic[Piece]):
    """Goes through the list of events; `list_end` is where the list ended."""

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

    def read(self) -> bool:
        """Whether the list has its end."""
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
        self._note_skipped()
        self._decode_run()
        return self.list_end >= 0

    def _take(self, start: int, end: int, decoder: Decoder) -> bool:
        """Add whole events to the run, if they are; says whether."""
        text = self._text[start:end]
        if not _is_valid(b"[" + text + b"]" if decoder is _ALL else text, decoder):
            return False
        if self._unread or end - self._run[0] > PIECE:
            self._decode_run()
            self._run = (start, end)
        self._note_skipped()
        self._run = (self._run[0], end)
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


def _looks_whole(text: bytes) -> bool:
    """Whether events that can't be read have all that an event has, up to its last brace."""
    return text.count(b"{") == text.count(b"}") and bool(_TIME.search(text)) and bool(_PHASE.search(text))


def _is_valid(text: bytes, decoder: Decoder) -> bool:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        decoder.decode(text)
        return True
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        decoder.decode(without_nan(text))
        return True
    return False


def _members(text: bytes) -> tuple[dict[str, Any], bool]:
    """The members of an object, as far as they can be read, and whether that is all."""
    inside = text.strip().strip(b",").strip()
    try:
        return msgspec.json.decode(without_nan(b"{" + inside + b"}"), type=dict[str, Any]), True
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    found: dict[str, Any] = {}
    words, decoder, at = inside.decode(errors="replace"), json.JSONDecoder(), 0
    while key := _KEY.search(words, at):
        try:
            value, at = decoder.raw_decode(words, key.end())
            found.setdefault(key[1], value)
        except (ValueError, RecursionError):
            at = key.end()
    return found, False
