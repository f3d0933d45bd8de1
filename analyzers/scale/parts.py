"""A run looked at capture by capture: each is read, reduced to what the answer needs of it, and let go.

First a summary of every capture gives what concerns all of them; then each capture gets its context and is asked, as
often as the answer takes. Memory holds one capture for each process at work, whatever their number. Where the tables of
a capture are not in the cache, they wait in a scratch folder for the next question.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints
from analyzers.cache.tables import Unusable, read_trace
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Overall, Progress, silent
from analyzers.load import joined, load
from analyzers.readers.captures import cited, claimed, read_one, stored, without_bad
from analyzers.readers.inputs import PARQUET_EXPORT, Input, find_inputs
from analyzers.readers.reading import Reading
from analyzers.scale.summaries import IN_CONTEXT, CaptureContext, CaptureSummary, apply_context, contexts, summary_of
from analyzers.scale.workers import workers_for
from analyzers.select.declared import declare
from analyzers.trace.by_process import taken_apart
from analyzers.trace.freed_memory import freed_memory_kept
from analyzers.trace.merge import among_others
from analyzers.trace.narrow import Narrowing, check_ranks, only_ops
from analyzers.trace.run import ALL, First, OnePart, PartitionedRun, Question
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from analyzers.workers.local import Workers


class Nothing(msgspec.Struct, frozen=True):
    """The answer of a capture without the part asked for; `why` is the error if no capture has it."""

    why: TracevizError


class CapturesRun:
    """A run of captures that are looked at one by one.

    trace : made of the captures' summaries: its collectives, clocks, ranks and warnings are those of the run.
    """

    is_one_part = False

    def __init__(
        self,
        inputs: Sequence[Input],
        summaries: Sequence[CaptureSummary],
        trace: Trace,
        workers: Workers,
        progress: Progress,
    ) -> None:
        self.inputs, self.trace, self.workers, self.progress = inputs, trace, workers, progress
        self.summaries, self.contexts = summaries, contexts(summaries, trace)
        self.firsts = _firsts(summaries)
        self.reading = Reading()
        self.folders: list[Path | None] = [None] * len(inputs)

    def ask(self, question: Question, narrowing: Narrowing = ALL, only: Sequence[int] | None = None) -> dict[int, Any]:
        """Ask captures, side by side, and return the answers of those that hold what is asked for, by their number."""
        if narrowing.ranks is not None:
            check_ranks(self.trace, narrowing.ranks)
        asked = [i for i in (range(len(self.inputs)) if only is None else only) if self._has(i, narrowing)]
        tasks = [(self.inputs[i], self.reading, self.folders[i], self.contexts[i], narrowing, question) for i in asked]
        overall = Overall(
            self.progress, "looking at captures", [self.summaries[i].size + 1 for i in asked], bytes=False
        )
        answers = dict(zip(asked, self.workers.map(ask_one, tasks, overall), strict=True))
        for i, answer in answers.items():
            if isinstance(answer, TracevizError):
                answer.path = answer.path or str(self.inputs[i].path)
                raise answer
        found = {i: answer for i, answer in answers.items() if not isinstance(answer, Nothing)}
        if not found:
            raise next(answer.why for answer in answers.values())
        return found

    def rows(self, part: int, table: str, rows: Ints) -> Ints:
        """The rows in the run of a capture's rows: all those of the captures before it come first."""
        first = self.firsts[part]
        before = {"processes": first.process, "ops": first.op, "api": first.call}[table]
        return np.where(rows >= 0, rows + before, rows)

    def communication(self, narrowing: Narrowing = ALL) -> Trace:
        """The communication kernels of all captures, which the summaries hold, or those of the part asked for."""
        if narrowing == ALL:
            return self.trace
        kept = self.ask(_rows_kept, narrowing)
        rows, first = [], 0
        for i, summary in enumerate(self.summaries):
            if i in kept:
                kept_rows = np.arange(summary.size) if kept[i] is None else kept[i]
                rows.append(first + np.flatnonzero(np.isin(summary.rows, kept_rows)))
            first += summary.rows.size
        return replace(self.trace, whole=self.trace, rows=np.concatenate(rows))

    @property
    def size(self) -> int:
        """How many GPU ops all captures have."""
        return sum(one.size for one in self.summaries)

    def said_as(self, trace: Trace) -> CapturesRun:
        """The same run with another trace made of the summaries."""
        run = copy(self)
        run.trace = trace
        return run

    def parts(
        self,
        narrowing: Narrowing = ALL,
        only: Sequence[int] | None = None,
        tables: Collection[str] | None = None,
    ) -> Iterator[Trace]:
        """What is asked for of each capture, read in this process one after the other, while the workers rest."""
        if narrowing != ALL or self.reading.comm:  # for which any table may be looked at
            tables = None
        for i in range(len(self.inputs)) if only is None else only:
            part = in_context(self.inputs[i], self.reading, self.folders[i], self.contexts[i], tables=tables)
            part = among_others(part, self.trace, self.firsts[i].process)
            try:
                part = narrowing.of_capture(part)
            except TracevizError:  # it has nothing of that
                part = only_ops(part, np.empty(0, np.int64))
            yield part

    def _has(self, i: int, narrowing: Narrowing) -> bool:
        return narrowing.ranks is None or any(rank in narrowing.ranks for rank, _ in self.contexts[i].ranks)


def _firsts(summaries: Sequence[CaptureSummary]) -> list[First]:
    found = [First()]
    for one in summaries:
        before = found[-1]
        processes = before.process + len(one.trace.processes)
        found.append(First(processes, before.op + one.size, before.call + one.calls))
    return found[:-1]


def _rows_kept(trace: Trace) -> Ints | None:
    return trace.rows


@contextlib.contextmanager
def opened(
    paths: Sequence[str | Path],
    reading: Reading,
    *,
    align: bool = True,
    lists: bool = False,
    by_process: bool = False,
    progress: Progress = silent,
) -> Iterator[PartitionedRun]:
    """One run; as `opened_together`."""
    together = opened_together([paths], reading, align=align, lists=lists, by_process=by_process, progress=progress)
    with together as (run,):
        yield run


@contextlib.contextmanager
def opened_together(
    runs: Sequence[Sequence[str | Path]],
    reading: Reading,
    *,
    align: bool = True,
    lists: bool = False,
    by_process: bool = False,
    progress: Progress = silent,
) -> Iterator[list[PartitionedRun]]:
    """Runs, each by its captures, for the time of the block: one part, or each capture by itself.

    That is where memory or Dask ask for it; the same workers then look at all runs, within one budget.

    Parameters
    ----------
    lists : whether what is asked for lists every sync point, which the memory has to have room for.
    by_process : whether what is asked for goes process by process where these are large, so that a run may come apart.

    Raises
    ------
    TracevizError : as `analyzers.load.load`; the memory has no room for one capture, or no Dask scheduler answers.
    """
    if not reading.by_parts:
        as_run = taken_apart if by_process else OnePart
        loaded = [as_run(load(paths, align=align, reading=reading, progress=progress)) for paths in runs]
        with freed_memory_kept(max(run.size for run in loaded)):  # one step after the other takes what was freed
            yield [*loaded]
        return
    texts = [[str(path) for path in paths] for paths in runs]
    with workers_for(texts, reading, lists=lists) as workers:
        yield [open_run(paths, reading, workers, align=align, progress=progress) for paths in texts]


def open_run(
    paths: Iterable[str | Path], reading: Reading, workers: Workers, *, align: bool = True, progress: Progress = silent
) -> CapturesRun:
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
    run = CapturesRun(good, [summary.without_tables() for summary in summaries], trace, workers, progress)
    run.reading, run.folders = for_tasks, [folder for _, folder in read]
    return run


def summarize_one(
    one: Input, reading: Reading, scratch: Path | None, progress: Progress
) -> tuple[CaptureSummary, Path | None]:
    """Read a capture; return its summary, and the folder where its tables lie for the next question."""
    trace = read_one(msgspec.structs.replace(one, rank=None, pids={}), reading, progress)
    folder = None if scratch is None else stored(trace, one.path, one.kind, reading, scratch)
    return summary_of(declare(claimed(trace, one), reading.comm), reading.step_by), folder


def ask_one(
    one: Input,
    reading: Reading,
    folder: Path | None,
    context: CaptureContext,
    narrowing: Narrowing,
    question: Question,
    progress: Progress,
) -> Any:
    """Give a capture its context in the run, and ask it a question."""
    try:
        part = narrowing.of_capture(in_context(one, reading, folder, context, progress))
    except TracevizError as why:
        return Nothing(why)
    return question(part)


def in_context(
    one: Input,
    reading: Reading,
    folder: Path | None,
    context: CaptureContext,
    progress: Progress = silent,
    tables: Collection[str] | None = None,
) -> Trace:
    """A capture as the run has it, from its tables where they lie in a folder: all, or at least those asked for."""
    trace = None
    if folder is not None:
        with contextlib.suppress(Unusable):
            trace = cited(
                read_trace(folder, {*IN_CONTEXT, *(TABLES if tables is None else tables)}), one.url or one.path
            )
    if trace is None:
        trace = read_one(msgspec.structs.replace(one, rank=None, pids={}), reading, progress)
    return apply_context(declare(trace, reading.comm), context)
