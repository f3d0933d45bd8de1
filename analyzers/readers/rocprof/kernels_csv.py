"""Read rocprofv3's kernel_trace.csv: a row a kernel.

Columns come and go with versions, and so does the case of their names. An agent is a number, or a text that ends in one
("Agent 4"); CPUs count. Sizes are work-items.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.gzipped import whole
from analyzers.readers.reading import Reading
from analyzers.readers.rocprof.rocprof_json import (
    LACKS_FULL,
    NO_STREAM,
    PROFILE_AGAIN_HINT,
    Gpu,
    Record,
    Traced,
    trace_of,
)
from analyzers.trace.tables import Trace
from analyzers.trace.unread import UnreadWork, with_unread

_LACKS = (
    "copies, ranges, what the host called and who launched what: kernel_trace.csv holds kernels alone "
    "(--sys-trace --output-format json has the rest)",
    LACKS_FULL,
    "which of the machine's GPUs a device is: it has its agent's number, in which CPUs count",
)
_NEEDED = ("Agent_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp")
_NUMBER = re.compile(r"(\d+)\s*$")
_PID = re.compile(r"(\d+)_kernel_trace\.csv")  # as rocprofv3 names the file where nobody else does
_MOST = 2**63


def read(path: Path, progress: Progress, _: Reading) -> Trace:
    """Read one file.

    Raises
    ------
    TracevizError : it can't be read, lacks a column, or holds no kernel.
    """
    text = whole(path, progress, PROFILE_AGAIN_HINT).decode("utf-8-sig", errors="replace")
    rows = csv.reader(io.StringIO(text, newline=""))
    columns = [one.strip().lower() for one in next(rows, [])]
    if lacking := [one for one in _NEEDED if one.lower() not in columns]:
        raise TracevizError(
            f"is rocprofv3's table of kernels without {' and '.join(lacking)}.", path=path, hint=PROFILE_AGAIN_HINT
        )
    found = [
        _record(dict(zip(columns, row, strict=False))) if len(row) >= len(columns) else None for row in rows if row
    ]
    records = [one for one in found if one is not None]
    if not records:
        raise TracevizError("holds no row of a kernel that can be read.", path=path, hint=PROFILE_AGAIN_HINT)
    named = _PID.fullmatch(path.name)
    gpus = [Gpu(agent, agent) for agent in sorted({one.agent for one in records})]
    made = trace_of(path, Traced(pid=int(named[1]) if named else -1, gpus=gpus, kernels=records))
    (capture,) = made.captures
    streams = () if "stream_id" in columns else (NO_STREAM.format("a kernel"),)
    made = replace(made, captures=(replace(capture, lacks=(*_LACKS, *streams)),))
    lost = UnreadWork(len(found) - len(records), "rows of kernels that can't be read", "Is the file whole?")
    return with_unread(made, lost)


def _record(row: Mapping[str, str]) -> Record | None:
    """A row as a record; None where its times, agent or name can't be read."""
    agent = _NUMBER.search(row.get("agent_id", ""))
    start, end = _number(row, "start_timestamp"), _number(row, "end_timestamp")
    name = row.get("kernel_name", "")
    if agent is None or start < 0 or end < start or not name:
        return None
    grid, block = ([_number(row, f"{size}_{axis}") for axis in "xyz"] for size in ("grid_size", "workgroup_size"))
    return Record(
        name,
        start,
        end,
        thread=_number(row, "thread_id"),
        correlation=_number(row, "correlation_id"),
        stream=_number(row, "stream_id"),
        queue=_number(row, "queue_id"),
        agent=int(agent[1]),
        shared=_number(row, "lds_block_size", "group_segment_size"),
        grid=(grid[0], grid[1], grid[2]),
        block=(block[0], block[1], block[2]),
    )


def _number(row: Mapping[str, str], *names: str) -> int:
    """The first of these columns that the row has, -1 where it holds no number of 64 bits."""
    text = next((row[name] for name in names if name in row), "").strip()
    return value if text.isascii() and text.isdigit() and (value := int(text)) < _MOST else -1
