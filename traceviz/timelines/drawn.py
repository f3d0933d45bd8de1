"""What is drawn of one part of a run: its bands with their marks, numbered as if there were no other part."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, intersect, subtract, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.crossings import Crossing
from analyzers.syncs.points import SyncPoint
from analyzers.syncs.report import OrderReport
from analyzers.trace.columns import as_int64, codes, ints, ints_at
from analyzers.trace.narrow import in_whole
from analyzers.trace.ranges import launch_span, launches
from analyzers.trace.run import First
from analyzers.trace.steps import step_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult
from analyzers.verdict.part import sides_of
from analyzers.verdict.with_order import held_by_device
from traceviz.output.quantities import duration
from traceviz.timelines.areas import SHOWN, present
from traceviz.timelines.gaps import Gap, blocked_marks, gaps_of
from traceviz.timelines.marks import NEVER, ROLE, Marks, join, make
from traceviz.timelines.ranges import OTHER, A, B, RangesInRows, ranges_by_thread, ranges_on_gpu
from traceviz.timelines.rows import Band, bands, rows_of_ops
from traceviz.timelines.texts import Texts

# What tells one missing wait from another in words.
NAMED_IN_MESSAGE = ("what", "stream", "other", "exact", "name", "range", "behind_name", "behind_range")
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
    start, end = trace.ops.start_ns, trace.ops.end_ns
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
    gaps: tuple[Gap, ...]
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
    side = np.where(a.picked, A, np.where(b.picked, B, OTHER))
    held = held_by_device(trace, result)
    missed = {
        key: "".join(letter for k, letter in enumerate("ab") if np.any(one.side == k)) for key, one in held.items()
    }
    of_threads, on_gpu = ranges_by_thread(trace, side, work.launched), ranges_on_gpu(trace, side)
    devices = rows_by_key(as_int64(trace.ops.process), as_int64(trace.ops.device))
    here = {process for process, _ in devices}
    sampled = {(process, device): present(trace, process, device, counters) for process, device in devices}
    labels = {key: [SHOWN[name][0] for name in names] for key, names in sampled.items()}
    points: dict[int, list[SyncPoint]] = {process: [] for process in here}
    for point in order.syncs:
        if point.process in here:
            points[point.process].append(point)
    blocked = {process: [one.thread for one in of_process] for process, of_process in points.items()}
    missing = _missing_waits(order, here, first.op)
    last_launch = _last_launches(trace, has_steps=work.steps is not None)
    found = bands(trace, titles, blocked, of_threads, on_gpu, missed, labels)
    for band in found:
        texts, where, last = Texts(), (band.rank, band.device), last_launch.get(band.process, NEVER)
        marks = [*op_marks(trace, band, side, texts), *overlap_marks(trace, band, side)]
        for thread, numbers in band.ranges.items():
            marks.append(range_marks(trace, of_threads[band.process, thread], numbers, texts))
        marks += [call_marks(trace, band, side, texts), sync_marks(points[band.process], band, texts, last)]
        if (band.process, *where) in on_gpu:
            rows = [row.number for row in band.rows if row.kind == "projected"]
            marks.append(range_marks(trace, on_gpu[(band.process, *where)], rows, texts))
        marks.append(race_marks(trace, missing, band, found, texts))
        gaps: list[Gap] = []
        if where in held:
            marks.append(blocked_marks(band, held[where], texts))
            gaps = gaps_of(trace, band, held[where])
        joined = _behind(trace, found, join(marks))
        yield DrawnBand(band, joined, tuple(texts.lines), tuple(gaps), tuple(sampled[band.process, band.device]))


def _missing_waits(order: OrderReport, processes: Collection[int], first_op: int) -> pd.DataFrame:
    """Crossings without a wait in some processes, with ops counted from `first_op` on; -1 stays."""
    table = order.crossings.table
    missing = table[(table["status"] == "unordered") & table["process"].isin(processes)]
    ops = {name: np.where(missing[name] >= 0, missing[name] - first_op, missing[name]) for name in ("op", "behind")}
    return missing.assign(**ops)


def _last_launches(trace: Trace, *, has_steps: bool) -> dict[int, int]:
    """When the last op of each process was launched, ns, of those in steps where the run has any."""
    launch = as_int64(trace.ops.launch)
    known = np.flatnonzero((launch >= 0) & _in_steps(trace) if has_steps else launch >= 0)
    launched = trace.api.start_ns[launch[known]]
    by_process = rows_by_key(ints_at(trace.ops, "process", known))
    return {process: int(launched[rows].max()) for (process,), rows in by_process.items()}


def _in_steps(trace: Trace) -> Mask:
    return step_of_ops(trace) >= 0


def _behind(trace: Trace, found: Sequence[Band], marks: Marks) -> Marks:
    """For each op: the op that an event made it wait for (end and row)."""
    single = np.flatnonzero((marks.role <= ROLE["other-wait"]) & (marks.after_row >= 0))
    race = marks.role == ROLE["race"]
    after, after_row = np.where(race, marks.after, NEVER), np.where(race, marks.after_row, -1)
    if single.size:
        whole = trace.whole or trace
        op = marks.after_row[single] if trace.rows is None else trace.rows[marks.after_row[single]]
        waited = whole.once(Ordering).released_by(op).waited
        row = rows_of_ops(whole, found, waited)
        known = row >= 0
        after[single[known]] = whole.ops.end_ns[waited[known]]
        after_row[single[known]] = row[known]
    return replace(marks, after=after, after_row=after_row)


def op_marks(trace: Trace, band: Band, side: Ints, texts: Texts) -> list[Marks]:
    """The ops of a band; of a collective that waited the wait and the transfer apart."""
    table, rows = trace.ops, band.ops
    start, end, wait = (ints(table, name)[rows] for name in ("start_ns", "end_ns", "wait_ns"))
    row = rows_of_ops(trace, [band], rows)
    thread, launched, _ = launches(trace)
    known = ints(table, "launch")[rows] >= 0
    code, names = codes(table, "name")
    more = {
        "name": texts.numbers(code[rows], names),
        "launch": np.where(known, launched[rows], NEVER),
        "launch_row": np.where(known, band.rows_of_threads(thread[rows]), -1),
        "bytes": ints(table, "bytes")[rows],
        "wait": wait,
        "whole": np.where(wait > 0, end - start, 0),
        "after_row": rows,  # the op itself, for `_behind`
    }
    run = make(row, side[rows] * 2, start + wait, end, **more)
    waits = np.flatnonzero(wait > 0)
    waiting = make(row, side[rows] * 2 + 1, start, start + wait, **more).take(waits)
    return [run, waiting]


def call_marks(trace: Trace, band: Band, side: Ints, texts: Texts) -> Marks:
    """The calls that launched a band's ops, on their threads."""
    launch = as_int64(trace.ops.launch)[band.ops]
    rows, first = np.unique(launch, return_index=True)
    rows, first = rows[rows >= 0], band.ops[first[rows >= 0]]
    row = band.rows_of_threads(as_int64(trace.api.thread)[rows])
    api_code, api_names = trace.api.name.codes, trace.api.name.texts
    code, names = trace.ops.name.codes, trace.ops.name.texts
    start, end = trace.api.start_ns[rows], trace.api.end_ns[rows]
    name, extra = texts.numbers(api_code[rows], api_names), texts.numbers(code[first], names)
    return make(row, ROLE["launch-a"] + side[first], start, end, name=name, extra=extra)


def range_marks(trace: Trace, found: RangesInRows, rows: Sequence[int], texts: Texts) -> Marks:
    """The user's ranges of a thread, or on a device, on its rows by level."""
    code, names = trace.ranges.name.codes, trace.ranges.name.texts
    name = texts.numbers(code[found.rows], names)
    row = np.array(rows, np.int64)[found.level]
    return make(row, ROLE["range-a"] + found.side, found.start_ns, found.end_ns, name=name)


def sync_marks(found: Sequence[SyncPoint], band: Band, texts: Texts, last_launch_ns: int) -> Marks:
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


def race_marks(trace: Trace, missing: pd.DataFrame, band: Band, bands: Sequence[Band], texts: Texts) -> Marks:
    """Ops that a stream took without waiting for what another had in flight; `after` says which."""
    here = in_whole(trace, np.arange(len(trace.ops)))
    found = missing[missing["process"] == band.process]
    op = here[found["op"].to_numpy(np.int64)]
    of_band = np.flatnonzero((op >= 0) & np.isin(op, band.ops))
    found, op = found.iloc[of_band], op[of_band]
    whole = trace.whole or trace
    behind = found["behind"].to_numpy(np.int64)
    after_row = rows_of_ops(whole, bands, behind)
    code, names = trace.ops.name.codes, trace.ops.name.texts
    return make(
        rows_of_ops(trace, [band], op),
        ROLE["race"],
        trace.ops.start_ns[op],
        trace.ops.end_ns[op],
        name=texts.numbers(code[op], names),
        extra=_messages(found, texts),
        after=np.where(after_row >= 0, whole.ops.end_ns[behind], NEVER),
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


def overlap_marks(trace: Trace, band: Band, side: Ints) -> list[Marks]:
    """What lies in A and in B: with waits left out, and the rest, where one of them only waited."""
    starts, ends, waits = (ints(trace.ops, name)[band.ops] for name in ("start_ns", "end_ns", "wait_ns"))
    sides = [side[band.ops] == which for which in (0, 1)]
    plain = intersect(*(union(starts[side_ops], ends[side_ops]) for side_ops in sides))
    real = intersect(*(union((starts + waits)[side_ops], ends[side_ops]) for side_ops in sides))
    row = band.row("overlap")
    found: list[tuple[str, Union]] = [("overlap", real), ("overlap-wait", subtract(plain, real))]
    return [make(row, ROLE[role], some.starts, some.ends, name=-1) for role, some in found]
