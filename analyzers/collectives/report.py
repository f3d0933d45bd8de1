"""What each collective cost: fastest rank, last arrival, wait and transfer on every rank, bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.columns import narrowed, squeezed
from analyzers.arrays.groups import alike
from analyzers.arrays.types import Ids, Ints
from analyzers.clocks.align import Aligned
from analyzers.collectives.checks import capture_warnings
from analyzers.collectives.copies import PeerCopies, about_copies, peer_copies
from analyzers.collectives.summary import GroupSum, Summary, sum_by_group, summarize
from analyzers.common.errors import TraceWarning
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import duration, percent, size
from analyzers.trace.alignment import Clocks
from analyzers.trace.columns import codes, framed, ints, ints_at, stored
from analyzers.trace.groups import groups_of
from analyzers.trace.step_table import StepsUsed
from analyzers.trace.tables import Trace

TOGETHER = 256  # collectives that are taken out of the table together: who shows a few needs no others
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


class Collectives(Record, frozen=True, dict=True):
    """All collectives of a trace, and the clocks they were compared on.

    table : a row a collective, columns as the fields of `Collective` without `ranks`; unknown is -1, nan or "".
    narrow_calls : `calls` without `transfer_ns`, in 32 bits where they fit: of many ranks a third of its memory; and
        `member`, the number of each call's clock.
    summary : per operation and size. groups : per process group. copies : exchanges by copy engines.
    clocks : their residual is the error bar of every figure that compares ranks.
    steps : those that the figures are of. untrusted : why not all collectives may be on record, "" where they are.
    """

    table: pd.DataFrame
    narrow_calls: pd.DataFrame
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
        first, count = alike(stored(self.narrow_calls, "collective"))
        of_calls = [stored(self.narrow_calls, name) for name in RankCall.__dataclass_fields__ if name != "transfer_ns"]
        names = [str(name) for name in self.table.columns]
        for row, begin, end in zip(self._rows(), first.tolist(), (first + count).tolist(), strict=True):
            *own, duration, wait = (column[begin:end].tolist() for column in of_calls)
            transfer = [took - waited for took, waited in zip(duration, wait, strict=True)]
            yield Collective(
                **dict(zip(names, row, strict=True)),
                ranks=tuple(RankCall(*call) for call in zip(*own, duration, wait, transfer, strict=True)),
            )

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for first in range(0, len(self), TOGETHER):
            part = self.table.iloc[first : first + TOGETHER]
            yield from zip(*(_plain(part[name]) for name in part), strict=True)

    @cached_property
    def calls(self) -> pd.DataFrame:
        """A row a rank's call: collective, then the fields of `RankCall`; sorted by (collective, rank). All int64."""
        names = [name for name in self.narrow_calls.columns if name != "member"]
        columns = {name: np.array(ints(self.narrow_calls, name)) for name in names}  # the user's own, to write to
        return framed(columns | {"transfer_ns": columns["duration_ns"] - columns["wait_ns"]})

    def by_device(self) -> pd.DataFrame:
        """One row a rank's device, indexed by (rank, device): how many collectives, and its calls' times summed, ns."""
        sums = self.calls.groupby(["rank", "device"])
        columns = ["duration_ns", "wait_ns", "transfer_ns"]
        return sums[columns].sum().assign(collectives=sums.size())[["collectives", *columns]]

    def to_frame(self) -> pd.DataFrame:
        """One row per collective and rank, indexed by (collective, rank): that rank's columns, then the collective's.

        Times in ns, `bytes` in bytes, `algorithm_gb_s` and `bus_gb_s` in 10⁹ bytes a second.
        """
        joined = self.calls.merge(self.table, left_on="collective", right_on="index").drop(columns="index")
        return joined.set_index(["collective", "rank"])

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
    present = np.unique(ints(trace.matches.calls, "collective")[np.isin(ints(trace.matches.calls, "op"), trace.rows)])
    table = whole.table[whole.table["index"].isin(present)].reset_index(drop=True)
    calls = whole.narrow_calls[whole.narrow_calls["collective"].isin(present)].reset_index(drop=True)
    position = np.searchsorted(ints(table, "index"), ints(calls, "collective"))
    renumbered = calls.assign(collective=position)
    return replace(
        whole,
        table=table,
        narrow_calls=calls,
        summary=summarize(table, renumbered),
        groups=sum_by_group(table, renumbered),
    )


def bus_factor(operation: str, ranks: int) -> float:
    """What nccl-tests multiplies the algorithm bandwidth by: doc/PERFORMANCE.md.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.75, 0.75, 1.0)
    """
    if operation not in _BUS_FACTORS or ranks < 1:
        return 1.0
    times, less = _BUS_FACTORS[operation]
    return (times * ranks - less) / ranks


def _calls(aligned: Aligned) -> pd.DataFrame:
    """`Collectives.narrow_calls`."""
    matched, ops = aligned.matches.calls, aligned.trace.ops
    op = ints(matched, "op")
    columns = {column: stored(matched, column) for column in ("collective", "member", "rank")}
    start = ops.start_ns[op]
    columns |= {"device": ops.device[op], "start_ns": start, "duration_ns": narrowed(ops.end_ns[op] - start, "id")}
    return framed(columns | {"wait_ns": squeezed(ops.wait_ns[op])})


def _table(aligned: Aligned, calls: pd.DataFrame) -> pd.DataFrame:
    matched = aligned.matches.collectives
    head, count = alike(stored(calls, "collective"))
    start = ints(calls, "start_ns")
    fastest, last, second_last, skew = _extremes(start, stored(calls, "duration_ns"), head, count)
    fastest_ns, fastest_rank, fastest_device = (
        ints_at(calls, name, fastest) for name in ("duration_ns", "rank", "device")
    )
    last_rank, last_device = (ints_at(calls, name, last) for name in ("rank", "device"))
    sizes, ranks = ints(matched, "bytes"), np.where(ints(matched, "group_size") > 0, ints(matched, "group_size"), count)
    operation_code, names = codes(matched, "operation")
    factor = np.array([[bus_factor(name, int(n)) for n in np.unique(ranks)] for name in names]).reshape(len(names), -1)
    seconds = fastest_ns / 1e9
    known = (sizes >= 0) & (seconds > 0)
    bandwidth = np.where(known, sizes / 1e9 / np.where(seconds > 0, seconds, 1.0), np.nan)
    bus = bandwidth * factor[operation_code, np.searchsorted(np.unique(ranks), ranks)] if len(matched) else bandwidth
    unknown = (count == 1) & (ints(matched, "group_size") <= 0)  # one rank of who knows how many
    return pd.DataFrame(
        {
            "index": np.arange(len(matched)),
            "operation": matched["operation"].array,
            "bytes": sizes,
            **{column: _filled(matched[column].array) for column in _TEXTS},
            "group_size": ints(matched, "group_size"),
            "communicator": _communicators(aligned, head),
            "fastest_ns": fastest_ns,
            "fastest_rank": fastest_rank,
            "fastest_device": fastest_device,
            "last_arrival_rank": np.where(count > 1, last_rank, -1),
            "last_arrival_device": np.where(count > 1, last_device, -1),
            "last_arrival_lead_ns": np.where(count > 1, start[last] - np.where(count > 1, second_last, 0), 0),
            "end_skew_ns": skew,
            "algorithm_gb_s": bandwidth,
            "bus_gb_s": np.where(unknown, np.nan, bus),
            **{column: matched[column].array for column in ("matched_by", "confidence", "sure")},
        }
    )


def _communicators(aligned: Aligned, head: Ints) -> Any:
    """NCCL's id of the communicator of each collective, of which `head` are the first calls."""
    groups, number = groups_of(aligned.trace, ints_at(aligned.matches.calls, "op", head))
    distinct = list(dict.fromkeys(["", *(one.communicator for one in groups)]))
    code = np.array([*(distinct.index(one.communicator) for one in groups), 0], np.int64)
    return pd.Categorical.from_codes(code[number], dtype=pd.CategoricalDtype(distinct))


def _filled(values: pd.Categorical) -> pd.Categorical:
    """The same texts with "" for a missing one."""
    return values.add_categories([""]).fillna("")


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


def _plain(column: pd.Series) -> list[Any]:
    """A table's column as the dataclass has it."""
    values = column.tolist()
    if column.name in ("bytes", "group_size", "last_arrival_rank", "last_arrival_device"):
        return [None if value == -1 else value for value in values]
    return values if column.dtype.kind in "iub" else [None if value != value else value for value in values]
