"""Which kernels suffer most from what runs beside them on other streams, and which pairs hurt each other most.

Without sides: *beside* is what runs on any other stream of the device. What an op lost is shared over the kernels that
ran beside it by how long each did: 300 µs lost beside 1 ms of X and 2 ms of Y are 100 µs by X and 200 µs by Y.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.names import Names, stacked
from analyzers.arrays.types import Floats, Ints
from analyzers.common.frames import DataFrame, framed
from analyzers.common.notebook import card
from analyzers.common.records import Record, values
from analyzers.common.wording import duration
from analyzers.contention.alone import alone
from analyzers.contention.cost import slowdown
from analyzers.contention.timings import Timings, join, lanes_of_ops, over_all_ranks, timings_of_streams, transfer_begin
from analyzers.trace.kernels import function
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.tables import Trace


class Neighbours(msgspec.Struct, frozen=True):
    """The ops of a part of a run, and what ran beside each on other streams.

    op : position in `timings`; beside : the name of a kernel that ran beside it; ns : for how long.
    """

    timings: Timings
    op: Ints
    beside: Names
    ns: Ints


class Suffering(Record, frozen=True):
    """A kernel beside other streams: how many of its ops, for how long, how much slower, and what it lost, ns.

    slowdown, paid_ns : None where no like op ran alone.
    """

    name: str
    ops: int
    beside_ns: int
    slowdown: float | None
    paid_ns: int | None


class Pair(Record, frozen=True):
    """A kernel beside another: for how long, how much slower it was, and what it lost to that one, ns."""

    name: str
    beside: str
    beside_ns: int
    slowdown: float
    paid_ns: int


class StreamContention(Record, frozen=True):
    """What `streams --contention` found: kernels, and pairs of them, that lost most first."""

    kernels: tuple[Suffering, ...]
    pairs: tuple[Pair, ...]

    def _repr_html_(self) -> str:
        headers = ("kernel", "ops", "overlapped", "slower", "lost")
        rows = [
            (
                function(one.name),
                one.ops,
                duration(one.beside_ns),
                "never alone" if one.slowdown is None else f"{one.slowdown:.2f}x",
                "–" if one.paid_ns is None else duration(one.paid_ns),
            )
            for one in self.kernels
        ]
        text = "Kernels overlapped with other streams, against matching kernels alone."
        return card("contention", text, headers, rows, texts=("kernel",))

    def __repr__(self) -> str:
        lost = sum(max(one.paid_ns or 0, 0) for one in self.kernels)
        return f"<{len(self.kernels)} kernels overlapped with other streams, and lost {duration(lost)}>"

    def to_frame(self) -> DataFrame:
        """One row per kernel: name, ops, beside_ns, slowdown, paid_ns."""
        frame = framed(map(values, self.kernels), Suffering.__struct_fields__)
        return frame.astype({"paid_ns": "Int64"})  # none where no like op ran alone

    def pairs_frame(self) -> DataFrame:
        """One row per pair of kernels: name, beside, beside_ns, slowdown, paid_ns."""
        return framed(map(values, self.pairs), Pair.__struct_fields__)


def neighbours(trace: Trace) -> Neighbours:
    """What ran beside each op of a trace on other streams of its device."""
    start, end, begin = trace.ops.start_ns, trace.ops.end_ns, transfer_begin(trace)
    lane = trace.once(lanes_of_ops)
    found = [(np.empty(0, np.int64),) * 3]
    for rows in ops_of_devices(trace).values():
        by_lane = [rows[mine] for mine in rows_by_key(lane[rows]).values()]
        for ops, others in permutations(by_lane, 2):  # those of a stream queue
            others = others[np.argsort(start[others], kind="stable")]
            first = np.searchsorted(np.maximum.accumulate(end[others]), begin[ops], side="right")
            count = np.maximum(np.searchsorted(start[others], end[ops], side="left") - first, 0)
            other, at = runs(first, count)
            op, other = ops[at], others[other]
            ns = np.minimum(end[op], end[other]) - np.maximum(begin[op], start[other])
            met = ns > 0
            found.append((op[met], other[met], ns[met]))
    op, other, ns = (np.concatenate(each) for each in zip(*found, strict=True))
    return Neighbours(timings_of_streams(trace), op, trace.ops.name.take(other), ns)


def stream_contention(parts: Sequence[Neighbours]) -> StreamContention:
    """Which kernels lost most to other streams, and to which kernels, over all parts of a run."""
    own = over_all_ranks(join([part.timings for part in parts]))
    met = (own.beside_ns > 0) & own.usual
    paid = np.where(met, own.taken_ns - alone(own).taken_ns[own.kind], np.nan)  # nor where no like op ran alone
    kernels, pairs = _kernels(own, np.flatnonzero(met), paid), _pairs(parts, own, paid)
    return StreamContention(
        tuple(sorted(kernels, key=lambda one: (-(one.paid_ns or 0), -one.beside_ns, one.name))),
        tuple(sorted(pairs, key=lambda one: (-one.paid_ns, one.name, one.beside))),
    )


def _kernels(own: Timings, met: Ints, paid: Floats) -> Iterator[Suffering]:
    """What kernels of each name lost; `paid` is of each op, of which `met` ran beside others."""
    name = own.kinds.name
    for (code,), at in rows_by_key(name.codes[own.kind[met]]).items():
        rows = met[at]
        known = rows[~np.isnan(paid[rows])]
        lost = float(paid[known].sum())
        of_known = (slowdown(float(own.beside_ns[known].sum()), lost), round(lost)) if known.size else (None, None)
        yield Suffering(name.texts[code], rows.size, int(own.beside_ns[rows].sum()), *of_known)


def _pairs(parts: Sequence[Neighbours], own: Timings, paid: Floats) -> Iterator[Pair]:
    """What kernels of each name lost to those of each other: an op's loss is shared by how long each ran beside it."""
    firsts = np.cumsum([0, *(part.timings.kind.size for part in parts)])
    op = np.concatenate([first + part.op for first, part in zip(firsts, parts, strict=False)])
    ns, beside, name = (
        np.concatenate([part.ns for part in parts]),
        stacked([part.beside for part in parts]),
        own.kinds.name,
    )
    total = np.zeros(own.kind.size, np.int64)
    np.add.at(total, op, ns)
    lost = paid[op] * ns / np.maximum(total[op], 1)
    is_known = ~np.isnan(lost)
    op, ns, beside, lost = op[is_known], ns[is_known], beside.take(is_known), lost[is_known]
    for (code, other), rows in rows_by_key(name.codes[own.kind[op]], beside.codes).items():
        # In more bits than a double has: no digit depends on the order of rows.
        beside_ns, paid_ns = int(ns[rows].sum()), float(lost[rows].sum(dtype=np.longdouble))
        of_other = (*beside.texts, "")[other]
        yield Pair(name.texts[code], of_other, beside_ns, slowdown(beside_ns, paid_ns), round(paid_ns))
