"""What a capture holds and could not be used: no figure of its ranks is sure, and no verdict passes.

Work of a GPU that no reader could read, kernels without names, times in another unit. It is noted on the capture's
processes (`Process.unread`); ranges that could not be used matter only to those who select by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from analyzers.common.wording import numbers_in_words
from analyzers.trace.tables import Process, Trace

UNREAD = "unread-work"
UNKNOWN_WORK = "unknown-work"  # what may be GPU work was left in the file


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


def noted(trace: Trace, why: str, *, ranges: bool = False, process: int | None = None) -> Trace:
    """Note of a capture, or of one process in it, what could not be used.

    Parameters
    ----------
    why : in words, as the reason of a verdict. ranges : whether that is ranges only.
    """
    column = "unread_ranges" if ranges else "unread"
    processes = list(trace.processes)
    for number, one in enumerate(processes):
        if process in (None, number):
            before = getattr(one, column)
            processes[number] = replace(one, **{column: f"{before}; {why}" if before else why})
    return replace(trace, processes=tuple(processes))


def with_unread(trace: Trace, *losses: UnreadWork, ranges: int = 0) -> Trace:
    """Note of a capture what of its GPU's work was not read, and warn of it.

    Parameters
    ----------
    trace : of one capture.
    ranges : operators and annotations that could not be read.
    """
    losses = tuple(loss for loss in losses if loss.count)
    if ranges:
        trace = noted(trace, f"{ranges:,} operators or annotations, by which a side is picked", ranges=True)
    if not losses:
        return trace
    text = "; ".join(loss.in_words for loss in losses)
    remedies = "".join(f" {remedy}" for remedy in dict.fromkeys(loss.remedy for loss in losses) if remedy)
    return noted(trace, text).warn(
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
        text = one.unread or (one.unread_ranges if by_ranges else "")
        if text and (ranks is None or one.rank in ranks):
            whose.setdefault(text, []).append(one.rank)
    if not whose:
        return ""
    found = "; ".join(f"{_owner(numbers)}{text}" for text, numbers in whose.items())
    return f"not all that the capture holds could be used, and what is missing may change the answer: {found}"


def _owner(ranks: list[int]) -> str:
    known = sorted({rank for rank in ranks if rank >= 0})
    return f"of {numbers_in_words(known, 'rank')} " if known else ""
