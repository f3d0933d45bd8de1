"""The marks of one band: ranges, calls, sync points, ops, overlap, races and what blocked a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, intersect, subtract, union
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.free_to_run import PEER_WAIT
from analyzers.causes.pieces import GapPieces
from analyzers.causes.table import CAUSES, TABLE
from analyzers.common.records import Record
from analyzers.syncs.crossings import Crossing
from analyzers.syncs.points import SyncPoint
from analyzers.trace.columns import codes, ints
from analyzers.trace.narrow import in_whole
from analyzers.trace.regions import launches
from analyzers.trace.tables import Trace
from traceviz.output.quantities import duration
from traceviz.timelines.marks import HELD, NEVER, ROLE, Marks, join, make
from traceviz.timelines.ranges import Projected, ThreadRanges
from traceviz.timelines.rows import Band
from traceviz.timelines.texts import Texts

_HELD = [ROLE[role] for role in HELD]
LONG_WAIT = 8  # a wait for a peer is long in a piece if so many of it are longer than that


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


def gap_on_rows(gap: Gap, rows: Mapping[int, int]) -> Gap:
    """The same gap with new numbers for its rows."""
    links = tuple((kind, low, rows[start], high, rows[end]) for kind, low, start, high, end in gap.links)
    return replace(gap, row=rows[gap.row], links=links)


# What tells one missing wait from another in words.
NAMED_IN_MESSAGE = ("what", "stream", "other", "exact", "name", "range", "behind_name", "behind_range")


def ops(trace: Trace, band: Band, side: Ints, texts: Texts) -> list[Marks]:
    """The ops of a band; of a collective that waited the wait and the transfer apart."""
    table, rows = trace.ops, band.ops
    start, end, wait, stream, context = (
        ints(table, name)[rows] for name in ("start_ns", "end_ns", "wait_ns", "stream", "context")
    )
    row = np.zeros(rows.size, np.int64)
    for (where, which), number in band.streams.items():
        row[(context == where) & (stream == which)] = number
    thread, launched, _ = launches(trace)
    known = ints(table, "launch")[rows] >= 0
    caller = np.full(rows.size, -1, np.int64)
    for which, number in band.threads.items():
        caller[known & (thread[rows] == which)] = number
    code, names = codes(table, "name")
    more = {
        "name": texts.numbers(code[rows], names),
        "launch": np.where(known, launched[rows], NEVER),
        "launch_row": caller,
        "bytes": ints(table, "bytes")[rows],
        "wait": wait,
        "whole": np.where(wait > 0, end - start, 0),
        "after_row": rows,  # for now: see `picture`
    }
    run = make(row, side[rows] * 2, start + wait, end, **more)
    waits = np.flatnonzero(wait > 0)
    waiting = make(row, side[rows] * 2 + 1, start, start + wait, **more).take(waits)
    return [run, waiting]


def calls(trace: Trace, band: Band, side: Ints, texts: Texts) -> Marks:
    """The calls that launched a band's ops, on their threads."""
    launch = ints(trace.ops, "launch")[band.ops]
    rows, first = np.unique(launch, return_index=True)
    rows, first = rows[rows >= 0], band.ops[first[rows >= 0]]
    thread, row = ints(trace.api, "thread")[rows], np.zeros(rows.size, np.int64)
    for which, number in band.threads.items():
        row[thread == which] = number
    api_code, api_names = codes(trace.api, "name")
    code, names = codes(trace.ops, "name")
    start, end = ints(trace.api, "start_ns")[rows], ints(trace.api, "end_ns")[rows]
    name, extra = texts.numbers(api_code[rows], api_names), texts.numbers(code[first], names)
    return make(row, ROLE["launch-a"] + side[first], start, end, name=name, extra=extra)


def ranges(
    trace: Trace, band: Band, found: dict[tuple[int, int], ThreadRanges], span: tuple[int, int], texts: Texts
) -> list[Marks]:
    """The user's ranges on a band's threads, cut where the run begins and ends."""
    code, names = codes(trace.ranges, "name")
    low, high = span
    marks = []
    for thread, numbers in band.ranges.items():
        of_thread = found[band.process, thread]
        start, end = (np.clip(ints(trace.ranges, name)[of_thread.rows], low, high) for name in ("start_ns", "end_ns"))
        row = np.array(numbers, np.int64)[of_thread.depth]
        marks.append(
            make(row, ROLE["range-a"] + of_thread.side, start, end, name=texts.numbers(code[of_thread.rows], names))
        )
    return marks


def syncs(found: Sequence[SyncPoint], band: Band, texts: Texts, last_launch_ns: int) -> Marks:
    """Where the host of a band's process was blocked, on its threads; `extra` says for what and what it cost."""
    points = [one for one in found if one.device in (band.device, -1)]
    extra = []
    for one in points:
        why = one.chain or one.pattern or ("" if one.hidden else "written as such")
        what = f"{one.kind} sync" + (f", from {why}" if why else "") + (f", in {one.range}" if one.range else "")
        cost = "GPU idle: can't tell" if one.unrecorded_ns else f"GPU idle {duration(one.gpu_idle_ns)}"
        cost += f", then {duration(one.after_ns)} to the next launch" if one.after_ns else ""
        extra.append(texts.number(f"{what}; {cost}" + (f"; it delayed {one.delayed}" if one.delayed else "")))
    start = np.array([one.start_ns for one in points], np.int64)
    length = np.array([one.duration_ns for one in points], np.int64)
    row = np.array([band.threads[one.thread] for one in points], np.int64)
    name = np.array([texts.number(one.op or one.api) for one in points], np.int64)
    # What blocks the host once all is launched delays nothing: a profiler that ends synchronizes the device.
    is_end = np.array([one.kind == "device" and one.start_ns >= last_launch_ns for one in points], dtype=bool)
    role = np.where(is_end, ROLE["sync-end"], ROLE["sync"])
    return make(row, role, start, start + length, name=name, extra=np.array(extra, np.int64))


def races(trace: Trace, missing: pd.DataFrame, band: Band, texts: Texts) -> Marks:
    """Ops that a stream took without waiting for what another had in flight; `after` says which."""
    here = in_whole(trace, np.arange(len(trace.ops)))
    found = missing[missing["process"] == band.process]
    op = here[found["op"].to_numpy(np.int64)]
    of_band = np.flatnonzero((op >= 0) & np.isin(op, band.ops))
    found, op = found.iloc[of_band], op[of_band]
    whole = (trace.whole or trace).ops
    behind = found["behind"].to_numpy(np.int64)
    after, after_row = np.full(op.size, NEVER), np.full(op.size, -1, np.int64)
    row = np.zeros(op.size, np.int64)
    for (context, stream), number in band.streams.items():
        row[(ints(trace.ops, "context")[op] == context) & (ints(trace.ops, "stream")[op] == stream)] = number
        on_stream = (ints(whole, "context")[behind] == context) & (ints(whole, "stream")[behind] == stream)
        after_row[on_stream & (behind >= 0)] = number
    after[after_row >= 0] = ints(whole, "end_ns")[behind[after_row >= 0]]
    code, names = codes(trace.ops, "name")
    return make(
        row,
        ROLE["race"],
        ints(trace.ops, "start_ns")[op],
        ints(trace.ops, "end_ns")[op],
        name=texts.numbers(code[op], names),
        extra=_messages(found, texts),
        after=after,
        after_row=after_row,
    )


def _messages(found: pd.DataFrame, texts: Texts) -> Ints:
    """The number of each crossing's text; the same pair of ops is put into words once."""
    if not len(found):
        return np.empty(0, np.int64)
    kind = found.groupby(
        [name for name in found.columns if name in NAMED_IN_MESSAGE], sort=False, observed=True
    ).ngroup()
    heads = np.unique(kind.to_numpy(np.int64), return_index=True)[1]
    numbers = [
        texts.number(f"Missing wait: {Crossing(*row).message}.") for row in found.iloc[heads].itertuples(index=False)
    ]
    return np.array(numbers, np.int64)[kind.to_numpy(np.int64)]


def overlap(trace: Trace, band: Band, side: Ints) -> list[Marks]:
    """What lies in A and in B: with waits left out, and the rest, where one of them only waited."""
    starts, ends, waits = (ints(trace.ops, name)[band.ops] for name in ("start_ns", "end_ns", "wait_ns"))
    sides = [side[band.ops] == which for which in (0, 1)]
    plain = intersect(*(union(starts[side_ops], ends[side_ops]) for side_ops in sides))
    real = intersect(*(union((starts + waits)[side_ops], ends[side_ops]) for side_ops in sides))
    row = band.row("overlap")
    found: list[tuple[str, Union]] = [("overlap", real), ("overlap-wait", subtract(plain, real))]
    return [make(row, ROLE[role], some.starts, some.ends, name=-1) for role, some in found]


def missed(band: Band, found: GapPieces, texts: Texts) -> Marks:
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


def gaps(trace: Trace, band: Band, found: GapPieces) -> list[Gap]:
    """The gaps that have words, the longest first, each with the links that the capture records."""
    ops = (trace.whole or trace).ops
    row_of = {
        op: band.streams.get((int(ints(ops, "context")[op]), int(ints(ops, "stream")[op])), -1)
        for links in found.links.values()
        for one in links
        for op in (one.from_op, one.to_op)
        if op >= 0
    }
    pieces, made = np.flatnonzero(np.isin(found.gap, list(found.links))), []
    for (gap,), own in rows_by_key(found.gap[pieces]).items():
        rows = pieces[own]
        row = band.row(f"missed-{'ab'[found.side[rows[0]]]}")
        links = []
        for one in found.links[gap]:
            from_row = row_of[one.from_op] if one.from_op >= 0 else band.threads.get(one.from_thread, -1)
            to_row = row_of[one.to_op] if one.to_op >= 0 else band.threads.get(one.to_thread, -1)
            if min(from_row, to_row) >= 0:
                links.append((one.kind, one.from_ns, from_row, one.to_ns, to_row))
        low, high = int(found.start_ns[rows].min()), int(found.end_ns[rows].max())
        made.append(Gap(row, low, high, int(found.alone_ns[rows].sum()), tuple(links)))
    return sorted(made, key=lambda one: -one.alone_ns)


def projected(trace: Trace, band: Band, found: Projected, texts: Texts) -> Marks:
    """The user's ranges on the GPU, from the first to the last op that each launched."""
    code, names = codes(trace.ranges, "name")
    rows = np.array([row.number for row in band.rows if row.kind == "projected"], np.int64)
    name = texts.numbers(code[found.rows], names)
    return make(rows[found.level], ROLE["range-a"] + found.side, found.start_ns, found.end_ns, name=name)
