"""What has to be said of a format of captures so that its files are found, told apart, read and kept."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import msgspec

from analyzers.cache.keys import is_worth_keeping
from analyzers.common.progress import Progress
from analyzers.trace.tables import Trace

GZIP = b"\x1f\x8b"
UNPACKED_BYTES = 4096


class Head(msgspec.Struct, frozen=True, dict=True):
    """A file's name and its first bytes, which tell its format."""

    name: str
    raw: bytes

    @property
    def is_gzip(self) -> bool:
        """Whether the file is gzipped."""
        return self.raw.startswith(GZIP)

    @cached_property
    def plain(self) -> bytes:
        """The first bytes of what was gzipped, none where it is damaged; else the bytes as they are."""
        if not self.is_gzip:
            return self.raw
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(self.raw, UNPACKED_BYTES)
        except zlib.error:
            return b""  # for the reader to say what is wrong


def _always(_: Path) -> bool:
    return True


def _nothing(_: Path) -> None:
    return


def _none(_: Path) -> set[Path]:
    return set()


def _size(path: Path) -> int:
    return path.stat().st_size


class MemoryPerByte(msgspec.Struct, frozen=True):
    """Bytes of memory at most for a byte of a capture, as planned before; of JSON 0.9 and 0.03 were measured.

    read : of the process that reads and analyses it.
    kept, listed : of the process that puts all answers together, for each capture; of answers that list sync points.
    """

    read: float = 1.0
    kept: float = 0.04
    listed: float = 0.04


class Format(msgspec.Struct, frozen=True):
    """A format of captures; `analyzers.readers.formats` lists all.

    kind : its name.
    is_one : whether a file is of this format, by its head.
    read : reads one file, given its path, whom to tell of progress, the `nsys` to export reports with, if one was
        named, and whether GPU counters are asked for. It imports what it needs by itself: most commands read from the
        cache, or one format.
    called : what users call its files; "" where the words of another format cover it.
    suffixes : how the names of its files end; files of a folder are found by that.
    is_likely : whether a file with such a name, which nobody named, is one: other programs may use the suffix.
    fold : bytes to read for each byte of a file, unless it is gzipped.
    memory : what one of these bytes takes.
    check : refuses a file that can't be read as it is now, though the cache may have what it was.
    keeps : whether the cache may have its tables.
    whole : bytes of a capture, of which the file that stands for it may be a part.
    twins : files beside one that would say the same, and more: where one of them is given, too, that is read.
    """

    kind: str
    is_one: Callable[[Head], bool]
    read: Callable[[Path, Progress, str | None, bool], Trace]
    called: str = ""
    suffixes: tuple[str, ...] = ()
    is_likely: Callable[[Path], bool] = _always
    fold: int = 1
    memory: MemoryPerByte = MemoryPerByte()
    check: Callable[[Path], None] = _nothing
    keeps: bool = True
    whole: Callable[[Path], int] = _size
    twins: Callable[[Path], set[Path]] = _none

    def is_worth_keeping(self, path: Path) -> bool:
        """Whether looking a capture's tables up is quicker than reading it."""
        return self.keeps and is_worth_keeping(path, packed=self.fold > 1 or path.name.endswith(".gz"))
