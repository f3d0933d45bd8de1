"""Read a file of JSON events (a Chrome trace) piece by piece: what stands around them, and whole events between commas.

In the quick way a piece is cut at a border that looks as torch writes it, without proof. In the exact way every
bracket outside strings is counted, whatever the layout; it is for files where the quick way's pieces don't decode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.gzipped import Bomb, DamagedGzip, Plain

Event = TypeVar("Event")
Piece = TypeVar("Piece")
RAWS = msgspec.json.Decoder(list[msgspec.Raw])
PIECE_BYTES = 8 << 20
MOST_AT_ONCE = 1 << 30  # bytes of one event, or of what stands around the events
_BLANK = b" \t\r\n"
EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"\w+"\s*:)')
_COMMA = re.compile(rb"[ \t\r\n]*(,?)")
_LIST_END = ord("]")
_TAIL = 1 << 16  # where a border is looked for first
_QUOTE, _OPEN, _CLOSE = 1, 2, 3
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b'"')], _KINDS[list(b"{[")], _KINDS[list(b"}]")] = _QUOTE, _OPEN, _CLOSE
_STRINGS_AND_NAN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\b(?:nan|inf|infinity)\b', re.IGNORECASE | re.DOTALL)
HINT_AGAIN = "Record the trace again, and let the profiled process end (or export the trace) before copying the file."


class Malformed(TracevizError):
    """What a file holds is not JSON to its end: it was cut (`is_cut`), or written wrongly."""

    is_cut = False


class Cut(NamedTuple):
    """Where whole elements end in a buffer, how many do, and where the list itself ends (-1: not here)."""

    end: int
    elements: int
    list_end: int


class EventStream:
    """The events of one file. `header` is complete once `pieces` has run out.

    Raises
    ------
    TracevizError : the file can't be read, is empty, not JSON, no trace, or ends too early. In the quick way it may
        only be written otherwise than it looks.
    """

    def __init__(self, path: Path, progress: Progress, *, exact: bool) -> None:
        self.path, self.exact = path, exact
        self.header: dict[str, Any] = {}
        self.events = 0  # known in the exact way only
        self._progress = progress
        self._buffer = b""
        self.is_list = self._ended = self._comma_due = self._cut_short = False

    def pieces(self) -> Iterator[memoryview]:
        """Whole events with commas between them, about 8 MB at a time."""
        try:
            with self.path.open("rb") as file:
                size = max(1, self.path.stat().st_size)
                for piece in self._pieces(Plain(file)):
                    self._progress(f"reading {self.path.name}", min(file.tell(), size), size)
                    yield piece
        except OSError as error:
            raise TracevizError(f"can't be read: {error.strerror or error}.", path=self.path) from error

    def _pieces(self, file: Plain) -> Iterator[memoryview]:
        self._find_events(file)
        while True:
            self._fill(file)
            if not self.exact:
                end = _likely_border(self._buffer)
            else:
                end, elements, list_end = cut(self._buffer)
                self.events += elements
                if list_end >= 0:
                    break
            if end:
                yield self._take(end)
            if self._ended and (end == 0 or not self.exact):
                break
        end, elements, list_end = cut(self._buffer)
        if list_end < 0:
            raise self.malformed(True, "")
        if self._buffer[:list_end].strip(_BLANK):
            yield self._take(list_end)
            list_end = 0
        self._read_suffix(file, self._buffer[list_end + 1 :])

    def _fill(self, file: Plain) -> None:
        parts, size = [self._buffer], len(self._buffer)
        if size > MOST_AT_ONCE:
            text = f"holds a single event, or a header, of over {MOST_AT_ONCE:,} bytes: no profiler writes one."
            raise TracevizError(text, path=self.path, hint="Is it a trace of torch.profiler?")
        goal = max(PIECE_BYTES, 2 * size)  # doubled, so that a long event is not copied again and again
        try:
            while size < goal and not self._ended:
                part = file.read(goal - size)
                self._ended, self._cut_short = not part, file.cut_short
                parts.append(part)
                size += len(part)
        except DamagedGzip as error:
            raise TracevizError(f"is a damaged gzip file ({error}).", path=self.path, hint=HINT_AGAIN) from error
        except Bomb as error:
            raise TracevizError(str(error), path=self.path, hint="Unpack it by hand if that is right.") from None
        self._buffer = b"".join(parts)
        self._pass_comma(0)

    def _take(self, end: int) -> memoryview:
        piece = memoryview(self._buffer)[:end]
        self._comma_due = True
        self._pass_comma(end)
        return piece

    def _pass_comma(self, start: int) -> None:
        """Drop what comes before `start`, and the comma that must follow it, which may not have been read yet."""
        following = _COMMA.match(self._buffer, start)
        if following and self._comma_due and following.end() < len(self._buffer):
            start = following.end()
            self._comma_due = False
            if not following[1] and self._buffer[start] != _LIST_END:
                raise self.malformed(False, "no comma between two events")
        self._buffer = self._buffer[start:] if start else self._buffer

    def _find_events(self, file: Plain) -> None:
        self._fill(file)
        self._buffer = self._buffer.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK)
        if not self._buffer:
            short = " (the gzip data ends before its first byte)" if self._cut_short else ""
            raise TracevizError(f"is empty{short}.", path=self.path, hint=HINT_AGAIN)
        if self._buffer[:1] == b"[":
            self.is_list = True
            self._buffer = self._buffer[1:]
            return
        if self._buffer[:1] != b"{":
            raise Malformed("is not JSON.", path=self.path, hint="Give a torch.profiler trace (.json or .json.gz).")
        looked = 0
        while True:
            for match in EVENTS_KEY.finditer(self._buffer, looked):
                if self._is_header(self._buffer[: match.end()]):
                    self._buffer = self._buffer[match.end() :]
                    return
            if self._ended:
                break
            looked = max(0, len(self._buffer) - 64)
            self._fill(file)
        try:
            msgspec.json.decode(without_nan(self._buffer), type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise self.malformed(cut(self._buffer[1:]).list_end < 0, str(error)) from None
        hint = "Give what torch.profiler's export_chrome_trace wrote."
        raise TracevizError("is JSON, but not a trace: it has no list of traceEvents.", path=self.path, hint=hint)

    def _is_header(self, text: bytes) -> bool:
        try:
            header = msgspec.json.decode(without_nan(text + b"]}"))
        except msgspec.DecodeError:
            return False
        if not isinstance(header, dict) or header.pop("traceEvents", None) != []:
            return False
        self.header.update(header)
        return True

    def _read_suffix(self, file: Plain, suffix: bytes) -> None:
        self._buffer = suffix
        while not self._ended:
            self._fill(file)
        if self._cut_short:
            raise self.malformed(True, "")
        rest = self._buffer.strip(_BLANK)
        if self.is_list:
            if rest:
                raise self.malformed(False, "something follows the list of events")
            return
        try:
            more = msgspec.json.decode(without_nan(b'{"":0' + rest))
        except msgspec.DecodeError as error:
            raise self.malformed(not rest.endswith(b"}"), str(error)) from None
        del more[""]
        self.header.update(more)

    def malformed(self, truncated: bool, what: str) -> Malformed:
        """The error for a file that can't be read to its end."""
        return malformed(self.path, truncated or self._cut_short, self.events, what)


def malformed(path: Path, truncated: bool, events: int, what: str) -> Malformed:
    """The error for a trace that can't be read to its end; `events` is how many came before."""
    before = f"{events:,} events before that are readable, but the rest is missing"
    text = f"is truncated: {before}." if truncated else f"is not valid JSON ({what}): about {before}."
    error = Malformed(text, path=path, hint=HINT_AGAIN)
    error.is_cut = truncated
    return error


def cut(text: bytes) -> Cut:
    """Find where whole elements of a list end; `text` starts inside the list, between two elements."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    marks = np.frombuffer(text, np.uint8)
    at = np.flatnonzero(_KINDS[marks])
    kinds = _KINDS[marks[at]]
    quotes = kinds == _QUOTE
    outside = ~quotes & ((np.cumsum(quotes, dtype=np.int32) & 1) == 0)
    at, kinds = at[outside], kinds[outside]
    depth = np.cumsum(np.where(kinds == _OPEN, 1, -1))
    over = np.flatnonzero(depth < 0)
    list_end = int(at[over[0]]) if over.size else -1
    ends = at[(depth == 0) & (kinds == _CLOSE)]
    if list_end >= 0:
        ends = ends[ends < list_end]
    return Cut(int(ends[-1]) + 1 if ends.size else 0, ends.size, list_end)


def without_nan(text: bytes) -> bytes:
    """The same JSON with NaN and infinities, which Python and C++ print but JSON does not know, as null."""
    if not re.search(rb"\b(?:nan|inf|infinity)\b", text, re.IGNORECASE):
        return text
    return _STRINGS_AND_NAN.sub(lambda match: match[0] if match[0].startswith(b'"') else b"null", text)


def decoded(piece: bytes, decode: Callable[[bytes], Piece]) -> Piece:
    """What `decode` makes of events; where they are no JSON, with null for NaN and marks for what is no UTF-8.

    Raises
    ------
    msgspec.DecodeError : they are no JSON even so.
    """
    try:
        return decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode(without_nan(piece.decode(errors="replace").encode()))


def typed(
    text: bytes, many: msgspec.json.Decoder[list[Event]], single: msgspec.json.Decoder[Event]
) -> tuple[list[Event], list[msgspec.Raw]]:
    """The events of a list, and those that are of other types, as they are."""
    try:
        return many.decode(text), []
    except msgspec.ValidationError:
        events: list[Event] = []
        others = []
        for raw in RAWS.decode(text):
            try:
                events.append(single.decode(raw))
            except msgspec.ValidationError:
                others.append(raw)
        return events, others


def _likely_border(text: bytes) -> int:
    border = text.rfind(b"\n  },\n  {")
    if border >= 0:
        return border + len(b"\n  }")
    for start in (max(0, len(text) - _TAIL), 0):
        borders = [match.start() for match in BORDER.finditer(text, start)]
        if borders:
            return borders[-1] + 1
    return 0
