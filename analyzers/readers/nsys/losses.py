"""What an nsys export holds that the reader could not use: rows of unknown tables, names that are not there."""

from __future__ import annotations

from collections.abc import Mapping

from analyzers.common.errors import TraceWarning
from analyzers.readers.nsys.events import CALLS, KERNELS, NVTX, RANGES
from analyzers.readers.nsys.file import NsysFile
from analyzers.trace.losses import KERNELS_UNNAMED, RANGES_UNNAMED, UNKNOWN_WORK


def not_read(file: NsysFile, ranges: int) -> dict[str, int]:
    """Rows that say when something was and that were not used, by table.

    Parameters
    ----------
    ranges : how many NVTX ranges were read: the table's other rows are marks, names of domains, and the like.
    """
    others = file.most_rows(NVTX) - ranges
    return {**file.unused(), **({f"other rows of {NVTX}": others} if others > 0 else {})}


def unknown_work(file: NsysFile, unused: Mapping[str, int]) -> list[TraceWarning]:
    """Warn of tables that may hold work of GPUs and are not known."""
    tables = [f"{count:,} rows of {name}" for name, count in unused.items() if file.may_be_of_gpus(name)]
    if not tables:
        return []
    text = (
        f"The export holds what may be GPU work in tables that are not known: {', '.join(tables)}. It is in no figure. "
        "Export the report with another version of nsys, or report this."
    )
    return [TraceWarning(UNKNOWN_WORK, text)]


def lost_names(lost: Mapping[str, int]) -> list[TraceWarning]:
    """Warn of rows whose names the export lacks, by what was named."""

    def nowhere(what: str, so: str) -> str:
        return f"The names of {lost.get(what, 0):,} {what} are not in the export (StringIds lacks them): {so}."

    found = {
        KERNELS: TraceWarning(KERNELS_UNNAMED, nowhere(KERNELS, "which of them communicate can't be told")),
        RANGES: TraceWarning(RANGES_UNNAMED, nowhere(RANGES, "which work is theirs can't be told")),
        CALLS: TraceWarning("call-names-lost", nowhere(CALLS, "what they launched or waited for can't be told")),
    }
    return [warning for what, warning in found.items() if lost.get(what)]
