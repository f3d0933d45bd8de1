"""Predictions, their ranges, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.replay.answer import what_if
from analyzers.replay.changes import Scale
from analyzers.replay.predict import _compared
from tests.analyzers.replay.programs import US, Program
from tests.simulator.machine import simulate
from tests.simulator.measure import A, B, loaded
from tests.simulator.replays import case
from tests.support.builder import Builder


def steps(count: int = 5) -> Program:
    """Steps of 200 µs: a kernel of 100 µs, a host sync, and 60 µs of host work on the way to the next."""
    program = Program()
    for number in range(count):
        at = 200 * number
        program.range(f"ProfilerStep#{number}", at, at + 198)
        program.range("fetch", at + 20, at + 130)
        program.kernel("K", 7, call=at + 1, start=at + 8, end=at + 108)
        program.sync(at + 25, at + 112)
    return program


def test_half_the_kernel_is_a_quarter_of_the_step() -> None:
    found = what_if(steps().trace(), [Scale("kernel:K", 0.5)], "kernel:K", "kernel:none")
    assert found.replay.error == 0
    (change,) = found.changes
    assert (found.replay.measured_step_ns, change.step_ns, change.gain_ns) == (200 * US, 150 * US, 50 * US)
    assert change.step_low_ns <= 150 * US <= change.step_high_ns


def test_changes_come_by_what_they_gain() -> None:
    found = what_if(steps().trace(), (), "kernel:K", "kernel:none")
    assert [one.step_ns for one in found.changes] == sorted(one.step_ns for one in found.changes)


def test_a_capture_without_calls_is_refused() -> None:
    run = Builder()
    run.rank(0).kernel("K", 7, 10, 20)
    assert "holds no CUDA calls" in what_if(run.trace()).reason


def test_without_records_of_waits_nothing_is_predicted(tmp_path: Path) -> None:
    trace = loaded(simulate(case("drop-wait", 1).before), "kineto-default", tmp_path)
    found = what_if(trace, [Scale("nvtx:second", 0.5)], A, B)
    assert "does not say which streams wait" in found.replay.reason
    assert found.changes == ()


def test_the_range_holds_what_single_steps_say() -> None:
    """Medians are 200 and 150; steps of 0.7, 0.75 and 0.8 differ by 0.05: 1.48 x 0.05 x 1.25 / sqrt(3), twice."""
    low, part, high = _compared(np.array([140, 150, 160]), np.array([200, 200, 200]))
    assert part == 0.75
    assert (low, high) == pytest.approx((0.75 - 0.1073, 0.75 + 0.1073), abs=1e-3)
