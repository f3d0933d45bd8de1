"""The events of a profile of XLA, however the file was written, and how they are read from JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from analyzers.common.progress import Progress
from analyzers.readers.formats import XLA_PERFETTO, XLA_SPACES, XLA_VIEWER
from analyzers.readers.json_events import JsonEvents
from analyzers.trace.ranks import rank_in_name
from analyzers.trace.unread import NOTHING_UNREAD, UnreadWork

_DEVICE = re.compile(r"/device:GPU:(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
HOST, NO_STREAM = -1, -1
_MOST_EVENTS = 1_000_000  # that XLA writes for viewers; it leaves out the shortest of more


def host_in_name(path: Path) -> str:
    """The host by which XLA names the files of a profile; "" where others named them, as by ranks.

    >>> host_in_name(Path("vm.trace.json.gz")), host_in_name(Path("rank0.trace.json.gz")), host_in_name(Path("x.json"))
    ('vm', '', '')
    """
    kind = next((one for one in (XLA_VIEWER, *XLA_SPACES) if path.name.endswith(one)), "")
    named = kind and path.name != XLA_PERFETTO and rank_in_name(path) is None
    return path.name.removesuffix(kind) if named else ""


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


class Events(msgspec.Struct):
    """Columns of events; times in ps, texts "" where there are none. `line` counts `Profile.lines`."""

    line: list[int] = msgspec.field(default_factory=list)
    name: list[str] = msgspec.field(default_factory=list)
    start_ps: list[int] = msgspec.field(default_factory=list)
    end_ps: list[int] = msgspec.field(default_factory=list)
    correlation: list[int] = msgspec.field(default_factory=list)
    hlo_op: list[str] = msgspec.field(default_factory=list)
    hlo_module: list[str] = msgspec.field(default_factory=list)
    run: list[str] = msgspec.field(default_factory=list)  # of the module, as far as it is said
    details: list[str] = msgspec.field(default_factory=list)  # of a kernel, copy or memset
    step: list[str] = msgspec.field(default_factory=list)

    def add(self, line: int, name: str, start_ps: int, end_ps: int, said: dict[str, str]) -> None:
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


DETAILS = ("kernel_details", "memcpy_details", "memset_details")
SAID = ("correlation_id", "hlo_op", "hlo_module", "run_id", "group_id", *DETAILS, "step_num")


def is_device(plane: str) -> bool:
    """Whether a plane, which the JSON calls a process, is a GPU.

    >>> is_device("/device:GPU:1"), is_device("/host:CPU")
    (True, False)
    """
    return _DEVICE.search(plane) is not None


class Profile(msgspec.Struct):
    """A file: its lines, its events, when it began (ns since 1970, None: not said), events that could not be read.

    cut : whether the profiler may have left events out of it.
    unused : what of the file was not used, counted by kind; unread : what of that may be work of a GPU.
    """

    lines: list[Line]
    events: Events
    begun_ns: int | None = None
    unreadable: int = 0
    host: str = ""
    cut: bool = False
    unused: Mapping[str, int] = msgspec.field(default_factory=dict)
    unread: UnreadWork = NOTHING_UNREAD


def profile_of_json(path: Path, progress: Progress) -> Profile:
    """Read the JSON that JAX's profiler writes for viewers.

    Lines are named by metadata, every argument is text, and an empty object ends the list.

    Raises
    ------
    TracevizError : the file can't be read, is empty, truncated, damaged, or not JSON.
    """
    source, found = JsonEvents(path, progress), Profile([], Events())
    number: dict[tuple[int, int], int] = {}
    for event in source.read():
        try:
            start, end = event.span_ps
        except ValueError:
            found.unreadable += 1
            continue
        args = event.args or {}
        said = {key: str(args[key]) for key in SAID if key in args}
        line = number.setdefault((event.pid, event.tid), len(number))
        found.events.add(line, event.name, start, end, said)
    found.unreadable += source.unreadable
    found.unused, found.unread = source.unused, source.work_unread(is_device)
    found.cut = len(found.events.line) >= _MOST_EVENTS
    names = [(source.processes.get(pid, ""), source.threads.get((pid, tid), ""), tid) for pid, tid in number]
    found.lines = [Line.of(*one) for one in names]
    found.host = host_in_name(path)
    return found
