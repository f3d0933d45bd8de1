"""How units share a GPU: which had to wait for room, what each takes of it, and how much slower they go on.

A unit that took d, a share c of it beside others, did d (1 − α c) of work. Where like ones ran alone, their time is
that work, and α follows, for each load that was beside it; a unit that ran alone has the α of its like. Where nothing
tells, α lies between 0 (others don't slow it) and 0.5 (two beside each other take as long as one after the other:
nothing is gained). Most likely it is the median of those of such a load beside such another in the capture, or of that
beside this, or what is usual (`USUAL`).

How much longer kernels take on a GPU that a change keeps busier: at the limit of its power its clock falls.

The power a chip takes grows as the clock's 2.5th power or so, and over milliseconds it is held to a limit. Where that
is reached by computing for a share r of the time, computing for a larger share s slows the clock to (r / s) ** 0.4 of
what it was. Tensor cores take most, and it is what runs on them that gets longer. Nothing in a trace says whether and
when a GPU reaches its limit. On two H200s the same matmuls took up to 8 % longer after a change that made the GPU
busier, mostly from a share of 0.8 on (docs/measured/what-if.md has them).
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key, runs
from analyzers.arrays.intervals import overlap_by_group, union
from analyzers.arrays.quantiles import ByGroup
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.causes.occupancy import block_needs, blocks_per_sm, limits_of, occupancy_columns, room
from analyzers.contention.alone import MAX_SHARE_ALONE, alone
from analyzers.contention.timings import join, over_all_ranks, timings_of_streams
from analyzers.ordering.lanes import MIN_NS
from analyzers.replay.model import COPYING, LARGE, LOADS, SMALL, TALKING, TOLERANCE_NS, WAITING, Occupancy, Units
from analyzers.trace.columns import ints
from analyzers.trace.kernels import function, is_communication, is_compute
from analyzers.trace.tables import Trace

MAX_DISPATCH_NS = 10_000  # longest way from release to start on an idle GPU
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
    host_copy = ops.copy.is_one_of(("HtoD", "DtoH"))[op] | ops.kind.is_one_of(("memset",))[op]
    known = ints(ops, "grid")[op] > 0
    return np.select([host_copy, is_communication(trace)[op], known & ~takes_most], [COPYING, TALKING, SMALL], LARGE)


def _kinds(trace: Trace, op: Ints) -> Ints:
    """Which ops are alike: one function, grid and block."""
    return label(trace.ops.name.codes[op], *(ints(trace.ops, one)[op] for one in ("grid", "block")))


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
        high = np.searchsorted(starts, units.end_ns[takers] + MAX_DISPATCH_NS)
        at, which = runs(low, np.maximum(high - low, 0))
        unit, taker = order[at], takers[which]
        kept_out = (units.lane[unit] != units.lane[taker]) & (occupancy.needed[unit, 0] > 0)
        fits = np.all(occupancy.taken[taker] + occupancy.needed[unit] <= occupancy.limits[gpu], axis=1)
        kept_out &= (units.ready_ns[unit] < units.end_ns[taker] - TOLERANCE_NS) & (occupancy.fills[taker] | ~fits)
        unit, taker = unit[kept_out], taker[kept_out]
        length = np.maximum(units.end_ns[taker] - units.start_ns[taker], 1)
        held = units.start_ns[unit] - np.maximum(units.ready_ns[unit], units.start_ns[taker]) > MAX_DISPATCH_NS
        room_at = units.start_ns[unit] - np.where(held, units.room_ns[unit], 0)
        part = np.clip((room_at - units.start_ns[taker]) / length, 0, 1)
        tells = held | (part < occupancy.until[taker])
        np.fmin.at(seen, taker[tells], part[tells])
    usual = ByGroup(seen, kind).median[kind]
    seen = np.where(np.isnan(seen), usual, seen)
    is_seen = ~np.isnan(seen)
    return replace(
        occupancy,
        until=np.where(is_seen, seen, occupancy.until),
        roomy=np.where(is_seen, seen, occupancy.roomy),
        rest=np.where(is_seen[:, None], 0, occupancy.rest),
    )


NO_GAIN = 0.5
LITTLE_TAKEN = 0.1  # at most, of a copy to or from the host, and beside one or communication that waits
MOST_SLOWDOWN = 0.9
ALIKE_SPREAD = 0.2  # times alone that differ by more are not of like units: of collectives whose sizes nobody knows
LITTLE_BESIDE = 0.05  # of a unit's time beside others: too little to tell how slow it was there
MOSTLY_BESIDE = 0.8  # of a unit's time beside others, beside one load: how slow it was is due to that
# What a load (row) loses beside another (column): a copy, communication that waits, a kernel that leaves room, one that
# takes most of the GPU, communication. Beside an all-reduce on H100s matmuls take 1.26 to 1.48 times as long, and it
# takes 1.17 times as long (docs/contention.md): 15 to 32 % of their pace. Two that want all of one link gain nothing.
USUAL = np.array(
    [
        [0.02, 0.0, 0.02, 0.02, 0.02],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.02, 0.05, 0.05, 0.25, 0.15],
        [0.02, 0.05, 0.1, 0.3, 0.25],
        [0.02, 0.05, 0.1, 0.25, 0.5],
    ]
)


class Slowdown(msgspec.Struct, frozen=True):
    """Per unit what it takes in the capture, and per unit and load, those of `LOADS`, what it loses beside others.

    beside : shares of its time in the capture beside others, of which the last load of `LOADS` is this one.
    least_slower, likely_slower, most_slower : the share of its pace that it loses meanwhile, as far as that is known.
    known : whether the capture tells.
    """

    duration_ns: Floats
    beside: Floats
    least_slower: Floats
    likely_slower: Floats
    most_slower: Floats
    known: Mask

    def alone_ns(self, slower: Floats) -> Floats:
        """What each takes alone, ns, if it loses so much beside others."""
        return self.duration_ns * (1 - (slower * self.beside).sum(axis=1))


def slowdown(trace: Trace, units: Units, occupancy: Occupancy) -> Slowdown:
    """Find what each unit takes alone and loses beside others."""
    own = over_all_ranks(join([timings_of_streams(trace)]))
    duration = units.transfer_ns.astype(float)
    beside = _beside(units, occupancy.load) / np.maximum(duration, 1)[:, None]
    shared = np.clip(beside.sum(axis=1), 0.0, 1.0)
    kind, alone_ns = own.kind[units.op], alone(own).taken_ns[own.kind[units.op]]
    alone_ns = np.where(
        _scatter(kind, np.where(shared <= MAX_SHARE_ALONE, duration, np.nan)) <= ALIKE_SPREAD, alone_ns, np.nan
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        slower = np.where(
            shared >= LITTLE_BESIDE, np.clip((1 - alone_ns / duration) / shared, 0, MOST_SLOWDOWN), np.nan
        )
    found = _by_load(slower, beside, shared, kind)
    known = ~np.isnan(found)
    likely = _usual(found, occupancy.load)
    most = np.where((occupancy.load == COPYING)[:, None] | (np.arange(len(LOADS)) <= WAITING), LITTLE_TAKEN, NO_GAIN)
    most = np.maximum(most, likely)  # what others lose here may be more
    least, guess, most = (np.where(known, found, other) for other in (np.zeros_like(likely), likely, most))
    return Slowdown(duration, beside, least, guess, most, known)


def _by_load(slower: Floats, beside: Floats, shared: Floats, kind: Ints) -> Floats:
    """What each unit loses beside each load: as measured, else the median of its like; beside it alone, if any was."""
    mostly = beside >= MOSTLY_BESIDE * shared[:, None]
    some = beside >= np.minimum(LITTLE_BESIDE, MOSTLY_BESIDE * shared)[:, None]
    found = np.full(beside.shape, np.nan)
    for which in (mostly, some):
        own = np.where(which, slower[:, None], np.nan)
        for better in (own, _medians(own, kind)[kind]):
            found = np.where(np.isnan(found), better, found)
    return found


def _medians(of_load: Floats, group: Ints, groups: int | None = None) -> Floats:
    """Of values per unit and load the medians per group and load, those that are NaN left out."""
    return np.stack([ByGroup(of_one, group, groups).median for of_one in of_load.T], axis=1)


def _usual(found: Floats, load: Ints) -> Floats:
    """What each unit most likely loses beside each load: the median of such a load beside it here, or what is usual.

    What two contend for both lose: where only what the other loses was seen, it is that.
    """
    seen = _medians(found, load, len(LOADS))
    seen = np.where(np.isnan(seen), seen.T, seen)
    return np.where(np.isnan(seen), USUAL, seen)[load]


def _scatter(kind: Ints, taken: Floats) -> Floats:
    """By how much the times alone of each unit's kind differ, of their median: from their first tenth to their last.

    NaN of a kind that was never alone, or takes no time.
    """
    of_kind = ByGroup(taken, kind)
    low, middle, high = (of_kind.quantile(part)[kind] for part in (0.1, 0.5, 0.9))
    return np.divide(high - low, middle, out=np.full(len(taken), np.nan), where=middle > 0)


def _beside(units: Units, load: Ints) -> Ints:
    """For how long of each unit's work others were on its GPU, ns, by the last load of `LOADS` among them.

    Of a collective, on that of any of its ranks.
    """
    began = units.end_ns - units.transfer_ns.astype(np.int64)
    waits = np.flatnonzero((load == TALKING) & (began > units.start_ns))
    start, end = np.append(began, units.start_ns[waits]), np.append(units.end_ns, began[waits])
    unit, as_load = np.append(np.arange(load.size), waits), np.append(load, np.full(waits.size, WAITING))
    at_least = [as_load >= least for least in range(len(LOADS))]
    found: Ints = np.stack([_beside_any(units, unit[some], start[some], end[some]) for some in at_least], axis=1)
    found[:, :-1] -= found[:, 1:]
    return found


def _beside_any(units: Units, others: Ints, start: Ints, end: Ints) -> Ints:
    """For how long of each unit's work any of some others were on its GPU, ns; of a collective, on that of any rank."""
    began, count = units.end_ns - units.transfer_ns.astype(np.int64), units.op.size
    lane = 2 * units.lane + np.cumsum(units.beside >= 0) % 2  # two of one lane that ran together count as of two
    pieces = [np.empty((3, 0), np.int64)]
    lane_of_other, by_device = lane[others], rows_by_key(units.rank[others], units.device[others])
    for key, on_device in rows_by_key(units.rank, units.device).items():
        there = by_device.get(key, np.empty(0, np.int64))
        for (one,), rows in rows_by_key(lane[on_device]).items():
            mine, away = on_device[rows], there[lane_of_other[there] != one]
            elsewhere = union(start[away], end[away])
            first = np.searchsorted(elsewhere.ends, began[mine], side="right")
            at, owner = runs(first, np.searchsorted(elsewhere.starts, units.end_ns[mine]) - first)
            low = np.maximum(elsewhere.starts[at], began[mine[owner]])
            pieces.append(np.stack([low, np.minimum(elsewhere.ends[at], units.end_ns[mine[owner]]), mine[owner]]))
    low, high, unit = np.concatenate(pieces, axis=1)
    team = np.where(units.collective >= 0, units.collective, units.collective.max(initial=-1) + 1 + np.arange(count))
    keep, none = high > low, np.empty(0, np.int64)
    covered = overlap_by_group(
        (low[keep], high[keep], team[unit[keep]]), (none, none, none), int(team.max(initial=-1)) + 1
    )
    return covered.a[team]


LIMIT_REACHED = 0.8  # share of the time on tensor cores at which H100s and H200s reach the limit of their power
EARLIEST_LIMIT = 0.6
NO_LIMIT = 1.0
OTHERS_POWER = 0.6  # of what tensor cores take, other kernels take
_SLOWS = 0.4
_MEASURED = re.compile(r"\bH[12]00\b")
_ON_TENSOR_CORES = re.compile(
    r"gemm|nvjet|cutlass|xmma|sdpa|flash|fmha|attention|conv\d|fprop|dgrad|wgrad", re.IGNORECASE
)


def on_tensor_cores(trace: Trace) -> Mask:
    """Ops that are matmuls, convolutions or attention, by their names."""
    return trace.ops.name.matching(lambda name: _ON_TENSOR_CORES.search(function(name))) & is_compute(trace)


def limit_reached(trace: Trace) -> tuple[float, float, float]:
    """At which share of the time on tensor cores GPUs reach the limit of their power: likely, latest, earliest."""
    names = trace.devices.name.used().texts
    measured = bool(len(names)) and all(_MEASURED.search(str(name)) for name in names)
    return (LIMIT_REACHED if measured else NO_LIMIT), NO_LIMIT, EARLIEST_LIMIT


def longer(before: Floats, after: Floats, reached: float) -> Floats:
    """What kernels of each GPU take, of what they took, with these shares of the time on tensor cores before and after.

    >>> longer(np.array([0.76, 0.3, 0.8]), np.array([0.98, 0.4, 1.2]), 0.85).round(3)
    array([1.059, 1.   , 1.067])
    """
    share: Floats = np.clip(after, reached, 1) / np.clip(before, reached, 1)
    return share**_SLOWS
