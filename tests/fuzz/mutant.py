"""What a mutation is: how a capture's file was changed, and what its reader may expect of an answer."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

HOSTILE_INTS = (0, -1, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
HOSTILE_TEXTS = ("", " ", "\x00", "\x1b[2J", "a" * 100_000, "名前", "[bold]x[/bold]", "*", "~(", '"', "|x|\n#y", "NaN")


Change = Callable[[Random, Path, Path], "str | None"]  # writes a changed copy of a file; says what it did


@dataclass(frozen=True)
class Seed:
    """A run's captures, and pairs of selectors whose both sides have work in it."""

    files: tuple[Path, ...]
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mutation:
    """Writes a changed copy; `change` says what it did, or None where the capture has nothing of the kind."""

    name: str
    change: Change
    tells: bool = False  # what it takes away leaves a trace: figures may not change without a word


def damage(rng: Random, source: Path, target: Path) -> str:
    """Change bytes: cut, flip, repeat, drop, or write what is no UTF-8."""
    data = bytearray(source.read_bytes())
    zipped = data[:2] == b"\x1f\x8b"
    inside = zipped and rng.random() < 0.6
    if inside:
        data = bytearray(gzip.decompress(bytes(data)))
    at, length = rng.randrange(len(data)), rng.randrange(1, 64)
    what = rng.choice(("cut", "flip", "repeat", "drop", "utf8", "append", "zeros"))
    if what == "cut":
        del data[at:]
    elif what == "flip":
        for place in (rng.randrange(len(data)) for _ in range(rng.randrange(1, 20))):
            data[place] ^= 1 << rng.randrange(8)
    elif what == "repeat":
        data[at:at] = data[at : at + rng.randrange(1, 5000)]
    elif what == "drop":
        del data[at : at + length]
    elif what == "utf8":
        data[at : at + 2] = rng.choice((b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\x80"))
    elif what == "append":
        data += rng.randbytes(length)
    else:
        data[at : at + length] = bytes(length)
    target.write_bytes(gzip.compress(bytes(data), 1, mtime=0) if inside else bytes(data))
    return f"{what} at {at}{' of the text inside' if inside else ''}"


def some(rng: Random, rows: Sequence[int], share: float = 0.1) -> list[int]:
    """A few of these places, at least one."""
    return rng.sample(rows, max(1, int(len(rows) * share))) if rows else []


def mutations(edits: Mapping[str, tuple[Any, bool]], edited: Callable[[Any], Change]) -> list[Mutation]:
    """A mutation an edit of what a loader's files hold, which `edited` applies to a file, and one of bytes."""
    return [*(Mutation(name, edited(edit), tells) for name, (edit, tells) in edits.items()), Mutation("bytes", damage)]
