"""Read one Perfetto trace by what wrote it."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.perfetto import rocprof, torch
from analyzers.readers.perfetto.packets import packets
from analyzers.readers.reading import READING, Reading
from analyzers.trace.tables import Trace


def read(path: Path, progress: Progress, _: Reading = READING) -> Trace:
    """Read one file.

    Raises
    ------
    TracevizError : the package protobuf is missing; the file can't be read, is truncated or damaged; neither
        torch.profiler nor rocprofv3 wrote it.
    """
    found = packets(path, progress)
    categories = {one.category for one in found.slices}
    writer = next((each for each in (torch, rocprof) if each.CATEGORIES & categories), None)
    if writer is None and any(one.stage in torch.KINDS for one in found.stages):
        writer = torch
    if writer is None:
        raise TracevizError(
            "is a trace for Perfetto, but none of torch.profiler or rocprofv3.",
            path=path,
            hint="Give the JSON of the same profile, if there is one.",
        )
    trace = writer.trace(path, found)
    if found.unpaired:
        trace = trace.warn(
            "unreadable-events", f"{found.unpaired:,} slices lack their begin or their end; they are left out."
        )
    if found.lost:
        trace = trace.warn(
            "lost-work",
            "Perfetto's buffer was full: events are missing. Of rocprofv3, capture with a larger "
            "--perfetto-buffer-size, or give --output-format json.",
        )
    return trace
