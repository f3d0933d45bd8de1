"""What each collective cost: fastest rank, last arrival, wait and transfer on every rank, bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import alike, rows_by_key
from analyzers.arrays.names import Names
from analyzers.arrays.types import Floats, Ids, Ints
from analyzers.clocks.align import Aligned
from analyzers.collectives.checks import capture_warnings
from analyzers.collectives.copies import PeerCopies, about_copies, peer_copies
from analyzers.collectives.summary import GroupSum, Summary, sum_by_group, summarize
from analyzers.collectives.tables import CollectiveTable, RankCalls
from analyzers.common.errors import TraceWarning
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import duration, percent, size
from analyzers.trace.alignment import Clocks, MatchedCollectives
from analyzers.trace.columns import as_int64
from analyzers.trace.groups import groups_of
from analyzers.trace.step_table import StepsUsed
from analyzers.trace.tables import Trace

if TYPE_CHECKING:
    import pandas as pd

ROWS_TOGETHER = 256  # collectives that are taken out of the table together: who shows a few needs no others
# Bus bandwidth = size / time × this factor of n ranks (a, b: (a·n − b) / n); 1 for operations not listed.
# Source: nccl-tests, doc/PERFORMANCE.md, and the *GetBw functions in its src/*.cu
_BUS_FACTORS = {
    "all_reduce": (2, 2),
    "all_gather": (1, 1),
    "reduce_scatter": (1, 1),
    "all_to_all": (1, 1),
    "gather": (1, 1),
    "scatter": (1, 1),
}

_TEXTS = ("dtype", "group", "group_description", "group_ranks")
_NONE_WHERE_NEGATIVE = ("bytes", "group_size", "last_arrival_rank", "last_arrival_device")


class RankCall(Record, frozen=True):
    """One rank's part of a collective, ns on the reference's clock; wait + transfer = duration."""

    rank: int
    device: int
    start_ns: int
    duration_ns: int
    wait_ns: int
    transfer_ns: int


class Collective(Record, frozen=True):
    """One collective over the ranks that were seen.

    bytes : message size as nccl-tests counts it: the buffer all ranks' data makes (the gathered result, the input of a
        reduce-scatter, one rank's whole all-to-all buffer); None where the trace does not say.
    group, group_description, group_ranks, group_size : the process group as the trace prints it; "" and None where it
        does not. communicator : NCCL's id of it, "" where the trace does not say.
    fastest_ns : least duration over the ranks, the best estimate of what it takes without waiting.
    last_arrival_rank, last_arrival_device : who started last; None where only one device was seen.
    last_arrival_lead_ns : how much later than the next to last.
    end_skew_ns : from the first end to the last.
    algorithm_gb_s, bus_gb_s : 10⁹ bytes a second over `fastest_ns`, by nccl-tests' factors; None without a size.
    matched_by : a key of `analyzers.matching.match.MATCHED_BY`.
    confidence : 0 to 1; `sure` from 0.5 on.
    """

    index: int
    operation: str
    bytes: int | None
    dtype: str
    group: str
    group_description: str
    group_ranks: str
    group_size: int | None
    communicator: str
    fastest_ns: int
    fastest_rank: int
    fastest_device: int
    last_arrival_rank: int | None
    last_arrival_device: int | None
    last_arrival_lead_ns: int
    end_skew_ns: int
    algorithm_gb_s: float | None
    bus_gb_s: float | None
    matched_by: str
    confidence: float
    sure: bool
    ranks: tuple[RankCall, ...]


class DeviceTimes(Record, frozen=True):
    """How many collectives a rank's device took part in, and its calls' times summed, ns."""

    rank: int
    device: int
    collectives: int
    duration_ns: int
    wait_ns: int
    transfer_ns: int


class Collectives(Record, frozen=True):
    """All collectives of a trace, and the clocks they were compared on.

    summary : per operation and size. groups : per process group. copies : exchanges by copy engines.
    clocks : their residual is the error bar of every figure that compares ranks.
    steps : those that the figures are of. untrusted : why not all collectives may be on record, "" where they are.
    """

    table: CollectiveTable
    calls: RankCalls
    summary: Summary
    groups: tuple[GroupSum, ...]
    copies: PeerCopies
    clocks: Clocks
    warnings: tuple[TraceWarning, ...]
    steps: StepsUsed | None = None
    untrusted: str = ""

    @property
    def reason(self) -> str:
        """Why it can't be told whether there were collectives; "" where there were some, or surely none."""
        if len(self) or not self.untrusted:
            return ""
        return f"whether there were collectives can't be told: {self.untrusted}"

    @property
    def exit_code(self) -> int:
        """What a command ends with: 0, or 3 where it can't be told whether there were any."""
        return 3 if self.reason else 0

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Collective]:
        """Yield the collectives one by one, in order of time."""
        calls = self.calls
        first, count = alike(calls.collective)
        of_calls = calls.rank, calls.device, calls.start_ns, calls.duration_ns, calls.wait_ns, calls.transfer_ns
        for row, begin, end in zip(self._rows(), first.tolist(), (first + count).tolist(), strict=True):
            own = zip(*(column[begin:end].tolist() for column in of_calls), strict=True)
            yield Collective(**row, ranks=tuple(RankCall(*call) for call in own))

    def _rows(self) -> Iterator[dict[str, Any]]:
        for first in range(0, len(self), ROWS_TOGETHER):
            columns = self.table.take(slice(first, first + ROWS_TOGETHER)).columns
            rows = zip(*(_plain(name, values) for name, values in columns.items()), strict=True)
            yield from (dict(zip(columns, row, strict=True)) for row in rows)

    def by_device(self) -> tuple[DeviceTimes, ...]:
        """The calls of each rank's device summed, by rank, then device."""
        found = []
        for (rank, device), rows in rows_by_key(self.calls.rank, self.calls.device).items():
            took, waited = int(self.calls.duration_ns[rows].sum()), int(self.calls.wait_ns[rows].sum())
            found.append(DeviceTimes(rank, device, rows.size, took, waited, took - waited))
        return tuple(found)

    def to_frame(self) -> pd.DataFrame:
        """One row per collective and rank, indexed by (collective, rank): that rank's columns, then the collective's.

        Times in ns, `bytes` in bytes, `algorithm_gb_s` and `bus_gb_s` in 10⁹ bytes a second.
        """
        calls = self.calls.to_frame().astype("int64").assign(transfer_ns=self.calls.transfer_ns.astype("int64"))
        joined = calls.merge(self.table.to_frame(), left_on="collective", right_on="index").drop(columns="index")
        return joined.set_index(["collective", "rank"]).copy()  # the user's own, to write to

    def __repr__(self) -> str:
        residual = self.clocks.residual_ns
        known = "unknown" if residual is None else duration(residual)
        return f"<{len(self)} collectives of {len(self.summary)} kinds; clocks by {self.clocks.method}, error {known}>"

    def _repr_html_(self) -> str:
        headers = ("operation", "size", "count", "median", "P90", "waiting / all ranks' time", "bus", "last, mostly")
        rows = [
            (
                kind.operation or "unknown",
                "–" if kind.bytes is None else size(kind.bytes),
                kind.count,
                duration(kind.median_ns),
                duration(kind.p90_ns),
                percent(kind.wait_share),
                "–" if kind.median_bus_gb_s is None else f"{kind.median_bus_gb_s:.1f} GB/s",
                max(kind.last_by_rank, key=lambda rank: kind.last_by_rank[rank]) if kind.last_by_rank else "–",
            )
            for kind in self.summary
        ]
        text = f"{len(self)} collectives; durations are the fastest rank's."
        text += f" INCONCLUSIVE: {self.reason}." if self.reason else ""
        return card("collectives", text, headers, rows, texts=("operation",), warnings=self.warnings)


def collectives(aligned: Aligned, kept: Ints | None = None) -> Collectives:
    """Measure every collective of an aligned trace; durations, waits and transfers are ns.

    Parameters
    ----------
    kept : ops whose exchanges by copy engines are listed; all where not given.
    """
    calls = _calls(aligned)
    table = _table(aligned, calls)
    copies = peer_copies(aligned.trace, kept)
    warnings = (*aligned.trace.warnings, *about_copies(copies), *capture_warnings(aligned, table, calls))
    sums = summarize(table, calls), sum_by_group(table, calls)
    return Collectives(table, calls, *sums, copies, aligned.clocks, tuple(dict.fromkeys(warnings)))


def collectives_of(trace: Trace) -> Collectives:
    """Measure the collectives of a loaded trace; of a part of it, those that the part's ops took part in.

    Figures always come from all ranks that were captured.

    Raises
    ------
    ValueError : the trace was not loaded by `analyzers.load`, so nothing is matched.
    """
    if trace.clocks is None or trace.matches is None:
        raise ValueError("the collectives of this trace are not matched: load it with analyzers.load")
    whole = collectives(Aligned(trace.whole or trace, trace.clocks, trace.matches), trace.rows)
    if trace.rows is None:
        return whole
    is_present = np.zeros(len(whole), bool)
    is_present[trace.matches.calls.collective[np.isin(trace.matches.calls.op, trace.rows)]] = True
    table, calls = whole.table.take(is_present), whole.calls.take(is_present[whole.calls.collective])
    sums = summarize(table, calls), sum_by_group(table, calls)
    return replace(whole, table=table, calls=calls, summary=sums[0], groups=sums[1])


def bus_factor(operation: str, ranks: int) -> float:
    """What nccl-tests multiplies the algorithm bandwidth by: doc/PERFORMANCE.md.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.75, 0.75, 1.0)
    """
    if operation not in _BUS_FACTORS or ranks < 1:
        return 1.0
    times, less = _BUS_FACTORS[operation]
    return (times * ranks - less) / ranks


def _calls(aligned: Aligned) -> RankCalls:
    matched, ops = aligned.matches.calls, aligned.trace.ops
    op = as_int64(matched.op)
    start = ops.start_ns[op]
    columns = {"collective": matched.collective, "rank": matched.rank, "device": ops.device[op], "start_ns": start}
    return RankCalls.of({**columns, "duration_ns": ops.end_ns[op] - start, "wait_ns": ops.wait_ns[op]})


def _table(aligned: Aligned, calls: RankCalls) -> CollectiveTable:
    matched, start = aligned.matches.collectives, calls.start_ns
    head, count = alike(calls.collective)
    fastest, last, second_last, skew = _extremes(start, calls.duration_ns, head, count)
    seconds = calls.duration_ns[fastest] / 1e9
    known = (matched.bytes >= 0) & (seconds > 0)
    bandwidth = np.where(known, matched.bytes / 1e9 / np.where(seconds > 0, seconds, 1.0), np.nan)
    unknown = (count == 1) & (matched.group_size <= 0)  # one rank of who knows how many
    return CollectiveTable.of(
        {
            "index": np.arange(len(matched)),
            "operation": matched.operation,
            "bytes": matched.bytes,
            **{column: _filled(getattr(matched, column)) for column in _TEXTS},
            "group_size": matched.group_size,
            "communicator": _communicators(aligned, head),
            "fastest_ns": calls.duration_ns[fastest],
            "fastest_rank": calls.rank[fastest],
            "fastest_device": calls.device[fastest],
            "last_arrival_rank": np.where(count > 1, calls.rank[last], -1),
            "last_arrival_device": np.where(count > 1, calls.device[last], -1),
            "last_arrival_lead_ns": np.where(count > 1, start[last] - np.where(count > 1, second_last, 0), 0),
            "end_skew_ns": skew,
            "algorithm_gb_s": bandwidth,
            "bus_gb_s": np.where(unknown, np.nan, bandwidth * _bus_factors(matched, count)),
            **{column: getattr(matched, column) for column in ("matched_by", "confidence", "sure")},
        }
    )


def _bus_factors(matched: MatchedCollectives, count: Ints) -> Floats:
    """`bus_factor` of each collective: of its group's ranks, of those that `count` calls are of where it has none."""
    ranks = np.where(matched.group_size > 0, matched.group_size, count)
    found = np.ones(ranks.size)
    for (code, of_ranks), rows in rows_by_key(matched.operation.codes, ranks).items():
        found[rows] = bus_factor(matched.operation.texts[code] if code >= 0 else "", of_ranks)
    return found


def _communicators(aligned: Aligned, head: Ints) -> Names:
    """NCCL's id of the communicator of each collective, of which `head` are the first calls."""
    groups, number = groups_of(aligned.trace, as_int64(aligned.matches.calls.op[head]))
    distinct = list(dict.fromkeys(["", *(one.communicator for one in groups)]))
    code = np.array([*(distinct.index(one.communicator) for one in groups), 0], np.int64)
    return Names(code[number], distinct)


def _filled(names: Names) -> Names:
    """The same texts with "" for a missing one."""
    texts = tuple(dict.fromkeys((*names.texts, "")))
    return Names(np.where(names.codes < 0, np.int64(texts.index("")), names.codes), texts)


def _extremes(start: Ints, duration: Ids, head: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Of each collective the rows of its shortest call and of its last, when the last but one came, and ends' skew."""
    end, came_last = start + duration, _first_of(np.maximum, start, head, count)
    others = start.copy()
    others[came_last] = np.iinfo(np.int64).min
    skew = np.maximum.reduceat(end, head) - np.minimum.reduceat(end, head)
    return _first_of(np.minimum, duration, head, count), came_last, np.maximum.reduceat(others, head), skew


def _first_of(how: np.ufunc, values: Ids, head: Ints, count: Ints) -> Ints:
    """Row of each collective's least or largest value, the lowest rank's where several have it."""
    rows = np.flatnonzero(values == np.repeat(how.reduceat(values, head), count))
    return rows[np.searchsorted(rows, head)]


def _plain(name: str, column: Any) -> list[Any]:
    """A table's column as the record has it."""
    values: list[Any] = column.tolist()
    if name in _NONE_WHERE_NEGATIVE:
        return [None if value == -1 else value for value in values]
    return [None if value != value else value for value in values] if name.endswith("_gb_s") else values
