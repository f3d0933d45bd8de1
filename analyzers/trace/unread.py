"""Work of a GPU that a capture holds and no reader could use: no figure of its ranks is sure, and no verdict passes.

A reader notes it on the capture's processes (`Process.unread`); ranges that it could not read matter only to those who
select by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from analyzers.common.wording import numbers_in_words
from analyzers.trace.tables import Process, Trace

UNREAD = "unread-work"


class UnreadWork(msgspec.Struct, frozen=True):
    """How many such events there are, which, and what to do about it."""

    count: int
    which: str
    remedy: str = ""

    @property
    def in_words(self) -> str:
        """As the reason of a verdict."""
        return f"{self.count:,} {self.which}"


NOTHING_UNREAD = UnreadWork(0, "")


def with_unread(trace: Trace, *losses: UnreadWork, ranges: int = 0) -> Trace:
    """Note of a capture what of its GPU's work was not read, and warn of it.

    Parameters
    ----------
    trace : of one capture.
    ranges : operators and annotations that could not be read.
    """
    losses = tuple(loss for loss in losses if loss.count)
    if not losses and not ranges:
        return trace
    text = "; ".join(loss.in_words for loss in losses)
    noted = (replace(one, unread=text, unread_ranges=ranges) for one in trace.processes)
    trace = replace(trace, processes=tuple(noted))
    if not losses:
        return trace
    remedies = "".join(f" {remedy}" for remedy in dict.fromkeys(loss.remedy for loss in losses) if remedy)
    return trace.warn(
        UNREAD, f"What may be work of a GPU is in no figure: {text} ({trace.captures[0].path}).{remedies}"
    )


def undecided_by_unread(processes: Iterable[Process], ranks: Collection[int] | None, *, by_ranges: bool) -> str:
    """Why what was not read leaves a verdict open; "" where it doesn't.

    Parameters
    ----------
    ranks : those that are asked about; None for all of the run.
    by_ranges : whether a side is picked by ranges.
    """
    whose: dict[str, list[int]] = {}
    for one in processes:
        text = one.unread
        if not text and by_ranges and one.unread_ranges:
            text = f"{one.unread_ranges:,} operators or annotations, by which a side is picked"
        if text and (ranks is None or one.rank in ranks):
            whose.setdefault(text, []).append(one.rank)
    if not whose:
        return ""
    found = "; ".join(f"{_owner(numbers)}{text}" for text, numbers in whose.items())
    return f"not all that the capture holds could be read, and what is missing may change the answer: {found}"


def _owner(ranks: list[int]) -> str:
    known = sorted({rank for rank in ranks if rank >= 0})
    return f"of {numbers_in_words(known, 'rank')} " if known else ""
