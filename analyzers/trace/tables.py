"""The Trace: events of every format as plain tables on integer nanoseconds.

Loaders know formats; nothing after them does. A loader returns a Trace of one capture, times counted from that
capture's own zero; `analyzers.trace.merge` joins captures, and `analyzers.trace.ranks` names the ranks.

A *process* is a number here: the row in `Trace.processes`. A lane is (process, device, context, stream), never the
device alone: two ranks pinned with CUDA_VISIBLE_DEVICES both report device 0. Correlation ids join per process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.arrays.types import Ints
from analyzers.common.errors import TraceWarning
from analyzers.common.records import Record
from analyzers.common.wording import stream_word
from analyzers.trace.schemas import (
    Calls,
    CommunicationCalls,
    Counters,
    Devices,
    Memory,
    Ops,
    Overhead,
    Ranges,
    Records,
    Streams,
    Syncs,
)

if TYPE_CHECKING:
    from analyzers.trace.alignment import Clocks, Matches
    from analyzers.trace.devices import DeviceLabels
    from analyzers.trace.step_table import Steps

Made = TypeVar("Made")


COUNTERS_UNJOINED = "whose GPU counters are"  # how `Capture.lacks` begins where nothing tells
QUEUED = "queued before running"  # a key of `Capture.metadata`: how long ops were, where they say when submitted
WSL = "Linux on Windows"  # likewise: its release
NO_NAMES = ("", "localhost", "localhost.localdomain", "(none)", "none")  # containers of any machine are called so


class Capture(Record, frozen=True):
    """One file as it was read.

    `start_utc_ns` is the epoch time of the capture's zero (None when the file has none); `first_ns`/`last_ns` the
    span recorded; `host_error_ns` how far its host times may be from the host's own clock (None: nobody knows);
    `runtime` whose calls its host calls are; `waits_logged` whether a stream made to wait for another would show;
    `lacks` names what this capture cannot answer, in words; `unread_counters` is how many rows of GPU counters were
    left in the file, as nobody asked for them; `host_gpus` how many GPUs the host has, 0 where nobody knows;
    `ranks_named` the job's ranks as far as its communication names peers by number: there were at least so many;
    `unused` how many rows or events of each kind the reader found and did not use.
    """

    path: str
    format: str
    producer: str = ""
    schema: str = ""
    host: str = ""
    start_utc_ns: int | None = None
    first_ns: int = 0
    last_ns: int = 0
    world_size: int | None = None
    host_error_ns: int | None = None
    runtime: str = "CUDA"
    waits_logged: bool = True
    lacks: tuple[str, ...] = ()
    unread_counters: int = 0
    host_gpus: int = 0
    ranks_named: int = 0
    unused: Mapping[str, int] = msgspec.field(default_factory=dict)
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def machine(self) -> str:
        """The host's name where it tells machines apart, else ""."""
        return "" if self.host.strip().lower() in NO_NAMES else self.host


class Process(Record, frozen=True):
    """One process of a capture; `claims` holds what each rule says its rank is, `rule` the one that was used.

    without_work : why it has no GPU work though it was given, as in `analyzers.trace.ranks`.
    unread : what may be work of its GPU and could not be used, in words; unread_ranges : what of its ranges could not.
    distorted : steps, -1 for all of a capture without step marks, of which the profiler's own work took much, and the
        share that it took.
    """

    capture: int
    pid: int
    name: str = ""
    host: str = ""
    claims: Mapping[str, int] = msgspec.field(default_factory=dict)
    rank: int = -1
    rule: str = ""
    launches: int = 0  # of kernels, copies and memsets, and
    lost: int = 0  # those whose op the capture lacks, and
    late: int = 0  # those of which it ended before their op did, which are no loss where they are few
    linked: int = 0  # ops that say no launch, and were linked to theirs by their order
    unlinked: int = 0  # ops that say no launch, as many as launches have no op: only their links are missing
    ops: int = 0  # where calls were recorded: how many ops there are, and
    unlaunched: int = 0  # those whose launch call the capture lacks, among them
    launched_before: int = 0  # those launched before it began, which run for
    launched_before_ns: int = 0
    cut: int = 0  # ops whose duration was cut at the next op of their stream, by
    cut_ns: int = 0  # so much in all
    unread: str = ""
    unread_ranges: str = ""
    distorted: tuple[tuple[int, float], ...] = ()
    without_work: str = ""
    window: int = 0  # of the run's, where captures of its ranks are several that follow each other, and
    first_window: int = -1  # the process that this is a later window of, -1 where it is none's
    unprofiled_step_ns: int = -1  # how long a step took just before the profiler began, as the collector timed it, and
    profiled_step_ns: int = -1  # while it captured, alike


class Trace(Record, frozen=True, dict=True, weakref=True, eq=False):
    """Captures of one run as plain tables; columns and units stand in `analyzers.trace.schemas`.

    Times count from `origin_utc_ns` (an epoch time; None when no capture has one).
    """

    captures: tuple[Capture, ...]
    processes: tuple[Process, ...]
    ops: Ops
    api: Calls = msgspec.field(default_factory=Calls.of)
    ranges: Ranges = msgspec.field(default_factory=Ranges.of)
    syncs: Syncs = msgspec.field(default_factory=Syncs.of)
    records: Records = msgspec.field(default_factory=Records.of)
    comms: CommunicationCalls = msgspec.field(default_factory=CommunicationCalls.of)
    devices: Devices = msgspec.field(default_factory=Devices.of)
    streams: Streams = msgspec.field(default_factory=Streams.of)
    memory: Memory = msgspec.field(default_factory=Memory.of)
    overhead: Overhead = msgspec.field(default_factory=Overhead.of)
    counters: Counters = msgspec.field(default_factory=Counters.of)
    origin_utc_ns: int | None = None
    warnings: tuple[TraceWarning, ...] = ()
    clocks: Clocks | None = None  # how its clocks were aligned, None where that was never tried; and
    matches: Matches | None = None  # the collectives they were aligned by; set by `analyzers.load`
    steps: Steps | None = None  # the run's, as `analyzers.steps` found them; None where nobody looked
    whole: Trace | None = None  # of a part of a trace: what it is a part of, and
    rows: Ints | None = None  # which of that trace's ops it keeps
    ranks_asked: tuple[int, ...] | None = None  # the ranks that the user asked for alone, where others were given
    device_labels: DeviceLabels | None = (
        None  # how the run names its devices, where the others' captures are not at hand
    )
    communicators: Mapping[int, list[int]] | None = None  # NCCL's, with their ranks; likewise

    def warn(self, code: str, message: str) -> Trace:
        """Return the same trace with one more warning; a repeated one is kept once."""
        warning = TraceWarning(code, message)
        return self if warning in self.warnings else replace(self, warnings=(*self.warnings, warning))

    def once(self, make: Callable[[Trace], Made]) -> Made:
        """A function's result for this trace: computed on the first call, kept as long as the trace is.

        The result must hold no reference to the trace: each would keep the other in memory.
        """
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made

    def forget(self, make: Callable[[Trace], Any]) -> None:
        """Give up what `once` keeps of a function: it is worked out anew if it is asked for again."""
        self._made.pop(make, None)

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}

    @property
    def rank_ids(self) -> list[int]:
        """Ranks that have GPU work, ascending."""
        return list(self._rank_ids)

    @cached_property
    def _rank_ids(self) -> list[int]:
        ranks: list[int] = distinct(self.ops.rank).tolist()
        return ranks

    @cached_property
    def runtime(self) -> str:
        """Whose calls the host calls are: CUDA, HIP, SYCL, …; of captures of several "CUDA or HIP"."""
        return " or ".join(dict.fromkeys(capture.runtime for capture in self.captures)) or "CUDA"

    @property
    def stream_word(self) -> str:
        """What people call a stream here, as `stream_word` says."""
        return stream_word(self.runtime)

    def __repr__(self) -> str:
        names = ", ".join(capture.path for capture in self.captures[:2]) + (", …" if len(self.captures) > 2 else "")
        ranks = ", ".join(map(str, self.rank_ids[:8])) + (", …" if len(self.rank_ids) > 8 else "")
        return f"<Trace {names}: {len(self.ops):,} GPU ops, {len(self.api):,} {self.runtime} calls, ranks {ranks}>"
