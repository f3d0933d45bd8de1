"""How long the ops of one side ran, which of them are alike, and how much of each ran beside the other side.

Like ops have the same function, grid, block, registers, shared memory and bytes, and came behind the same op on their
stream; like collectives are of one operation, size and group, with as many blocks (NCCL's channels). A collective
counts from its last rank's arrival on, and as beside the other side by the most of any of its ranks, since all of them
go on as the slowest does. *Beside* means that an op of the other side is resident, one that only waits included: a
kernel that spins slows its neighbours, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.columns import narrowed, repeated, squeezed, taken
from analyzers.arrays.groups import first_of_each, is_repeated, label, ordered, rows_by_key
from analyzers.arrays.intervals import coverage, union
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.matching.calls import calls
from analyzers.trace.columns import as_int64, ints_at, lanes
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.ranges import launched_in
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.steps import find_steps, numbers_of_ops
from analyzers.trace.table import Table, number, text
from analyzers.trace.tables import Trace

CROWDED = 0.1  # of an op beside other work of neither or its own side: only such are like it
WAIT_KNOWN = 0.05  # of an op's time, within which its wait has to be known
IDLE_NS = 1_000_000  # a device idle for so long has lowered its clocks; the next op is like no other
_SIZES = ("grid", "block", "registers", "shared_bytes")


class Kinds(Table):
    """Kinds of like ops, a row each: what tells them apart."""

    kind: Names = text()
    copy: Names = text()
    name: Names = text()  # of a communication call its operation
    group: Names = text()  # its ranks; "" of what is no such call
    previous: Names = text()  # what ran before it on its stream; "" of a communication call, and of a stream's first
    grid: Ints = number("int64", -1)
    block: Ints = number("int64", -1)
    registers: Ints = number("int64", -1)
    shared_bytes: Ints = number("int64", -1)
    bytes: Ints = number("int64", -1)
    sizes: Ints = number("int64", -1)  # of the inputs of the operator that launched it, as a number
    crowded: Ids = number("int8", 0)  # 1 beside other work of neither or its own side

    def numbered(self, *without: str) -> Ints:
        """The kinds that columns tell apart, without some of them, numbered from 0 in the order they first occur."""
        return label(*(values for column, values in self.columns.items() if column not in without))


class Timings(msgspec.Struct, frozen=True):
    """Ops of one side; those of several parts of a run, or of several runs, are joined by `join`.

    kind : which of `kinds` each op is.
    rank, device : of each op; taken_ns : how long it ran, waits taken out; beside_ns : as long of that
    something of the other side was resident; collective : its number in the run, -1 where it is none.
    usual : False in a first step, behind a long idle time, where a window cuts an op, and where it is not known which
        part of it only waited for a late rank: such are like no others.
    Times take 32 bits where they fit, until parts are joined.
    """

    kinds: Kinds
    kind: Ids
    rank: Ids
    device: Ids
    taken_ns: Ids
    beside_ns: Ids
    collective: Ids
    usual: Mask

    def only(self, rows: slice | Ints) -> Timings:
        """Some of the ops."""
        columns = ("kind", "rank", "device", "taken_ns", "beside_ns", "collective", "usual")
        return Timings(self.kinds, *(getattr(self, column)[rows] for column in columns))


def timings(trace: Trace, a: Mask, b: Mask) -> tuple[Timings, Timings]:
    """The ops of both sides in a trace, each side beside the other.

    Parameters
    ----------
    a, b : masks over `trace.ops`; an op is of one of them at most.
    """
    beside, crowded = np.zeros((2, len(trace.ops)), np.int64)
    start, end, begin = trace.ops.start_ns, trace.ops.end_ns, transfer_begin(trace)
    for rows in ops_by_start(trace).values():
        for mine, others in ((a, b), (b, a)):
            its, theirs, not_theirs = (those(rows, each) for each in (mine, others, ~others))
            beside[its] = coverage(begin[its], end[its], union(start[theirs], end[theirs]))
            crowded[its] = _on_other_lanes(trace, begin, its, not_theirs)
    of_a, of_b = (_of_ops(trace, np.flatnonzero(side), begin, beside, crowded) for side in (a, b))
    return of_a, of_b


def timings_of_streams(trace: Trace) -> Timings:
    """All ops of a trace, beside those of other streams."""
    beside, crowded = np.zeros((2, len(trace.ops)), np.int64)
    begin = transfer_begin(trace)
    for rows in ops_of_devices(trace).values():
        beside[rows] = _on_other_lanes(trace, begin, rows, rows)
    return _of_ops(trace, np.arange(len(trace.ops)), begin, beside, crowded)


def transfer_begin(trace: Trace) -> Ints:
    """When each op begins to do something: a collective when its last rank is there."""
    return np.minimum(trace.ops.start_ns + as_int64(trace.ops.wait_ns), trace.ops.end_ns)


def lanes_of_ops(trace: Trace) -> Ints:
    """The lane of each op, as `lanes` numbers it."""
    return lanes(trace.ops)


def _on_other_lanes(trace: Trace, begin: Ints, ops: Ints, others: Ints) -> Ints:
    """For how long of each op, from its `begin` on, some of the others run on another lane than its own, ns."""
    start, end, lane = trace.ops.start_ns, trace.ops.end_ns, trace.once(lanes_of_ops)
    found = np.zeros(ops.size, np.int64)
    for (one,), at in rows_by_key(lane[ops]).items():
        elsewhere, on_lane = others[lane[others] != one], ops[at]
        found[at] = coverage(begin[on_lane], end[on_lane], union(start[elsewhere], end[elsewhere]))
    return found


def _of_ops(trace: Trace, rows: Ints, begin: Ints, beside: Ints, crowded: Ints) -> Timings:
    taken_ns = trace.ops.end_ns[rows] - begin[rows]
    kinds, kind = _kinds(trace, rows, crowded[rows] > CROWDED * taken_ns)
    # They are kept until all parts of the run are done.
    rank, device, collective = (
        squeezed(taken(column, rows)) for column in (trace.ops.rank, trace.ops.device, trace.ops.collective)
    )
    times = narrowed(taken_ns, "id"), narrowed(beside[rows], "id")
    return Timings(kinds, kind.astype(np.int32), rank, device, *times, collective, trace.once(_usual)[rows])


def join(parts: Iterable[Timings]) -> Timings:
    """All of several parts, their kinds numbered together; sizes that some captures don't say tell no kinds apart."""
    parts = list(parts)
    kinds = Kinds.stacked([part.kinds for part in parts])
    like = kinds.numbered("previous", "sizes")
    unsaid = np.zeros(int(like.max(initial=-1)) + 1, dtype=bool)
    unsaid[like[kinds.sizes < 0]] = True
    kinds = kinds.having(sizes=np.where(unsaid[like], -1, kinds.sizes))
    kind = kinds.numbered()
    firsts = np.cumsum([0, *(len(part.kinds) for part in parts)])
    columns = ("rank", "device", "taken_ns", "beside_ns", "collective", "usual")
    types = {"taken_ns": np.int64, "beside_ns": np.int64}
    return Timings(
        kinds.take(first_of_each(kind)),
        np.concatenate([kind[first + part.kind] for first, part in zip(firsts, parts, strict=False)]),
        *(np.concatenate([getattr(part, column) for part in parts], dtype=types.get(column)) for column in columns),
    )


def over_all_ranks(found: Timings) -> Timings:
    """The same with each collective beside the other side as long as on the rank where that was most."""
    of_one = np.flatnonzero(found.collective >= 0)
    if not of_one.size:
        return found
    collective = label(found.collective[of_one])
    share = np.zeros(int(collective.max()) + 1)
    np.maximum.at(share, collective, found.beside_ns[of_one] / np.maximum(found.taken_ns[of_one], 1))
    beside = found.beside_ns.copy()
    beside[of_one] = np.rint(share[collective] * found.taken_ns[of_one]).astype(np.int64)
    return replace(found, beside_ns=beside)


def _usual(trace: Trace) -> Mask:
    """Ops of known waits that no window cut, that follow no long idle time, and not of the first step, a warm-up."""
    start, end = trace.ops.start_ns, trace.ops.end_ns
    unsure = as_int64(trace.ops.wait_high_ns) - trace.ops.wait_low_ns
    usual = (trace.ops.wait_seen > 0) & (unsure <= WAIT_KNOWN * (end - start))
    if trace.whole is not None:
        usual &= start == trace.whole.ops.start_ns[trace.rows]
        usual &= end == trace.whole.ops.end_ns[trace.rows]
    for order in ops_by_start(trace).values():
        idle = start.take(order)[1:] - np.maximum.accumulate(end.take(order))[:-1]
        usual[order[1:][idle > IDLE_NS]] = False
    steps, limits = find_steps(trace), np.iinfo(np.int64)
    first, last = (np.full(len(trace.processes), value) for value in (limits.max, limits.min))
    np.minimum.at(first, steps.process, steps.numbers)
    np.maximum.at(last, steps.process, steps.numbers)
    process = trace.ops.process
    return usual & ~((numbers_of_ops(trace) == first[process]) & (last > first)[process])


def _kinds(trace: Trace, rows: Ints, crowded: Mask) -> tuple[Kinds, Ints]:
    """The kinds of some ops, and which each is of."""
    columns, texts = _columns(trace, rows, crowded)
    kind = label(*columns.values())
    firsts = first_of_each(kind)
    of_kinds: dict[str, Any] = {column: values[firsts] for column, values in columns.items()}
    return Kinds.of(of_kinds | {column: _named(of_kinds[column], known) for column, known in texts.items()}), kind


def _named(codes: Ints, texts: Sequence[str]) -> Names:
    """Texts by their codes, "" for code -1; codes of different tables may be of one text, and are one here."""
    texts = (*texts, "")
    return Names(np.where(codes < 0, len(texts) - 1, codes), texts).among(tuple(dict.fromkeys(texts))).used()


def _columns(trace: Trace, rows: Ints, crowded: Mask) -> tuple[dict[str, Ints], dict[str, tuple[str, ...]]]:
    """What tells some ops apart, by column of `Kinds`, and the texts of those columns that hold codes of texts.

    A communication call is of its operation, group and bytes: its transfer begins when the last rank comes, whatever
    ran before it.
    """
    ops, about = trace.ops, trace.once(calls).table
    names, operations, groups = ops.name.texts, about.operation, about.group_ranks
    texts = {"kind": ops.kind.texts, "copy": ops.copy.texts, "previous": names, "group": groups.texts}
    texts["name"] = (*names, *operations.texts)
    codes = {"kind": ops.kind.codes, "copy": ops.copy.codes, "previous": trace.once(_previous), "name": ops.name.codes}
    columns = {column: code[rows].astype(np.int64) for column, code in codes.items()}
    columns |= {column: ints_at(ops, column, rows) for column in _SIZES}
    columns |= {"crowded": crowded.astype(np.int64), "group": np.full(rows.size, -1)}
    columns |= {"bytes": ops.bytes[rows], "sizes": trace.once(_sizes)[rows]}
    of_call = np.full(len(ops), -1, np.int32)
    of_call[about.op] = np.arange(len(about))
    is_call = np.flatnonzero(of_call[rows] >= 0)
    call = of_call[rows[is_call]]
    of_calls: dict[str, Any] = {"previous": -1, "sizes": -1, "bytes": about.bytes[call], "group": groups.codes[call]}
    of_calls["name"] = operations.codes[call].astype(np.int64) + len(names)  # codes of few texts are narrow
    for column, values in of_calls.items():
        columns[column][is_call] = values
    return columns, texts


def _sizes(trace: Trace) -> Ints:
    """Sizes of the inputs of the operator that launched each op, as a number; -1 where they are not known."""
    of_range = as_int64(trace.ranges.sizes)
    if not ((of_range[:1] if is_repeated(of_range) else of_range) >= 0).any():
        return repeated(-1, np.int64, len(trace.ops))
    operator, _ = launched_in(trace, of_range >= 0)
    return np.append(of_range, -1)[operator]


def _previous(trace: Trace) -> Ids:
    """The name of the op before each on its stream, as a code; -1 before the first."""
    start, code = trace.ops.start_ns, trace.ops.name.codes
    found = np.full(code.size, -1, code.dtype)
    for rows in rows_by_key(trace.once(lanes_of_ops)).values():
        order = rows[ordered(start[rows])]
        found[order[1:]] = code[order[:-1]]
    return found
