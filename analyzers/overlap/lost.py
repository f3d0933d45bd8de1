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
    process = ints_at(whole.api, "process", calls)
    of_rank = np.array([one.rank for one in whole.processes], np.int64)[process]
    found = []
    for rank in ranks:
        own = of_rank == rank.rank
        found.append(_with(trace, rank, picked, [one[own] for one in may_be], step[own]) if own.any() else rank)
    return found + _of_nothing_else(trace, ranks, of_rank)


def _with(
    trace: Trace, rank: RankOverlap, picked: tuple[Mask, Mask], may_be: Sequence[Mask], step: Ints
) -> RankOverlap:
    longest = [_longest(trace, rank, side) for side in picked]
    each = np.maximum(*(np.where(may, one, 0) for may, one in zip(may_be, longest, strict=True)))
    blind = not all(longest[side] for side in (0, 1) if may_be[side].any())
    by_step: tuple[int, ...] = ()
    without = 0
    if rank.steps is not None:
        of_step = {number: int(each[rows].sum()) for (number,), rows in rows_by_key(step).items()}
        by_step = tuple(of_step.pop(number, 0) for number in rank.steps.numbers.tolist())
        without = len(of_step)
    return replace(rank, lost=LostWork(step.size, int(each.sum()), by_step, without, blind))


def _longest(trace: Trace, rank: RankOverlap, side: Mask) -> int:
    rows = np.flatnonzero(side)
    here = (ints_at(trace.ops, "rank", rows) == rank.rank) & (ints_at(trace.ops, "device", rows) == rank.device)
    rows = rows[here]
    return int((ints_at(trace.ops, "end_ns", rows) - ints_at(trace.ops, "start_ns", rows)).max(initial=0))


def _of_nothing_else(trace: Trace, ranks: Sequence[RankOverlap], of_rank: Ints) -> list[RankOverlap]:
    """Ranks that have work, but no other of either side than what is lost."""
    known = {one.rank for one in ranks}
    nothing = Side(0, 0, 0, ())
    return [
        RankOverlap(
            rank, device, nothing, nothing, 0, 0, lost=LostWork(int(np.count_nonzero(of_rank == rank)), blind=True)
        )
        for rank, device in devices_of(trace)
        if rank not in known and (of_rank == rank).any()
    ]
