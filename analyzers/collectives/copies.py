"""Copies between GPUs by copy engines: symmetric memory and async tensor parallelism gather and scatter by them.

A copy waits for nobody while it runs. Ranks meet at barrier kernels instead, and what lies between two barriers is one
*exchange*: ranks that copy 3 × 64 MiB each after their barrier number 5 take part in one. Barriers are matched over
ranks by their order, as collectives without names are. A barrier ends for all at once, when the last rank has come: on
each rank its duration less the fastest rank's is waiting, whatever the clocks say.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import alike, label, rows_by_key
from analyzers.arrays.intervals import union
from analyzers.arrays.names import Names
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.records import Record
from analyzers.common.wording import count_of, duration, size
from analyzers.matching.match import match
from analyzers.trace.columns import table
from analyzers.trace.communication import BOOKKEEPING, known
from analyzers.trace.kernels import is_peer_copy
from analyzers.trace.table import Table, number, text
from analyzers.trace.tables import Trace

BY_BARRIER, ALONE = "barriers", "alone"


class Exchanges(Table):
    """A row an exchange, in order of time."""

    index: Ints = number("int64", 0)
    ranks: Ints = number("int64", 0)  # how many were seen in it
    copies: Ints = number("int64", 0)  # of the rank with most
    bytes: Ints = number("int64", -1)  # of the rank with most; -1 where unknown
    fastest_ns: Ints = number("int64", 0)  # least busy time over ranks
    fastest_rank: Ints = number("int64", -1)
    gb_s: Floats = number("float64", float("nan"))  # 10⁹ bytes a second over that
    matched_by: Names = text()  # BY_BARRIER or ALONE


class ExchangeParts(Table):
    """A row a rank's part of an exchange."""

    exchange: Ints = number("int64", 0)
    rank: Ints = number("int64", -1)
    device: Ints = number("int64", -1)
    copies: Ints = number("int64", 0)
    bytes: Ints = number("int64", -1)
    start_ns: Ints = number("int64", 0)
    end_ns: Ints = number("int64", 0)
    busy_ns: Ints = number("int64", 0)  # length of the copies' union
    gb_s: Floats = number("float64", float("nan"))  # bytes over busy_ns
    barrier_ns: Ints = number("int64", -1)  # duration of the barrier before; -1 where there is none
    barrier_wait_ns: Ints = number("int64", -1)  # what of it is waiting for the last rank; -1 where peers are not known


class PeerCopies(Record, frozen=True):
    """Exchanges by copy engines."""

    table: Exchanges
    calls: ExchangeParts

    def __len__(self) -> int:
        return len(self.table)


def peer_copies(trace: Trace, kept: Ints | None = None) -> PeerCopies:
    """Measure the exchanges of a trace; with `kept`, those that any of these ops takes part in."""
    ops = trace.ops
    copies = np.flatnonzero(is_peer_copy(trace))
    barriers = np.flatnonzero(_is_barrier(trace))
    rows = np.concatenate([copies, barriers])
    member = label(ops.process[rows], ops.device[rows])
    of_copy, of_barrier = np.split(member, [copies.size])
    before = np.full(copies.size, -1, np.int64)  # the barrier that each copy follows, as a row of `barriers`
    of_member = rows_by_key(of_barrier)
    for key, own in rows_by_key(of_copy).items():
        its = of_member.get(key, np.empty(0, np.int64))
        its = its[np.argsort(ops.start_ns[barriers[its]], kind="stable")]
        since = np.searchsorted(ops.start_ns[barriers[its]], ops.start_ns[copies[own]], side="right") - 1
        before[own] = np.append(its, -1)[since]
    together, fastest = _matched(trace, barriers)
    part = label(of_copy, before)  # a rank's part of an exchange: what it copies behind one barrier
    _, heads, number = np.unique(part, return_index=True, return_inverse=True)
    barrier = before[heads]
    known_as = np.append(together, -1)[barrier]
    exchange = label(known_as, np.where(known_as >= 0, -1, np.arange(heads.size)))
    took = np.append(ops.end_ns[barriers] - ops.start_ns[barriers], -1)[barrier]
    waited = np.where(known_as >= 0, took - np.append(fastest, 0)[barrier], -1)
    calls = _parts(trace, copies, number, heads).having(exchange=exchange, barrier_ns=took, barrier_wait_ns=waited)
    if kept is not None:
        calls = calls.take(np.isin(exchange, exchange[number[np.isin(copies, kept)]]))
    return _exchanges(calls)


def _is_barrier(trace: Trace) -> Mask:
    def names_barrier(text: str) -> bool:
        return (found := known(text)).kind == BOOKKEEPING and found.operation == "barrier"

    return trace.ops.name.matching(names_barrier) & trace.ops.kind.is_one_of(("kernel",))


def _matched(trace: Trace, barriers: Ints) -> tuple[Ints, Ints]:
    """For each barrier the number of its match over ranks, -1 where there is none or it is unsure, and its fastest."""
    together, fastest = np.full(barriers.size, -1, np.int64), np.zeros(barriers.size, np.int64)
    if not barriers.size:
        return together, fastest
    alone = trace.ops.take(barriers).having(declared="barrier")
    matches = match(replace(trace, ops=alone, comms=table("comms"), whole=None, rows=None, matches=None))
    sure, op, collective = matches.collectives.sure, matches.calls.op, matches.calls.collective
    took = alone.end_ns - alone.start_ns
    least = np.full(sure.size, np.iinfo(np.int64).max)
    np.minimum.at(least, collective, took[op])
    together[op] = np.where(sure[collective], collective, -1)
    fastest[op] = least[collective]
    return together, fastest


def _parts(trace: Trace, copies: Ints, number: Ints, heads: Ints) -> ExchangeParts:
    """A row a rank's part of an exchange; `number` says which part each copy is of."""
    start, end, moved = trace.ops.start_ns[copies], trace.ops.end_ns[copies], trace.ops.bytes[copies]
    count = heads.size
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, number, start)
    np.maximum.at(last, number, end)
    total, least = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(total, number, moved)
    np.minimum.at(least, number, moved)
    busy = _busy(start, end, number, count)
    total = np.where(least >= 0, total, -1)
    return ExchangeParts.of(
        {
            "rank": trace.ops.rank[copies[heads]],
            "device": trace.ops.device[copies[heads]],
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


def _exchanges(calls: ExchangeParts) -> PeerCopies:
    """Number exchanges in order of their first copy, and sum them up."""
    distinct, place = np.unique(calls.exchange, return_inverse=True)
    first = np.full(distinct.size, np.iinfo(np.int64).max)
    np.minimum.at(first, place, calls.start_ns)
    new = np.empty(distinct.size, np.int64)
    new[np.argsort(first, kind="stable")] = np.arange(distinct.size)
    calls = calls.having(exchange=new[place]).take(np.lexsort((calls.device, calls.rank, new[place])))
    head, count = alike(calls.exchange)
    fastest = calls.take(np.lexsort((calls.rank, calls.busy_ns, calls.exchange))[head])
    found = Exchanges.of(
        {
            "index": np.arange(head.size),
            "ranks": count,
            "copies": np.maximum.reduceat(calls.copies, head),
            "bytes": np.maximum.reduceat(calls.bytes, head),
            "fastest_ns": fastest.busy_ns,
            "fastest_rank": fastest.rank,
            "gb_s": fastest.gb_s,
            "matched_by": Names(np.where(count > 1, 0, 1), (BY_BARRIER, ALONE)),
        }
    )
    return PeerCopies(found, calls)


def about_copies(copies: PeerCopies) -> list[TraceWarning]:
    """Say so where copies between GPUs belong to no exchange that is matched over ranks."""
    alone = copies.calls.take(copies.table.ranks[copies.calls.exchange] < 2)
    if not len(alone):
        return []
    copied, moved = int(alone.copies.sum()), int(np.maximum(alone.bytes, 0).sum())
    text = (
        f"{count_of(copied, 'copy')} between GPUs ({size(moved)}, {duration(int(alone.busy_ns.sum()))}) are matched "
        "with no other rank's: there are no barriers that tell which belong together. A copy waits for nobody while it "
        "runs, so overlap with it is real."
    )
    return [TraceWarning("peer-copies", text)]
