"""What waiting for late ranks cost in overlap: what a side's ops would hide more, had they not waited.

Ops that follow one another at once are a run. Were nobody late, a run would really run from its beginning on, without
its waits: what it would overlap more then than it does now is the overlap that its waiting cost.

    B  0 ─────────────────────── 60              runs 0–60
    A     10 ~~~~~~~~~~~~~~~~~~~~~~~ 70 ── 90    waits 10–70, runs 70–90: on time 10–30, and 20 more ns would overlap

Those are counted at the first 20 of the ns at which A waits beside B. Did A run from 50 to 70 it would overlap for 10
already, and on time for 10 more. A run that would be done before the other side begins costs nothing.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.intervals import EMPTY, Union, coverage, intersect, measure_before, union
from analyzers.arrays.search import search
from analyzers.arrays.types import Ints

PAUSE_NS = 3_000  # longest way from the end of an op to the start of the next on its stream, that was queued behind it


def waited_in_vain(resident: Union, real: Union, waiting: Union, others: Union, span: int) -> Union:
    """The instants at which one side's waiting for late ranks cost overlap.

    Parameters
    ----------
    resident, real, waiting : when the side's ops ran, really ran, or only waited.
    others : when the other side really ran.
    span : instances are laid one behind another, each in so many ns; no run is in two of them.
    """
    beside = intersect(waiting, others)
    if not beside.starts.size:
        return EMPTY
    begins = np.append(True, resident.starts[1:] - resident.ends[:-1] > PAUSE_NS)
    begins[1:] |= resident.starts[1:] // span != resident.starts[:-1] // span
    heads = np.flatnonzero(begins)
    start, end = resident.starts[heads], resident.ends[np.append(heads[1:], begins.size) - 1]
    on_time = coverage(start, start + coverage(start, end, real), others)
    more = on_time - coverage(start, end, intersect(real, others))
    cost = np.clip(more, 0, coverage(start, end, beside))
    some = np.flatnonzero(cost)
    start, until = start[some], _when_reached(beside, measure_before(beside, start[some]) + cost[some])
    return intersect(beside, union(start, until))


def _when_reached(a: Union, total_ns: Ints) -> Ints:
    """When so much of a union has gone by, ns; more than none of it."""
    gone_by: Ints = np.cumsum(a.ends - a.starts)
    at = search(gone_by, total_ns)
    return a.ends[at] - (gone_by[at] - total_ns)
