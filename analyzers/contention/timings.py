"""How long the ops of one side ran, which of them are alike, and how much of each ran beside the other side.

Like ops have the same function, grid, block, registers, shared memory and bytes, and came behind the same op on their
stream; like collectives are of one operation, size and group, with as many blocks (NCCL's channels). A collective
counts from its last rank's arrival on, and as beside the other side by the most of any of its ranks, since all of them
go on as the slowest does. *Beside* means that an op of the other side is resident, one that only waits included: a
kernel that spins slows its neighbours, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.columns import narrowed, repeated, squeezed, taken
from analyzers.arrays.groups import first_of_each, is_repeated, label, ordered, rows_by_key
from analyzers.arrays.intervals import coverage, union
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.matching.calls import CallTable, calls
from analyzers.trace.columns import as_int64, codes, ints, ints_at, lanes, stored
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.ranges import launched_in
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.schemas import WAIT_RANGE
from analyzers.trace.steps import find_steps, numbers_of_ops
from analyzers.trace.tables import Trace

CROWDED = 0.1  # of an op beside other work of neither or its own side: only such are like it
WAIT_KNOWN = 0.05  # of an op's time, within which its wait has to be known
IDLE_NS = 1_000_000  # a device idle for so long has lowered its clocks; the next op is like no other
_NUMBERS = ("grid", "block", "registers", "shared_bytes", "bytes", "sizes", "crowded")
_LIMITS = np.iinfo(np.int64)
_TEXTS = ("kind", "copy", "name", "group", "previous")
KIND_COLUMNS = (*_TEXTS, *_NUMBERS)


class Timings(msgspec.Struct, frozen=True):
    """Ops of one side; those of several parts of a run, or of several runs, are joined by `join`.

    kinds : one row per kind of like ops: `KIND_COLUMNS`. kind : which of them each op is.
    rank, device : of each op; taken_ns : how long it ran, waits taken out; beside_ns : as long of that
    something of the other side was resident; collective : its number in the run, -1 where it is none.
    usual : False in a first step, behind a long idle time, where a window cuts an op, and where it is not known which
        part of it only waited for a late rank: such are like no others.
    Times take 32 bits where they fit, until parts are joined.
    """

    kinds: pd.DataFrame
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
    beside, crowded = np.zeros(len(trace.ops), np.int64), np.zeros(len(trace.ops), np.int64)
    start, end = trace.ops.start_ns, trace.ops.end_ns
    begin, lane = transfer_begin(trace), lanes_of_ops(trace)
    for rows in ops_by_start(trace).values():
        for mine, others in ((a, b), (b, a)):
            its, theirs, not_theirs = (those(rows, each) for each in (mine, others, ~others))
            beside[its] = coverage(begin[its], end[its], union(start[theirs], end[theirs]))
            on_lane = lane[not_theirs]
            for (one,), of_lane in rows_by_key(lane[its]).items():
                elsewhere = not_theirs[np.flatnonzero(on_lane != one)]
                if elsewhere.size:
                    ops = its[of_lane]
                    crowded[ops] = coverage(begin[ops], end[ops], union(start[elsewhere], end[elsewhere]))
    about = trace.once(calls).table
    of_a, of_b = (_of_ops(trace, np.flatnonzero(side), begin, beside, crowded, about) for side in (a, b))
    return of_a, of_b


def timings_of_streams(trace: Trace) -> Timings:
    """All ops of a trace, beside those of other streams."""
    beside = np.zeros(len(trace.ops), np.int64)
    start, end = trace.ops.start_ns, trace.ops.end_ns
    begin, lane = transfer_begin(trace), lanes_of_ops(trace)
    for on_device in on_devices(trace):
        for (one,), on_lane in rows_by_key(lane[on_device]).items():
            elsewhere, ops = on_device[lane[on_device] != one], on_device[on_lane]
            beside[ops] = coverage(begin[ops], end[ops], union(start[elsewhere], end[elsewhere]))
    rows, crowded = np.arange(len(trace.ops)), np.zeros(len(trace.ops), np.int64)
    return _of_ops(trace, rows, begin, beside, crowded, trace.once(calls).table)


def transfer_begin(trace: Trace) -> Ints:
    """When each op begins to do something: a collective when its last rank is there."""
    return np.minimum(trace.ops.start_ns + as_int64(trace.ops.wait_ns), trace.ops.end_ns)


def on_devices(trace: Trace) -> Iterable[Ints]:
    """Rows of the ops of each rank's device."""
    return ops_of_devices(trace).values()


def lanes_of_ops(trace: Trace) -> Ints:
    """The lane of each op, as `lanes` numbers it."""
    return trace.once(_lanes_of_ops)


def _lanes_of_ops(trace: Trace) -> Ints:
    return lanes(trace.ops)


def _of_ops(trace: Trace, rows: Ints, begin: Ints, beside: Ints, crowded: Ints, about: CallTable) -> Timings:
    """Timings of some ops; `begin` is `transfer_begin`, and `about` says of communication what it is."""
    taken_ns = ints_at(trace.ops, "end_ns", rows) - begin[rows]
    kinds, kind = _kinds(trace, rows, crowded[rows] > CROWDED * taken_ns, about)
    # They are kept until all parts of the run are done.
    rank, device, collective = (
        squeezed(taken(stored(trace.ops, column), rows)) for column in ("rank", "device", "collective")
    )
    return Timings(
        kinds,
        kind.astype(np.int32),
        rank,
        device,
        narrowed(taken_ns, "id"),
        narrowed(beside[rows], "id"),
        collective,
        trace.once(_usual)[rows],
    )


def join(parts: Iterable[Timings]) -> Timings:
    """All of several parts, their kinds numbered together; sizes that some captures don't say tell no kinds apart."""
    parts = list(parts)
    kinds = pd.concat([part.kinds for part in parts], ignore_index=True)
    like = numbered(kinds, [column for column in KIND_COLUMNS if column not in ("previous", "sizes")])
    unsaid = np.zeros(int(like.max(initial=-1)) + 1, dtype=bool)
    unsaid[like[ints(kinds, "sizes") < 0]] = True
    kinds["sizes"] = np.where(unsaid[like], -1, ints(kinds, "sizes"))
    number = numbered(kinds, KIND_COLUMNS)
    firsts = np.cumsum([0, *(len(part.kinds) for part in parts)])
    columns = ("rank", "device", "taken_ns", "beside_ns", "collective", "usual")
    types = {"taken_ns": np.int64, "beside_ns": np.int64}
    return Timings(
        kinds.take(first_of_each(number)).reset_index(drop=True),
        np.concatenate([number[first + part.kind] for first, part in zip(firsts, parts, strict=False)]),
        *(np.concatenate([getattr(part, column) for part in parts], dtype=types.get(column)) for column in columns),
    )


def numbered(kinds: pd.DataFrame, columns: Iterable[str]) -> Ints:
    """Kinds that some columns tell apart, numbered from 0 in the order they first occur."""
    number: dict[tuple[object, ...], int] = {}
    each = zip(*(stored(kinds, one).tolist() for one in columns), strict=True)
    return np.array([number.setdefault(kind, len(number)) for kind in each], np.int64)


def over_all_ranks(found: Timings) -> Timings:
    """The same with each collective beside the other side as long as on the rank where that was most."""
    of_one = np.flatnonzero(found.collective >= 0)
    if not of_one.size:
        return found
    number = pd.factorize(found.collective[of_one])[0]
    share = np.zeros(int(number.max()) + 1)
    np.maximum.at(share, number, found.beside_ns[of_one] / np.maximum(found.taken_ns[of_one], 1))
    beside = found.beside_ns.copy()
    beside[of_one] = np.rint(share[number] * found.taken_ns[of_one]).astype(np.int64)
    return replace(found, beside_ns=beside)


def _usual(trace: Trace) -> Mask:
    """Ops of known waits that no window cut, that follow no long idle time, and not of the first step, a warm-up."""
    start, end = trace.ops.start_ns, trace.ops.end_ns
    least, most = (ints(trace.ops, column) for column in WAIT_RANGE)
    usual = as_int64(trace.ops.wait_seen) > 0
    unsure = np.flatnonzero(most > least)
    usual[unsure] &= (most - least)[unsure] <= WAIT_KNOWN * (end - start)[unsure]
    if trace.whole is not None:
        for column in ("start_ns", "end_ns"):
            usual &= ints(trace.ops, column) == ints(trace.whole.ops, column)[trace.rows]
    for order in ops_by_start(trace).values():
        idle = start.take(order)[1:] - np.maximum.accumulate(end.take(order))[:-1]
        usual[order[1:][idle > IDLE_NS]] = False
    return usual & ~_in_first_steps(trace)


def _in_first_steps(trace: Trace) -> Mask:
    """Ops of the first of several steps of their process."""
    steps, count = find_steps(trace), len(trace.processes)
    first, last = np.full(count, _LIMITS.max), np.full(count, _LIMITS.min)
    np.minimum.at(first, steps.process, steps.numbers)
    np.maximum.at(last, steps.process, steps.numbers)
    number, process = numbers_of_ops(trace), as_int64(trace.ops.process)
    return (number == first[process]) & (last > first)[process]


def _kinds(trace: Trace, rows: Ints, crowded: Mask, about: CallTable) -> tuple[pd.DataFrame, Ints]:
    """The kinds of some ops, and which each is of."""
    ops = trace.ops
    of_call = np.full(len(ops), -1, np.int32)
    of_call[ints(about, "op")] = np.arange(len(about))
    at_call = np.flatnonzero(of_call[rows] >= 0)
    called = about.take(of_call[rows[at_call]].astype(np.int64))
    like = trace.once(_like)[rows]
    if at_call.size:
        like[at_call] = int(like.max()) + 1 + _like_calls(trace, rows[at_call], called)
    number = label(like, crowded)
    firsts = first_of_each(number)
    is_call = of_call[rows[firsts]] >= 0
    called = called.take(np.searchsorted(at_call, firsts[is_call]))
    return _told(trace, rows[firsts], crowded[firsts], is_call, called), number


def _like(trace: Trace) -> Ids:
    """What kind each op is of but for `crowded`, as a number: of all but calls, which `_like_calls` tells apart."""
    texts = [codes(trace.ops, column)[0] for column in ("kind", "copy", "name")]
    numbers = [stored(trace.ops, column) for column in ("grid", "block", "registers", "shared_bytes", "bytes")]
    return label(*texts, trace.once(_previous), *numbers, trace.once(_sizes)).astype(np.int32)


def _like_calls(trace: Trace, rows: Ints, called: CallTable) -> Ints:
    """The same of communication calls: a transfer begins when the last rank comes, whatever ran before it."""
    texts = [codes(trace.ops, column)[0][rows] for column in ("kind", "copy")]
    texts += [codes(called, column)[0] for column in ("operation", "group_ranks")]
    numbers = [stored(trace.ops, column)[rows] for column in ("grid", "block", "registers", "shared_bytes")]
    return label(*texts, *numbers, ints(called, "bytes"))


def _told(trace: Trace, rows: Ints, crowded: Mask, is_call: Mask, called: CallTable) -> pd.DataFrame:
    """`KIND_COLUMNS` of some ops; `called` is about those that are calls."""
    code = {column: codes(trace.ops, column)[0][rows].astype(np.int64) for column in ("kind", "copy", "name")}
    found = {column: codes(trace.ops, column)[1] for column in code}
    code["previous"], found["previous"] = trace.once(_previous)[rows].astype(np.int64), found["name"]
    code["previous"][is_call] = -1
    code["group"], found["group"] = np.full(rows.size, -1), codes(called, "group_ranks")[1]
    code["group"][is_call] = codes(called, "group_ranks")[0]
    operation, operations = codes(called, "operation")
    code["name"][is_call] = operation.astype(np.int64) + len(found["name"])  # codes of few texts are narrow
    found["name"] = [*found["name"], *operations]
    columns: dict[str, Any] = {}
    for column in _TEXTS:
        texts = [found[column][each] if each >= 0 else "" for each in code[column].tolist()]
        columns[column] = pd.Series(texts, dtype=object)  # they are listed several times: of pandas' own it takes long
    columns |= {column: ints_at(trace.ops, column, rows) for column in _NUMBERS[:-2]}
    columns["bytes"] = np.array(columns["bytes"])  # it may be one value, repeated
    columns["bytes"][is_call] = ints(called, "bytes")
    columns["sizes"] = np.where(is_call, -1, trace.once(_sizes)[rows])
    return pd.DataFrame({**columns, "crowded": crowded.astype(np.int64)})


def _sizes(trace: Trace) -> Ints:
    """Sizes of the inputs of the operator that launched each op, as a number; -1 where they are not known."""
    of_range = as_int64(trace.ranges.sizes)
    if not ((of_range[:1] if is_repeated(of_range) else of_range) >= 0).any():
        return repeated(-1, np.int64, len(trace.ops))
    operator, _ = launched_in(trace, of_range >= 0)
    return np.append(of_range, -1)[operator]


def _previous(trace: Trace) -> npt.NDArray[np.signedinteger[Any]]:
    """The name of the op before each on its stream, as a code; -1 before the first."""
    start, (code, _) = trace.ops.start_ns, codes(trace.ops, "name")
    found = np.full(code.size, -1, code.dtype)
    for rows in rows_by_key(lanes_of_ops(trace)).values():
        order = rows[ordered(start[rows])]
        found[order[1:]] = code[order[:-1]]
    return found
