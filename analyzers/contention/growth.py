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

from analyzers.arrays.types import Floats, Ints
from analyzers.common.records import Record
from analyzers.contention.alone import alone
from analyzers.contention.timings import Kinds, Timings, join, over_all_ranks

CLOCKS_AT_MOST = 0.25  # of the time alone: what differs by more between two runs is not the clocks'
_NOT_WORK = ("previous", "registers", "shared_bytes", "crowded")


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
    before_by, after_by = (_by_work(one, at, works) for one, at in ((old, then), (new, now)))
    grown = after_by.total - before_by.total
    in_both = (before_by.count > 0) & (after_by.count > 0)
    usual = before_by.alone / np.maximum(before_by.count, 1)
    work = np.where(in_both, (after_by.count - before_by.count) * usual, grown)
    lost = np.where(in_both, after_by.lost - before_by.lost, 0.0)
    rest = grown - work - lost
    is_known = (before_by.unknown == 0) & (after_by.unknown == 0)
    is_known &= np.abs(rest) <= CLOCKS_AT_MOST * np.maximum(before_by.alone, after_by.alone)
    of_all = (np.where(is_known, lost, 0.0), np.where(is_known, rest, 0.0), work, np.where(is_known, 0.0, rest + lost))
    by_contention, by_clocks, by_work, unknown = (round(float(one.sum()) / max(shares, 1)) for one in of_all)
    whole = by_contention + by_clocks + by_work + unknown
    return Growth(whole, by_contention, by_clocks, by_work, unknown, round(wait_ns / max(shares, 1)))


class _ByWork(msgspec.Struct, frozen=True):
    """A run's ops by what they do: how many, how long in all, alone in all, what they lost, ns, and how many of them
    have no like one that ran alone.
    """

    count: Floats
    total: Floats
    alone: Floats
    lost: Floats
    unknown: Floats


def _by_work(one: Timings, alone_ns: Floats, works: Ints) -> _ByWork:
    """`alone_ns` is of each kind, NaN where unknown; `works` says which kinds do the same."""
    at = alone_ns[one.kind]
    is_known = ~np.isnan(at)
    lost = np.where(is_known & (one.beside_ns > 0), one.taken_ns - at, 0.0)
    alone = np.where(is_known, at, one.taken_ns)
    work, size = works[one.kind], int(works.max(initial=-1)) + 1
    summed = (np.ones(at.size), one.taken_ns, alone, lost, ~is_known)
    return _ByWork(*(np.bincount(work, values, size).astype(float) for values in summed))


def same_work(kinds: Kinds) -> Ints:
    """Which kinds of ops do the same work, as numbers: the same function on as much, whatever ran before or beside it.

    A collective moves the same bytes among the same ranks, with however many channels.
    """
    is_call = kinds.group.matching(bool)
    launch = {column: np.where(is_call, -1, getattr(kinds, column)) for column in ("grid", "block")}
    return kinds.having(**launch).numbered(*_NOT_WORK)
