"""Read one capture, through the cache; and many, side by side in worker processes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.cache import folder as cache
from analyzers.cache.arrow_files import Unusable, flush, read_trace, write_trace
from analyzers.cache.folder import home, tables_name
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Overall, Progress, silent
from analyzers.readers.formats import format_of
from analyzers.readers.inputs import UNREADABLE, Input, kind_of
from analyzers.readers.reading import Reading
from analyzers.readers.remote import brought
from analyzers.trace.lost import count_lost_work
from analyzers.trace.ranks import rank_in_name
from analyzers.trace.settings import kept
from analyzers.trace.tables import Trace
from analyzers.trace.times import about_durations, about_units, cut_spoiled
from analyzers.trace.unlaunched import count_unlaunched
from analyzers.workers.local import local_workers

# Worker processes cost a second to start, and some 15 ms for each capture whose tables they hand back. They pay from
# this on, in all and a capture; one process reads JSON in two threads by itself.
WORTH_WORKERS = 512 << 20
WORTH_HANDING_BACK = 1 << 20


def read_one(one: Input, reading: Reading, progress: Progress = silent) -> Trace:
    """Read one capture.

    Raises
    ------
    TracevizError : it is no trace, or damaged, or not the one rank that the manifest says.
    """
    if one.url:
        with brought(one.url, keep=reading.keeps) as path:
            try:
                trace = read_one(replace(one, path=path, url=""), reading, progress)
            except TracevizError as error:
                error.path = one.url
                raise
            return cited(trace, one.url)
    if one.kind == UNREADABLE:
        kind_of(one.path)
    try:
        trace = (_through_cache if _may_be_kept(one, reading) else _read)(one, reading, progress)
    except TracevizError as error:
        error.path = error.path or str(one.path)
        raise
    return claimed(trace, one)


def read_many(
    inputs: Sequence[Input], reading: Reading, progress: Progress = silent
) -> tuple[list[Trace], list[TraceWarning]]:
    """Read captures, side by side where that pays.

    Returns
    -------
    traces : in the order of the inputs.
    warnings : one for each capture left out.

    Raises
    ------
    TracevizError : the first input's that can't be read; with `skip_bad` only where none can be.
    """
    if len(inputs) == 1:
        return [read_one(inputs[0], reading, progress)], []
    found: list[Trace | TracevizError | None] = [
        claimed(known, one) if _may_be_kept(one, reading) and (known := _cached(one, reading)) else None
        for one in inputs
    ]
    lacking = [number for number, trace in enumerate(found) if trace is None]
    overall = Overall(progress, "reading captures", [inputs[number].bytes for number in lacking])
    worth = overall.total > max(WORTH_WORKERS, WORTH_HANDING_BACK * len(lacking))
    read = _side_by_side if len(lacking) > 1 and reading.processes > 1 and worth else _one_by_one
    for number, trace in zip(lacking, read([inputs[number] for number in lacking], reading, overall), strict=True):
        found[number] = trace
    return without_bad(inputs, found, reading.skip_bad)


def without_bad(inputs: Sequence[Input], found: Sequence[object], skip: bool) -> tuple[list[Any], list[TraceWarning]]:
    """Split what was made of each input from errors, which end it all unless they are to be skipped."""
    bad = [(one, error) for one, error in zip(inputs, found, strict=True) if isinstance(error, TracevizError)]
    good = [one for one in found if not isinstance(one, TracevizError)]
    if bad and not (skip and good):
        one, error = bad[0]
        error.path = error.path or str(one.path)
        raise error
    warnings = []
    for one, error in bad:
        rank = one.rank if one.rank is not None else rank_in_name(one.path)
        who = f"{one.path}" if rank is None else f"{one.path} (rank {rank})"
        warnings.append(TraceWarning("skipped-bad", f"{who} was left out, as --skip-bad asks: {error.message}"))
    return good, warnings


def _one_by_one(inputs: Sequence[Input], reading: Reading, overall: Overall) -> list[Trace | TracevizError | None]:
    found: list[Trace | TracevizError | None] = []
    for number, one in enumerate(inputs):
        try:
            found.append(
                read_one(one, reading, lambda _, done, total, number=number: overall.update(number, done, total))
            )
        except TracevizError as error:
            if not reading.skip_bad:
                raise
            found.append(error)
        overall.update(number, 1, 1)
    return found


def _side_by_side(inputs: Sequence[Input], reading: Reading, overall: Overall) -> list[Trace | TracevizError | None]:
    with local_workers(reading.processes) as workers:
        folders = workers.map(_read_apart, [(one, reading, workers.scratch) for one in inputs], overall)
        found: list[Trace | TracevizError | None] = []
        for one, folder in zip(inputs, folders, strict=True):
            try:
                is_error = isinstance(folder, TracevizError)
                found.append(folder if is_error else claimed(cited(read_trace(folder), one.path), one))
            except Unusable:  # removed from the cache since
                found.append(read_one(one, reading))
        return found


def _read_apart(one: Input, reading: Reading, scratch: Path, progress: Progress) -> Path:
    """In a worker: read a capture and say where its tables lie now."""
    alone = replace(one, rank=None, pids={})
    return stored(read_one(alone, reading, progress), one.path, one.kind, reading, scratch)


def _read(one: Input, reading: Reading, progress: Progress) -> Trace:
    try:
        trace = format_of(one.kind).read(one.path, progress, reading)
    except OverflowError as error:  # texts hold numbers of any size
        text = "holds a number of over 64 bits, which no profiler writes."
        raise TracevizError(text, path=one.path, hint="Capture it again.") from error
    return count_unlaunched(count_lost_work(cut_spoiled(about_durations(about_units(trace)))))


# Captures that were read before: found in the cache as tables, or read and kept there.


def _may_be_kept(one: Input, reading: Reading) -> bool:
    has_tables = reading.keeps and one.kind != UNREADABLE and not one.url
    return has_tables and format_of(one.kind).is_worth_keeping(one.path)


def _through_cache(one: Input, reading: Reading, progress: Progress) -> Trace:
    """Return a capture from the cache; else read it, and keep it where the cache can be written."""
    known = _cached(one, reading)
    if known is not None:
        return known
    before, there = tables_name(one.path, one.kind), home(one.path)
    try:
        trace = _read(replace(one, path=there), reading, progress)  # what is kept serves under any name of the file
    except TracevizError as error:
        error.path, error.message = str(one.path), error.message.replace(str(there), str(one.path))
        raise
    if before == tables_name(one.path, one.kind):  # changed while it was read, it belongs under neither name
        _keep(trace, cache.root() / "traces" / before)
    return cited(trace, one.path)


def _cached(one: Input, reading: Reading) -> Trace | None:
    """Return a capture that the cache holds; refuse one that can't be read now, such as a database being written."""
    format_of(one.kind).refuse_unreadable(one.path)
    folder = cache.root() / "traces" / tables_name(one.path, one.kind)
    trace = _kept(folder, counters=reading.counters)
    if trace is None:
        return None
    cache.touch(folder)
    return cited(trace, one.path)


def _kept(folder: Path, *, counters: bool) -> Trace | None:
    """The capture of an entry; None for none, part of one, or one whose GPU counters were left out and are needed."""
    with contextlib.suppress(Unusable):
        trace = read_trace(folder)
        if not (counters and trace.captures[0].unread_counters):
            return trace
    return None


def cited(trace: Trace, path: str | Path) -> Trace:
    """One file's Trace under the name by which it is asked for, in what it says as well."""
    known, asked = trace.captures[0].path, str(path)
    if known == asked:
        return trace
    captures = tuple(replace(capture, path=asked) for capture in trace.captures)
    warnings = tuple(replace(one, message=one.message.replace(known, asked)) for one in trace.warnings)
    return replace(trace, captures=captures, warnings=warnings)


def stored(trace: Trace, path: Path, kind: str, reading: Reading, scratch: Path) -> Path:
    """Where the tables of a capture that was just read lie: in the cache, or written anew into a scratch folder."""
    if reading.keeps and format_of(kind).is_worth_keeping(path):
        folder = cache.root() / "traces" / tables_name(path, kind)
        if _kept(folder, counters=reading.counters) is not None:
            return folder
    made = Path(tempfile.mkdtemp(dir=scratch))
    try:
        write_trace(trace, made)
    except OSError as error:
        hint = "Set $TMPDIR to a folder with more room, or give --workers 1."
        raise TracevizError(f"The tables of this can't be passed on ({error}).", path=path, hint=hint) from error
    return made


def _keep(trace: Trace, folder: Path) -> None:
    """Write into a folder of our own, then rename: whatever happens on the way, nobody finds half a capture."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as name:
            made = Path(name)
            write_trace(trace, made)
            if folder.exists():  # kept by another process meanwhile, or of no use
                if _kept(folder, counters=not trace.captures[0].unread_counters) is not None:
                    return
                cache.remove(folder)
            flush(made)
            made.rename(folder)
        cache.prune([folder])
    except OSError:
        return


# What a manifest says of the ranks in a file, as claims of the processes that were read from it.


def claimed(trace: Trace, one: Input) -> Trace:
    """Add the manifest's claims, as far as it has any.

    Raises
    ------
    TracevizError : it gives one rank to a file of several processes that used the GPU.
    """
    settings = kept(one.settings)
    captures = tuple(
        replace(each, world_size=each.world_size or one.world_size, metadata={**settings, **each.metadata})
        for each in trace.captures
    )
    ranks = {number: one.pids[process.pid] for number, process in enumerate(trace.processes) if process.pid in one.pids}
    if one.rank is not None:
        working = distinct(trace.ops.process).tolist()
        if len(working) > 1:
            text = f"The manifest says this is rank {one.rank}, but {len(working)} processes in it used the GPU."
            raise TracevizError(text, path=one.path)
        ranks = dict.fromkeys(working, one.rank)
    processes = list(trace.processes)
    for number, rank in ranks.items():
        claims = {**processes[number].claims, "manifest": rank}
        before, captured = one.step_ns.get(rank, (-1, -1))
        processes[number] = replace(
            processes[number], claims=claims, unprofiled_step_ns=before, profiled_step_ns=captured
        )
    return replace(trace, captures=captures, processes=tuple(processes))
