"""Why a side takes longer in one run than in another: contention, clocks, or different work.

By matching ops, a rank and step: what ops lost while overlapped with the other side (more than in the first run) is
contention; what matching ops take longer alone is the clocks'; what one run has more ops of, or alone has, is different
work. Ops match in time alone only behind the same op (`analyzers.contention.timings`); the same function on as much is
the same work wherever it stands, so that an order that changed is no other work:

    before  3 × 100 alone                              300
    after   1 × 120 alone, 2 × 150 beside, 1 × 50 new  470: 170 more = 60 contention + 60 clocks + 50 other work
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd

from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.records import Record
from analyzers.contention.alone import alone
from analyzers.contention.timings import Timings, join, numbered, over_all_ranks
from analyzers.trace.columns import ints

CLOCKS_AT_MOST = 0.25  # of the time alone: what differs by more between two runs is not the clocks'
_WORK = ("kind", "copy", "name", "group", "bytes", "sizes", "grid", "block")


class Growth(Record, frozen=True):
    """How much longer a side's ops take than in the first run, ns a rank and step, and to what that is due.

    The three parts, and `unknown_ns` of ops that ran alone in neither run, sum to `growth_ns`. `wait_ns` stands beside
    them: how much longer the side waits for late ranks.
    """

    growth_ns: int
    contention_ns: int
    clocks_ns: int
    work_ns: int
    unknown_ns: int
    wait_ns: int = 0


def growth(before: Sequence[Timings], after: Sequence[Timings], *, shares: int, wait_ns: int = 0) -> Growth:
    """Hold a side's ops against those of the first run.

    Parameters
    ----------
    before, after : of the parts of each run that are compared.
    shares : how many ranks' steps they are of, in each run.
    wait_ns : how much longer the side waits for late ranks, in all.
    """
    both, count = join([*before, *after]), sum(one.kind.size for one in before)
    old, new = (over_all_ranks(both.only(rows)) for rows in (slice(count), slice(count, None)))
    then, now = alone(old).taken_ns, alone(new).taken_ns
    now, then = np.where(np.isnan(now), then, now), np.where(np.isnan(then), now, then)
    works = same_work(both.kinds)
    size = int(works.max(initial=-1)) + 1
    runs = [_by_work(one, at, works, size) for one, at in ((old, then), (new, now))]
    grown = runs[1].total - runs[0].total
    in_both = (runs[0].count > 0) & (runs[1].count > 0)
    work = np.where(in_both, (runs[1].count - runs[0].count) * runs[0].usual, grown)
    contention = np.where(in_both, runs[1].lost - runs[0].lost, 0.0)
    rest = grown - work - contention
    is_known = ~(runs[0].has_unknown | runs[1].has_unknown)
    is_known &= np.abs(rest) <= CLOCKS_AT_MOST * np.maximum(runs[0].each, runs[1].each)
    rest, contention = np.where(is_known, rest, rest + contention), np.where(is_known, contention, 0.0)
    clocks, unknown = np.where(is_known, rest, 0.0), np.where(is_known, 0.0, rest)
    parts = (contention, clocks, work, unknown)
    by_contention, by_clocks, by_work, not_known = (round(float(one.sum()) / max(shares, 1)) for one in parts)
    whole = by_contention + by_clocks + by_work + not_known
    return Growth(whole, by_contention, by_clocks, by_work, not_known, round(wait_ns / max(shares, 1)))


class _ByWork(msgspec.Struct, frozen=True):
    """A run's ops by what they do: how many, how long in all, alone in all and on average, and lost, ns.

    has_unknown : whether some of them have no like one that ran alone.
    """

    count: Floats
    total: Floats
    each: Floats
    usual: Floats
    lost: Floats
    has_unknown: Mask


def _by_work(one: Timings, alone_ns: Floats, works: Ints, size: int) -> _ByWork:
    """`alone_ns` is of each kind, NaN where unknown; `works` says which kinds do the same."""
    work, at = works[one.kind], alone_ns[one.kind]
    is_known = ~np.isnan(at)
    lost = np.where(is_known & (one.beside_ns > 0), one.taken_ns - at, 0.0)

    def of_each(values: Floats) -> Floats:
        return np.asarray(np.bincount(work, weights=values, minlength=size), float)

    count, each = of_each(np.ones(work.size)), of_each(np.where(is_known, at, one.taken_ns))
    usual = np.divide(each, count, out=np.zeros(size), where=count > 0)
    return _ByWork(count, of_each(one.taken_ns.astype(float)), each, usual, of_each(lost), of_each(~is_known * 1.0) > 0)


def same_work(kinds: pd.DataFrame) -> Ints:
    """Which kinds of ops do the same work, as numbers: the same function on as much, whatever ran before or beside it.

    A collective moves the same bytes among the same ranks, with however many channels.
    """
    is_call = (kinds["group"] != "").to_numpy(bool)
    launch = {column: np.where(is_call, -1, ints(kinds, column)) for column in ("grid", "block")}
    return numbered(kinds.assign(**launch), _WORK)
