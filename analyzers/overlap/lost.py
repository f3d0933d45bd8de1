"""What launches without an op leave open of a pair's figures, on each rank.

Such work ran, and nobody knows when. What may be of a side is taken to last, launch by launch, as long as the longest
op of that side on its rank: it then lies between all alone and all beside the other side. A rank of which a side has
nothing else tells nothing.

DP runs for 100 µs, all of it beside MP, and 3 launches in its range have no op; its longest op takes 20 µs. Between
100 / 160 = 62.5 % and 100 % of it overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.overlap.measure import LostWork, RankOverlap, Side
from analyzers.select.absence import may_pick
from analyzers.select.language import Selector
from analyzers.trace.columns import ints_at
from analyzers.trace.ranks import devices_of
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import lost_in


def with_lost(
    trace: Trace,
    ranks: Sequence[RankOverlap],
    picked: tuple[Mask, Mask],
    selectors: tuple[Selector, Selector],
    of_steps: Collection[int] | None = None,
) -> list[RankOverlap]:
    """The ranks of a part, each with what its launches without an op leave open.

    Parameters
    ----------
    picked : ops of each side, of the part. of_steps : numbers of the steps that are looked at; None where it is not
        some steps.
    """
    whole = trace.whole or trace
    calls, step = lost_in(trace, of_steps)
    may_be = [may_pick(whole, one, calls) for one in selectors]
    kept = may_be[0] | may_be[1]
    if not kept.any():
        return list(ranks)
    calls, step, may_be = calls[kept], step[kept], [one[kept] for one in may_be]
    of_rank = np.array([one.rank for one in whole.processes], np.int64)[ints_at(whole.api, "process", calls)]
    found = [
        _with(trace, rank, picked, [may[of_rank == rank.rank] for may in may_be], step[of_rank == rank.rank])
        for rank in ranks
    ]
    known, nothing = {one.rank for one in ranks}, Side(0, 0, 0, ())
    for rank, device in devices_of(trace):  # those that have work, but no other of either side than what is lost
        if rank not in known and (of_rank == rank).any():
            lost = LostWork(int(np.count_nonzero(of_rank == rank)), blind=True)
            found.append(RankOverlap(rank, device, nothing, nothing, 0, 0, lost=lost))
    return found


def _with(
    trace: Trace, rank: RankOverlap, picked: tuple[Mask, Mask], may_be: Sequence[Mask], step: Ints
) -> RankOverlap:
    if not step.size:
        return rank
    each, blind = np.zeros(step.size, np.int64), False
    here = (trace.ops.rank == rank.rank) & (trace.ops.device == rank.device)
    for side, may in zip(picked, may_be, strict=True):
        ops = np.flatnonzero(side & here)
        longest = int((trace.ops.end_ns[ops] - trace.ops.start_ns[ops]).max(initial=0))
        each = np.maximum(each, np.where(may, longest, 0))
        blind |= bool(may.any()) and not longest
    by_step: tuple[int, ...] = ()
    without = 0
    if rank.steps is not None:
        of_step = {number: int(each[rows].sum()) for (number,), rows in rows_by_key(step).items()}
        by_step = tuple(of_step.pop(number, 0) for number in rank.steps.numbers.tolist())
        without = len(of_step)
    return replace(rank, lost=LostWork(step.size, int(each.sum()), by_step, without, blind))
