"""Whether a GPU had room for a kernel beside those that ran: blocks against multiprocessors and their limits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.arrays.groups import as_slice, rows_by_key, run_heads, runs
from analyzers.arrays.search import search, search_on
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace

# Grains and reserves are those of CUDA's occupancy calculator (cuda_occupancy.h), for compute capability 8.0 and later.
REGISTER_GRAIN = 256  # registers are given to warps in such portions
PARTITIONS = 4  # of a multiprocessor's registers and warps; a warp's registers come from one of them
SHARED_GRAIN = 128  # bytes
RESERVED_SHARED = 1024  # bytes of shared memory the driver takes for each block
LOT = 256  # ops
Columns = Mapping[str, npt.NDArray[np.signedinteger[Any]]]  # of a table of ops, those of `occupancy_columns`


def occupancy_columns(ops: pd.DataFrame) -> Columns:
    """The columns of `Trace.ops` that say what takes room, where and when, as arrays: views of the table."""
    names = ("process", "device", "context", "stream", "start_ns", "end_ns", "grid", "block", "registers")
    return {name: ops[name].to_numpy() for name in (*names, "shared_bytes")}


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
    found = np.flatnonzero((ints(trace.devices, "process") == process) & (ints(trace.devices, "device") == device))
    if not found.size:
        return None
    columns = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_bytes_per_sm", "warp")
    sms, threads, blocks, registers, shared, warp = (int(ints(trace.devices, column)[found[0]]) for column in columns)
    if sms <= 0 or threads <= 0:
        return None
    return Limits(sms, threads, blocks if blocks > 0 else 32, registers, shared, warp if warp > 0 else 32)


class Pieces(msgspec.Struct, frozen=True):
    """Pieces [low, high) of windows, ns, by window and time; `row` is the window, `full` whether there was no room."""

    row: Ints
    low_ns: Ints
    high_ns: Ints
    full: Mask


def room(columns: Columns, ops: Ints, low: Ints, high: Ints, device_ops: Ints, limits: Limits) -> Pieces:
    """Cut the window [low, high) of each op into pieces in which the GPU had room for it, or had none."""
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
    del times, first, cuts, count, piece, last_piece  # long columns, before there are others
    full = no_room(columns, ops[row], running_at(columns, device_ops, begin), limits)
    begins_piece = np.ones(row.size, dtype=bool)
    begins_piece[1:] = (row[1:] != row[:-1]) | (full[1:] != full[:-1])
    heads = np.flatnonzero(begins_piece)
    tails = np.append(heads[1:], row.size) - 1
    return (
        Pieces(row[heads], begin[heads], end[tails], full[heads])
        if row.size
        else Pieces(row, begin, begin, begins_piece)
    )


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


class ByStart(msgspec.Struct, frozen=True):
    """Ops of one device, rows of their table, by start.

    `reached_ns` is when the last of those so far has ended, behind every `LOT` of them. `start_ns` is the table's own
    column: of millions of ops the times of a few are looked up.
    """

    rows: Ids
    start_ns: Ints
    reached_ns: Ints

    def running(self, low: int, high: int) -> Ids:
        """Rows of all ops that run in [low, high), and maybe of some that ended before, by start."""
        over = int(np.searchsorted(self.reached_ns, low, side="right"))  # lots of which nothing runs any more
        return self.rows[over * LOT : bisect_left(self.rows, high, key=self._start)]

    def started(self, low: int, high: int) -> Ids:
        """Rows of the ops that start after `low` and before `high`."""
        return self.rows[bisect_right(self.rows, low, key=self._start) : bisect_left(self.rows, high, key=self._start)]

    def _start(self, row: int) -> int:
        return int(self.start_ns[row])


def by_start(columns: Columns, rows: Ids) -> ByStart:
    """Look among ops of one device, rows by their start."""
    ends = columns["end_ns"].take(rows)
    reached = np.maximum.reduceat(ends, np.arange(0, ends.size, LOT)) if ends.size else ends
    return ByStart(rows, columns["start_ns"], np.maximum.accumulate(reached))


def _of(columns: Columns, name: str, ops: Ints) -> Ints:
    return columns[name][ops].astype(np.int64, copy=False)
