"""Processes of an nsys export, told apart by their global id."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pandas as pd

from analyzers.errors import TracevizError
from analyzers.trace import Ints, ints

THREAD_BITS = 24  # a global id holds, from its top: 8 bits hardware, 8 bits machine, 24 bits process, 24 bits thread
LOW_24 = (1 << THREAD_BITS) - 1
NOT_SAID = -1


class Processes:
    """Numbers the processes of one export in the order of their global ids.

    Tables are read with provisional numbers, in order of appearance; `order` turns those into final ones.
    """

    def __init__(self) -> None:
        self._number: dict[int, int] = {}
        self._lock = threading.Lock()  # tables are read side by side

    def number(self, global_ids: Ints) -> Ints:
        """Provisional number of each row's process, from a global process or thread id; -1 where it has none."""
        codes, distinct = pd.factorize(global_ids >> THREAD_BITS)
        numbers = [NOT_SAID if key == NOT_SAID else self.add(int(key)) for key in distinct]
        return np.array(numbers or [0], np.int64)[codes]

    def add(self, key: int) -> int:
        """Provisional number of a process by its global id without thread bits."""
        with self._lock:
            return self._number.setdefault(key, len(self._number))

    @property
    def keys(self) -> list[int]:
        """Global ids without their thread bits, in final order."""
        return sorted(self._number)

    def order(self) -> Ints:
        """Final number of each provisional one."""
        place = {key: index for index, key in enumerate(self.keys)}
        return np.array([place[key] for key in self._number] or [0], np.int64)


def thread(global_ids: Ints) -> Ints:
    """Thread id of each global thread id."""
    return global_ids & LOW_24


def pid(key: int) -> int:
    """Process id of a key."""
    return key & LOW_24


def adopt(frame: pd.DataFrame, api: pd.DataFrame, processes: Processes, path: Path) -> pd.DataFrame:
    """Give rows that name no process, as in the oldest exports, the one whose call has their correlation id.

    Raises
    ------
    TracevizError : several processes used the same correlation ids, so the rows could be anybody's.
    """
    process = ints(frame, "process")
    orphans = np.flatnonzero(process == NOT_SAID)
    if orphans.size == 0:
        return frame
    callers = np.unique(ints(api, "process"))
    if callers.size <= 1:
        found = np.full(orphans.size, callers[0] if callers.size else processes.add(0))
    else:
        found = _by_correlation(ints(frame, "correlation")[orphans], api, path)
    process = process.copy()
    process[orphans] = found
    return frame.assign(process=process.astype(np.int32))


def _by_correlation(wanted: Ints, api: pd.DataFrame, path: Path) -> Ints:
    owners = api[["correlation", "process"]].drop_duplicates()
    owners = owners[owners["correlation"].isin(wanted)]
    if owners["correlation"].duplicated().any() or not np.isin(wanted, ints(owners, "correlation")).all():
        raise TracevizError(
            "this old export holds several processes and does not say whose the GPU work is (no globalPid).",
            path=path,
            hint="Export the report again with a newer nsys, or capture one report a process.",
        )
    return owners.set_index("correlation")["process"].reindex(wanted).to_numpy(np.int64)
