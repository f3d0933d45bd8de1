"""What blocked a side, piece by piece in time, and the gaps that this makes: each with the links that were recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, union
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.free_to_run import PEER_WAIT
from analyzers.causes.pieces import GapPieces
from analyzers.causes.table import CAUSES, TABLE
from analyzers.common.records import Record
from analyzers.trace.tables import Trace
from traceviz.timelines.marks import HELD, ROLE, Marks, join, make
from traceviz.timelines.rows import Band, rows_of_ops
from traceviz.timelines.texts import Texts

LONG_WAIT = 8  # a wait for a peer is long in a piece if so many of it are longer than that
MOST_GAPS = 400  # to jump to
_HELD = [ROLE[role] for role in HELD]


class Gap(Record, frozen=True):
    """A gap in which a side was blocked: its row, from when to when, how long the other side ran alone, and links.

    links : (kind, from, row, to, row), as the capture records them.
    decides : whether it is on the rank that decides the verdict: the links of others are drawn where one asks for them.
    """

    row: int
    low_ns: int
    high_ns: int
    alone_ns: int
    links: tuple[tuple[str, int, int, int, int], ...]
    decides: bool = False

    def moved(self, rows: Ints, zero_ns: int = 0) -> Gap:
        """The same on other rows, each by its old number, and with times that count from `zero_ns`."""
        links = tuple(
            (kind, start - zero_ns, int(rows[from_row]), end - zero_ns, int(rows[to_row]))
            for kind, start, from_row, end, to_row in self.links
        )
        row = int(rows[self.row])
        return replace(self, row=row, low_ns=self.low_ns - zero_ns, high_ns=self.high_ns - zero_ns, links=links)


def blocked_marks(band: Band, found: GapPieces, texts: Texts) -> Marks:
    """What blocked a side, piece by piece, each with its evidence."""
    cause = np.array([texts.number(one.label) for one in TABLE], np.int64)[found.cause]
    early = np.array([ROLE.get(f"early-{one}", held) for one, held in zip(CAUSES, _HELD, strict=True)], np.int64)
    role = np.where(found.early, early[found.cause], np.array(_HELD)[found.cause])
    words = np.append(np.array([texts.number(text) for text in found.evidence], np.int64), -1)[found.words]
    meanings = np.array([texts.number(one.meaning) for one in TABLE], np.int64)[found.cause]
    row = np.array([band.row(f"missed-{side}") if np.any(found.side == k) else -1 for k, side in enumerate("ab")])
    extra = np.where(words < 0, meanings, words)
    made = []
    for side in range(2):
        waits = (found.side == side) & (found.cause == TABLE.index(PEER_WAIT))
        other = np.flatnonzero((found.side == side) & ~waits)
        piece, low, high, longest = around(
            found.start_ns[other], found.end_ns[other], union(found.start_ns[waits], found.end_ns[waits])
        )
        of = np.append(other[piece], np.flatnonzero(waits))
        low, high = np.append(low, found.start_ns[waits]), np.append(high, found.end_ns[waits])
        whole = np.where(np.append(longest, waits[waits]), found.alone_ns[of], 0)
        made.append(make(row[side], role[of], low, high, name=cause[of], extra=extra[of], whole=whole))
    return join(made)


def around(start: Ints, end: Ints, waits: Union) -> tuple[Ints, Ints, Ints, Mask]:
    """Cut pieces where a collective waited for a peer for long: that is a piece of its own, and would hide them.

    >>> waits = Union(np.array([30, 80]), np.array([60, 81]))
    >>> piece, low, high, longest = around(np.array([0]), np.array([100]), waits)
    >>> low.tolist(), high.tolist(), longest.tolist()  # 80 to 81 is short
    ([0, 60], [30, 100], [False, True])

    Returns
    -------
    Of what is left: of which piece it is, from when to when, and whether it is the longest of its piece.
    """
    first = np.searchsorted(waits.ends, start, side="right")
    inside = np.maximum(np.searchsorted(waits.starts, end, side="left") - first, 0)
    piece = np.repeat(np.arange(start.size), inside + 1)
    nth = np.arange(piece.size) - np.repeat(np.cumsum(inside + 1) - inside - 1, inside + 1)
    after = first[piece] + nth  # the wait that ends this part
    starts, ends = (np.append(each, 0) for each in waits)
    is_last = nth == inside[piece]
    low = np.where(nth == 0, start[piece], ends[after - 1])
    high = np.where(is_last, end[piece], starts[after])
    is_short = ~is_last & (LONG_WAIT * (ends - starts)[after] < (end - start)[piece])
    heads = np.flatnonzero(np.append(True, ~is_short)[:-1])
    lasts = np.append(heads, piece.size)[1:] - 1
    piece, low, high = piece[heads], low[heads], high[lasts]
    left = np.flatnonzero(high > low)
    piece, low, high = piece[left], low[left], high[left]
    longest = np.zeros(piece.size, bool)
    order = np.lexsort((low - high, piece))
    longest[order[np.diff(piece[order], prepend=-1) > 0]] = True
    return piece, low, high, longest


def gaps_of(trace: Trace, band: Band, found: GapPieces) -> list[Gap]:
    """The gaps that have words, the longest first, each with the links that the capture records."""
    ops = sorted({op for links in found.links.values() for one in links for op in (one.from_op, one.to_op)} - {-1})
    rows = rows_of_ops(trace.whole or trace, [band], np.array(ops, np.int64))
    row_of = dict(zip(ops, rows.tolist(), strict=True))
    pieces, made = np.flatnonzero(np.isin(found.gap, list(found.links))), []
    for (gap,), own in rows_by_key(found.gap[pieces]).items():
        of_gap = pieces[own]
        links = []
        for one in found.links[gap]:
            from_row = row_of[one.from_op] if one.from_op >= 0 else band.threads.get(one.from_thread, -1)
            to_row = row_of[one.to_op] if one.to_op >= 0 else band.threads.get(one.to_thread, -1)
            if min(from_row, to_row) >= 0:
                links.append((one.kind, one.from_ns, from_row, one.to_ns, to_row))
        low, high = int(found.start_ns[of_gap].min()), int(found.end_ns[of_gap].max())
        row = band.row(f"missed-{'ab'[found.side[of_gap[0]]]}")
        made.append(Gap(row, low, high, int(found.alone_ns[of_gap].sum()), tuple(links)))
    return sorted(made, key=lambda one: -one.alone_ns)


def longest_gaps(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """The longest gaps: first those of the rank that decides, then others, at least as many as these leave room for."""
    longest = sorted(gaps, key=lambda one: -one.alone_ns)
    others = [one for one in longest if not one.decides][: MOST_GAPS // 2]
    return (*[one for one in longest if one.decides][: MOST_GAPS - len(others)], *others)
