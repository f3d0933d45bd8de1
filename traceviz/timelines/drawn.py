"""What is drawn of one part of a run: its bands with their marks, numbered as if there were no other part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record, values
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.points import SyncPoint
from analyzers.syncs.report import OrderReport
from analyzers.trace.columns import ints, ints_at
from analyzers.trace.regions import launch_span
from analyzers.trace.run import First
from analyzers.trace.steps import step_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult
from analyzers.verdict.held import held_by_device
from analyzers.verdict.part import sides_of
from traceviz.timelines import parts
from traceviz.timelines.areas import SHOWN, present
from traceviz.timelines.marks import NEVER, ROLE, Marks, join
from traceviz.timelines.ranges import on_gpu, user_ranges
from traceviz.timelines.rows import Band, bands
from traceviz.timelines.texts import Texts

Span = tuple[int, int]


class Work(Record, frozen=True):
    """From when to when a run, or a part of it, works, ns.

    launched : from the first launch to the last op's end; ops : of ops alone; steps : of those in steps, None where
        there are none.
    """

    launched: Span
    ops: Span
    steps: Span | None


def work_of(trace: Trace) -> Work:
    """That of a part."""
    start, end = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
    rows = np.flatnonzero(_in_steps(trace))
    steps = (int(start[rows].min()), int(end[rows].max())) if rows.size else None
    return Work(launch_span(trace), (int(start.min()), int(end.max())), steps)


def join_work(found: Sequence[Work]) -> Work:
    """That of all parts."""
    steps = [one.steps for one in found if one.steps is not None]
    return Work(
        _around([one.launched for one in found]),
        _around([one.ops for one in found]),
        _around(steps) if steps else None,
    )


def _around(spans: Sequence[Span]) -> Span:
    return min(low for low, _ in spans), max(high for _, high in spans)


class DrawnBand(Record, frozen=True):
    """A band and what stands on it; marks name rows of its part, and texts of its own.

    sampled : its GPU counters, one a row.
    """

    band: Band
    marks: Marks
    texts: tuple[str, ...]
    gaps: tuple[parts.Gap, ...]
    sampled: tuple[str, ...]


def drawn_bands(
    trace: Trace,
    first: First,
    work: Work,
    result: OverlapResult,
    order: OrderReport,
    titles: Mapping[tuple[int, int], str],
    counters: Sequence[str],
) -> Iterator[DrawnBand]:
    """The bands of a part of a run, by rank.

    Parameters
    ----------
    trace : with processes numbered as in the run. first : where its ops begin in the run. work : of the run.
    result, order : of the run. titles : (rank, device) -> what stands above its band.
    counters : which GPU counters to show.
    """
    a, b = sides_of(trace, result.a, result.b, result.agreed)
    side = np.where(a.picked, 0, np.where(b.picked, 1, 2))
    held = held_by_device(trace, result)
    missed = {
        key: "".join(letter for k, letter in enumerate("ab") if np.any(one.side == k)) for key, one in held.items()
    }
    ranges = user_ranges(trace, side, work.launched)
    depths = {key: int(of_thread.depth.max()) + 1 for key, of_thread in ranges.items()}
    on_device = on_gpu(trace, side)
    levels = {key: int(one.level.max()) + 1 for key, one in on_device.items()}
    devices = rows_by_key(ints(trace.ops, "process"), ints(trace.ops, "device"))
    here = {process for process, _ in devices}
    sampled = {(process, device): present(trace, process, device, counters) for process, device in devices}
    labels = {key: [SHOWN[name][0] for name in names] for key, names in sampled.items()}
    blocked = {process: threads for process, threads in _blocked_threads(order).items() if process in here}
    found = bands(trace, blocked, dict(titles), missed, depths, levels, labels)
    points: dict[int, list[SyncPoint]] = {}
    for point in order.syncs:
        if point.process in here:
            points.setdefault(point.process, []).append(point)
    table = order.crossings.table
    missing = table[(table["status"] == "unordered") & table["process"].isin(here)]
    missing = missing.assign(
        **{name: np.where(missing[name] >= 0, missing[name] - first.op, missing[name]) for name in ("op", "behind")}
    )
    last_launch = _last_launches(trace, has_steps=work.steps is not None)
    by_device = {(band.process, band.device): band for band in found}
    for band in found:
        texts, gaps = Texts(), list[parts.Gap]()
        marks = parts.ops(trace, band, side, texts) + parts.overlap(trace, band, side)
        marks += parts.ranges(trace, band, ranges, work.launched, texts)
        marks.append(parts.calls(trace, band, side, texts))
        marks.append(parts.syncs(points.get(band.process, []), band, texts, last_launch.get(band.process, NEVER)))
        if (band.process, band.rank, band.device) in on_device:
            of_band = on_device[band.process, band.rank, band.device]
            marks.append(parts.projected(trace, band, of_band, texts))
        marks.append(parts.races(trace, missing, band, texts))
        if (band.rank, band.device) in held:
            marks.append(parts.missed(band, held[band.rank, band.device], texts))
            gaps += parts.gaps(trace, band, held[band.rank, band.device])
        drawn = _behind(trace, by_device, join(marks))
        yield DrawnBand(band, drawn, tuple(texts.lines), tuple(gaps), tuple(sampled[band.process, band.device]))


def _blocked_threads(order: OrderReport) -> dict[int, list[int]]:
    """Process -> threads that were blocked somewhere."""
    table = order.syncs.table
    threads = rows_by_key(ints(table, "process"), ints(table, "thread"))
    found: dict[int, list[int]] = {}
    for process, thread in threads:
        found.setdefault(process, []).append(thread)
    return found


def _last_launches(trace: Trace, *, has_steps: bool) -> dict[int, int]:
    """When the last op of each process was launched, ns, of those in steps where the run has any."""
    launch = ints(trace.ops, "launch")
    known = np.flatnonzero((launch >= 0) & _in_steps(trace) if has_steps else launch >= 0)
    launched = ints(trace.api, "start_ns")[launch[known]]
    by_process = rows_by_key(ints_at(trace.ops, "process", known))
    return {process: int(launched[rows].max()) for (process,), rows in by_process.items()}


def _in_steps(trace: Trace) -> Mask:
    return step_of_ops(trace) >= 0


def _behind(trace: Trace, by_device: Mapping[tuple[int, int], Band], marks: Marks) -> Marks:
    """For each op: the op that an event made it wait for (end and row)."""
    single = np.flatnonzero((marks.role <= ROLE["other-wait"]) & (marks.after_row >= 0))
    race = marks.role == ROLE["race"]
    after, after_row = np.where(race, marks.after, NEVER), np.where(race, marks.after_row, -1)
    if single.size:
        whole = trace.whole or trace
        op = marks.after_row[single] if trace.rows is None else trace.rows[marks.after_row[single]]
        waited = whole.once(Ordering).released_by(op).waited
        row = _rows_of_ops(whole, by_device, waited)
        known = row >= 0
        after[single[known]] = ints(whole.ops, "end_ns")[waited[known]]
        after_row[single[known]] = row[known]
    return Marks(**{**values(marks), "after": after, "after_row": after_row})


def _rows_of_ops(trace: Trace, by_device: Mapping[tuple[int, int], Band], ops: Ints) -> Ints:
    """The row of each op (-1: of none), on which it would be drawn."""
    row = np.full(ops.size, -1, np.int64)
    keys = [np.where(ops >= 0, ints(trace.ops, name)[ops], -1) for name in ("process", "device", "context", "stream")]
    for (process, device, context, stream), rows in rows_by_key(*keys).items():
        band = by_device.get((process, device))
        row[rows] = band.streams.get((context, stream), -1) if band is not None else -1
    return row
