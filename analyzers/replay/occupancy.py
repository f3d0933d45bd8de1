"""Occupancy on the GPU: which units had to wait for it, and what each takes of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key, runs
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.occupancy import block_needs, blocks_per_sm, limits_of, occupancy_columns, room
from analyzers.ordering.lanes import MIN_NS
from analyzers.replay.model import COPYING, LARGE, SMALL, TALKING, TOLERANCE_NS, Occupancy, Units
from analyzers.trace.columns import ints, is_one_of
from analyzers.trace.kernels import is_communication
from analyzers.trace.tables import Trace

DISPATCH_NS = 10_000  # longest way from release to start on an idle GPU
PROMPT_NS = 3_000  # from release to start: not for lack of room
MOST_OF_IT = 0.5  # of what a multiprocessor holds


def no_room(trace: Trace, op: Ints, ready: Ints, start: Ints) -> tuple[Ints, Ints]:
    """For how long of the time from its release to its start the GPU had no room for each op, and from when on."""
    columns, found, begun = occupancy_columns(trace.ops), np.zeros(op.size, np.int64), ready.copy()
    owner, device = (ints(trace.ops, column) for column in ("process", "device"))
    slow = np.flatnonzero((ready > MIN_NS) & (start - ready > PROMPT_NS))
    for (process, gpu), rows in rows_by_key(owner[op[slow]], device[op[slow]]).items():
        limits, which = limits_of(trace, process, gpu), slow[rows]
        if limits is None:
            continue
        beside = np.flatnonzero((owner == process) & (device == gpu))
        pieces = room(columns, op[which], ready[which], start[which], beside, limits)
        full = np.flatnonzero(pieces.full)[::-1]  # the first piece of each is assigned last
        begun[which[pieces.row[full]]] = pieces.low_ns[full]
        np.add.at(found, which[pieces.row[full]], (pieces.high_ns - pieces.low_ns)[full])
    return found, begun


def occupancy_of(trace: Trace, units: Units) -> Occupancy:
    """What units take of their GPUs' multiprocessors, by their grids and by what the capture shows."""
    return _as_seen(_by_grids(trace, units.op), units, _kinds(trace, units.op))


def _by_grids(trace: Trace, op: Ints) -> Occupancy:
    columns, count = occupancy_columns(trace.ops), op.size
    owner, device, grid = (ints(trace.ops, column)[op] for column in ("process", "device", "grid"))
    gpu, needed, taken = np.zeros(count, np.int64), np.zeros((count, 4), np.int64), np.zeros((count, 4), np.int64)
    roomy = np.ones(count)
    fills, until, limits_of_gpu = np.zeros(count, dtype=bool), np.ones(count), []
    rest = np.zeros((count, 4), np.int64)
    for number, ((process, which), rows) in enumerate(rows_by_key(owner, device).items()):
        gpu[rows] = number
        limits = limits_of(trace, process, which)
        limits_of_gpu.append((0, 0, 0, 0))
        if limits is None:
            continue
        known = limits.registers > 0 and limits.shared_bytes > 0
        more = (limits.registers, limits.shared_bytes) if known else (0, 0)
        limits_of_gpu[-1] = (limits.threads, limits.blocks, *more)
        rows = rows[grid[rows] > 0]
        held = blocks_per_sm(columns, op[rows], limits)
        needs = block_needs(columns, op[rows], limits)
        of_block = np.stack([needs[name] for name in ("threads", "blocks", "registers", "shared")], axis=1)
        of_block[:, 2:] *= known
        needed[rows] = of_block
        taken[rows] = of_block * np.minimum(grid[rows] // limits.sms, held)[:, None]
        at_once = held * limits.sms
        waves = np.ceil(grid[rows] / at_once).astype(np.int64)
        fills[rows] = waves > 1
        # Blocks of a wave begin and end together, and are as quick as the memory that all share lets them be.
        until[rows] = np.where(waves > 1, (waves - 1) * at_once / grid[rows], 1.0)
        roomy[rows] = np.where(waves > 1, 1 - at_once / grid[rows], 1.0)
        rest[rows] = of_block * ((grid[rows] - (waves - 1) * at_once) // limits.sms * (waves > 1))[:, None]
    limits_of_all = np.array(limits_of_gpu, np.int64).reshape(-1, 4)
    part = (taken / np.maximum(limits_of_all[gpu], 1)).max(axis=1, initial=0)
    return Occupancy(
        _loads(trace, op, fills | (part >= MOST_OF_IT)), gpu, limits_of_all, needed, taken, fills, until, roomy, rest
    )


def _loads(trace: Trace, op: Ints, takes_most: Mask) -> Ints:
    """Which of `LOADS` each op is. A kernel of which nothing is known takes most of the GPU, and so does a graph."""
    ops = trace.ops
    host_copy = is_one_of(ops, "copy", ("HtoD", "DtoH"))[op] | is_one_of(ops, "kind", ("memset",))[op]
    known = ints(ops, "grid")[op] > 0
    return np.select([host_copy, is_communication(trace)[op], known & ~takes_most], [COPYING, TALKING, SMALL], LARGE)


def _kinds(trace: Trace, op: Ints) -> Ints:
    """Which ops are alike: one function, grid and block."""
    code, _ = trace.ops.name.codes, trace.ops.name.texts
    return label(code[op].astype(np.int64), *(ints(trace.ops, one)[op] for one in ("grid", "block")))


def _as_seen(occupancy: Occupancy, units: Units, kind: Ints) -> Occupancy:
    """The same with what the capture shows: when, beside a kernel that leaves no room, others began all the same.

    A kernel of 10 waves keeps others out for nine tenths of its time, if its blocks take equally long. Where one that
    was ready began after half of it, it kept others out for half of it, and no longer; so do its like.
    """
    seen = np.full(kind.size, np.nan)
    for (gpu,), rows in rows_by_key(occupancy.gpu).items():
        order = rows[np.argsort(units.start_ns[rows], kind="stable")]
        takers = order[occupancy.fills[order] | (occupancy.taken[order].sum(axis=1) > 0)]
        starts = units.start_ns[order]
        low = np.searchsorted(starts, units.start_ns[takers] + TOLERANCE_NS)
        high = np.searchsorted(starts, units.end_ns[takers] + DISPATCH_NS)
        at, which = runs(low, np.maximum(high - low, 0))
        unit, taker = order[at], takers[which]
        kept_out = (units.lane[unit] != units.lane[taker]) & (occupancy.needed[unit, 0] > 0)
        fits = np.all(occupancy.taken[taker] + occupancy.needed[unit] <= occupancy.limits[gpu], axis=1)
        kept_out &= (units.ready_ns[unit] < units.end_ns[taker] - TOLERANCE_NS) & (occupancy.fills[taker] | ~fits)
        unit, taker = unit[kept_out], taker[kept_out]
        length = np.maximum(units.end_ns[taker] - units.start_ns[taker], 1)
        held = units.start_ns[unit] - np.maximum(units.ready_ns[unit], units.start_ns[taker]) > DISPATCH_NS
        room_at = units.start_ns[unit] - np.where(held, units.room_ns[unit], 0)
        part = np.clip((room_at - units.start_ns[taker]) / length, 0, 1)
        tells = held | (part < occupancy.until[taker])
        np.fmin.at(seen, taker[tells], part[tells])
    known = np.flatnonzero(~np.isnan(seen))
    usual = pd.Series(seen[known]).groupby(kind[known]).median().reindex(kind).to_numpy()
    seen = np.where(np.isnan(seen), usual, seen)
    is_seen = ~np.isnan(seen)
    return replace(
        occupancy,
        until=np.where(is_seen, seen, occupancy.until),
        roomy=np.where(is_seen, seen, occupancy.roomy),
        rest=np.where(is_seen[:, None], 0, occupancy.rest),
    )
