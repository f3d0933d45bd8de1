"""A builder of small synthetic traces: a line an event, in the order of a program.

    run = Builder()
    rank = run.rank(0)
    with rank.range("MP Embedding", 0, 100):
        rank.kernel("lookup", stream=7, start=10, end=60, launch=(2, 5))
    trace = run.trace()

Times are ns. A launch is (start, end) of the CUDA call on `thread`; without one the op has no launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from analyzers.trace.ranks import assign_ranks
from analyzers.trace.schemas import TABLES
from analyzers.trace.table import Table
from analyzers.trace.tables import Capture, Process, Trace


@dataclass
class Rank:
    """One process of the run under construction."""

    run: Builder
    process: int
    device: int
    context: int = 1
    thread: int = 1

    def range(
        self, name: str, start: int, end: int, *, thread: int | None = None, kind: str = "nvtx", **more: Any
    ) -> int:
        """Add a closed range; returns its row."""
        where = {"process": self.process, "thread": self._on(thread)}
        return self.run.add("ranges", **where, kind=kind, name=name, start_ns=start, end_ns=end, **more)

    @contextmanager
    def on_thread(self, thread: int) -> Iterator[Rank]:
        """Work of this block is launched by another thread."""
        before, self.thread = self.thread, thread
        try:
            yield self
        finally:
            self.thread = before

    def call(
        self, name: str, start: int, end: int, *, thread: int | None = None, correlation: int | None = None
    ) -> int:
        """Add a CUDA API call; returns its correlation id."""
        correlation = self.run.next_correlation() if correlation is None else correlation
        where = {"process": self.process, "thread": self._on(thread)}
        self.run.add("api", **where, name=name, start_ns=start, end_ns=end, correlation=correlation)
        return correlation

    def op(
        self,
        name: str,
        stream: int,
        start: int,
        end: int,
        *,
        launch: tuple[int, int] | None = None,
        thread: int | None = None,
        kind: str = "kernel",
        call: str = "cudaLaunchKernel",
        **more: Any,
    ) -> int:
        """Add a GPU op and, with `launch`, the call that launched it; returns the op's row."""
        more = {"wait_low_ns": more.get("wait_ns", 0), "wait_high_ns": more.get("wait_ns", 0), **more}
        row = -1
        if launch is not None:
            more["correlation"] = self.call(call, *launch, thread=thread)
            row = len(self.run.rows["api"]) - 1
        where = {"process": self.process, "device": self.device, "context": self.context, "stream": stream}
        return self.run.add("ops", **where, kind=kind, name=name, start_ns=start, end_ns=end, launch=row, **more)

    def kernel(self, name: str, stream: int, start: int, end: int, **more: Any) -> int:
        """Add a kernel; see `op`."""
        return self.op(name, stream, start, end, **more)

    def copy(self, direction: str, stream: int, start: int, end: int, **more: Any) -> int:
        """Add a memory copy such as "DtoH"; see `op`."""
        more.setdefault("call", "cudaMemcpyAsync")
        return self.op(f"Memcpy {direction}", stream, start, end, kind="memcpy", copy=direction, **more)

    def record(self, stream: int, at: int, *, thread: int | None = None, stated: bool = True) -> int:
        """Record a new event on a stream; returns what `wait` and `synchronize` take.

        Unstated, as in Kineto: only the call is there, without its stream or the event.
        """
        correlation = self.call("cudaEventRecord", at, at + 1, thread=thread)
        where = {"context": self.context, "stream": stream, "event": correlation, "event_sync": correlation}
        self.run.add("records", process=self.process, correlation=correlation, **(where if stated else {}))
        return correlation

    def wait(self, stream: int, record: int, at: int, *, thread: int | None = None, stated: bool = True) -> int:
        """Make a stream wait for a recorded event; returns the call's correlation id."""
        correlation = self.call("cudaStreamWaitEvent", at, at + 1, thread=thread)
        event = {"event": record, "event_sync": record} if stated else {}
        self._sync("stream_wait", at, at + 1, correlation, stream=stream, **event)
        return correlation

    def wait_stream(
        self, waiting: int, awaited: int, at: int, *, thread: int | None = None, stated: bool = True
    ) -> int:
        """Make one stream wait for all that another has been given, as `torch.cuda.Stream.wait_stream` does."""
        record = self.record(awaited, at, thread=thread, stated=stated)
        return self.wait(waiting, record, at + 2, thread=thread, stated=stated)

    def synchronize(
        self, what: str, start: int, end: int, *, stream: int = -1, record: int = -1, thread: int | None = None
    ) -> int:
        """Block the host on a "stream", an "event" or the "device"; returns the call's correlation id."""
        correlation = self.call(f"cuda{what.capitalize()}Synchronize", start, end, thread=thread)
        self._sync(what, start, end, correlation, stream=stream, event=record, event_sync=record)
        return correlation

    def _sync(self, kind: str, start: int, end: int, correlation: int, **more: Any) -> None:
        where = {"process": self.process, "context": self.context, "kind": kind}
        self.run.add("syncs", **where, start_ns=start, end_ns=end, correlation=correlation, **more)

    def _on(self, thread: int | None) -> int:
        return self.thread if thread is None else thread


@dataclass
class Builder:
    """Collects rows; `trace()` makes the Trace."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in TABLES})
    processes: list[Process] = field(default_factory=list)
    correlation: int = 0

    def stream(self, rank: Rank, stream: int, **more: Any) -> None:
        """Say what kind of stream one is (`blocking`, `default`, `priority`)."""
        self.add("streams", process=rank.process, context=rank.context, stream=stream, **more)

    def rank(self, rank: int, device: int = 0, **more: Any) -> Rank:
        """Start a process that is this rank; every rank is on device 0 unless said, as with pinned processes."""
        self.processes.append(Process(capture=0, pid=100 + rank, claims={"manifest": rank}))
        return Rank(self, len(self.processes) - 1, device, **more)

    def add(self, table_name: str, /, **row: Any) -> int:
        """Append a row to a table; returns its number."""
        self.rows[table_name].append(row)
        return len(self.rows[table_name]) - 1

    def next_correlation(self) -> int:
        """Return a correlation id nothing has used."""
        self.correlation += 1
        return self.correlation

    def trace(self) -> Trace:
        """Make the Trace."""
        tables = {name: _table(name, rows) for name, rows in self.rows.items()}
        return assign_ranks(
            Trace(captures=(Capture("synthetic", "synthetic"),), processes=tuple(self.processes), **tables)
        )


def _table(name: str, rows: list[dict[str, Any]]) -> Table:
    """A table of rows, with the schema's default where a row says nothing of a column, or None, or NaN."""
    filled: dict[str, Any] = {}
    for column in dict.fromkeys(column for row in rows for column in row):
        default = TABLES[name].schema[column].default
        given = (row.get(column) for row in rows)
        filled[column] = [default if value is None or value != value else value for value in given]
    return TABLES[name].of(filled, len(rows))


def one_rank() -> tuple[Builder, Rank]:
    """A run of one process, and that process."""
    run = Builder()
    return run, run.rank(0)
