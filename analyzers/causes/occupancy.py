"""Whether a GPU had room for a kernel beside those that ran: blocks against multiprocessors and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from analyzers.arrays.groups import as_slice, rows_by_key, run_heads, runs
from analyzers.arrays.search import search, search_on
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.op_rows import ops_by_start
from analyzers.trace.schemas import Ops
from analyzers.trace.tables import Trace

# Grains and reserves are those of CUDA's occupancy calculator (cuda_occupancy.h), for compute capability 8.0 and later.
REGISTER_GRAIN = 256  # registers are given to warps in such portions
PARTITIONS = 4  # of a multiprocessor's registers and warps; a warp's registers come from one of them
SHARED_GRAIN = 128  # bytes
RESERVED_SHARED = 1024  # bytes of shared memory the driver takes for each block
Columns = Mapping[str, npt.NDArray[np.signedinteger[Any]]]  # of a table of ops, those of `occupancy_columns`


def occupancy_columns(ops: Ops) -> Columns:
    """The columns of `Trace.ops` that say what takes room, where and when, as arrays: views of the table."""
    names = ("process", "device", "context", "stream", "start_ns", "end_ns", "grid", "block", "registers")
    return {name: ops.columns[name] for name in (*names, "shared_bytes")}


class Limits(msgspec.Struct, frozen=True):
    """What one multiprocessor holds, and how many there are; None where the capture doesn't say."""

    sms: int
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    warp: int = 32  # threads that run as one: a warp, or a wavefront


def limits_of(trace: Trace, process: int, device: int) -> Limits | None:
    """A device's limits as the capture states them."""
    found = np.flatnonzero((trace.devices.process == process) & (trace.devices.device == device))
    if not found.size:
        return None
    columns = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_bytes_per_sm", "warp")
    sms, threads, blocks, registers, shared, warp = (int(trace.devices.columns[name][found[0]]) for name in columns)
    if sms <= 0 or threads <= 0:
        return None
    return Limits(sms, threads, blocks if blocks > 0 else 32, registers, shared, warp if warp > 0 else 32)


class RoomPieces(msgspec.Struct, frozen=True):
    """Pieces [low, high) of windows, ns, by window and time; `row` is the window, `full` whether there was no room."""

    row: Ints
    low_ns: Ints
    high_ns: Ints
    full: Mask


def room(columns: Columns, ops: Ints, low: Ints, high: Ints, device_ops: Ints, limits: Limits | None) -> RoomPieces:
    """Cut the window [low, high) of each op into pieces in which the GPU had room for it, or had none."""
    some = np.flatnonzero(high > low)
    if limits is None or not device_ops.size or not some.size:
        return RoomPieces(some, low[some], high[some], np.zeros(some.size, dtype=bool))
    here = as_slice(device_ops)
    times = np.concatenate([columns[column][here] for column in ("start_ns", "end_ns")])
    times.sort(kind="stable")  # mostly starts ascend, and ends do: one pass joins them
    times = times[run_heads(times)]
    first = search(times, low, "right")
    cuts = search_on(times, first, high) - first
    count = np.where(high > low, cuts + 1, 0)
    piece, row = runs(np.zeros(ops.size, np.int64), count)  # pieces are counted in their window
    begin = np.where(piece == 0, low[row], times[np.minimum(first[row] + piece - 1, times.size - 1)])
    end = np.append(begin[1:], 0)
    last_piece = piece == count[row] - 1
    end[last_piece] = high[row[last_piece]]
    full = no_room(columns, ops[row], running_at(columns, device_ops, begin), limits)
    heads = np.flatnonzero(run_heads(row, full))
    tails = np.append(heads[1:], row.size) - 1
    return RoomPieces(row[heads], begin[heads], end[tails], full[heads])


def blocks_per_sm(columns: Columns, ops: Ints, limits: Limits) -> Ints:
    """How many blocks of each kernel one multiprocessor holds, by threads, blocks, registers and shared memory."""
    needs = block_needs(columns, ops, limits)
    warps = needs["threads"] // limits.warp
    held = np.minimum(limits.threads // needs["threads"], limits.blocks)
    if limits.registers > 0:
        resident = limits.registers // PARTITIONS // (needs["registers"] // warps) * PARTITIONS
        held = np.minimum(held, resident // warps)
    if limits.shared_bytes > 0:
        held = np.minimum(held, limits.shared_bytes // needs["shared"])
    return np.maximum(held, 1)


def no_room(columns: Columns, ops: Ints, running: list[Ints], limits: Limits) -> Mask:
    """Whether each kernel found no room beside the kernels that ran.

    A kernel with more blocks than the device holds at once keeps the rest queued, and these go first. Else the
    emptiest multiprocessor has to have the threads, block slots, registers and shared memory of one block left.

    Parameters
    ----------
    ops : rows of the table.
    running : for each stream of the device, the op that ran there when each of `ops` was free to (-1: none).
    """
    full = np.zeros(ops.size, dtype=bool)
    free = {
        "threads": np.full(ops.size, limits.threads),
        "blocks": np.full(ops.size, limits.blocks),
        "registers": np.full(ops.size, limits.registers),
        "shared": np.full(ops.size, limits.shared_bytes),
    }
    for other in running:
        occupied = np.flatnonzero(other >= 0)
        occupied = occupied[_of(columns, "grid", other[occupied]) > 0]
        held = blocks_per_sm(columns, other[occupied], limits)
        grid = _of(columns, "grid", other[occupied])
        full[occupied] |= grid > held * limits.sms
        resident = np.minimum(grid // limits.sms, held)
        for name, needed in block_needs(columns, other[occupied], limits).items():
            free[name][occupied] -= resident * needed
    for name, needed in block_needs(columns, ops, limits).items():
        if name in ("threads", "blocks") or (limits.registers > 0 and limits.shared_bytes > 0):
            full |= free[name] < needed
    return full & (_of(columns, "grid", ops) > 0)


def block_needs(columns: Columns, ops: Ints, limits: Limits) -> dict[str, Ints]:
    """What one block of each kernel takes of a multiprocessor."""
    block, registers, shared = (_of(columns, column, ops) for column in ("block", "registers", "shared_bytes"))
    warps = -(-np.maximum(block, 1) // limits.warp)
    return {
        "threads": warps * limits.warp,
        "blocks": np.ones(ops.size, np.int64),
        "registers": -(-np.maximum(registers, 1) * limits.warp // REGISTER_GRAIN) * REGISTER_GRAIN * warps,
        "shared": -(-np.maximum(shared, 0) // SHARED_GRAIN) * SHARED_GRAIN + RESERVED_SHARED,
    }


def running_at(columns: Columns, device_ops: Ints, instants: Ints) -> list[Ints]:
    """For each stream of a device: the op (of `device_ops`, rows of the table) that runs at each instant, or -1."""
    here = as_slice(device_ops)
    keys = [columns[column][here] for column in ("process", "context", "stream")]
    found = []
    for rows in rows_by_key(*keys).values():
        stream_ops = device_ops[rows]
        starts = _of(columns, "start_ns", stream_ops)
        if np.any(starts[1:] < starts[:-1]):
            order = np.argsort(starts, kind="stable")
            stream_ops, starts = stream_ops[order], starts[order]
        at = search(starts, instants, "right") - 1
        op = stream_ops[np.maximum(at, 0)]
        found.append(np.where((at >= 0) & (_of(columns, "end_ns", op) > instants), op, -1))
    return found


def _in_order(trace: Trace, columns: Columns, process: int, device: int) -> tuple[Ids, Ints, Ints]:
    """Ops of a process's device by start, when they start, and until when one of those so far has run."""
    rows = ops_by_start(trace)[trace.processes[process].rank, device]
    rows = rows[columns["process"][rows] == process]
    return rows, _of(columns, "start_ns", rows), np.maximum.accumulate(_of(columns, "end_ns", rows))


class DeviceRoom:
    """Whether the devices of one trace had room for ops, and what ran there when.

    hidden : ops that may have waited for what no capture shows: nothing says that they lacked room.
    """

    def __init__(self, trace: Trace, hidden: Mask) -> None:
        self.trace, self.hidden = trace, hidden
        self.columns = occupancy_columns(trace.ops)
        self.limits = cache(partial(limits_of, trace))
        self._by_start = cache(partial(_in_order, trace, self.columns))  # not of `self`, which it would keep

    def _device_of(self, op: int) -> tuple[int, int]:
        return int(self.columns["process"][op]), int(self.columns["device"][op])

    def running(self, op: int, low: int, high: int) -> Ids:
        """Ops of an op's device that run in [low, high), and maybe of some that ended before, by start."""
        rows, starts, reached = self._by_start(*self._device_of(op))
        return rows[np.searchsorted(reached, low, side="right") : np.searchsorted(starts, high)]

    def started_beside(self, op: int, low: int, high: int) -> Ids:
        """Ops of an op's device that start after `low` and before `high`."""
        rows, starts, _ = self._by_start(*self._device_of(op))
        return rows[np.searchsorted(starts, low, side="right") : np.searchsorted(starts, high)]

    def running_at(self, op: int, instant: int) -> list[int]:
        """Ops that run on an op's device at an instant, by stream."""
        near = np.sort(self.running(op, instant, instant + 1))
        found = running_at(self.columns, near, np.array([instant]))
        return [row for row in np.concatenate([near[:0], *found]).tolist() if row >= 0]

    def of_ops(self, ops: Ints, low: Ints, high: Ints) -> RoomPieces:
        """Pieces of each window [low, high) in which the GPU had room for an op of one device, or none."""
        some = np.flatnonzero(high > low)
        near = np.sort(self.running(int(ops[0]), int(low[some].min()), int(high[some].max()))) if some.size else ops[:0]
        return room(self.columns, ops, low, high, near, self.limits(*self._device_of(int(ops[0]))))

    def of_op(self, op: int, low: int, high: int, *, moved: Mapping[int, tuple[int, int]] | None = None) -> RoomPieces:
        """Pieces of [low, high) in which the GPU had room for an op, or none.

        Parameters
        ----------
        moved : when ops would start and end, where that differs from the capture.
        """
        rows = self.running(op, low, high)
        starts, ends = (self.columns[name][rows] for name in ("start_ns", "end_ns"))
        if moved:
            stays = ~np.isin(rows, np.fromiter(moved, np.int64))
            here = [
                (row, start, end)
                for row, (start, end) in moved.items()
                if start < high and end > low and self._device_of(row) == self._device_of(op)
            ]
            columns = zip((rows, starts, ends), np.array(here, np.int64).reshape(-1, 3).T, strict=True)
            rows, starts, ends = (np.append(captured[stays], now) for captured, now in columns)
        near = np.flatnonzero((starts < high) & (ends > low) & (rows != op))
        near = near[np.argsort(rows[near])]
        rows = np.append(op, rows[near])
        few = {name: column[rows] for name, column in self.columns.items()}
        few |= {"start_ns": np.append(low, starts[near]), "end_ns": np.append(low, ends[near])}
        window = np.array([0]), np.array([low]), np.array([high])
        pieces = room(few, *window, np.arange(1, rows.size), self.limits(*self._device_of(op)))
        return replace(pieces, full=pieces.full & ~self.hidden[op])


def _of(columns: Columns, name: str, ops: Ints) -> Ints:
    return columns[name][ops].astype(np.int64, copy=False)
