"""Read rocprofv3's kernel_trace.csv: a row a kernel, as records of its JSON.

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
from analyzers.readers.rocprof.read import (
    GPU,
    LACKS_FULL,
    Agent,
    Dispatch,
    Handle,
    Id,
    Metadata,
    Record,
    Sizes,
    Symbol,
    Tool,
    trace_of,
)
from analyzers.trace.tables import Trace
from analyzers.trace.unread import UnreadWork, with_unread

AGAIN = "Let the program end, and profile it again: rocprofv3 --sys-trace --output-format json -- COMMAND."
_LACKS = (
    "copies, ranges, what the host called and who launched what: kernel_trace.csv holds kernels alone "
    "(--sys-trace --output-format json has the rest)",
    LACKS_FULL,
    "which of the machine's GPUs a device is: it has its agent's number, in which CPUs count",
)
_NEEDED = ("Agent_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp")
_NO_STREAM = "which HIP stream a kernel ran on: hardware queues are taken for streams, and several streams share one"
_NUMBER = re.compile(r"(\d+)\s*$")
_PID = re.compile(r"(\d+)_kernel_trace\.csv")  # as rocprofv3 names the file where nobody else does
_MOST = 2**63


def read(path: Path, progress: Progress, _: Reading) -> Trace:
    """Read one file.

    Raises
    ------
    TracevizError : it can't be read, lacks a column, or holds no kernel.
    """
    text = whole(path, progress, AGAIN).decode("utf-8-sig", errors="replace")
    rows = csv.reader(io.StringIO(text, newline=""))
    columns = [one.strip().lower() for one in next(rows, [])]
    if lacking := [one for one in _NEEDED if one.lower() not in columns]:
        raise TracevizError(f"is rocprofv3's table of kernels without {' and '.join(lacking)}.", path=path, hint=AGAIN)
    kernels: dict[str, int] = {}
    records, unread = [], 0
    for row in rows:
        if not row:
            continue
        record = _record(dict(zip(columns, row, strict=False)), kernels) if len(row) >= len(columns) else None
        if record is None:
            unread += 1
        else:
            records.append(record)
    if not records:
        raise TracevizError("holds no row of a kernel that can be read.", path=path, hint=AGAIN)
    made = trace_of(path, _tool(path, records, kernels))
    (capture,) = made.captures
    streams = () if "stream_id" in columns else (_NO_STREAM,)
    made = replace(made, captures=(replace(capture, lacks=(*_LACKS, *streams)),))
    return with_unread(made, UnreadWork(unread, "rows of kernels that can't be read", "Is the file whole?"))


def _tool(path: Path, records: list[Record], kernels: Mapping[str, int]) -> Tool:
    agents = sorted({one.dispatch_info.agent_id.handle for one in records})
    named = _PID.fullmatch(path.name)
    return Tool(
        metadata=Metadata(pid=int(named[1]) if named else -1),
        agents=tuple(Agent(id=Handle(one), type=GPU, logical_node_type_id=one) for one in agents),
        kernel_symbols=tuple(Symbol(number, name) for name, number in kernels.items()),
        buffer_records={"kernel_dispatch": records},
    )


def _record(row: Mapping[str, str], kernels: dict[str, int]) -> Record | None:
    """A row as a record; None where its times, agent or name can't be read. New names are numbered in `kernels`."""
    agent = _NUMBER.search(row.get("agent_id", ""))
    start, end = _number(row, "start_timestamp"), _number(row, "end_timestamp")
    name = row.get("kernel_name", "")
    if agent is None or start < 0 or end < start or not name:
        return None
    return Record(
        thread_id=_number(row, "thread_id"),
        correlation_id=Id(_number(row, "correlation_id")),
        start_timestamp=start,
        end_timestamp=end,
        dispatch_info=Dispatch(
            agent_id=Handle(int(agent[1])),
            queue_id=Handle(_number(row, "queue_id")),
            kernel_id=kernels.setdefault(name, len(kernels)),
            group_segment_size=_number(row, "lds_block_size", "group_segment_size"),
            workgroup_size=_sizes(row, "workgroup_size"),
            grid_size=_sizes(row, "grid_size"),
        ),
        stream_id=Handle(_number(row, "stream_id")),
    )


def _sizes(row: Mapping[str, str], name: str) -> Sizes:
    return Sizes(*(_number(row, f"{name}_{axis}") for axis in "xyz"))


def _number(row: Mapping[str, str], *names: str) -> int:
    """The first of these columns that the row has, -1 where it holds no number of 64 bits."""
    text = next((row[name] for name in names if name in row), "").strip()
    return value if text.isascii() and text.isdigit() and (value := int(text)) < _MOST else -1
