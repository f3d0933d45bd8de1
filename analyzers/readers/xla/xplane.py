"""XSpace protocol buffers (`*.xplane.pb`), what XLA's profiler keeps; needs the package protobuf.

The messages are those of tsl/profiler/protobuf/xplane.proto, as far as they are read here: other fields are skipped.
Events have their times from the begin of their line; names and values of texts stand in maps of the plane.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from analyzers.common.progress import Progress
from analyzers.readers.gzipped import whole
from analyzers.readers.protobufs import Messages, message_class, parser
from analyzers.readers.xla.profile import SAID, Events, Line, Profile, host_in_name

_AGAIN = "Was it cut off while it was copied? Copy it again, or record again."
_PS = 1000  # of a ns
_EPOCH_SINCE = 10**18
SESSION_START = "profile_start_time"  # a stat of the plane "Task Environment"
_MESSAGES: Messages = {
    "XSpace": {"planes": (1, "[XPlane]"), "hostnames": (4, "[string]")},
    "XPlane": {
        "name": (2, "string"),
        "lines": (3, "[XLine]"),
        "event_metadata": (4, "map XEventMetadata"),
        "stat_metadata": (5, "map XStatMetadata"),
        "stats": (6, "[XStat]"),
    },
    "XLine": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "[XEvent]"),
    },
    "XEvent": {
        "metadata_id": (1, "int64"),
        "offset_ps": (2, "int64"),
        "duration_ps": (3, "int64"),
        "stats": (4, "[XStat]"),
    },
    "XStat": {
        "metadata_id": (1, "int64"),
        "double_value": (2, "double"),
        "uint64_value": (3, "uint64"),
        "int64_value": (4, "int64"),
        "str_value": (5, "string"),
        "ref_value": (7, "uint64"),
    },
    "XEventMetadata": {"id": (1, "int64"), "name": (2, "string"), "stats": (5, "[XStat]")},
    "XStatMetadata": {"id": (1, "int64"), "name": (2, "string")},
}
_VALUES = ("double_value", "uint64_value", "int64_value", "str_value", "ref_value")  # of a stat, one of them


def profile_of_planes(path: Path, progress: Progress) -> Profile:
    """Read one file.

    Raises
    ------
    TracevizError : the package protobuf is missing, or the file can't be read or is damaged.
    """
    space = parser(_message_class(), "XSpace", path, _AGAIN)(whole(path, progress, _AGAIN))
    found = Profile([], Events(), host=next(iter(space.hostnames), "") or host_in_name(path))
    lines = [(plane, line) for plane in space.planes for line in plane.lines if len(line.events)]
    first = min((line.timestamp_ns for _, line in lines), default=0)
    base = first if first >= _EPOCH_SINCE else 0  # else times count from the session's begin
    found.begun_ns = base or _session_start(space)
    for plane, line in lines:
        _read_line(found, plane, line, base)
    return found


def _session_start(space: Any) -> int | None:
    """When the profiler began, ns since 1970, where the file says it."""
    for plane in space.planes:
        said_by = {key: one.name for key, one in plane.stat_metadata.items() if one.name == SESSION_START}
        start = _said(plane.stats, said_by, {}).get(SESSION_START, "")
        if start.isdecimal() and _EPOCH_SINCE <= int(start) < 2 * _EPOCH_SINCE:
            return int(start)
    return None


def _read_line(found: Profile, plane: Any, line: Any, base: int) -> None:
    number = len(found.lines)
    found.lines.append(Line.of(plane.name, line.name, line.id))
    began = (line.timestamp_ns - base) * _PS
    said_by = {key: one.name for key, one in plane.stat_metadata.items() if one.name in SAID}
    refers_to = {key: one.name for key, one in plane.stat_metadata.items()}
    name_of = {key: (one.name, _said(one.stats, said_by, refers_to)) for key, one in plane.event_metadata.items()}
    for event in line.events:
        name, by_name = name_of.get(event.metadata_id, ("", {}))
        said = {**by_name, **_said(event.stats, said_by, refers_to)}
        start = began + event.offset_ps
        found.events.add(number, name, start, start + event.duration_ps, said)


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
def _message_class() -> Any:
    hint = "Install it: pip install 'traceviz-gpu[jax]'; or give the .trace.json.gz beside the file."
    return message_class("tensorflow.profiler", _MESSAGES, "XSpace", {"XStat": _VALUES}, (".xplane.pb", hint))
