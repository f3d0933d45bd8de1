"""What was found in a trace as tracks of their own in a Chrome trace: sides, overlap, waits, causes, host syncs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analyzers.arrays.groups import alike, rows_by_key
from analyzers.arrays.intervals import Union, intersect, subtract, union
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.pieces import GapPieces
from analyzers.causes.table import CAUSES
from analyzers.collectives.costs import Collectives
from analyzers.export.perfetto_lines import Column, Events, Tracks
from analyzers.overlap.measure import RankOverlap
from analyzers.syncs.order_report import OrderReport
from analyzers.trace.columns import as_int64
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult
from analyzers.verdict.part import sides_of
from analyzers.verdict.with_order import held_by_device

FOUND = "traceviz"  # begins the category of each finding
COLLECTIVE = f"{FOUND}.collective"
JOB = "all ranks: collectives"


def findings_process(trace: Trace, tracks: Tracks, process: int, device: int) -> int:
    """The pid of what was found about one device of a process."""
    return tracks.process(("findings", process, device), f"{rank_title(trace, process)}: findings, GPU {device}")


def rank_title(trace: Trace, process: int) -> str:
    """What to call a process: by its rank, or by its id where it has none."""
    rank = trace.processes[process].rank
    return f"rank {rank}" if rank >= 0 else f"process {trace.processes[process].pid}"


def finding_events(trace: Trace, tracks: Tracks, result: OverlapResult, order: OrderReport) -> Iterator[Events]:
    """Findings of each (process, device) of a part of a run: times are ns on its clock, args carry ns, too."""
    a, b = sides_of(trace, result.a, result.b, result.agreed)
    by_device = {(one.rank, one.device): one for one in result.ranks}
    held = held_by_device(trace, result)
    keys = [as_int64(column) for column in (trace.ops.process, trace.ops.device, trace.ops.rank)]
    for (process, device, rank), rows in rows_by_key(*keys).items():
        pid = findings_process(trace, tracks, process, device)
        found = by_device.get((rank, device))
        if found is not None:
            yield from _overlaps(trace, tracks, pid, rows, (a.picked, b.picked), result)
            yield from _instances(tracks, pid, found)
            if (rank, device) in held:
                yield from _missed(trace, tracks, pid, held[rank, device])
        yield from _waits(trace, tracks, pid, rows)
        yield from _order(tracks, pid, order, process, device)


def collective_events(trace: Trace, tracks: Tracks, found: Collectives) -> Iterator[Events]:
    """One slice a collective, from its first start to its last end; args are the columns of `Matches.collectives`."""
    if trace.matches is None or not len(found.table):
        return
    calls, table = found.calls, found.table
    head, _ = alike(calls.collective)
    low = np.minimum.reduceat(calls.start_ns, head)
    high = np.maximum.reduceat(calls.start_ns + calls.duration_ns, head)
    matched = trace.matches.collectives
    args: dict[str, Any] = {"index": np.arange(len(matched))}
    args |= {name: one.to_pandas() if isinstance(one, Names) else one for name, one in matched.columns.items()}
    for column in ("fastest_ns", "fastest_rank", "last_arrival_rank", "last_arrival_lead_ns", "end_skew_ns"):
        args[column] = table.columns[column]
    args["bus_gb_s"] = table.bus_gb_s
    pid = tracks.process(("job",), JOB)
    tid = tracks.spread(pid, "collectives", low, high)
    yield Events("X", COLLECTIVE, args["operation"], tracks.pids(tid), tid, low, high - low, args)


def _overlaps(
    trace: Trace, tracks: Tracks, pid: int, rows: Ints, sides: tuple[Mask, Mask], result: OverlapResult
) -> Iterator[Events]:
    ops = trace.ops
    starts, ends, waits = (as_int64(column)[rows] for column in (ops.start_ns, ops.end_ns, ops.wait_ns))
    side_rows = [side[rows] for side in sides]
    plain = [union(starts[one], ends[one]) for one in side_rows]
    real = intersect(*(union((starts + waits)[one], ends[one]) for one in side_rows))
    both = intersect(*plain)
    shown: list[tuple[str, str, Union]] = [
        ("A", f"A: {result.a}", plain[0]),
        ("B", f"B: {result.b}", plain[1]),
        ("overlap", "overlap of A and B, real", real),
        ("wait", "overlap of A and B, only waiting", subtract(both, real)),
    ]
    for name, track, found in shown:
        yield from _slices(tracks, pid, track, f"{FOUND}.overlap", name, found.starts, found.ends)


def _instances(tracks: Tracks, pid: int, found: RankOverlap) -> Iterator[Events]:
    each, track = found.instances, "instances of the pair"
    columns = ("a_busy_ns", "b_busy_ns", "real_overlap_ns", "achievable_ns", "missed_ns")
    args, label = {column: getattr(each, column) for column in columns}, _texts([*each.label])
    yield from _slices(tracks, pid, track, f"{FOUND}.instance", label, each.start_ns, each.end_ns, args)


def _missed(trace: Trace, tracks: Tracks, pid: int, held: GapPieces) -> Iterator[Events]:
    """Pieces of gaps by their cause, with its evidence."""
    names = (trace.whole or trace).ops.name
    evidence = np.array([*held.evidence, ""], object)[held.words]
    for side, letter in enumerate("AB"):
        rows = np.flatnonzero(held.side == side)
        cause = pd.Categorical.from_codes(held.cause[rows], dtype=pd.CategoricalDtype(list(CAUSES)))
        op = names.take(held.op[rows]).to_pandas()
        args = {"held": op, "alone_ns": held.alone_ns[rows], "evidence": evidence[rows].tolist()}
        track, category = f"missed, {letter} idle: cause", f"{FOUND}.missed"
        yield from _slices(tracks, pid, track, category, cause, held.start_ns[rows], held.end_ns[rows], args, _NOTHING)


_NOTHING = {"evidence": "", "range": "", "op": "", "chain": "", "copy": "", "delayed": "", "pattern": "", "bytes": -1}


def _waits(trace: Trace, tracks: Tracks, pid: int, rows: Ints) -> Iterator[Events]:
    start, wait = trace.ops.start_ns[rows], as_int64(trace.ops.wait_ns)[rows]
    waited = np.flatnonzero(wait > 0)
    name = trace.ops.name.take(rows[waited]).to_pandas()
    args = {"of": name, "wait_ns": wait[waited]}
    track = "collectives waiting for a late rank"
    yield from _slices(tracks, pid, track, f"{FOUND}.wait", "wait", start[waited], (start + wait)[waited], args)


def _order(tracks: Tracks, pid: int, order: OrderReport, process: int, device: int) -> Iterator[Events]:
    """Host sync points and unwaited copies as slices, missing waits as instants."""
    syncs = order.syncs
    syncs = syncs.take((syncs.process == process) & np.isin(syncs.device, (device, -1)))
    texts = ("kind", "range", "op", "pattern", "copy", "delayed")
    args: dict[str, Any] = {column: syncs.columns[column].tolist() for column in texts}
    args |= {column: syncs.columns[column] for column in ("thread", "bytes", "gpu_idle_ns", "after_ns")}
    end, name = syncs.start_ns + syncs.duration_ns, _texts([*map(str, syncs.api)])
    yield from _slices(tracks, pid, "host blocked", f"{FOUND}.sync", name, syncs.start_ns, end, args, _NOTHING)
    copies = order.copies
    copies = copies.take(copies.process == process)
    args = {"stream": copies.stream, "bytes": copies.bytes, "until_ns": copies.until_ns}
    span = copies.start_ns, copies.end_ns
    yield from _slices(tracks, pid, "copies nobody waits for", f"{FOUND}.unwaited-copy", "unwaited copy", *span, args)
    missing = [one for one in order.crossings.missing if one.process == process]
    if missing:
        tid = np.full(len(missing), tracks.thread(pid, "missing waits"), np.int64)
        at = np.array([one.at_ns for one in missing], np.int64)
        args = {"message": [one.message for one in missing]}
        category = f"{FOUND}.missing-wait"
        yield Events("i", category, "missing wait", tracks.pids(tid), tid, at, args=args, head={"s": "t"})


def _slices(
    tracks: Tracks,
    pid: int,
    track: str,
    category: str,
    name: Any,
    starts: Ints,
    ends: Ints,
    args: Mapping[str, Column] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Iterator[Events]:
    """Slices of one track, if there are any."""
    if starts.size:
        tid = tracks.spread(pid, track, starts, ends)
        yield Events("X", category, name, tracks.pids(tid), tid, starts, ends - starts, args or {}, defaults or {})


def _texts(values: list[str]) -> pd.Categorical:
    return pd.Categorical(values, categories=pd.Index(list(dict.fromkeys(values)), dtype="str"))
