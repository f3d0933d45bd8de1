"""Who works on captures side by side: processes on this machine, as many as the memory budget has room for."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Overall, Progress, silent
from analyzers.readers.captures import Reading
from analyzers.readers.inputs import Input, find_inputs

if TYPE_CHECKING:
    from distributed import Client


BASE_BYTES = 200_000_000  # of a Python process with the libraries loaded
PER_BYTE = 1.0  # memory at most for a byte of a capture, unpacked: of Kineto JSON, 0.9 were measured
PER_BYTE_OF = {
    "nsys-sqlite": 5.0,
    "nsys-sqlite-gz": 5.0,
    "nsys-report": 5.0,
}  # 4.3 were measured, of an export without any other tables
IDLE_SECONDS = 10  # after which a worker without a task ends; also one whose caller was killed
TICK_SECONDS = 0.1  # between looks at how far the workers are


class Crew(Protocol):
    """Who calls functions with tasks; results come in their order, a TracevizError that was raised as one of them."""

    scratch: Path | None  # where tables may be left for the next task; None where it may run elsewhere

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], overall: Overall) -> list[Any]:
        """Call a function with each task's arguments and `progress`."""


class LocalCrew:
    """Processes on this machine, or none but this one where one at a time is asked for or there is one task."""

    def __init__(self, count: int, scratch: Path) -> None:
        self.count = count
        self.scratch: Path | None = scratch
        self._pool: Any = None
        self._told: Any = None

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], overall: Overall) -> list[Any]:
        """Call a function with each task's arguments and `progress`.

        Where the system kills a worker, what is unfinished is tried once more by half as many.

        Raises
        ------
        TracevizError : a worker was killed again.
        """
        results: dict[int, Any] = {}
        if self.count == 1 or len(tasks) == 1:
            for number, task in enumerate(tasks):
                results[number] = attempt(function, task, _numbered(overall.tell, number))
                overall.tell(number, 1, 1)
        elif not self._finish(function, tasks, results, overall):
            self.count = max(1, self.count // 2)
            if not self._finish(function, tasks, results, overall):
                raise TracevizError(
                    "A process that worked on these captures was killed, and again when fewer worked at once.",
                    hint="Was memory short? Give fewer --workers, or a --memory budget.",
                )
        return [results[number] for number in range(len(tasks))]

    def _finish(
        self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], results: dict[int, Any], overall: Overall
    ) -> bool:
        """Do the tasks that lack a result; returns whether all have one, which they have not if a worker was killed."""
        from concurrent.futures import FIRST_COMPLETED, wait

        from loky.process_executor import TerminatedWorkerError

        lacking = [number for number in range(len(tasks)) if number not in results]
        pool = self._started(len(lacking))
        futures = {pool.submit(_work, function, tasks[number], number): number for number in lacking}
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, TICK_SECONDS, FIRST_COMPLETED)
            while not self._told.empty():
                overall.tell(*self._told.get())
            for future in done:
                if isinstance(future.exception(), TerminatedWorkerError):
                    continue
                results[futures[future]] = future.result()
                overall.tell(futures[future], 1, 1)
        if len(results) < len(tasks):
            self.stop()
        return len(results) == len(tasks)

    def _started(self, tasks: int) -> Any:
        """The pool of workers, which stays for the next tasks."""
        if self._pool is None:
            from loky import ProcessPoolExecutor
            from loky.backend import get_context

            self._told = get_context().SimpleQueue()
            self._pool = ProcessPoolExecutor(
                min(self.count, tasks), timeout=IDLE_SECONDS, initializer=_begin, initargs=(self._told,)
            )
        return self._pool

    def stop(self) -> None:
        """End the workers, and what they have started, however busy they are."""
        if self._pool is not None:
            self._pool.shutdown(kill_workers=True)
            self._pool = None


_told: Any = None  # in a worker: where it says how far it is


def _begin(told: Any) -> None:
    """In a worker, at its start: an interrupt at the terminal is for the command, which ends its workers."""
    global _told
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _told = told


def _work(function: Callable[..., Any], task: tuple[Any, ...], number: int) -> Any:
    return attempt(function, task, _numbered(lambda *said: _told.put(said), number))


def _numbered(tell: Callable[[int, int, int], None], number: int) -> Progress:
    """Progress of one task among several."""
    return lambda what, done, total: tell(number, done, total)


@contextlib.contextmanager
def local_crew(count: int) -> Iterator[LocalCrew]:
    """At most so many processes on this machine, for the time of the block."""
    with (
        tempfile.TemporaryDirectory(prefix="traceviz-", ignore_cleanup_errors=True) as scratch,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", module="loky")  # that a worker which had grown was replaced
        crew = LocalCrew(count, Path(scratch))
        try:
            yield crew
        finally:
            crew.stop()


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
    count = reading.processes
    if reading.memory is not None:
        inputs, _ = find_inputs(paths, keep_bad=reading.skip_bad)
        count = min(count, room_for(inputs, reading.memory))
    with local_crew(count) as near:
        yield near


def room_for(inputs: Sequence[Input], memory: int) -> int:
    """How many captures a memory budget has room for at once, beside this process where they are several.

    Raises
    ------
    TracevizError : the budget has no room for one.
    """
    need = needed(inputs)
    if need > memory:
        raise TracevizError(
            f"The largest capture takes about {need / 1e6:,.0f} MB of memory to read; "
            f"the budget is {memory / 1e6:,.0f} MB.",
            hint=f"Give --memory {-(-need // 10**6)}MB or more.",
        )
    return max(1, (memory - BASE_BYTES) // need)


def needed(inputs: Sequence[Input]) -> int:
    """Bytes of memory that a process takes at most to read and analyse any one of these captures."""
    return BASE_BYTES + max(int(one.bytes * PER_BYTE_OF.get(one.kind, PER_BYTE)) for one in inputs)


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


def attempt(function: Callable[..., Any], task: tuple[Any, ...], progress: Progress = silent) -> Any:
    """Call a function; a TracevizError is a result, so that Dask neither logs nor repeats it."""
    try:
        return function(*task, progress=progress)
    except TracevizError as error:
        return error
    finally:
        with contextlib.suppress(AttributeError):  # of another C library
            ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what was freed in pieces, and the next peak would add to it


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
