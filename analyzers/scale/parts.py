"""A run looked at capture by capture: each is read, reduced to what the answer needs of it, and let go.

First a summary of every capture gives what concerns all of them; then each capture gets its context and is asked, as
often as the answer takes. Memory holds one capture for each process at work, whatever their number. Where the tables of
a capture are not in the cache, they wait in a scratch folder for the next question.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.types import Ints
from analyzers.cache.arrow_files import Unusable, read_trace
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Overall, Progress, silent
from analyzers.load import joined, load
from analyzers.readers.captures import cited, claimed, read_one, stored, without_bad
from analyzers.readers.formats import format_of
from analyzers.readers.inputs import PARQUET_EXPORT, Input, find_inputs
from analyzers.readers.reading import Reading
from analyzers.scale.summaries import IN_CONTEXT, CaptureContext, CaptureSummary, apply_context, contexts, summary_of
from analyzers.select.select import declare
from analyzers.trace.run import First, Run, Task, ask
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from analyzers.workers.dask import dask_workers
from analyzers.workers.local import Workers, local_workers


class CaptureHandle(msgspec.Struct, frozen=True):
    """A capture that is read when it is asked for, from its tables where they lie in a folder.

    context : ranks, clocks and collectives of the run, as far as they are its own. size : ops.
    """

    source: Input
    reading: Reading
    folder: Path | None
    context: CaptureContext
    first: First
    size: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it has."""
        return tuple(rank for rank, _ in self.context.ranks)

    def read(self, tables: Collection[str] | None = None, progress: Progress = silent) -> Trace:
        """The capture as the run has it: all tables, or at least those named."""
        trace = None
        if self.folder is not None:
            with contextlib.suppress(Unusable):
                wanted = {*IN_CONTEXT, *(TABLES if tables is None or self.reading.comm else tables)}
                trace = cited(read_trace(self.folder, wanted), self.source.url or self.source.path)
        if trace is None:
            trace = read_one(msgspec.structs.replace(self.source, rank=None, pids={}), self.reading, progress)
        return apply_context(declare(trace, self.reading.comm), self.context)

    def rows(self, table: str, rows: Ints) -> Ints:
        """The rows in the run: all those of the captures before it come first."""
        before = {"processes": self.first.process, "ops": self.first.op, "api": self.first.call}[table]
        return np.where(rows >= 0, rows + before, rows)


def in_workers(tasks: Sequence[Task], workers: Workers, progress: Progress) -> list[Any]:
    """Ask captures side by side."""
    handles: list[Any] = [handle for handle, _, _ in tasks]
    overall = Overall(progress, "looking at captures", [handle.size + 1 for handle in handles], bytes=False)
    answers = workers.map(ask, tasks, overall)
    for handle, answer in zip(handles, answers, strict=True):
        if isinstance(answer, TracevizError):
            answer.path = answer.path or str(handle.source.path)
    return answers


@contextlib.contextmanager
def opened(
    paths: Sequence[str | Path],
    reading: Reading,
    *,
    align: bool = True,
    lists: bool = False,
    progress: Progress = silent,
) -> Iterator[Run]:
    """One run; as `opened_together`."""
    together = opened_together([paths], reading, align=align, lists=lists, progress=progress)
    with together as (run,):
        yield run


@contextlib.contextmanager
def opened_together(
    runs: Sequence[Sequence[str | Path]],
    reading: Reading,
    *,
    align: bool = True,
    lists: bool = False,
    progress: Progress = silent,
) -> Iterator[list[Run]]:
    """Runs, each by its captures, for the time of the block: one part, or each capture by itself.

    That is where memory or Dask ask for it; the same workers then look at all runs, within one budget.

    Parameters
    ----------
    lists : whether what is asked for lists every sync point, which the memory has to have room for.

    Raises
    ------
    TracevizError : as `analyzers.load.load`; the memory has no room for one capture, or no Dask scheduler answers.
    """
    if not reading.by_parts:
        yield [Run.of(load(paths, align=align, reading=reading, progress=progress)) for paths in runs]
        return
    texts = [[str(path) for path in paths] for paths in runs]
    with workers_for(texts, reading, lists=lists) as workers:
        yield [open_run(paths, reading, workers, align=align, progress=progress) for paths in texts]


def open_run(
    paths: Iterable[str | Path], reading: Reading, workers: Workers, *, align: bool = True, progress: Progress = silent
) -> Run:
    """Read and summarize captures and make a run of them.

    Raises
    ------
    TracevizError : as `analyzers.load.load`.
    """
    inputs, skipped = find_inputs(paths, keep_bad=reading.skip_bad)
    for one in inputs:
        if one.kind == PARQUET_EXPORT:
            hint = "Leave out --memory and --dask."
            raise TracevizError("This is an exported trace: it holds all ranks of a run.", path=one.path, hint=hint)
    for_tasks = msgspec.structs.replace(reading, dask=None)  # a client is no business of its workers
    tasks = [(one, for_tasks, workers.scratch) for one in inputs]
    found = workers.map(summarize_one, tasks, Overall(progress, "reading captures", [one.bytes for one in inputs]))
    read, bad = without_bad(inputs, found, reading.skip_bad)
    good = [one for one, each in zip(inputs, found, strict=True) if not isinstance(each, TracevizError)]
    summaries = [summary for summary, _ in read]
    trace = joined(
        [summary.trace for summary in summaries],
        good,
        skipped,
        bad,
        align=align,
        step_by=reading.step_by,
        found=[summary.steps for summary in summaries],
        calls_alone=reading.calls_alone,
    )
    handles, first = [], First()
    for one, (summary, folder), context in zip(good, read, contexts(summaries, trace), strict=True):
        handles.append(CaptureHandle(one, for_tasks, folder, context, first, summary.size))
        processes = first.process + len(summary.trace.processes)
        first = First(processes, first.op + summary.size, first.call + summary.calls)
    mapper = partial(in_workers, workers=workers, progress=progress)
    return Run(trace, handles, mapper, kept=[summary.rows for summary, _ in read])


def summarize_one(
    one: Input, reading: Reading, scratch: Path | None, progress: Progress
) -> tuple[CaptureSummary, Path | None]:
    """Read a capture; return its summary, and the folder where its tables lie for the next question."""
    trace = read_one(msgspec.structs.replace(one, rank=None, pids={}), reading, progress)
    folder = None if scratch is None else stored(trace, one.path, one.kind, reading, scratch)
    return summary_of(declare(claimed(trace, one), reading.comm), reading.step_by), folder


# Who looks at the captures of a run: a Dask cluster, or as many processes here as the memory budget has room for.

BASE_BYTES = 200_000_000  # of a Python process with the libraries loaded


@contextlib.contextmanager
def workers_for(runs: Sequence[Sequence[str]], reading: Reading, *, lists: bool = False) -> Iterator[Workers]:
    """The workers of a Dask scheduler where one is named, else processes on this machine.

    Parameters
    ----------
    runs : the paths of each.
    lists : whether what is asked for lists every sync point.

    Raises
    ------
    TracevizError : no such scheduler, no such captures, no room for one within the memory budget, or a budget for a
        cluster.
    """
    if reading.dask is not None:
        if reading.memory is not None:
            hint = "Leave out --memory, and start them with: dask worker --memory-limit SIZE."
            raise TracevizError(
                "--memory bounds this machine's processes; Dask's workers have a limit of their own.", hint=hint
            )
        with dask_workers(reading.dask) as far:
            yield far
        return
    count = reading.processes
    if reading.memory is not None:
        inputs = [one for paths in runs for one in find_inputs(paths, keep_bad=reading.skip_bad)[0]]
        count = min(count, room_for(inputs, reading.memory, lists=lists))
    with local_workers(count) as near:
        yield near


def room_for(inputs: Sequence[Input], memory: int, *, lists: bool = False) -> int:
    """How many captures a memory budget has room for at once, beside this process where they are several.

    Raises
    ------
    TracevizError : the budget has no room for one.
    """
    need, stays = needed(inputs), kept(inputs, lists=lists)
    if need + stays > memory:
        raise TracevizError(
            f"The largest capture takes about {need / 1e6:,.0f} MB of memory to read, and what is kept of all of them "
            f"{stays / 1e6:,.0f} MB; the budget is {memory / 1e6:,.0f} MB.",
            hint=f"Give --memory {-(-(need + stays) // 10**6)}MB or more.",
        )
    return max(1, (memory - BASE_BYTES - stays) // need)


def needed(inputs: Sequence[Input]) -> int:
    """Bytes of memory that a process takes at most to read and analyse any one of these captures."""
    return BASE_BYTES + max(int(one.bytes * format_of(one.kind).memory.read) for one in inputs)


def kept(inputs: Sequence[Input], *, lists: bool = False) -> int:
    """Bytes of memory at most that summaries and answers of all captures take in the process that joins them."""
    each = [(one.bytes, format_of(one.kind).memory) for one in inputs]
    return sum(int(size * (memory.listed if lists else memory.kept)) for size, memory in each)
