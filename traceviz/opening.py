"""What every function of the Python API takes: a trace, or the captures of one run and how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.scale import parts
from analyzers.trace import run as runs
from analyzers.trace import tables
from traceviz.options.arguments import read_bytes, read_step_range
from traceviz.options.config import communication
from traceviz.output.terminal import progress
from traceviz.trace import Trace

if TYPE_CHECKING:
    from distributed import Client

Paths = str | Path | Sequence[str | Path]
Run = Trace | tables.Trace | Paths  # what every function takes: a trace, or the captures of one run


class ReadingOfAll(TypedDict, total=False):
    """How captures are read, as `load` takes it by name."""

    nsys: str | None
    align: bool
    workers: int | None
    skip_bad: bool
    cache: bool
    comm: str | Sequence[str] | None
    step_by: str | None


class ReadingOptions(ReadingOfAll, total=False):
    """The same for what can be asked rank by rank."""

    memory: int | str | None
    dask: str | Client | None


def opened(
    run: Run,
    how: ReadingOptions,
    on_progress: Progress,
    *,
    lists: bool = False,
    counters: bool = False,
    calls_alone: bool = False,
) -> AbstractContextManager[runs.Run]:
    """A run to ask something of, for the time of a block; with its GPU counters, however many, where asked.

    With `calls_alone` a run whose calls launched work that it does not hold will do.
    """
    if (known := _read_before(run)) is not None:
        _refuse(how)
        return nullcontext(runs.Run.of(known))
    reading, align = replace(_reading(how), counters=counters, calls_alone=calls_alone), how.get("align", True)
    return parts.opened(paths_of((run,)), reading, align=align, lists=lists, progress=on_progress)


@contextmanager
def opened_together(
    given: Sequence[Run], how: ReadingOptions, on_progress: Progress, *, lists: bool = False
) -> Iterator[list[runs.Run]]:
    """Several runs to ask something of, for the time of a block; those named by paths share a budget and workers."""
    if any(_read_before(run) is not None for run in given):
        with ExitStack() as each:
            yield [each.enter_context(opened(run, how, on_progress, lists=lists)) for run in given]
        return
    paths, align = [paths_of((run,)) for run in given], how.get("align", True)
    with parts.opened_together(paths, _reading(how), align=align, lists=lists, progress=on_progress) as found:
        yield found


def loaded(run: Run, how: ReadingOfAll) -> tables.Trace:
    """A run as one trace, for what needs all of it at once."""
    if (known := _read_before(run)) is not None:
        _refuse(how)
        return known
    with progress() as on_progress:
        return load(paths_of((run,)), align=how.get("align", True), reading=_reading(how), progress=on_progress)


def _read_before(run: Run) -> tables.Trace | None:
    """What a trace holds; None of what is still to be read."""
    return run.data if isinstance(run, Trace) else run if isinstance(run, tables.Trace) else None


def _reading(how: ReadingOptions | ReadingOfAll) -> Reading:
    given = {name: value for name, value in how.items() if name != "align"}
    if isinstance(given.get("memory"), str):
        given["memory"] = read_bytes(str(given["memory"]))
    given["comm"] = communication(how.get("comm"), "comm=")
    if isinstance(given.get("step_by"), str):
        given["step_by"] = read_step_range(str(given["step_by"]))
    try:
        return Reading(**given)  # type: ignore[arg-type]
    except TypeError as error:
        known = ", ".join(ReadingOptions.__annotations__)
        raise TracevizError(f"There is no such option ({error}).", hint=f"Captures are read with: {known}.") from error


def refuse_dask(how: ReadingOptions) -> None:
    """What is drawn takes all ranks' tables to one machine, one after the other."""
    if how.get("dask") is not None:
        raise TracevizError("Timelines and reports are not drawn by a cluster.", hint="Give memory= instead of dask=.")


def _refuse(how: ReadingOptions | ReadingOfAll) -> None:
    """Options on reading make no sense where a trace is given."""
    if how:
        raise TracevizError(
            f"{', '.join(how)} say how captures are read, and this trace was read before.",
            hint="Give the captures' paths, or leave them out.",
        )


def paths_of(given: object) -> list[str | Path]:
    """Paths out of what was given, lists within taken apart."""
    if isinstance(given, str | Path):
        return [given]
    if isinstance(given, Sequence) and not isinstance(given, bytes):
        return [path for one in given for path in paths_of(one)]
    raise TracevizError(
        f"Captures are named by paths, and this is a {type(given).__name__}: {given!r:.60}.",
        hint="Give a text or a Path (a file, folder, glob or manifest), a list of them, or a Trace that tv.load made.",
    )
