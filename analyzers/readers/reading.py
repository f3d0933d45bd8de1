"""How captures are read: cache, worker processes, and what happens to those that can't be read."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from analyzers.cache.folder import is_off
from analyzers.trace.communication import Declared


class Reading(msgspec.Struct, frozen=True):
    """How captures are read.

    nsys : the `nsys` that exports reports; found by itself where not given.
    cache : whether what was read is kept, and found, in the cache; $TRACEVIZ_CACHE=off says no, too.
    workers : processes; None for as many as there are processors.
    skip_bad : leave out captures that can't be read, with a warning, instead of failing.
    memory : bytes that reading and analysing may take; captures are then looked at one by one, not all at once.
    dask : address of a Dask scheduler, or a client of one, whose workers look at the captures, each by itself.
    counters : read GPU counters however many there are; else only where that takes no time to speak of.
    calls_alone : take a run of which calls launched work that it does not hold; else it is refused.
    comm : what the user says is communication; step_by : the range by which steps are told; nothing that the cache
        keeps rests on either.
    """

    nsys: str | None = None
    cache: bool = True
    workers: int | None = None
    skip_bad: bool = False
    memory: int | None = None
    dask: Any = None
    counters: bool = False
    comm: tuple[Declared, ...] = ()
    step_by: str | None = None
    calls_alone: bool = False

    @property
    def by_parts(self) -> bool:
        """Whether captures are looked at by themselves."""
        return self.memory is not None or self.dask is not None

    @property
    def processes(self) -> int:
        """How many processes may work at once."""
        if self.workers is not None:
            return self.workers
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @property
    def keeps(self) -> bool:
        """Whether the cache is used."""
        return self.cache and not is_off()


READING = Reading()
