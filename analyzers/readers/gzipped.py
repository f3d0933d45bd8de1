"""Read a file, gzipped or not: piece by piece, so that all of a truncated one's readable part is had, or whole."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress

_GZIP = b"\x1f\x8b"
_GZIP_FORMAT = 31  # window bits, as zlib names the container
_BLOCK = 1 << 18
_PIECE = 1 << 24
HARMLESS = 1 << 30  # bytes that may be unpacked whatever they were packed to
MOST_FOLD = 200  # traces of profilers unpack to 10 to 40 times their size


class DamagedGzip(Exception):
    """The compressed data contradict themselves."""


class Bomb(Exception):
    """The compressed data unpack to more than any trace does."""


class Plain:
    """The content of a file, gzipped or not. `cut_short` once compressed data have ended too early."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        start = file.read(len(_GZIP))
        file.seek(0)
        self._unzip = isal_zlib.decompressobj(_GZIP_FORMAT) if start == _GZIP else None
        self.cut_short = False
        self._rest = b""  # read but not yet unpacked
        self._unpacked = 0

    def read(self, size: int) -> bytes:
        """The next bytes, about `size` of a plain file; none at the end.

        Raises
        ------
        DamagedGzip : what is compressed is no gzip data, or fails its checksum.
        Bomb : it unpacks to over `HARMLESS` bytes, and over `MOST_FOLD` times what was read.
        """
        if self._unzip is None:
            return self._file.read(size)
        plain = b""
        while not plain:
            block = self._rest or self._file.read(_BLOCK)
            self._rest = b""
            if not block:
                self.cut_short = not self._unzip.eof
                break
            if self._unzip.eof:  # files joined end to end; zeros may pad the last one
                if not block.strip(b"\0"):
                    continue
                self._unzip = isal_zlib.decompressobj(_GZIP_FORMAT)
            try:
                plain = self._unzip.decompress(block)
            except isal_zlib.IsalError as error:  # type: ignore[misc]
                raise DamagedGzip(str(error)) from error
            self._rest = self._unzip.unused_data
            self._unpacked += len(plain)
            if self._unpacked > HARMLESS and self._unpacked > MOST_FOLD * self._file.tell():
                raise Bomb(
                    f"unpacks to over {self._unpacked:,} bytes, {MOST_FOLD} times its size: traces of profilers don't."
                )
        return plain


def whole(path: Path, progress: Progress, again: str) -> bytes:
    """All that a file holds, unpacked.

    Parameters
    ----------
    again : what to do about a damaged file.

    Raises
    ------
    TracevizError : it can't be read, or is truncated or damaged gzip data.
    """
    try:
        size = max(path.stat().st_size, 1)
        with path.open("rb") as file:
            plain, parts = Plain(file), []
            while part := plain.read(_PIECE):
                parts.append(part)
                progress(f"reading {path.name}", min(file.tell(), size), size)
    except OSError as error:
        raise TracevizError(f"can't be read: {error.strerror or error}.", path=path) from error
    except (DamagedGzip, Bomb) as error:
        raise TracevizError(f"is a damaged gzip file ({error}).", path=path, hint=again) from error
    if plain.cut_short:
        raise TracevizError("is truncated.", path=path, hint=again)
    return b"".join(parts)
