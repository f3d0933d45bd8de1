"""Which kernels suffer most from what runs beside them on other streams, and which pairs hurt each other most.

Without sides: *beside* is what runs on any other stream of the device. What an op lost is shared over the kernels that
ran beside it by how long each did: 300 µs lost beside 1 ms of X and 2 ms of Y are 100 µs by X and 200 µs by Y.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.types import Floats, Ints
from analyzers.common.notebook import card
from analyzers.common.records import Record, values
from analyzers.common.wording import duration
from analyzers.contention.alone import alone
from analyzers.contention.timings import (
    Timings,
    join,
    lanes_of_ops,
    on_devices,
    over_all_ranks,
    timings_of_streams,
    transfer_begin,
)
from analyzers.trace.kernels import function
from analyzers.trace.tables import Trace


class Neighbours(msgspec.Struct, frozen=True):
    """The ops of a part of a run, and what ran beside each on other streams.

    op : position in `timings`; name : of a kernel that ran beside it, a position in `names`; ns : for how long.
    """

    timings: Timings
    names: tuple[str, ...]
    op: Ints
    name: Ints
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
        return card(
            "contention",
            "Kernels overlapped with other streams, against matching kernels alone.",
            headers,
            rows,
            texts=("kernel",),
        )

    def __repr__(self) -> str:
        lost = sum(max(one.paid_ns or 0, 0) for one in self.kernels)
        return f"<{len(self.kernels)} kernels overlapped with other streams, and lost {duration(lost)}>"

    def to_frame(self) -> pd.DataFrame:
        """One row per kernel: name, ops, beside_ns, slowdown, paid_ns."""
        frame = pd.DataFrame([values(one) for one in self.kernels], columns=Suffering.__struct_fields__)
        return frame.astype({"paid_ns": "Int64"})  # none where no like op ran alone

    def pairs_frame(self) -> pd.DataFrame:
        """One row per pair of kernels: name, beside, beside_ns, slowdown, paid_ns."""
        return pd.DataFrame([values(one) for one in self.pairs], columns=Pair.__struct_fields__)


def neighbours(trace: Trace) -> Neighbours:
    """What ran beside each op of a trace on other streams of its device."""
    start, end = trace.ops.start_ns, trace.ops.end_ns
    begin, lane = transfer_begin(trace), lanes_of_ops(trace)
    code, names = trace.ops.name.codes, trace.ops.name.texts
    found: list[tuple[Ints, Ints, Ints]] = []
    for rows in on_devices(trace):
        by_lane = [rows[mine] for mine in rows_by_key(lane[rows]).values()]
        for ops in by_lane:
            found += [_beside(begin, start, end, ops, others, code) for others in by_lane if others is not ops]
    nothing = (np.empty(0, np.int64),) * 3
    op, name, ns = (np.concatenate(each) for each in zip(nothing, *found, strict=True))
    return Neighbours(timings_of_streams(trace), tuple(names), op, name, ns)


def _beside(begin: Ints, start: Ints, end: Ints, ops: Ints, others: Ints, code: Ints) -> tuple[Ints, Ints, Ints]:
    """Each op of a stream with each of another one's names that ran beside it, and how long; ops of a stream queue."""
    others = others[np.argsort(start[others], kind="stable")]
    reached = np.maximum.accumulate(end[others])
    first = np.searchsorted(reached, begin[ops], side="right")
    count = np.maximum(np.searchsorted(start[others], end[ops], side="left") - first, 0)
    other, at = runs(first, count)
    op, other = ops[at], others[other]
    ns = np.minimum(end[op], end[other]) - np.maximum(begin[op], start[other])
    met = ns > 0
    return op[met], code[other[met]].astype(np.int64), ns[met]


def stream_contention(parts: Sequence[Neighbours]) -> StreamContention:
    """Which kernels lost most to other streams, and to which kernels, over all parts of a run."""
    own = over_all_ranks(join([part.timings for part in parts]))
    known = alone(own)
    paid = np.where(own.usual & (own.beside_ns > 0), own.taken_ns - known.taken_ns[own.kind], 0.0)
    names = own.kinds["name"].to_numpy()[own.kind]
    met = (own.beside_ns > 0) & own.usual
    kernels = [_suffering(name, own, paid, rows) for name, rows in _by_text(names, np.flatnonzero(met))]
    firsts = np.cumsum([0, *(part.timings.kind.size for part in parts)])
    op = np.concatenate([first + part.op for first, part in zip(firsts, parts, strict=False)])
    beside = np.concatenate([np.array([*part.names, ""], dtype=object)[part.name] for part in parts])
    ns = np.concatenate([part.ns for part in parts])
    total = np.zeros(own.kind.size, np.int64)
    np.add.at(total, op, ns)
    lost = paid[op] * ns / np.maximum(total[op], 1)
    counts = met[op] & ~np.isnan(lost)
    frame = pd.DataFrame({"name": names[op], "beside": beside, "ns": ns, "paid": lost})[counts]
    sums = frame.groupby(["name", "beside"], sort=True)[["ns", "paid"]].sum().reset_index()
    pairs = [
        Pair(name, other, int(beside_ns), _slower(beside_ns, paid_ns), round(paid_ns))
        for name, other, beside_ns, paid_ns in sums.itertuples(index=False)
    ]
    return StreamContention(
        tuple(sorted(kernels, key=lambda one: (-(one.paid_ns or 0), -one.beside_ns, one.name))),
        tuple(sorted(pairs, key=lambda one: (-one.paid_ns, one.name, one.beside))),
    )


def _suffering(name: str, own: Timings, paid: Floats, rows: Ints) -> Suffering:
    known = rows[~np.isnan(paid[rows])]
    beside_ns, lost = int(own.beside_ns[rows].sum()), float(paid[known].sum())
    if not known.size:
        return Suffering(name, rows.size, beside_ns, None, None)
    return Suffering(name, rows.size, beside_ns, _slower(float(own.beside_ns[known].sum()), lost), round(lost))


def _slower(beside_ns: float, paid: float) -> float:
    return beside_ns / max(beside_ns - paid, beside_ns / 100)


def _by_text(texts: np.ndarray, rows: Ints) -> list[tuple[str, Ints]]:
    code, found = pd.factorize(texts[rows])
    return [(str(found[number]), rows[mine]) for (number,), mine in rows_by_key(code.astype(np.int64)).items()]
