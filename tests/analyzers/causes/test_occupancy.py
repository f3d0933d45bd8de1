"""Blocks per multiprocessor against hand calculations from CUDA's occupancy rules, for an H200."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.causes.occupancy import (
    DeviceRoom,
    Limits,
    blocks_per_sm,
    no_room,
    occupancy_columns,
    running_at,
)
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, one_rank

H200 = Limits(sms=132, threads=2048, blocks=32, registers=65536, shared_bytes=233472)


def kernels(*sizes: tuple[int, int, int, int]) -> Trace:
    """Kernels of (grid, block, registers, shared bytes), each on a stream of its own, from 0 to 100."""
    run, rank = one_rank()
    for stream, (grid, block, registers, shared) in enumerate(sizes):
        rank.kernel("k", stream, 0, 100, grid=grid, block=block, registers=registers, shared_bytes=shared)
    return run.trace()


@pytest.mark.parametrize(
    ("block", "registers", "shared", "expected"),
    [
        (256, 32, 0, 8),  # threads: 2048 / 256; registers 65536 / (256 × 32) = 8 as well
        (1024, 32, 0, 2),  # threads
        (32, 16, 0, 32),  # the 32 blocks a multiprocessor holds at most
        (33, 16, 0, 32),  # two warps: 2048 / 64 = 32
        (384, 168, 0, 1),  # 168 × 32 = 5376 a warp; 16384 / 5376 = 3 warps a quarter, 12 in all, 12 a block
        (256, 40, 0, 6),  # 1280 a warp; 12 warps a quarter, 48 in all, 8 a block
        (96, 40, 0, 16),  # 48 warps, 3 a block: 16, though 65536 / (3 × 1280) = 17
        (256, 33, 0, 6),  # 33 × 32 = 1056, given as 1280
        (128, 16, 100_000, 2),  # (100000 → 100096) + 1024 = 101120; 233472 / 101120 = 2
        (128, 16, 115_712, 2),  # 115712 + 1024 = 116736, exactly half
        (128, 16, 115_713, 1),
        (384, 168, 232_448, 1),  # all that a block can have: 232448 + 1024 = 233472
    ],
)
def test_blocks_per_multiprocessor_by_hand(block: int, registers: int, shared: int, expected: int) -> None:
    trace = kernels((1, block, registers, shared))
    assert blocks_per_sm(occupancy_columns(trace.ops), np.array([0]), H200).tolist() == [expected]


def test_limits_that_the_capture_does_not_state_do_not_bind() -> None:
    trace = kernels((1, 256, 255, 200_000))
    assert blocks_per_sm(occupancy_columns(trace.ops), np.array([0]), Limits(132, 2048, 32, -1, -1)).tolist() == [8]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], False),
        ([(1056, 256, 32, 0)], True),  # 8 on each, 2048 threads: none left
        ([(924, 256, 32, 0)], False),  # 7 on each
        ([(1055, 256, 32, 0)], False),  # one multiprocessor holds 7
        ([(1057, 256, 32, 0)], True),  # one block waits, and goes first
        ([(132, 384, 168, 0)], True),  # registers: 12 × 5376 = 64512 of 65536, 8 × 1024 needed
        ([(132, 384, 128, 0)], False),  # 12 × 4096 = 49152, leaves 16384
        ([(528, 256, 32, 0), (528, 256, 32, 0)], True),  # 4 + 4 on each
        ([(528, 256, 32, 0), (396, 256, 32, 0)], False),  # 4 + 3
        ([(132, 128, 16, 232_448)], True),  # shared memory: not even the 1024 a block takes are left
        ([(132, 128, 16, 100_000)], False),
        ([(4224, 32, 16, 0)], True),  # 32 blocks on each
    ],
)
def test_a_kernel_finds_room_where_the_emptiest_multiprocessor_has_it(
    others: list[tuple[int, int, int, int]], expected: bool
) -> None:
    columns = occupancy_columns(kernels((1, 256, 32, 0), *others).ops)
    running = running_at(columns, np.arange(1, len(others) + 1), np.array([50]))
    assert no_room(columns, np.array([0]), running, H200).tolist() == [expected]


@pytest.mark.parametrize("seed", range(20))
def test_ops_by_start_leave_out_none_that_runs(seed: int) -> None:
    random = np.random.default_rng(seed)
    run = Builder()
    ranks = [run.rank(0), run.rank(1)]
    start, length, own = random.integers(0, 30, 12), random.integers(0, 9, 12), np.append(True, random.random(11) < 0.7)
    for at in range(12):
        ranks[0 if own[at] else 1].kernel("k", at, int(start[at]), int(start[at] + length[at]))
    low, high = sorted(random.integers(-2, 40, 2).tolist())
    times = {row: (int(start[row]), int(start[row] + length[row])) for row in np.flatnonzero(own).tolist()}
    running = {row for row, (begin, end) in times.items() if begin < high and end > low}
    room = DeviceRoom(run.trace(), np.zeros(12, bool))
    assert running <= set(room.running(0, low, high).tolist()) <= times.keys()
    started = {row for row, (begin, _) in times.items() if low < begin < high}
    assert set(room.started_beside(0, low, high).tolist()) == started
