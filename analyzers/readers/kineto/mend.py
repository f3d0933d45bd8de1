"""A Kineto file that is no valid JSON, as names were not escaped: what is whole, and what of the rest may matter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers import json_mend
from analyzers.readers.json_mend import HINT_ESCAPE
from analyzers.readers.json_stream import decoded
from analyzers.readers.kineto.events import GROUPS, PYTHON, Batch, Heads, decode, join

_HOST = {"range", "api", "memory"}  # groups of what is no work of a device
_NO_WORK = {"ac2g", "fwdbwd", "Trace", "overhead", "gpu_user_annotation", "external_correlation"}
_NAMES = "M"  # the phase of what names processes and threads, which has no category
_LAST = b'"Record Window End"'  # what torch.profiler writes last
_PHASE = re.compile(rb'"ph"\s*:\s*"(\w)"')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([^"]*)"')


class Broken(msgspec.Struct, frozen=True):
    """Events that are no valid JSON, by category; of them, how many may be work of a GPU, and how many name ranges.

    section : whether something beside the events could not be read, either.
    front : what stood before the JSON. open_end : whether its last bracket is missing.
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


def mended(path: Path, progress: Progress) -> FileEvents | None:
    """Read what is whole of a file that is no valid JSON; None where it is cut.

    Raises
    ------
    TracevizError : no event is whole.
    """
    heads = Heads()

    def read(text: bytes) -> Batch:
        try:
            return decoded(text, lambda piece: decode(piece, heads))
        except msgspec.DecodeError as error:
            raise TracevizError(f"has an event that can't be read: {error}.", path=path, hint=HINT_ESCAPE) from None

    found = json_mend.mended(path, progress, read, _LAST)
    if found is None:
        return None
    if not found.pieces:
        raise TracevizError("is not valid JSON, and none of its events is whole.", path=path, hint=HINT_ESCAPE)
    return FileEvents(found.header, join(found.pieces, heads), _broken(found))


def _broken(found: json_mend.Mended[Batch]) -> Broken:
    events, work, ranges = Counter[str](), 0, 0
    for text in found.skipped:
        phases = [one.decode() for one in _PHASE.findall(text)]
        categories = [one.decode(errors="replace") for one in _CATEGORY.findall(text)]
        events.update(categories)
        events[""] += max((len(phases) or 1) - len(categories), 0)
        work += _may_be_work(phases, categories)
        ranges += sum(GROUPS.get(one) == "range" and one != PYTHON for one in categories)
    front = " ".join(found.front.decode(errors="replace").split())
    return Broken(+events, work, ranges, found.section_lost, front, found.open_end)


def _may_be_work(phases: Sequence[str], categories: Sequence[str]) -> int:
    """How many broken events may be work of a GPU: all, unless the category of each stands there."""
    if phases and len(categories) == sum(phase != _NAMES for phase in phases):
        return sum(GROUPS.get(one) not in _HOST and one not in _NO_WORK for one in categories)
    return len(phases) or 1
