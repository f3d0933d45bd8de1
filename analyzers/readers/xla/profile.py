"""The events of a profile of XLA: from the JSON that its profiler writes for viewers, or from what it keeps itself.

That are XSpace protocol buffers (`*.xplane.pb`), which the package protobuf reads; the messages are those of
tsl/profiler/protobuf/xplane.proto, as far as they are read here: other fields are skipped. Events have their times from
the begin of their line; names and values of texts stand in maps of the plane.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from analyzers.common.progress import Progress
from analyzers.readers.formats import XLA_PERFETTO, XLA_SPACES, XLA_VIEWER
from analyzers.readers.gzipped import whole
from analyzers.readers.json_events import JsonEvents
from analyzers.readers.protobufs import Messages, message_class, parser
from analyzers.trace.ranks import rank_in_name
from analyzers.trace.unread import NOTHING_UNREAD, UnreadWork

_DEVICE = re.compile(r"/device:GPU:(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
HOST, NO_STREAM = -1, -1
_MOST_EVENTS = 1_000_000  # that XLA writes for viewers; it leaves out the shortest of more
DETAILS = ("kernel_details", "memcpy_details", "memset_details")
SAID = ("correlation_id", "hlo_op", "hlo_module", "run_id", "group_id", *DETAILS, "step_num")


class Line(msgspec.Struct, frozen=True):
    """What events stand on: a stream of a device, a line that was derived from streams (NO_STREAM), or a host thread.

    named : whether the file says what the line is. modules : whether it is the one derived of runs of modules.
    of_host : whether the file says that it is a thread of the host. name : what the file calls it.
    """

    device: int
    stream: int
    thread: int
    named: bool
    modules: bool = False
    of_host: bool = False
    name: str = ""

    @classmethod
    def of(cls, plane: str, name: str, number: int) -> Line:
        """From the names of the process and the thread in the file.

        >>> line = Line.of("/device:GPU:1", "Stream #16(Kernel)", 3)
        >>> line.device, line.stream, line.thread, Line.of("/device:GPU:1", "XLA Ops", 4).stream
        (1, 16, 3, -1)
        """
        device, stream = _DEVICE.search(plane), _STREAM.match(name)
        return cls(
            int(device[1]) if device else HOST,
            int(stream[1]) if stream else NO_STREAM,
            number,
            bool(name.strip()),
            bool(device) and name == "XLA Modules",
            plane.startswith("/host:"),
            name.strip(),
        )


class Profile(msgspec.Struct):
    """A file: its lines, columns of its events, and what it says of itself.

    Events have their times in ps, texts "" where there are none; `line` counts `lines`, `run` is that of the module, as
    far as it is said, and `details` are of a kernel, copy or memset.

    begun_ns : since 1970, None: not said. unreadable : events that could not be read.
    cut : whether the profiler may have left events out of it.
    unused : what of the file was not used, counted by kind; unread : what of that may be work of a GPU.
    """

    lines: list[Line] = msgspec.field(default_factory=list)
    line: list[int] = msgspec.field(default_factory=list)
    name: list[str] = msgspec.field(default_factory=list)
    start_ps: list[int] = msgspec.field(default_factory=list)
    end_ps: list[int] = msgspec.field(default_factory=list)
    correlation: list[int] = msgspec.field(default_factory=list)
    hlo_op: list[str] = msgspec.field(default_factory=list)
    hlo_module: list[str] = msgspec.field(default_factory=list)
    run: list[str] = msgspec.field(default_factory=list)
    details: list[str] = msgspec.field(default_factory=list)
    step: list[str] = msgspec.field(default_factory=list)
    begun_ns: int | None = None
    unreadable: int = 0
    host: str = ""
    cut: bool = False
    unused: Mapping[str, int] = msgspec.field(default_factory=dict)
    unread: UnreadWork = NOTHING_UNREAD

    def add(self, line: int, name: str, start_ps: int, end_ps: int, said: Mapping[str, str]) -> None:
        """One event, with what is said of it, by the names that XLA has for that."""
        self.line.append(line)
        self.name.append(name)
        self.start_ps.append(start_ps)
        self.end_ps.append(end_ps)
        correlation = said.get("correlation_id", "")
        self.correlation.append(int(correlation) if correlation.isdecimal() and len(correlation) < 19 else -1)
        self.hlo_op.append(said.get("hlo_op", ""))
        self.hlo_module.append(said.get("hlo_module", ""))
        self.run.append(said.get("run_id", "") + "/" + said.get("group_id", ""))
        self.details.append(next((said[key] for key in DETAILS if key in said), ""))
        self.step.append(said.get("step_num", ""))


def host_in_name(path: Path) -> str:
    """The host by which XLA names the files of a profile; "" where others named them, as by ranks.

    >>> host_in_name(Path("vm.trace.json.gz")), host_in_name(Path("rank0.trace.json.gz")), host_in_name(Path("x.json"))
    ('vm', '', '')
    """
    kind = next((one for one in (XLA_VIEWER, *XLA_SPACES) if path.name.endswith(one)), "")
    named = kind and path.name != XLA_PERFETTO and rank_in_name(path) is None
    return path.name.removesuffix(kind) if named else ""


def profile_of_json(path: Path, progress: Progress) -> Profile:
    """Read the JSON that JAX's profiler writes for viewers.

    Lines are named by metadata, every argument is text, and an empty object ends the list.
    """
    source, found = JsonEvents(path, progress), Profile(host=host_in_name(path))
    number: dict[tuple[int, int], int] = {}
    for event in source.read():
        try:
            start, end = event.span_ps
        except ValueError:
            found.unreadable += 1
            continue
        args = event.args or {}
        said = {key: str(args[key]) for key in SAID if key in args}
        found.add(number.setdefault((event.pid, event.tid), len(number)), event.name, start, end, said)
    found.unreadable += source.unreadable
    found.unused = source.unused
    found.unread = source.work_unread(lambda plane: _DEVICE.search(plane) is not None)
    found.cut = len(found.line) >= _MOST_EVENTS
    for pid, tid in number:
        found.lines.append(Line.of(source.processes.get(pid, ""), source.threads.get((pid, tid), ""), tid))
    return found


# XSpace.

_AGAIN = "Was it cut off while it was copied? Copy it again, or record again."
_PS = 1000  # of a ns
_EPOCH_SINCE = 10**18
SESSION_START = "profile_start_time"  # a stat of the plane "Task Environment"
_VALUES = {  # of a stat, one of them
    "double_value": (2, "double"),
    "uint64_value": (3, "uint64"),
    "int64_value": (4, "int64"),
    "str_value": (5, "string"),
    "ref_value": (7, "uint64"),
}
_MESSAGES: Messages = {
    "XSpace": {"planes": (1, "[XPlane]"), "hostnames": (4, "[string]")},
    "XPlane": {
        "name": (2, "string"),
        "lines": (3, "[XLine]"),
        "event_metadata": (4, "map XEventMetadata"),
        "stat_metadata": (5, "map XStatMetadata"),
        "stats": (6, "[XStat]"),
    },
    "XLine": {"id": (1, "int64"), "name": (2, "string"), "timestamp_ns": (3, "int64"), "events": (4, "[XEvent]")},
    "XEvent": {
        "metadata_id": (1, "int64"),
        "offset_ps": (2, "int64"),
        "duration_ps": (3, "int64"),
        "stats": (4, "[XStat]"),
    },
    "XStat": {"metadata_id": (1, "int64"), **_VALUES},
    "XEventMetadata": {"id": (1, "int64"), "name": (2, "string"), "stats": (5, "[XStat]")},
    "XStatMetadata": {"id": (1, "int64"), "name": (2, "string")},
}


def profile_of_planes(path: Path, progress: Progress) -> Profile:
    """Read an `.xplane.pb`."""
    space = parser(space_class(), "XSpace", path, _AGAIN)(whole(path, progress, _AGAIN))
    found = Profile(host=next(iter(space.hostnames), "") or host_in_name(path))
    lines = [(plane, line) for plane in space.planes for line in plane.lines if len(line.events)]
    first = min((line.timestamp_ns for _, line in lines), default=0)
    base = first if first >= _EPOCH_SINCE else 0  # else times count from the session's begin
    found.begun_ns = base or _session_start(space)
    for plane, line in lines:
        number, began = len(found.lines), (line.timestamp_ns - base) * _PS
        found.lines.append(Line.of(plane.name, line.name, line.id))
        refers_to = {key: one.name for key, one in plane.stat_metadata.items()}
        said_by = {key: name for key, name in refers_to.items() if name in SAID}
        named = {key: (one.name, _said(one.stats, said_by, refers_to)) for key, one in plane.event_metadata.items()}
        for event in line.events:
            name, by_name = named.get(event.metadata_id, ("", {}))
            start = began + event.offset_ps
            said = {**by_name, **_said(event.stats, said_by, refers_to)}
            found.add(number, name, start, start + event.duration_ps, said)
    return found


def _session_start(space: Any) -> int | None:
    """When the profiler began, ns since 1970, where the file says it."""
    for plane in space.planes:
        said_by = {key: one.name for key, one in plane.stat_metadata.items() if one.name == SESSION_START}
        start = _said(plane.stats, said_by, {}).get(SESSION_START, "")
        if start.isdecimal() and _EPOCH_SINCE <= int(start) < 2 * _EPOCH_SINCE:
            return int(start)
    return None


def _said(stats: Any, said_by: dict[int, str], refers_to: dict[int, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for stat in stats:
        name = said_by.get(stat.metadata_id)
        if name is not None:
            kind = stat.WhichOneof("choice")
            value: Any = getattr(stat, kind) if kind else ""
            found[name] = refers_to.get(int(value), "") if kind == "ref_value" else str(value)
    return found


@cache
def space_class() -> Any:
    """The class of the message that a file is."""
    hint = "Install it: pip install 'traceviz-gpu[jax]'; or give the .trace.json.gz beside the file."
    return message_class("tensorflow.profiler", _MESSAGES, "XSpace", {"XStat": (*_VALUES,)}, (".xplane.pb", hint))
