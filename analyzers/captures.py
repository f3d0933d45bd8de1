"""Read one capture, through the cache; and many, side by side in worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzers import workers
from analyzers.cache import folder_for_exports
from analyzers.cache_captures import cached, cited, stored, through_cache
from analyzers.cache_tables import Unusable, read_trace
from analyzers.claims import claimed
from analyzers.errors import TracevizError, TraceWarning
from analyzers.files import UNREADABLE, Input, kind_of
from analyzers.lost import count_lost_work
from analyzers.progress import Overall, Progress, silent
from analyzers.rank_numbers import rank_in_name
from analyzers.reading import Reading
from analyzers.remote import brought
from analyzers.temporary import temporary_folder
from analyzers.trace import Trace

# Starting a worker takes about as long as reading this much.
WORTH_WORKERS = 64 << 20


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
        if reading.keeps:
            trace = through_cache(one.path, one.kind, lambda path: _read(replace(one, path=path), reading, progress))
        else:
            trace = _read(one, reading, progress)
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
    found: list[Trace | TracevizError | None] = [_from_cache(one, reading) for one in inputs]
    lacking = [place for place, trace in enumerate(found) if trace is None]
    overall = Overall(progress, "reading captures", [inputs[place].bytes for place in lacking])
    several = len(lacking) > 1 and reading.processes > 1 and overall.total > WORTH_WORKERS
    read = _side_by_side if several else _one_by_one
    for place, trace in zip(lacking, read([inputs[place] for place in lacking], reading, overall), strict=True):
        found[place] = trace
    return without_bad(inputs, found, reading.skip_bad)


def without_bad(inputs: Sequence[Input], found: Sequence[object], skip: bool) -> tuple[list[Any], list[TraceWarning]]:
    """Split what was made of each input from errors, which end it all unless they are to be skipped."""
    bad = [(one, error) for one, error in zip(inputs, found, strict=True) if isinstance(error, TracevizError)]
    good = [one for one in found if not isinstance(one, TracevizError)]
    if bad and not (skip and good):
        one, error = bad[0]
        error.path = error.path or str(one.path)
        raise error
    return good, [_left_out(one, error) for one, error in bad]


def _left_out(one: Input, error: TracevizError) -> TraceWarning:
    rank = one.rank if one.rank is not None else rank_in_name(one.path)
    who = f"{one.path}" if rank is None else f"{one.path} (rank {rank})"
    return TraceWarning("skipped-bad", f"{who} was left out, as --skip-bad asks: {error.message}")


def _one_by_one(inputs: Sequence[Input], reading: Reading, overall: Overall) -> list[Trace | TracevizError | None]:
    found: list[Trace | TracevizError | None] = []
    for place, one in enumerate(inputs):
        try:
            found.append(read_one(one, reading, lambda _, done, total, place=place: overall.tell(place, done, total)))
        except TracevizError as error:
            if not reading.skip_bad:
                error.path = error.path or str(one.path)
                raise
            found.append(error)
        overall.tell(place, 1, 1)
    return found


def _side_by_side(inputs: Sequence[Input], reading: Reading, overall: Overall) -> list[Trace | TracevizError | None]:
    with temporary_folder() as scratch:
        tasks = [(one, reading, scratch) for one in inputs]
        folders = workers.run(_read_apart, tasks, reading.processes, overall.tell)
        return [
            folder if isinstance(folder, TracevizError) else _fetched(one, folder, reading)
            for one, folder in zip(inputs, folders, strict=True)
        ]


def _fetched(one: Input, folder: Path, reading: Reading) -> Trace:
    try:
        trace = cited(read_trace(folder), one.path)
    except Unusable:  # removed from the cache since
        return read_one(one, reading)
    return claimed(trace, one)


def _read_apart(one: Input, reading: Reading, scratch: Path, progress: Progress) -> Path:
    """In a worker: read a capture and say where its tables lie now."""
    return stored(
        read_one(replace(one, rank=None, pids={}), reading, progress), one.path, one.kind, reading.keeps, scratch
    )


def _from_cache(one: Input, reading: Reading) -> Trace | None:
    may_be_there = reading.keeps and one.kind != UNREADABLE and not one.url
    trace = cached(one.path, one.kind) if may_be_there else None
    return None if trace is None else claimed(trace, one)


def _read(one: Input, reading: Reading, progress: Progress) -> Trace:
    return count_lost_work(_recorded(one, reading, progress))


def _recorded(one: Input, reading: Reading, progress: Progress) -> Trace:
    """Read what no cache has, by its format's own module; what it needs takes a while to load."""
    if one.kind == "kineto":
        from analyzers import kineto

        return kineto.read(one.path, progress)
    if one.kind == "nsys-report":
        from analyzers import nsys, nsys_export

        with folder_for_exports() as folder:
            exported = nsys_export.exported(one.path, reading.nsys, progress, folder)
            return nsys.read_sqlite(exported, progress, report=one.path)
    if one.kind == "nsys-sqlite":
        from analyzers import nsys

        return nsys.read_sqlite(one.path, progress)
    from analyzers import nsys_stats

    return nsys_stats.read(one.path)
