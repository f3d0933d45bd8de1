"""Whether a GPU had room for a kernel beside those that ran: blocks against multiprocessors and their limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.nesting import lanes
from analyzers.trace import Ints, Mask, Trace, ints

REGISTER_GRAIN = 256  # registers are given to warps in such portions
RESERVED_SHARED = 1024  # bytes of shared memory the driver takes for each block, since compute capability 8.0


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor holds, and how many there are; None where the capture doesn't say."""

    sms: int
    threads: int
    blocks: int
    registers: int
    shared_bytes: int


def limits_of(trace: Trace, process: int, device: int) -> Limits | None:
    """A device's limits as the capture states them."""
    rows = (ints(trace.devices, "process") == process) & (ints(trace.devices, "device") == device)
    found = trace.devices[rows]
    if not len(found):
        return None
    columns = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_bytes_per_sm")
    sms, threads, blocks, registers, shared = (int(found[column].iloc[0]) for column in columns)
    if sms <= 0 or threads <= 0:
        return None
    return Limits(sms, threads, blocks if blocks > 0 else 32, registers, shared)


def blocks_per_sm(trace: Trace, ops: Ints, limits: Limits) -> Ints:
    """How many blocks of each kernel one multiprocessor holds, by threads, blocks, registers and shared memory."""
    block, registers, shared = (ints(trace.ops, column)[ops] for column in ("block", "registers", "shared_bytes"))
    warps = -(-np.maximum(block, 1) // 32)
    held = np.minimum(limits.threads // (warps * 32), limits.blocks)
    if limits.registers > 0:
        per_block = -(-np.maximum(registers, 1) * 32 // REGISTER_GRAIN) * REGISTER_GRAIN * warps
        held = np.minimum(held, limits.registers // per_block)
    if limits.shared_bytes > 0:
        held = np.minimum(held, limits.shared_bytes // (np.maximum(shared, 0) + RESERVED_SHARED))
    return np.maximum(held, 1)


def no_room(trace: Trace, ops: Ints, running: list[Ints], limits: Limits) -> Mask:
    """Whether each kernel found no room beside the kernels that ran.

    A kernel with more blocks than the device holds at once keeps the rest queued, and these go first. Else the
    emptiest multiprocessor has to have the threads, block slots, registers and shared memory of one block left.

    Parameters
    ----------
    ops : rows of `trace.ops`.
    running : for each stream of the device, the op that ran there when each of `ops` was free to (-1: none).
    """
    full = np.zeros(ops.size, dtype=bool)
    left = {
        "threads": np.full(ops.size, limits.threads),
        "blocks": np.full(ops.size, limits.blocks),
        "registers": np.full(ops.size, limits.registers),
        "shared": np.full(ops.size, limits.shared_bytes),
    }
    for other in running:
        there = np.flatnonzero(other >= 0)
        there = there[ints(trace.ops, "grid")[other[there]] > 0]
        held = blocks_per_sm(trace, other[there], limits)
        grid = ints(trace.ops, "grid")[other[there]]
        full[there] |= grid > held * limits.sms
        resident = np.minimum(grid // limits.sms, held)
        for name, each in _needs(trace, other[there]).items():
            left[name][there] -= resident * each
    for name, each in _needs(trace, ops).items():
        if name in ("threads", "blocks") or (limits.registers > 0 and limits.shared_bytes > 0):
            full |= left[name] < each
    return full & (ints(trace.ops, "grid")[ops] > 0)


def _needs(trace: Trace, ops: Ints) -> dict[str, Ints]:
    """What one block of each kernel takes of a multiprocessor."""
    block, registers, shared = (ints(trace.ops, column)[ops] for column in ("block", "registers", "shared_bytes"))
    warps = -(-np.maximum(block, 1) // 32)
    return {
        "threads": warps * 32,
        "blocks": np.ones(ops.size, np.int64),
        "registers": -(-np.maximum(registers, 1) * 32 // REGISTER_GRAIN) * REGISTER_GRAIN * warps,
        "shared": np.maximum(shared, 0) + RESERVED_SHARED,
    }


def running_at(trace: Trace, device_ops: Ints, instants: Ints) -> list[Ints]:
    """For each stream of a device: the op (of `device_ops`, rows of `trace.ops`) that runs at each instant, or -1."""
    starts, ends = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
    keys = [ints(trace.ops, column)[device_ops] for column in ("process", "context", "stream")]
    found = []
    for rows in lanes(*keys).values():
        mine = device_ops[rows]
        mine = mine[np.argsort(starts[mine], kind="stable")]
        at = np.searchsorted(starts[mine], instants, side="right") - 1
        op = mine[np.maximum(at, 0)]
        found.append(np.where((at >= 0) & (ends[op] > instants), op, -1))
    return found
