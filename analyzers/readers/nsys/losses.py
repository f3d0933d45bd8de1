"""What an nsys export holds that the reader could not use: rows of unknown tables, names that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of
from analyzers.readers.nsys.events import CALLS, KERNELS, NVTX, RANGES
from analyzers.readers.nsys.file import NsysFile
from analyzers.trace.tables import Trace
from analyzers.trace.unread import UNKNOWN_WORK, noted

OPS = "GPU ops"


def not_read(file: NsysFile, ranges: int) -> dict[str, int]:
    """Rows that say when something was and that were not used, by table.

    Parameters
    ----------
    ranges : how many NVTX ranges were read: the table's other rows are marks, names of domains, and the like.
    """
    others = file.most_rows(NVTX) - ranges
    return {**file.unused(), **({f"other rows of {NVTX}": others} if others > 0 else {})}


class Loss(msgspec.Struct, frozen=True):
    """What could not be used: what to warn of, and the reason that verdicts give; "" where they don't rest on it.

    of_ranges : whether only those do that pick a side by ranges.
    """

    warning: TraceWarning
    why: str = ""
    of_ranges: bool = False


def with_losses(trace: Trace, losses: Iterable[Loss]) -> Trace:
    """A capture with all that could not be used noted and warned of."""
    for one in losses:
        trace = trace.warn(one.warning.code, one.warning.message)
        if one.why:
            trace = noted(trace, one.why, ranges=one.of_ranges)
    return trace


def unknown_work(file: NsysFile, unused: Mapping[str, int]) -> list[Loss]:
    """Tables that may hold work of GPUs and are not known."""
    tables = [f"{count:,} rows of {name}" for name, count in unused.items() if file.may_be_of_gpus(name)]
    if not tables:
        return []
    found = ", ".join(tables)
    text = (
        f"The export holds what may be GPU work in tables that are not known: {found}. It is in no figure. "
        "Export the report with another version of nsys, or report this."
    )
    return [Loss(TraceWarning(UNKNOWN_WORK, text), found)]


def without_times(lost: Mapping[str, int], absurd: Mapping[str, int]) -> list[Loss]:
    """Rows left out because they say no times, or such as can't be, by what they are of."""

    def counts(left: Mapping[str, int]) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in left.items())

    def why(left: Mapping[str, int]) -> str:
        return f"{count_of(left[OPS], 'GPU op')} without usable times" if left.get(OPS) else ""

    losses = []
    if lost:
        text = f"left out, because they have no start or end: {counts(lost)}."
        losses.append(Loss(TraceWarning("no-times", text), why(lost)))
    if absurd:
        text = f"left out, because they last over a day or lie a day apart from the others: {counts(absurd)}."
        losses.append(Loss(TraceWarning("absurd-times", text), why(absurd)))
    return losses


def lost_names(lost: Mapping[str, int]) -> list[Loss]:
    """Rows whose names the export lacks, by what was named."""

    def nowhere(what: str, so: str) -> str:
        return f"The names of {lost.get(what, 0):,} {what} are not in the export (StringIds lacks them): {so}."

    def why(what: str) -> str:
        return f"the names of {lost.get(what, 0):,} {what} are not in the export"

    found = {
        KERNELS: Loss(
            TraceWarning("names-lost", nowhere(KERNELS, "which of them communicate can't be told")), why(KERNELS)
        ),
        RANGES: Loss(
            TraceWarning("range-names-lost", nowhere(RANGES, "which work is theirs can't be told")),
            why(RANGES),
            of_ranges=True,
        ),
        CALLS: Loss(TraceWarning("call-names-lost", nowhere(CALLS, "what they launched or waited for can't be told"))),
    }
    return [loss for what, loss in found.items() if lost.get(what)]
