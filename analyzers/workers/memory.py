"""A bound on the memory of worker processes: looked at while they work, and kept to by ending some.

What a process holds is its anonymous memory as Linux counts it; pages of mapped files are the system's, which takes
them back when memory is short. Elsewhere nothing can be seen, and nothing is ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from analyzers.common.errors import TracevizError

TICK_SECONDS = 0.05


class Watched(Protocol):
    """A worker: the process at work on a task, when it began with it, and whether it is being ended."""

    leaving: bool

    @property
    def pid(self) -> int | None:
        """Of its process, None where it has none."""

    @property
    def busy_since(self) -> float | None:
        """When it began with its task, None where it has none."""

    def let_go(self, since: float, why: TracevizError | None) -> None:
        """End the process, if at work since then; its task is done anew by another, or has failed where `why` says."""


class Watch:
    """Keeps this process and its workers below a number of bytes; `ended` counts those that were too many."""

    def __init__(self, limit: int) -> None:
        self.limit, self.last, self.ended = limit, 0.0, 0

    def look(self, crew: Sequence[Watched]) -> None:
        """End the youngest of several tasks where they hold too much, or the one that is alone.

        Raises
        ------
        TracevizError : this process holds too much by itself.
        """
        now = time.monotonic()
        if now - self.last < TICK_SECONDS or any(worker.leaving for worker in crew):
            return
        self.last = now
        own = held(os.getpid())
        if own > self.limit:
            raise TracevizError(
                f"What all captures come to takes {own / 1e6:,.0f} MB; the budget is {self.limit / 1e6:,.0f} MB.",
                hint="Give a larger --memory, or fewer ranks.",
            )
        total = own + sum(held(worker.pid) for worker in crew if worker.pid is not None)
        busy = sorted((since, place) for place, worker in enumerate(crew) if (since := worker.busy_since) is not None)
        if total <= self.limit or not busy:
            return
        since, place = busy[-1]
        if len(busy) > 1:
            self.ended += 1
            crew[place].let_go(since, None)
            return
        alone = f"This alone takes more than {total / 1e6:,.0f} MB of memory; the budget is {self.limit / 1e6:,.0f} MB."
        crew[place].let_go(since, TracevizError(alone, hint="Give a larger --memory, or leave it out."))


def held(pid: int) -> int:
    """Bytes of anonymous memory that a process holds; 0 where that can't be seen, or it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon"))
