"""Processes on this machine that work side by side (loky's)."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from analyzers.common.errors import TracevizError
from analyzers.common.memory import give_back_freed
from analyzers.common.progress import Overall, Progress, silent

IDLE_SECONDS = 10  # after which a worker without a task ends; also one whose caller was killed
TICK_SECONDS = 0.1  # between looks at how far the workers are


class Workers(Protocol):
    """Who calls functions with tasks; results come in their order, a TracevizError that was raised as one of them."""

    scratch: Path | None  # where tables may be left for the next task; None where it may run elsewhere

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], overall: Overall) -> list[Any]:
        """Call a function with each task's arguments and `progress`."""


class LocalWorkers:
    """Processes on this machine, or none but this one where one at a time is asked for or there is one task."""

    def __init__(self, count: int, scratch: Path) -> None:
        self.count = count
        self.scratch: Path | None = scratch
        self._pool: Any = None
        self._progress_queue: Any = None

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
                results[number] = attempt(function, task, _numbered(overall.update, number))
                overall.update(number, 1, 1)
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
            while not self._progress_queue.empty():
                overall.update(*self._progress_queue.get())
            for future in done:
                if isinstance(future.exception(), TerminatedWorkerError):
                    continue
                results[futures[future]] = future.result()
                overall.update(futures[future], 1, 1)
        if len(results) < len(tasks):
            self.stop()
        return len(results) == len(tasks)

    def _started(self, tasks: int) -> Any:
        """The pool of workers, which stays for the next tasks."""
        if self._pool is None:
            from loky import ProcessPoolExecutor
            from loky.backend import get_context

            self._progress_queue = get_context().SimpleQueue()
            self._pool = ProcessPoolExecutor(
                min(self.count, tasks), timeout=IDLE_SECONDS, initializer=_begin, initargs=(self._progress_queue,)
            )
        return self._pool

    def stop(self) -> None:
        """End the workers, and what they have started, however busy they are."""
        if self._pool is not None:
            self._pool.shutdown(kill_workers=True)
            self._pool = None


_progress_queue: Any = None  # in a worker: where it says how far it is


def _begin(progress_queue: Any) -> None:
    """In a worker, at its start: an interrupt at the terminal is for the command, which ends its workers."""
    global _progress_queue
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _progress_queue = progress_queue


def _work(function: Callable[..., Any], task: tuple[Any, ...], number: int) -> Any:
    return attempt(function, task, _numbered(lambda *progress: _progress_queue.put(progress), number))


def _numbered(update: Callable[[int, int, int], None], number: int) -> Progress:
    """Progress of one task among several."""
    return lambda what, done, total: update(number, done, total)


@contextlib.contextmanager
def local_workers(count: int) -> Iterator[LocalWorkers]:
    """At most so many processes on this machine, for the time of the block."""
    with (
        tempfile.TemporaryDirectory(prefix="traceviz-", ignore_cleanup_errors=True) as scratch,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", module="loky")  # that a worker which had grown was replaced
        workers = LocalWorkers(count, Path(scratch))
        try:
            yield workers
        finally:
            workers.stop()


def attempt(function: Callable[..., Any], task: tuple[Any, ...], progress: Progress = silent) -> Any:
    """Call a function; a TracevizError is a result, so that no pool logs or repeats it."""
    try:
        return function(*task, progress=progress)
    except TracevizError as error:
        return error
    finally:
        give_back_freed()
