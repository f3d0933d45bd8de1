"""Join GPU work to the calls that launched it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.trace import Ints, ints

# A table indexed by correlation id answers faster than a search while it is not much larger than its rows. nsys leaves
# out many calls, but not the ids they took: often one id in ten is a row, and memory then costs more than it saves.
DENSE = 4


def launches(frame: pd.DataFrame, api: pd.DataFrame) -> Ints:
    """Row in `api` of the call that made each row, by (process, correlation id); -1 where none did.

    Parameters
    ----------
    frame : ops, or any table with columns process and correlation.
    """
    process, caller = frame["process"].to_numpy(), api["process"].to_numpy()
    wanted, keys = ints(frame, "correlation"), ints(api, "correlation")
    present = np.unique(process)
    if present.size == 1 and (caller == present[0]).all():
        return _join(wanted, keys, np.arange(keys.size))
    found = np.full(wanted.size, -1, np.int64)
    for number in present:
        own, calls = np.flatnonzero(process == number), np.flatnonzero(caller == number)
        found[own] = _join(wanted[own], keys[calls], calls)
    return found


def _join(wanted: Ints, keys: Ints, rows: Ints) -> Ints:
    if keys.size and keys.min() < 0:  # calls without an id made nothing
        known = keys >= 0
        keys, rows = keys[known], rows[known]
    if keys.size == 0 or wanted.size == 0:
        return np.full(wanted.size, -1, np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low < DENSE * keys.size + 1_000_000:
        direct = np.full(high - low + 2, -1, np.int32)  # the last place answers for every id that is not there
        direct[keys - low] = rows
        place = wanted - low
        place[(wanted < low) | (wanted > high)] = high - low + 1
        return direct[place].astype(np.int64)
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows[order]
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[place] == wanted, rows[place], -1)
