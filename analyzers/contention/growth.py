"""Why a side takes longer in one run than in another: contention, clocks, or different work.

By like ops, a rank and step: what ops lost beside the other side (more than they lost in the first run) is contention;
what like ops take longer alone is the clocks'; what one run has more ops of, or alone has, is different work:

    before  3 × 100 alone                              300
    after   1 × 120 alone, 2 × 150 beside, 1 × 50 new  470: 170 more = 60 contention + 60 clocks + 50 other work
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.common.records import Record
from analyzers.contention.alone import alone
from analyzers.contention.timings import Timings, join, over_all_ranks


class Growth(Record, frozen=True):
    """How much longer a side's ops take than in the first run, ns a rank and step, and to what that is due.

    The three parts, and `unknown_ns` of ops that ran alone in neither run, sum to `growth_ns`.
    """

    growth_ns: int
    contention_ns: int
    clocks_ns: int
    work_ns: int
    unknown_ns: int


def growth(before: Sequence[Timings], after: Sequence[Timings], *, shares: int) -> Growth:
    """Hold a side's ops against those of the first run.

    Parameters
    ----------
    before, after : of the parts of each run that are compared.
    shares : how many ranks' steps they are of, in each run.
    """
    both, count = join([*before, *after]), sum(one.kind.size for one in before)
    old, new = (over_all_ranks(both.only(rows)) for rows in (slice(count), slice(count, None)))
    kinds = len(both.kinds)
    then, now = alone(old).taken_ns, alone(new).taken_ns
    now = np.where(np.isnan(now), then, now)
    then = np.where(np.isnan(then), now, then)
    many = [np.bincount(one.kind, minlength=kinds) for one in (old, new)]
    total = [np.bincount(one.kind, weights=one.taken_ns, minlength=kinds) for one in (old, new)]
    in_both, known = (many[0] > 0) & (many[1] > 0), ~np.isnan(now)
    usual = np.divide(total[0], many[0], out=np.zeros(kinds), where=many[0] > 0)
    work = np.where(in_both, (many[1] - many[0]) * np.where(known, then, usual), total[1] - total[0])
    lost = [
        np.bincount(one.kind, weights=np.where(one.beside_ns > 0, one.taken_ns - at[one.kind], 0.0), minlength=kinds)
        for one, at in ((old, then), (new, now))
    ]
    grown = total[1] - total[0]
    contention = np.where(in_both & known, np.nan_to_num(lost[1] - lost[0]), 0.0)
    unknown = np.where(in_both & ~known, grown - work, 0.0)
    clocks = grown - work - contention - unknown
    parts = [round(float(one.sum()) / max(shares, 1)) for one in (contention, clocks, work, unknown)]
    return Growth(sum(parts), *parts)
