"""Which record a wait is for, where the capture numbers events as the program makes them.

CUDA's tools count the events of a process, and PyTorch makes an event when it first records it. In a program that
records each of its events once, the n-th event after another one is therefore that of the n-th record after its record:

    record at 10   record at 20   record at 30
    |-> wait for event 71         |-> wait for event 73       a later wait for event 72 is for the record at 20

Waits right behind their records tell whether a program is like that: the number of each is as far ahead of its record's
as that of any other. Frameworks and libraries record in calls of different names, which count apart.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import group_numbers, occurrence, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.ordering.calls import Calls
from analyzers.trace.columns import codes
from analyzers.trace.tables import Trace

ANCHORS = 3  # waits right behind their records, at least, to tell how a program's events are numbered


def by_numbers(trace: Trace, records: Calls, waits: Calls, pair: Ints) -> Ints:
    """The record that each wait is for by the number of its event; -1 where that tells nothing.

    Parameters
    ----------
    pair : the record right before each wait, -1 where there is none.
    """
    name = codes(trace.api, "name")[0][records.call]
    first = np.zeros(waits.size, dtype=bool)
    asked = np.flatnonzero(waits.event >= 0)
    event = group_numbers(waits.process[asked], waits.event[asked])
    first[asked] = occurrence(event, np.zeros_like(event)) == 0
    anchors = (pair >= 0) & (waits.event >= 0)
    found = np.full(waits.size, -1, np.int64)
    for (process, _), made in rows_by_key(records.process, name).items():
        number = np.full(records.size, -1, np.int64)
        number[made] = np.arange(made.size)
        telling = np.flatnonzero(anchors & (waits.process == process))
        telling = telling[number[pair[telling]] >= 0]
        ahead = waits.event[telling] - number[pair[telling]]
        if telling.size < ANCHORS or np.any(ahead != ahead[0]):
            continue
        at = waits.event - ahead[0]
        told = first & (waits.process == process) & (at >= 0) & (at < made.size)
        told[told] = records.start_ns[made[at[told]]] < waits.start_ns[told]
        found[told] = made[at[told]]
    return found
