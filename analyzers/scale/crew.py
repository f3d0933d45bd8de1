"""Who works on captures side by side: processes on this machine, as many as the memory budget has room for."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Overall, silent
from analyzers.readers.captures import Reading
from analyzers.readers.inputs import find_inputs
from analyzers.workers import pool
from analyzers.workers.memory import Watch

if TYPE_CHECKING:
    from distributed import Client


BASE_BYTES = 200_000_000  # of a Python process with the libraries loaded
SLACK = 4  # how many times less than the budget a single task must be thought to take to need no watching
PER_BYTE = 0.8  # memory at most for a byte of a capture: Kineto JSON takes 0.6, nsys databases 0.7


class Crew(Protocol):
    """Who calls functions with tasks; results come in their order, a TracevizError that was raised as one of them."""

    scratch: Path | None  # where tables may be left for the next task; None where it may run elsewhere

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], overall: Overall) -> list[Any]:
        """Call a function with each task's arguments and `progress`."""


class LocalCrew:
    """Processes on this machine, or none but this one where one at a time is asked for and memory is not bounded."""

    def __init__(self, count: int, scratch: Path, memory: int | None = None) -> None:
        self.count, self.memory = count, memory
        self.scratch: Path | None = scratch

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], overall: Overall) -> list[Any]:
        """Call a function with each task's arguments and `progress`."""
        if self.memory is not None or (self.count > 1 and len(tasks) > 1):
            watch = None if self.memory is None else Watch(self.memory)
            found = pool.run(function, tasks, self.count, overall.tell, watch)
            self.count = max(1, self.count - (0 if watch is None else watch.ended))  # for the next tasks as well
            return found
        results: list[Any] = []
        for place, task in enumerate(tasks):
            try:
                tell = functools.partial(_tell, overall, place)
                results.append(function(*task, progress=tell))
            except TracevizError as error:
                results.append(error)
            overall.tell(place, 1, 1)
        return results


def _tell(overall: Overall, place: int, what: str, done: int, total: int) -> None:
    overall.tell(place, done, total)


@contextlib.contextmanager
def crew_for(paths: Sequence[str], reading: Reading) -> Iterator[Crew]:
    """The workers of a Dask scheduler where one is named, else processes on this machine.

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
        with dask_crew(reading.dask) as far:
            yield far
        return
    inputs, _ = find_inputs(paths, keep_bad=reading.skip_bad)
    with local_crew(max(one.bytes for one in inputs), reading) as near:
        yield near


@contextlib.contextmanager
def local_crew(largest_bytes: int, reading: Reading) -> Iterator[LocalCrew]:
    """As many processes as are asked for and the memory budget has room for; they are watched to keep to it.

    Parameters
    ----------
    largest_bytes : of the largest capture, unpacked.

    Raises
    ------
    TracevizError : the budget has no room for one.
    """
    count, watched = reading.processes, reading.memory
    if reading.memory is not None:
        need = BASE_BYTES + int(largest_bytes * PER_BYTE)
        if need > reading.memory:
            raise TracevizError(
                f"The largest capture takes about {need / 1e6:,.0f} MB of memory to read; "
                f"the budget is {reading.memory / 1e6:,.0f} MB.",
                hint=f"Give --memory {-(-need // 10**6)}MB or more.",
            )
        count = max(1, min(count, (reading.memory - BASE_BYTES) // need))
        if count == 1 and need * SLACK < reading.memory:
            watched = None
    with tempfile.TemporaryDirectory(prefix="traceviz-") as scratch:
        yield LocalCrew(count, Path(scratch), watched)


# Dask's workers as those who look at captures: the same tasks as processes on this machine run, on a cluster.
#
# Captures are named by paths that every worker has (a shared folder), or by URLs that fsspec opens; a worker brings
# the latter onto its own disk, and keeps their tables in its own cache. What a worker that is lost had to do, another
# does.

CONNECT_SECONDS = 20
INSTALL = "Install traceviz-gpu[cluster]."


class DaskCrew:
    """The workers of a Dask scheduler.

    Parameters
    ----------
    client : of that scheduler.
    """

    scratch: Path | None = None  # the next task on a capture may run on another machine

    def __init__(self, client: Client) -> None:
        self.client = client

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], overall: Overall) -> list[Any]:
        """Call a function with each task's arguments and `progress`; results in their order, errors among them.

        Raises
        ------
        TracevizError : the scheduler is gone, or every worker that tried a task was lost.
        """
        from distributed import as_completed

        futures = [self.client.submit(attempt, function, task, pure=False) for task in tasks]
        numbers = {future.key: place for place, future in enumerate(futures)}
        results: list[Any] = [None] * len(tasks)
        try:
            for future in as_completed(futures, loop=self.client.loop):
                place = numbers[future.key]
                try:
                    results[place] = future.result()
                except Exception as error:
                    results[place] = _lost(error)
                overall.tell(place, 1, 1)
        finally:
            self.client.cancel([future for future in futures if not future.done()])
        return results


def attempt(function: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    """On a worker: call a function; a TracevizError is a result, so that Dask neither logs nor repeats it."""
    try:
        return function(*task, progress=silent)
    except TracevizError as error:
        return error


@contextlib.contextmanager
def dask_crew(where: Any) -> Iterator[DaskCrew]:
    """Connect to a scheduler by its address, for the time of the block; or take a client that is there already.

    Raises
    ------
    TracevizError : Dask is not installed, no scheduler answers, or it has no workers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise TracevizError("Dask is not installed.", hint=INSTALL) from error
    if not isinstance(where, str):
        yield DaskCrew(where)
        return
    try:
        client = Client(where, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise TracevizError(
            f"No Dask scheduler answers at {where} ({type(error).__name__}).",
            hint="Start one with `dask scheduler`, and give the address it prints.",
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise TracevizError(
                f"The Dask scheduler at {where} has no workers.", hint=f"Start some: dask worker {where}"
            )
        yield DaskCrew(client)


def _lost(error: Exception) -> TracevizError:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return TracevizError(
            "Every Dask worker that worked on this was lost.", hint="Was memory short? See the workers' logs."
        )
    raise error
