"""Slices and GPU ops of a Perfetto trace, names in place of their numbers.

The messages are those of protos/perfetto/trace/perfetto_trace.proto, as far as they are read here. A file is one
message of packets; packets of a sequence number the names that later ones of it use.

Slices are paired as the two writers put them, not by a stack of each track, which takes [0, 10) [10, 20) for nested
ones: torch writes all begins of a group and then all ends, in the same order; rocprofv3 each end right after its begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.gzipped import whole
from analyzers.readers.protobufs import Messages, message_class, parser

_AGAIN = "Let the program end, copy the file whole, or profile again."
_NAMED = {"iid": (1, "uint64"), "name": (2, "string")}
_SIZES = {axis: (number, "uint32") for number, axis in enumerate("xyz", start=1)}
_MESSAGES: Messages = {
    "TracePacket": {
        "timestamp": (8, "uint64"),
        "sequence": (10, "uint32"),
        "track_event": (11, "TrackEvent"),
        "interned": (12, "InternedData"),
        "flags": (13, "uint32"),
        "stats": (35, "TraceStats"),
        "dropped": (42, "bool"),
        "compressed": (50, "bytes"),
        "stage": (53, "GpuRenderStageEvent"),
        "clock": (58, "uint32"),
        "defaults": (59, "Defaults"),
        "track": (60, "TrackDescriptor"),
        "first": (87, "bool"),
    },
    "Defaults": {"track_event": (11, "EventDefaults"), "clock": (58, "uint32")},
    "EventDefaults": {"track": (11, "uint64")},
    "TrackDescriptor": {
        "uuid": (1, "uint64"),
        "name": (2, "string"),
        "process": (3, "Process"),
        "thread": (4, "Thread"),
    },
    "Process": {"pid": (1, "int32"), "name": (6, "string")},
    "Thread": {"pid": (1, "int32"), "tid": (2, "int64")},
    "TrackEvent": {
        "category_iids": (3, "[uint64]"),
        "annotations": (4, "[Annotation]"),
        "type": (9, "int32"),
        "name_iid": (10, "uint64"),
        "track": (11, "uint64"),
        "categories": (22, "[string]"),
        "name": (23, "string"),
    },
    "Annotation": {
        "name_iid": (1, "uint64"),
        "bool_value": (2, "bool"),
        "uint_value": (3, "uint64"),
        "int_value": (4, "int64"),
        "double_value": (5, "double"),
        "string_value": (6, "string"),
        "name": (10, "string"),
        "array": (12, "[Annotation]"),
        "text_iid": (17, "uint64"),
    },
    "InternedData": {
        "categories": (1, "[Named]"),
        "names": (2, "[Named]"),
        "annotations": (3, "[Named]"),
        "specifications": (24, "[Named]"),
        "texts": (29, "[Named]"),
        "arguments": (1001, "[Named]"),
    },
    "Named": _NAMED,
    "GpuRenderStageEvent": {
        "duration": (2, "uint64"),
        "extra": (6, "[Extra]"),
        "gpu": (11, "int32"),
        "queue_iid": (13, "uint64"),
        "stage_iid": (14, "uint64"),
        "name_iid": (20, "uint64"),
        "launch": (21, "Launch"),
    },
    "Extra": {"name": (1, "string"), "value": (2, "string")},
    "Launch": {"grid": (1, "Sizes"), "block": (2, "Sizes"), "arguments": (3, "[Argument]")},
    "Sizes": _SIZES,
    "Argument": {"name_iid": (1, "uint64"), "uint_value": (4, "uint64")},
    "TraceStats": {"buffers": (1, "[Buffer]")},
    "Buffer": {"overwritten": (3, "uint64"), "discarded": (18, "uint64"), "lost": (19, "uint64")},
}
_CHOICES = {
    "TracePacket": ("track_event", "stats", "compressed", "stage", "track"),
    "Annotation": ("bool_value", "uint_value", "int_value", "double_value", "string_value", "text_iid"),
}
_TABLES = tuple(_MESSAGES["InternedData"])
_CLEARED = 1  # flag of a packet: names numbered before are forgotten
_BEGIN, _END = 1, 2  # types of a track event
_PACKET = 0x0A  # a packet's tag within the file
_DEFAULT_CLOCK = 6  # since boot; torch counts it from 1970
_OWN_CLOCKS = 64  # clocks from here on are a sequence's own
_MOST_NS = 2**62


class Track(msgspec.Struct, frozen=True):
    """What slices stand on: a thread, a process (its `tid` is -1), or what else has a name."""

    pid: int = -1
    tid: int = -1
    process: str = ""
    name: str = ""


class Slice(msgspec.Struct):
    """What lasted from `start` to `end`, ns; `said` are its annotations."""

    track: int
    category: str
    name: str
    start: int
    said: dict[str, Any]
    end: int = -1


class Stage(msgspec.Struct, frozen=True):
    """An op of a GPU; texts are as the file names them."""

    gpu: int
    queue: str
    stage: str
    name: str
    start: int
    end: int
    grid: list[int] | None
    block: list[int] | None
    said: dict[str, Any]


class Packets(msgspec.Struct):
    """What a file holds. unpaired : begins without an end, or ends without a begin. lost : whether packets are."""

    slices: list[Slice] = msgspec.field(default_factory=list)
    stages: list[Stage] = msgspec.field(default_factory=list)
    tracks: dict[int, Track] = msgspec.field(default_factory=dict)
    unpaired: int = 0
    lost: bool = False


def packets(path: Path, progress: Progress) -> Packets:
    """Read one file."""
    parse, content = parser(packet_class(), "Perfetto trace", path, _AGAIN), whole(path, progress, _AGAIN)
    reader = _Reader(path)
    for start, end in _frames(content, path):
        reader.add(parse(content[start:end]))
    return reader.done()


def _frames(content: bytes, path: Path) -> Iterator[tuple[int, int]]:
    """Where each packet begins and ends."""
    at, size = 0, len(content)
    while at < size:
        if content[at] != _PACKET:
            raise TracevizError("is a damaged Perfetto trace: packets do not follow.", path=path, hint=_AGAIN)
        at, length, shift = at + 1, 0, 0
        while at < size and shift < 35:
            byte = content[at]
            length |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
        else:
            raise TracevizError("is truncated.", path=path, hint=_AGAIN)
        if at + length > size:
            raise TracevizError("is truncated.", path=path, hint=_AGAIN)
        yield at, at + length
        at += length


class _Sequence:
    """What later packets of a sequence refer to, and its slices that have begun."""

    names: dict[str, dict[int, str]]

    def __init__(self) -> None:
        self.seen = False
        self.forget()
        self.begun: list[Slice] = []
        self.ended = 0  # of these, which have ended; no begin follows an end of its own run

    def forget(self) -> None:
        self.names = {name: {} for name in _TABLES}
        self.clock = self.track = 0


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path, self.found = path, Packets()
        self.sequences: dict[int, _Sequence] = defaultdict(_Sequence)
        self.clocks: set[int] = set()

    def done(self) -> Packets:
        for sequence in self.sequences.values():
            self._close(sequence)
        if len(self.clocks) > 1 or any(clock >= _OWN_CLOCKS for clock in self.clocks):
            hint = "Give the JSON of the same profile, if there is one."
            raise TracevizError("counts times by clocks that aren't read.", path=self.path, hint=hint)
        return self.found

    def add(self, packet: Any) -> None:
        sequence = self.sequences[packet.sequence]
        if packet.dropped and sequence.seen and not packet.first:
            self.found.lost = True
        sequence.seen = True
        if packet.flags & _CLEARED:
            sequence.forget()
        if packet.HasField("interned"):
            for name in _TABLES:
                sequence.names[name].update({one.iid: one.name for one in getattr(packet.interned, name)})
        if packet.HasField("defaults"):
            sequence.clock, sequence.track = packet.defaults.clock, packet.defaults.track_event.track
        kind = packet.WhichOneof("choice")
        if kind == "track_event":
            self._event(packet, packet.track_event, sequence)
        elif kind == "stage":
            self._stage(packet, packet.stage, sequence)
        elif kind == "track":
            one = packet.track
            if one.HasField("thread"):
                self.found.tracks[one.uuid] = Track(one.thread.pid, one.thread.tid, name=one.name)
            elif one.HasField("process"):
                self.found.tracks[one.uuid] = Track(one.process.pid, process=one.process.name)
            elif one.name:
                self.found.tracks[one.uuid] = Track(name=one.name)
        elif kind == "stats":
            self.found.lost |= any(one.overwritten or one.discarded or one.lost for one in packet.stats.buffers)
        elif kind == "compressed":
            text = "holds compressed packets, which aren't read."
            raise TracevizError(text, path=self.path, hint="Export it without compression.")

    def _time(self, packet: Any, sequence: _Sequence) -> int:
        self.clocks.add(packet.clock or sequence.clock or _DEFAULT_CLOCK)
        return min(int(packet.timestamp), _MOST_NS)

    def _event(self, packet: Any, event: Any, sequence: _Sequence) -> None:
        kind, track = event.type, event.track or sequence.track
        if kind == _BEGIN:
            if sequence.ended:
                self._close(sequence)
            names = sequence.names
            categories = event.categories or [names["categories"].get(one, "") for one in event.category_iids]
            sequence.begun.append(
                Slice(
                    track,
                    categories[0] if categories else "",
                    event.name or names["names"].get(event.name_iid, ""),
                    self._time(packet, sequence),
                    _said(event.annotations, names["annotations"], names["texts"]),
                )
            )
        elif kind == _END:
            begun, at = sequence.begun, sequence.ended
            if at < len(begun) and begun[at].track == track:
                begun[at].end = self._time(packet, sequence)
                sequence.ended += 1
            else:
                self.found.unpaired += 1

    def _close(self, sequence: _Sequence) -> None:
        """Take over the slices of a run of begins and the run of ends after it."""
        fine = [one for one in sequence.begun[: sequence.ended] if one.end >= one.start]
        self.found.unpaired += len(sequence.begun) - len(fine)
        self.found.slices += fine
        sequence.begun, sequence.ended = [], 0

    def _stage(self, packet: Any, stage: Any, sequence: _Sequence) -> None:
        names, start = sequence.names, self._time(packet, sequence)
        said: dict[str, Any] = {one.name: one.value for one in stage.extra}
        grid = block = None
        if stage.HasField("launch"):
            grid, block = ([one.x, one.y, one.z] for one in (stage.launch.grid, stage.launch.block))
            said.update({names["arguments"].get(one.name_iid, ""): one.uint_value for one in stage.launch.arguments})
        kind = names["specifications"].get(stage.stage_iid, "")
        self.found.stages.append(
            Stage(
                stage.gpu,
                names["specifications"].get(stage.queue_iid, ""),
                kind,
                names["names"].get(stage.name_iid, "") or kind,
                start,
                start + min(stage.duration, _MOST_NS - start),
                grid,
                block,
                said,
            )
        )


def _said(annotations: Any, names: dict[int, str], texts: dict[int, str]) -> dict[str, Any]:
    return {one.name or names.get(one.name_iid, ""): _value(one, texts) for one in annotations}


def _value(one: Any, texts: dict[int, str]) -> Any:
    """An annotation's value; a list where it says none: of an empty one nothing is written."""
    kind = one.WhichOneof("choice")
    if kind is None:
        return [_value(each, texts) for each in one.array]
    return texts.get(one.text_iid, "") if kind == "text_iid" else getattr(one, kind)


@cache
def packet_class() -> Any:
    """The class of the messages that a file is of."""
    hint = "Install it: pip install 'traceviz-gpu[perfetto]'; or give the JSON of the same profile."
    return message_class("perfetto.protos", _MESSAGES, "TracePacket", _CHOICES, (".pftrace", hint))
