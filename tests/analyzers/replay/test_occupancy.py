"""What kernels take of their GPU, by their grids and by what ran beside them."""

from __future__ import annotations

import pytest

from analyzers.replay.model import COPYING, LARGE, SMALL, TALKING, Occupancy
from analyzers.replay.tasks import tasks
from tests.analyzers.replay.programs import US, Program

SMS = 100


def room(*grids: int, **more: int) -> tuple[Occupancy, Program]:
    """Of kernels with so many blocks of 512 threads, of which a multiprocessor holds four, one after the other."""
    program = on_gpu()
    for number, grid in enumerate(grids):
        kernel(program, "K", at=200 * number, grid=grid, **more)
    return tasks(program.trace()).occupancy, program


def on_gpu() -> Program:
    program = Program()
    program.run.add(
        "devices",
        process=0,
        device=0,
        sms=SMS,
        threads_per_sm=2048,
        blocks_per_sm=32,
        registers_per_sm=65536,
        shared_bytes_per_sm=100_000,
    )
    return program


def kernel(program: Program, name: str, at: int, grid: int, took: int = 100, late: int = 0, stream: int = 7) -> None:
    program.kernel(
        name, stream, call=at, start=at + 7 + late, end=at + 7 + late + took, grid=grid, block=512, registers=16,
        shared_bytes=0,
    )  # fmt: skip


def test_blocks_of_a_wave_begin_together() -> None:
    """400 fit at once. Of 500 the last 100 begin when 4/5 of the work is done: one a multiprocessor, to the end.

    Of 1,200 in three waves the last 400 begin after 2/3, four a multiprocessor. 150 leave room from the beginning.
    """
    found, _ = room(500, 1_200, 150, 400)
    assert found.fills.tolist() == [True, True, False, False]
    assert found.until == pytest.approx([0.8, 2 / 3, 1, 1])
    assert found.taken[:, 0].tolist() == [2048, 2048, 512, 2048]
    assert found.rest[:, 0].tolist() == [512, 2048, 0, 0]
    assert found.roomy == pytest.approx([0.2, 2 / 3, 1, 1])  # blocks that begin one by one, as soon as others end
    assert found.load.tolist() == [LARGE, LARGE, SMALL, LARGE]


def test_one_that_began_beside_it_shows_when_it_leaves_room() -> None:
    """K of three waves would keep L, ready from 27 on, out for 67 µs. L began after 40: so it does, and all others."""
    program = on_gpu()
    kernel(program, "K", at=0, grid=1_200)
    kernel(program, "L", at=20, grid=100, late=20, stream=9)
    kernel(program, "K", at=400, grid=1_200)
    found = tasks(program.trace()).occupancy
    assert found.until[[0, 1]] == pytest.approx([0.4, 0.4])
    assert found.rest[[0, 1], 0].tolist() == [0, 0]


def test_loads_of_copies_and_communication() -> None:
    program = on_gpu()
    program.kernel("ncclDevKernel_AllReduce", 9, call=0, start=7, end=50)
    program.rank.copy("DtoH", 7, 109 * US, 111 * US, launch=(10 * US, 15 * US))
    program.rank.copy("DtoD", 7, 119 * US, 121 * US, launch=(16 * US, 17 * US))
    found = tasks(program.trace())
    load = dict(zip(found.units.start_ns.tolist(), found.occupancy.load.tolist(), strict=True))
    assert load == {7 * US: TALKING, 109 * US: COPYING, 119 * US: LARGE}
