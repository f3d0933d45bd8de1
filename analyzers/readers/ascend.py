"""Make a Trace of torch_npu's `trace_view.json`.

Work of the NPU stands in the process "Ascend Hardware", a thread a stream; calls of HCCL in "Communication" (once
"HCCL"), on threads of groups, whose planes repeat them task by task, with the numbers of the ranks that each is
between. On the NPU they run on streams of HCCL's own, where it also sets flags and waits for those of other ranks: no
work, as that of event records is none. "Overlap Analysis" is derived of both, and not read. Times are texts. What the
hosts' threads do is kept as ranges; what launched which task is not told but by arrows, which are not read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress
from analyzers.readers.json_events import JsonEvent, JsonEvents, nanoseconds
from analyzers.readers.reading import Reading
from analyzers.trace.columns import span
from analyzers.trace.ranks import claim_of_name
from analyzers.trace.schemas import Devices, Ops, Ranges
from analyzers.trace.tables import Capture, Process, Trace
from analyzers.trace.unread import with_unread

HARDWARE = "Ascend Hardware"
_COMMUNICATION = ("Communication", "HCCL")
_GROUP = re.compile(r"Group .*")
_STREAM = re.compile(r"Stream (\d+)")
_PLANE = re.compile(r"Plane .*")
# Of task types and names, blanks and underscores alike: "Write Value", "NOTIFY_WAIT".
_NO_WORK = re.compile(
    r"(EVENT|NOTIFY|PLACE ?HOLDER|(WRITE|WAIT) VALUE|MEM(ORY)? WAIT|PROFILING|MODEL (EXECUTE|MAINTAI?N[A-Z]*))\b",
    re.IGNORECASE,
)
_COPY = re.compile(r"(SDMA|RDMA|MEMCPY|PCIE DMA)", re.IGNORECASE)
_PEERS = ("src rank", "dst rank")
_MOST_RANKS = 1_000_000  # a larger number stands for none: 4294967295
_OUTPUT, _RANK = "ASCEND_PROFILER_OUTPUT", re.compile(r"profiler_info_(\d{1,9})\.json")
_EPOCH_SINCE = 10**18
GROUPS_FROM = 1_000_000  # streams that stand for groups of HCCL are numbered from here
_LACKS = (
    "more than busy times and overlap by stream: of category 'Ascend Hardware' nothing else is known here, such as "
    "what launched a task, waits between streams, and sizes",
    "missing waits and a full NPU: tasks that record events or wait for them are left out",
)


class _Op(NamedTuple):
    name: str
    kind: str
    stream: int
    start_ps: int
    end_ps: int


def read(path: Path, progress: Progress, _: Reading) -> Trace:
    """Read one file.

    Raises
    ------
    TracevizError : it can't be read, is truncated or damaged, or holds no work of an NPU.
    """
    source = JsonEvents(path, progress)
    events = list(source.read())
    bad, ranks = source.unreadable, 0
    ops: list[_Op] = []
    ranges: list[tuple[JsonEvent, int, int]] = []
    for event in events:
        process = source.processes.get(event.pid, "")
        thread = source.threads.get((event.pid, event.tid), "")
        try:
            start, end = event.span_ps
        except ValueError:
            bad += 1
            continue
        if end < start:
            bad += 1
        elif process == HARDWARE:
            ops += _task(event, thread, start, end)
        elif process in _COMMUNICATION:
            ops += [_Op(event.name, "kernel", GROUPS_FROM + event.tid, start, end)] if _GROUP.match(thread) else []
            if _PLANE.match(thread):  # a task names the ranks that it is between
                peers = [(event.args or {}).get(name) for name in _PEERS]
                ranks = max([ranks, *(one + 1 for one in peers if isinstance(one, int) and 0 <= one < _MOST_RANKS)])
        elif process == "Python":
            ranges.append((event, start, end))
    if not ops:
        hint = "Were NPUs traced (ProfilerActivity.NPU)?"
        unread = f" {bad:,} of its events have no readable time, process or thread." if bad else ""
        raise TracevizError(f"This trace of torch_npu holds no work of an NPU.{unread}", path=path, hint=hint)
    made = _trace(path, ops, ranges, bad, ranks, source.unused)
    return with_unread(made, source.work_unread(lambda process: process == HARDWARE or process in _COMMUNICATION))


def _task(event: JsonEvent, thread: str, start: int, end: int) -> list[_Op]:
    args = event.args or {}
    kind = str(args.get("Task Type", "")).replace("_", " ")
    if _NO_WORK.match(kind) or _NO_WORK.match(event.name.replace("_", " ")):
        return []
    stream = str(args.get("Stream Id", ""))
    found = _STREAM.match(thread)
    number = int(stream) if stream.isdecimal() and len(stream) < 10 else int(found[1]) if found else event.tid
    return [_Op(event.name, "memcpy" if _COPY.match(kind) else "kernel", number, start, end)]


def _trace(
    path: Path, ops: list[_Op], ranges: list[tuple[JsonEvent, int, int]], bad: int, ranks: int, unused: dict[str, int]
) -> Trace:
    starts, ends = nanoseconds(one.start_ps for one in ops), nanoseconds(one.end_ps for one in ops)
    range_starts, range_ends = nanoseconds(one[1] for one in ranges), nanoseconds(one[2] for one in ranges)
    zero = int(min(starts.min(), range_starts.min(initial=starts.min())))
    work = Ops.of(
        {
            "device": np.zeros(len(ops), np.int64),
            "stream": np.array([one.stream for one in ops], np.int64),
            "kind": [one.kind for one in ops],
            "name": [one.name for one in ops],
            "start_ns": starts - zero,
            "end_ns": ends - zero,
            "copy": ["unknown" if one.kind == "memcpy" else "" for one in ops],
        }
    )
    marks = Ranges.of(
        {
            "thread": np.array([one[0].tid for one in ranges], np.int64),
            "kind": ["annotation" if one[0].cat == "user_annotation" else "op" for one in ranges],
            "name": [one[0].name for one in ranges],
            "start_ns": range_starts - zero,
            "end_ns": range_ends - zero,
        }
    )
    first_ns, last_ns = span(work, marks)
    capture = Capture(
        path=str(path),
        format="ascend",
        producer="torch_npu",
        start_utc_ns=zero if zero >= _EPOCH_SINCE else None,
        first_ns=first_ns,
        last_ns=last_ns,
        runtime="CANN",
        waits_logged=False,
        ranks_named=ranks,
        lacks=_LACKS,
        unused=unused,
    )
    text = f"{bad:,} events have no readable time, process or thread; they are left out."
    return Trace(
        captures=(capture,),
        processes=(Process(capture=0, pid=-1, claims=claim_of_name(path) or _claim_beside(path)),),
        ops=work,
        ranges=marks,
        devices=Devices.of({"device": np.zeros(1, np.int64), "name": ["Ascend NPU"]}),
        origin_utc_ns=capture.start_utc_ns,
        warnings=(TraceWarning("unreadable-events", text),) if bad else (),
    )


def _claim_beside(path: Path) -> dict[str, int]:
    """The rank in the name of what torch_npu leaves beside a file's folder: profiler_info_3.json."""
    folder = path.resolve().parent
    beside = folder.parent.iterdir() if folder.name == _OUTPUT else ()
    ranks = [int(named[1]) for one in beside if (named := _RANK.fullmatch(one.name))]
    return {"file-name": ranks[0]} if len(ranks) == 1 else {}
