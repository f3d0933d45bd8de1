"""How sure real overlap is: what clocks and absent peers leave open."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.columns import taken
from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.intervals import Union, coverage, intersect, measure, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.matching.calls import calls
from analyzers.trace.columns import ints_at
from analyzers.trace.kernels import is_compute
from analyzers.trace.tables import Trace

# How sure real overlap is: measured with all waits as short as clocks allow, and as long.
#
# Overlap O is less the longer waits are, and so is each side's time. But the ratio O / min(A, B) may go either way: of
# a wait beside the other side both lose, of one that is not only the denominator. So it is bounded as O / (O + N), N
# the part of the shorter side that ran alone: the least O with the most N, and the most O with the least N.
#
# An all-reduce from 0 to 100 waits for at least 30 and at most 50 ns; a matmul runs from 40 to 60 beside it, another
# for 100 ns after. O is 20 (40 to 60) or 10 (50 to 60). With the longer wait, 40 of the all-reduce run alone; with the
# shorter, 50. So the ratio lies within 10 / (10 + 50) and 20 / (20 + 40).


class RealRange(Record, frozen=True):
    """Least and most real overlap, and least and most of the shorter side that ran alone, ns; those of devices add."""

    least_ns: int = 0
    most_ns: int = 0
    least_alone_ns: int = 0
    most_alone_ns: int = 0

    def __add__(self, other: RealRange) -> RealRange:
        return RealRange(
            self.least_ns + other.least_ns,
            self.most_ns + other.most_ns,
            self.least_alone_ns + other.least_alone_ns,
            self.most_alone_ns + other.most_alone_ns,
        )

    @property
    def ratio_low(self) -> float:
        """The least that the real ratio can be."""
        return self.least_ns / (self.least_ns + self.most_alone_ns) if self.least_ns else 0.0

    @property
    def ratio_high(self) -> float:
        """The most that the real ratio can be."""
        return self.most_ns / (self.most_ns + self.least_alone_ns) if self.most_ns else 0.0


def real_range(
    trace: Trace, a: Ints, b: Ints, absent: Mask | None = None, busy: tuple[Union, Union] | None = None
) -> RealRange:
    """Measure the ops of both sides on one device with the least waits and with the most.

    Parameters
    ----------
    absent : ops that may have waited to their end, for peers that were not captured.
    busy : when each side runs, waits included, where that is known already.
    """
    sides = [_running(trace, rows, absent, busy and busy[side]) for side, rows in enumerate((a, b))]
    length = [[measure(one) for one in side] for side in sides]
    met = [[measure(intersect(of_a, of_b)) for of_b in sides[1]] for of_a in sides[0]]
    # At 0 stand the longest, at -1 the shortest. Of A what runs beside no B: the least where A waits long and B does
    # not, the most the other way round.
    least_alone = min(length[0][-1] - met[-1][0], length[1][-1] - met[0][-1])
    most_alone = min(length[0][0] - met[0][-1], length[1][0] - met[-1][0])
    return RealRange(met[-1][-1], met[0][0], least_alone, most_alone)


def _running(trace: Trace, rows: Ints, absent: Mask | None, busy: Union | None) -> list[Union]:
    """When some ops run with the least waits, and with the most; one answer where these are the same."""
    least, most = (taken(waits, rows) for waits in (trace.ops.wait_low_ns, trace.ops.wait_high_ns))
    may_wait = absent is not None and absent[rows].any()
    if busy is not None and not (may_wait or least.any() or most.any()):
        return [busy]
    starts, ends = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns"))
    if absent is not None and may_wait:
        most = np.where(absent[rows], ends - starts, most)
    waits = [least] if np.array_equal(least, most) else [least, most]
    return [union(starts + wait, ends) for wait in waits]


# About how much of one rank's communication is waiting, where its peers were not captured: an estimate, no bound.
#
# Like calls repeat: of one group, operation and size, and alike beside other kernels or not. The fastest of them can
# have waited least, so its duration stands for the transfer of all; what the others ran longer was waiting, if the
# network served them alike. Five like calls of 2, 2, 6, 4 and 6 ms: 5 × 2 of 20 ms are transfer, half of it is waiting.

REPEATS = 3  # like calls from which on the fastest of them says something
MIN_SHARE_OF_CALLS = 0.5  # of the communication that has to be such calls; and of a call that is beside other kernels


def waiting_share(trace: Trace, ops: Ints) -> float | None:
    """About which part of these ops of communication, on one rank's device, is waiting; None where too few are alike.

    Parameters
    ----------
    ops : rows of kernels that communicate.
    """
    table = trace.once(calls).table
    position = np.full(len(trace.ops), -1, np.int64)
    position[table.op] = np.arange(len(table))
    known = ops[position[ops] >= 0]
    if not known.size:
        return None
    start, end = trace.ops.start_ns[known], trace.ops.end_ns[known]
    duration, matching = end - start, table.take(position[known])
    compute = np.flatnonzero(is_compute(trace))
    compute_by_device = rows_by_key(trace.ops.process[compute], trace.ops.device[compute])
    is_beside = np.zeros(known.size, dtype=bool)
    for device, rows in rows_by_key(trace.ops.process[known], trace.ops.device[known]).items():
        others = compute[compute_by_device.get(device, np.empty(0, np.int64))]
        runs = union(trace.ops.start_ns[others], trace.ops.end_ns[others])
        is_beside[rows] = coverage(start[rows], end[rows], runs) > MIN_SHARE_OF_CALLS * duration[rows]
    texts = matching.operation, matching.group, matching.group_ranks
    kind = label(*texts, matching.bytes, matching.kernel, is_beside)
    fastest = np.full(int(kind.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(fastest, kind, duration)
    repeated = np.bincount(kind)[kind] >= REPEATS
    total = int(duration[repeated].sum())
    if not total or total < MIN_SHARE_OF_CALLS * int(duration.sum()):
        return None
    return 1 - int(fastest[kind][repeated].sum()) / total
