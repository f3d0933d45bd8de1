"""Worker processes on this machine: each takes one task at a time; nothing of the caller's program runs in them.

They are started as plain Python processes, neither forked (threads hold locks) nor by importing the caller's main
module anew, so that an unguarded script or a notebook may use them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from analyzers.common.errors import TracevizError
from analyzers.workers.memory import TICK_SECONDS, Watch
from analyzers.workers.worker import BROKEN, DONE, PROGRESS, receive, send

_START = "import sys; sys.path[:] = {path!r}; from analyzers.workers.worker import main; main()"
AGAIN = "again"  # said of a task that is to be begun anew
NO_MORE = -1  # in place of a task
PATIENCE_SECONDS = 5.0  # for a worker to clean up after itself
Tell = Callable[[int, int, int], None]


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    workers: int,
    tell: Tell,
    watch: Watch | None = None,
) -> list[Any]:
    """Call a module's function with each task's arguments, in worker processes.

    Parameters
    ----------
    function : takes a task's arguments and `progress`.
    tell : called with (task, done, total) as tasks progress; (task, 1, 1) when one has ended.
    watch : looks after the memory of all processes. Where they hold too much, the youngest task is begun anew once
        another has ended, with one worker less from then on; a task that is alone fails.

    Returns
    -------
    One per task, in their order: what the function returned, or the TracevizError that it raised. A worker that dies
    is such an error as well, and another one takes its place.

    Raises
    ------
    RuntimeError : the function failed otherwise; with the worker's traceback.
    TracevizError : this process alone holds more memory than it may.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(tasks)):
        waiting.put(index)
    heard: queue.SimpleQueue[tuple[int, str, Any]] = queue.SimpleQueue()
    results: list[Any] = [None] * len(tasks)
    crew = [_Worker(function, tasks, waiting, heard) for _ in range(min(workers, len(tasks)))]
    try:
        for worker in crew:
            worker.start()
        left = len(tasks)
        while left:
            if watch is not None:
                watch.look(crew)
            try:
                index, kind, content = heard.get(timeout=None if watch is None else TICK_SECONDS)
            except queue.Empty:
                continue
            if kind == PROGRESS:
                tell(index, *content)
                continue
            if kind == BROKEN:
                raise RuntimeError(f"a worker process failed:\n{content}")
            if kind == AGAIN:
                waiting.put(index)
                continue
            results[index] = content
            left -= 1
            tell(index, 1, 1)
    finally:
        for worker in crew:
            waiting.put(NO_MORE)
            worker.stop()
        for worker in crew:
            worker.end()
    return results


class _Worker(threading.Thread):
    """A thread that feeds one process and passes on what it answers; it ends when it is let go."""

    def __init__(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        waiting: queue.SimpleQueue[int],
        heard: queue.SimpleQueue[tuple[int, str, Any]],
    ) -> None:
        super().__init__(daemon=True)
        self.function, self.tasks, self.waiting, self.heard = function, tasks, waiting, heard
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = self.leaving = False
        self.busy_since: float | None = None
        self.why: TracevizError | None = None

    def run(self) -> None:
        index = -1
        try:
            while not self.stopped and (index := self._next()) != NO_MORE:
                self.busy_since = time.monotonic()
                for kind, content in self._work(index):
                    if kind == DONE:
                        self.busy_since = None
                    self.heard.put((index, kind, content))
        except Exception:  # no process can be started, a task can't be sent: whoever waits must hear of it
            self.heard.put((index, BROKEN, traceback.format_exc()))
        finally:
            self._dismiss()

    def _next(self) -> int:
        """The next task; while there is none, there may be one again, but the process is not kept for it."""
        try:
            return self.waiting.get_nowait()
        except queue.Empty:
            self._dismiss()
            self.leaving = False
            return self.waiting.get()

    def _work(self, index: int) -> Any:
        process = self.process = self.process or self._launched()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, (self.function, self.tasks[index]))
            kind = PROGRESS
            while kind == PROGRESS:
                kind, content = receive(process.stdout)
                yield (kind, content) if kind in (PROGRESS, BROKEN) else (DONE, content)
        except (EOFError, OSError):
            code = self._dismiss()
            if not self.leaving:
                yield DONE, _died(code)
            elif self.why is not None:
                yield DONE, self.why
                self.leaving = False
            else:
                yield AGAIN, None
                self.stopped, self.busy_since, self.leaving = True, None, False

    @property
    def pid(self) -> int | None:
        """Of its process, None where it has none."""
        process = self.process
        return None if process is None else process.pid

    def let_go(self, since: float, why: TracevizError | None) -> None:
        """End the process, if at work since then; its task is done anew by another, or has failed where `why` says."""
        if self.busy_since != since:
            return
        self.leaving, self.why = True, why
        process = self.process
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started

    def _launched(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt at the terminal is ours to pass on
        )

    def _dismiss(self) -> int:
        """Let the process end, which it does when nobody is left to talk to; returns its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            return process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def stop(self) -> None:
        """Have the process end, however busy it is."""
        self.stopped = True
        process = self.process
        if process is not None:
            process.terminate()

    def end(self) -> None:
        """Wait until the process has ended."""
        if self.ident is not None:
            self.join()


def _died(code: int) -> TracevizError:
    how = f"ended with {code}" if code >= 0 else f"was killed by signal {-code}"
    hint = "Was memory short? Give fewer --workers, or a --memory budget." if code == -signal.SIGKILL else None
    return TracevizError(f"The process that worked on this {how}.", hint=hint)
