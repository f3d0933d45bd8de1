"""How long units take alone, and how much slower they go on beside others, by like ones of the capture.

A unit that took d, a share c of it beside others, did d (1 − α c) of work. Where like ones ran alone, their time is
that work, and α follows; a unit that ran alone has the α of its like. Where nothing tells, α lies between 0 (others
don't slow it) and 0.5 (two beside each other take as long as one after the other: nothing is gained), and most likely
is the median of those known, or the 0.16 of computation that takes 18.9 % longer beside communication (published mean,
arXiv 2507.03114).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.intervals import overlap_by_group, union
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.contention.alone import ALONE, alone
from analyzers.contention.timings import join, over_all_ranks, timings_of_streams
from analyzers.ordering.ordering import Ordering
from analyzers.replay.tasks import Units
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace

NO_GAIN = 0.5
LIKELY = 0.16
MOST = 0.9
LIKE = 0.2  # times alone that differ by more are not of like units: of collectives whose sizes nobody knows
LITTLE = 0.05  # of a unit's time beside others: too little to tell how slow it was there


@dataclass(frozen=True)
class Pace:
    """Per unit: the share of its pace that it loses beside others, and what it takes alone at that.

    least_slower, likely_slower, most_slower : as far as it is known. beside : share of its time beside others in the
    capture. known : whether the capture tells.
    """

    duration_ns: Floats
    beside: Floats
    least_slower: Floats
    likely_slower: Floats
    most_slower: Floats
    known: Mask

    def alone_ns(self, slower: Floats) -> Floats:
        """What each takes alone, ns, if it loses so much beside others."""
        return self.duration_ns * (1 - slower * self.beside)


def pace(trace: Trace, units: Units) -> Pace:
    """Find the pace of each unit."""
    own = over_all_ranks(join([timings_of_streams(trace)]))
    duration = units.transfer_ns.astype(float)
    share = np.clip(_beside(units) / np.maximum(duration, 1), 0.0, 1.0)
    kind, alone_ns = own.kind[units.op], alone(own).taken_ns[own.kind[units.op]]
    alone_ns = np.where(_scatter(kind, np.where(share <= ALONE, duration, np.nan)) <= LIKE, alone_ns, np.nan)
    whole = _is_graph(trace, units)
    if whole.any():
        kind = np.where(whole, len(own.kinds) + ints(trace.ops, "graph")[units.op], kind)
        near = pd.Series(np.where(share <= ALONE, duration, np.nan)).groupby(kind).transform("median").to_numpy()
        alone_ns = np.where(whole, near, alone_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        slower = np.where(share >= LITTLE, np.clip((1 - alone_ns / duration) / share, 0, MOST), np.nan)
    of_kind = pd.Series(slower).groupby(kind).transform("median").to_numpy()
    slower = np.where(np.isnan(slower), of_kind, slower)
    tells = ~np.isnan(slower)
    likely = float(np.median(slower[tells])) if tells.any() else LIKELY
    least, guess, most = (np.where(tells, slower, other) for other in (0.0, likely, NO_GAIN))
    return Pace(duration, share, least, guess, most, tells)


def _scatter(kind: Ints, taken: Floats) -> Floats:
    """By how much the times alone of each unit's kind differ, of their median: from their first tenth to their last."""
    of_kind = pd.Series(taken).groupby(kind)
    low, middle, high = (of_kind.quantile(part).reindex(kind).to_numpy() for part in (0.1, 0.5, 0.9))
    return (high - low) / middle


def _is_graph(trace: Trace, units: Units) -> Mask:
    """Units that are several nodes of a graph."""
    same = ints(trace.ops, "graph")[units.op] >= 0
    count = np.bincount(trace.once(Ordering).lanes.unit_of_op, minlength=units.op.size)
    return same & (count > 1)


def _beside(units: Units) -> Ints:
    """For how long of each unit's work others were on its GPU, ns; of a collective, on that of any of its ranks."""
    began, count = units.end_ns - units.transfer_ns.astype(np.int64), units.op.size
    pieces = [np.empty((3, 0), np.int64)]
    for on_device in rows_by_key(units.rank, units.device).values():
        lane = units.lane[on_device]
        for (one,), rows in rows_by_key(lane).items():
            mine, others = on_device[rows], on_device[lane != one]
            elsewhere = union(units.start_ns[others], units.end_ns[others])
            first = np.searchsorted(elsewhere.ends, began[mine], side="right")
            at, which = runs(first, np.searchsorted(elsewhere.starts, units.end_ns[mine]) - first)
            low = np.maximum(elsewhere.starts[at], began[mine[which]])
            pieces.append(np.stack([low, np.minimum(elsewhere.ends[at], units.end_ns[mine[which]]), mine[which]]))
    low, high, unit = np.concatenate(pieces, axis=1)
    team = np.where(units.collective >= 0, units.collective, units.collective.max(initial=-1) + 1 + np.arange(count))
    keep, none = high > low, np.empty(0, np.int64)
    covered = overlap_by_group(
        (low[keep], high[keep], team[unit[keep]]), (none, none, none), int(team.max(initial=-1)) + 1
    )
    return covered.a[team]
