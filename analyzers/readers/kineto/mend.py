"""A Kineto file of which some names were not escaped: what is whole, and what of the rest may matter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

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
_PHASE = re.compile(rb'"ph"\s*:\s*"(\w)"')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([^"]*)"')


class Broken(msgspec.Struct, frozen=True):
    """Events that are no valid JSON, by category; of them, how many may be work of a GPU, and how many name ranges.

    section : whether something beside the events could not be read, either.
    """

    events: Counter[str] = msgspec.field(default_factory=Counter)
    work: int = 0
    ranges: int = 0
    section: bool = False


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
    found = json_mend.mended(path, progress, lambda text: _decoded(path, text, heads))
    if found is None:
        return None
    if not found.pieces:
        raise TracevizError("is not valid JSON, and none of its events is whole.", path=path, hint=HINT_ESCAPE)
    return Mended(found.header, join(found.pieces), heads, _broken(found.skipped, found.section_lost))


def _decoded(path: Path, text: bytes, heads: Heads) -> Batch:
    try:
        try:
            return decode(text, heads)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode(without_nan(text.decode(errors="replace").encode()), heads)
    except msgspec.DecodeError as error:
        raise TracevizError(f"has an event that can't be read: {error}.", path=path, hint=HINT_ESCAPE) from None


def _broken(skipped: Sequence[bytes], section: bool) -> Broken:
    events, work, ranges = Counter[str](), 0, 0
    for text in skipped:
        phases = [one.decode() for one in _PHASE.findall(text)]
        categories = [one.decode(errors="replace") for one in _CATEGORY.findall(text)]
        events.update(categories)
        events[""] += max((len(phases) or 1) - len(categories), 0)
        work += _may_be_work(phases, categories)
        ranges += sum(GROUPS.get(one) == "range" and one != PYTHON for one in categories)
    return Broken(+events, work, ranges, section)


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
    return found
