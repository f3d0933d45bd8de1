"""A Kineto file that is no valid JSON, as names were not escaped: what is whole, and what of the rest may matter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress
from analyzers.readers import json_mend
from analyzers.readers.json_mend import HINT_ESCAPE
from analyzers.readers.json_stream import without_nan
from analyzers.readers.kineto.events import GROUPS, PYTHON, Batch, Heads, decode, join

MOST_KINDS = 5  # of broken events that are named
_HOST = {"range", "api", "memory"}  # groups of what is no work of a device
_NO_WORK = {"ac2g", "fwdbwd", "Trace", "overhead", "gpu_user_annotation", "external_correlation"}
_NAMES = "M"  # the phase of what names processes and threads, which has no category
_LAST = b'"Record Window End"'  # what torch.profiler writes last
_MOST_FRONT = 60  # letters of what stood before the JSON that are shown
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


NOTHING_BROKEN = Broken()


class Mended(msgspec.Struct, frozen=True):
    """What is whole of a file, and what is not."""

    header: dict[str, Any]
    batch: Batch
    heads: Heads
    broken: Broken


def mended(path: Path, progress: Progress) -> Mended | None:
    """Read what is whole of a file that is no valid JSON; None where it is cut.

    Raises
    ------
    TracevizError : no event is whole.
    """
    heads = Heads()
    found = json_mend.mended(path, progress, lambda text: _decoded(path, text, heads), _LAST)
    if found is None:
        return None
    if not found.pieces:
        raise TracevizError("is not valid JSON, and none of its events is whole.", path=path, hint=HINT_ESCAPE)
    broken = replace(
        _broken(found.skipped),
        section=found.section_lost,
        front=" ".join(found.front.decode(errors="replace").split()),
        open_end=found.open_end,
    )
    return Mended(found.header, join(found.pieces), heads, broken)


def _decoded(path: Path, text: bytes, heads: Heads) -> Batch:
    try:
        try:
            return decode(text, heads)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode(without_nan(text.decode(errors="replace").encode()), heads)
    except msgspec.DecodeError as error:
        raise TracevizError(f"has an event that can't be read: {error}.", path=path, hint=HINT_ESCAPE) from None


def _broken(skipped: Sequence[bytes]) -> Broken:
    events, work, ranges = Counter[str](), 0, 0
    for text in skipped:
        phases = [one.decode() for one in _PHASE.findall(text)]
        categories = [one.decode(errors="replace") for one in _CATEGORY.findall(text)]
        events.update(categories)
        events[""] += max((len(phases) or 1) - len(categories), 0)
        work += _may_be_work(phases, categories)
        ranges += sum(GROUPS.get(one) == "range" and one != PYTHON for one in categories)
    return Broken(+events, work, ranges)


def _may_be_work(phases: Sequence[str], categories: Sequence[str]) -> int:
    """How many broken events may be work of a GPU: all, unless the category of each stands there."""
    if phases and len(categories) == sum(phase != _NAMES for phase in phases):
        return sum(GROUPS.get(one) not in _HOST and one not in _NO_WORK for one in categories)
    return len(phases) or 1


def about_broken(broken: Broken, whole: int) -> list[TraceWarning]:
    """Say what could not be read, and why."""
    found = []
    if count := broken.events.total():
        kinds = ", ".join(
            f"{number:,} of '{kind}'" if kind else f"{number:,} of unknown kind"
            for kind, number in broken.events.most_common(MOST_KINDS)
        )
        text = f"{count:,} of {whole + count:,} events are no valid JSON ({kinds}); they are left out. {HINT_ESCAPE}"
        found.append(TraceWarning("unreadable-events", text))
    if broken.section:
        text = (
            f"What stands beside the events is no valid JSON, as a text in it is not escaped: all {whole:,} events "
            "are read, but versions, devices or the rank may be missing."
            if not count
            else "What stands beside the events is no valid JSON, either: versions, devices or the rank may be missing."
        )
        found.append(TraceWarning("unreadable-section", text))
    return found + [TraceWarning("unreadable-section", text) for text in _about_edges(broken)]


def _about_edges(broken: Broken) -> list[str]:
    """Say what is odd before the JSON and at its end, which costs no event."""
    found = []
    if broken.front:
        shown = broken.front[:_MOST_FRONT] + ("…" if len(broken.front) > _MOST_FRONT else "")
        found.append(f"Text in front of the JSON is passed over: '{shown}'.")
    if broken.open_end:
        found.append("The file's end is missing, a bracket or more: its events are all there, and read.")
    return found
