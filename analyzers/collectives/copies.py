"""Copies between GPUs by copy engines: symmetric memory and async tensor parallelism gather and scatter by them.

A copy waits for nobody while it runs. Ranks meet at barrier kernels instead, and what lies between two barriers is one
*exchange*: ranks that copy 3 × 64 MiB each after their barrier number 5 take part in one. Barriers are matched over
ranks by their order, as collectives without names are. A barrier ends for all at once, when the last rank has come: on
each rank its duration less the fastest rank's is waiting, whatever the clocks say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.intervals import union
from analyzers.arrays.names import rows_of_codes
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.records import Record
from analyzers.common.wording import count_of, duration, size
from analyzers.matching.match import match
from analyzers.trace.columns import as_int64, ints, ints_at, table
from analyzers.trace.communication import BOOKKEEPING, known
from analyzers.trace.kernels import is_peer_copy
from analyzers.trace.tables import Trace

BY_BARRIER, ALONE = "barriers", "alone"
_CALLS = (
    *("exchange", "rank", "device", "copies", "bytes", "start_ns", "end_ns", "busy_ns", "gb_s"),
    *("barrier_ns", "barrier_wait_ns"),
)


class PeerCopies(Record, frozen=True):
    """Exchanges by copy engines.

    table : a row an exchange, in order of time: index, ranks (how many were seen in it), copies and bytes (of the rank
        with most; bytes -1 where unknown), fastest_ns (least busy time over ranks), fastest_rank, gb_s (10⁹ bytes a
        second over that), matched_by ("barriers", or "alone").
    calls : a row a rank's part: exchange, rank, device, copies, bytes, start_ns, end_ns, busy_ns (length of the copies'
        union), gb_s (bytes over busy_ns), barrier_ns (duration of the barrier before; -1 where there is none),
        barrier_wait_ns (what of it is waiting for the last rank; -1 where its peers are not known).
    """

    table: pd.DataFrame
    calls: pd.DataFrame

    def __len__(self) -> int:
        return len(self.table)


def peer_copies(trace: Trace, kept: Ints | None = None) -> PeerCopies:
    """Measure the exchanges of a trace; with `kept`, those that any of these ops takes part in."""
    ops = trace.ops
    copies = np.flatnonzero(is_peer_copy(trace))
    barriers = np.flatnonzero(_is_barrier(trace))
    start, end = ints(ops, "start_ns"), ints(ops, "end_ns")
    rows = np.concatenate([copies, barriers])
    member = label(*(ints_at(ops, column, rows) for column in ("process", "device")))
    of_copy, of_barrier = np.split(member, [copies.size])
    before = np.full(copies.size, -1, np.int64)  # the barrier that each copy follows, as a row of `barriers`
    of_member = rows_by_key(of_barrier)
    for key, own in rows_by_key(of_copy).items():
        its = of_member.get(key, np.empty(0, np.int64))
        its = its[np.argsort(start[barriers[its]], kind="stable")]
        before[own] = np.append(its, -1)[np.searchsorted(start[barriers[its]], start[copies[own]], side="right") - 1]
    together, fastest = _matched(trace, barriers)
    part = label(of_copy, before)  # a rank's part of an exchange: what it copies behind one barrier
    heads = np.unique(part, return_index=True)[1] if part.size else np.empty(0, np.int64)
    number = np.unique(part, return_inverse=True)[1] if part.size else part
    barrier = before[heads]
    known_as = np.append(together, -1)[barrier]
    exchange = label(known_as, np.where(known_as >= 0, -1, np.arange(heads.size)))
    calls = _parts(trace, copies, number, heads)
    calls["exchange"] = exchange
    calls["barrier_ns"] = np.append(end[barriers] - start[barriers], -1)[barrier]
    calls["barrier_wait_ns"] = np.where(known_as >= 0, calls["barrier_ns"] - np.append(fastest, 0)[barrier], -1)
    if kept is not None:
        inside = np.unique(exchange[number[np.isin(copies, kept)]])
        calls = calls[np.isin(exchange, inside)]
    return _exchanges(calls)


def _is_barrier(trace: Trace) -> Mask:
    code, texts = trace.ops.name.codes, trace.ops.name.texts
    found = [known(text) for text in texts]
    barrier = rows_of_codes(code, [one.kind == BOOKKEEPING and one.operation == "barrier" for one in found])
    return barrier & trace.ops.kind.is_one_of(("kernel",))


def _matched(trace: Trace, barriers: Ints) -> tuple[Ints, Ints]:
    """For each barrier the number of its match over ranks, -1 where there is none or it is unsure, and its fastest."""
    together, fastest = np.full(barriers.size, -1, np.int64), np.zeros(barriers.size, np.int64)
    if not barriers.size:
        return together, fastest
    marked = pd.Categorical.from_codes(np.zeros(barriers.size, np.int64), categories=pd.Index(["barrier"], dtype="str"))
    alone = trace.ops.take(barriers).having(declared=marked)
    matches = match(replace(trace, ops=alone, comms=table("comms"), whole=None, rows=None, matches=None))
    sure = matches.collectives["sure"].to_numpy(bool)
    op, collective = (ints(matches.calls, column) for column in ("op", "collective"))
    took = ints(alone, "end_ns") - ints(alone, "start_ns")
    least = np.full(sure.size, np.iinfo(np.int64).max)
    np.minimum.at(least, collective, took[op])
    together[op] = np.where(sure[collective], collective, -1)
    fastest[op] = least[collective]
    return together, fastest


def _parts(trace: Trace, copies: Ints, number: Ints, heads: Ints) -> pd.DataFrame:
    """A row a rank's part of an exchange; `number` says which part each copy is of."""
    start, end, moved = (ints(trace.ops, column)[copies] for column in ("start_ns", "end_ns", "bytes"))
    count = heads.size
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, number, start)
    np.maximum.at(last, number, end)
    total, least = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(total, number, moved)
    np.minimum.at(least, number, moved)
    busy = _busy(start, end, number, count)
    total = np.where(least >= 0, total, -1)
    return pd.DataFrame(
        {
            "rank": ints_at(trace.ops, "rank", copies[heads]),
            "device": as_int64(trace.ops.device)[copies[heads]],
            "copies": np.bincount(number, minlength=count),
            "bytes": total,
            "start_ns": first,
            "end_ns": last,
            "busy_ns": busy,
            "gb_s": np.where((total >= 0) & (busy > 0), total / np.maximum(busy, 1), np.nan),
        }
    )


def _busy(start: Ints, end: Ints, number: Ints, count: int) -> Ints:
    """Length of the union of each part's copies: parts are laid out one behind the other, and united at once."""
    if not start.size:
        return np.zeros(count, np.int64)
    zero = int(start.min())
    apart = int(end.max()) - zero + 1
    runs = union(start - zero + number * apart, end - zero + number * apart)
    busy = np.zeros(count, np.int64)
    np.add.at(busy, runs.starts // apart, runs.ends - runs.starts)
    return busy


def _exchanges(calls: pd.DataFrame) -> PeerCopies:
    """Number exchanges in order of their first copy, and sum them up."""
    exchange, start = ints(calls, "exchange"), ints(calls, "start_ns")
    distinct, place = np.unique(exchange, return_inverse=True)
    first = np.full(distinct.size, np.iinfo(np.int64).max)
    np.minimum.at(first, place, start)
    new = np.empty(distinct.size, np.int64)
    new[np.argsort(first, kind="stable")] = np.arange(distinct.size)
    order = np.lexsort((ints(calls, "device"), ints(calls, "rank"), new[place]))
    calls = calls.assign(exchange=new[place]).iloc[order].reset_index(drop=True)[list(_CALLS)]
    number = ints(calls, "exchange")
    head = np.flatnonzero(np.diff(number, prepend=-1))
    count = np.diff(np.append(head, number.size))
    fastest = np.lexsort((ints(calls, "rank"), ints(calls, "busy_ns"), number))[head]
    most: dict[str, Any] = {
        column: np.maximum.reduceat(ints(calls, column), head) if head.size else head for column in ("copies", "bytes")
    }
    found = pd.DataFrame(
        {
            "index": np.arange(head.size),
            "ranks": count,
            **most,
            "fastest_ns": ints(calls, "busy_ns")[fastest],
            "fastest_rank": ints(calls, "rank")[fastest],
            "gb_s": calls["gb_s"].to_numpy(float)[fastest],
            "matched_by": pd.Categorical.from_codes(
                np.where(count > 1, 0, 1), categories=pd.Index([BY_BARRIER, ALONE], dtype="str")
            ),
        }
    )
    return PeerCopies(found, calls)


def about_copies(copies: PeerCopies) -> list[TraceWarning]:
    """Say so where copies between GPUs belong to no exchange that is matched over ranks."""
    alone = copies.calls[copies.table["ranks"].to_numpy()[ints(copies.calls, "exchange")] < 2]
    if not len(alone):
        return []
    copied, moved = int(alone["copies"].sum()), int(np.maximum(ints(alone, "bytes"), 0).sum())
    text = (
        f"{count_of(copied, 'copy')} between GPUs ({size(moved)}, {duration(int(alone['busy_ns'].sum()))}) are matched "
        "with no other rank's: there are no barriers that tell which belong together. A copy waits for nobody while it "
        "runs, so overlap with it is real."
    )
    return [TraceWarning("peer-copies", text)]
