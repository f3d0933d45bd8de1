"""Counters by state: the same table by a plain loop over samples, which shares no code with the package."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.counters.by_state import counters
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.tables import Trace
from tests.support import counters as raw
from tests.support.builder import Builder

Op = tuple[str, int, int, int]  # side ("a", "b" or ""), start, start of its work after waiting, end


def state_at(ops: list[Op], at: int) -> str:
    """What runs at an instant, by the definition's words."""
    resident = {side for side, start, _, end in ops if start <= at < end}
    running = {side for side, _, work, end in ops if work <= at < end}
    if {"a", "b"} <= running:
        return "both"
    if "a" in running and "b" not in resident:
        return "a"
    if "b" in running and "a" not in resident:
        return "b"
    return "waiting" if resident & {"a", "b"} else "neither"


def by_loop(ops: list[Op], samples: list[tuple[int, int, int]]) -> dict[str, tuple[float, int]]:
    """State -> mean and P90 of one counter's samples (start, end, value)."""
    first, last = min(op[1] for op in ops), max(op[3] for op in ops)
    weights: dict[str, dict[int, int]] = {}
    for start, end, value in samples:
        near = [op for op in ops if op[1] < end and op[3] > start]
        cuts = {start, end, first, last, *(at for op in near for at in op[1:])}
        edges = sorted(at for at in cuts if start <= at <= end)
        for low, high in itertools.pairwise(edges):
            if first <= low < last:
                of_state = weights.setdefault(state_at(near, low), {})
                of_state[value] = of_state.get(value, 0) + high - low
    found = {}
    for state, of_state in weights.items():
        total, below = sum(of_state.values()), 0
        mean = sum(value * weight for value, weight in of_state.items()) / total
        for value in sorted(of_state):
            below += of_state[value]
            if below >= 0.9 * total:
                break
        found[state] = mean, value
    return found


def sides(trace: Trace, process: int, second: str) -> list[Op]:
    """The ops of a device with the side each is on: communication against kernels named so."""
    found = []
    for op in trace.ops.to_frame()[trace.ops.to_frame()["process"] == process].itertuples():
        name = str(op.name)
        side = "a" if name.startswith("nccl") else "b" if op.kind == "kernel" and second in name else ""
        found.append((side, op.start_ns, op.start_ns + op.wait_ns, op.end_ns))
    return found


@pytest.mark.parametrize(("second", "text"), [("nvjet", "kernel:~nvjet"), ("", "compute")])
@pytest.mark.parametrize("which", ["before", "after"])
def test_the_real_captures_table_by_a_plain_loop(which: str, second: str, text: str, tmp_path: Path) -> None:
    path = raw.contend(which, tmp_path)
    trace = load([path], align=False, reading=Reading(cache=False))
    frame, samples = counters(trace, "comm", text).to_frame(), raw.samples(path)
    gpu_of = {row.process: row.gpu for row in trace.devices.to_frame().itertuples()}
    for process in range(2):
        of_gpu = samples[gpu_of[process]]
        times = sorted(of_gpu)
        ends = [*times[1:], times[-1] + int(np.median(np.diff(times)))]
        ops = sides(trace, process, second)
        for counter in ("tensor_active", "nvlink_in", "dram_write", "gpc_clock"):
            values = [(at, end, raw.value_of(counter, of_gpu[at])) for at, end in zip(times, ends, strict=True)]
            expected = by_loop(ops, values)
            rank = trace.processes[process].rank
            of_rank = frame.xs(counter, level="counter").loc[rank].droplevel("device")
            assert set(of_rank.index) == set(expected)
            for state, (mean, p90) in expected.items():
                assert of_rank.loc[state, "mean"] == pytest.approx(mean), (counter, state)
                assert of_rank.loc[state, "p90"] == p90, (counter, state)


def test_what_an_all_reduce_beside_matmuls_does_to_the_hardware(tmp_path: Path) -> None:
    """As measured by hand before this was written: tensor pipes 93 to 72 %, NVLink 70 to 62–67 %, power."""
    before, after = (
        counters(load([raw.contend(which, tmp_path)], reading=Reading(cache=False)), "comm", "kernel:~nvjet").to_frame()
        for which in ("before", "after")
    )
    assert before["mean"][0, 0, "b", "tensor_active"] == pytest.approx(93, abs=1)
    assert after["mean"][0, 0, "both", "tensor_active"] == pytest.approx(72, abs=1.5)  # its edges belong to less
    assert before["mean"][0, 0, "a", "nvlink_in"] == pytest.approx(72, abs=3)
    assert after["mean"][0, 0, "both", "nvlink_in"] == pytest.approx(65, abs=3)
    assert before["mean"][0, 0, "b", "gpc_clock"] == pytest.approx(1560, abs=10)
    assert before["mean"][0, 0, "a", "gpc_clock"] == pytest.approx(1980, abs=10)


@given(st.data())
def test_any_ops_and_samples(data: st.DataObject) -> None:
    run = Builder()
    rank = run.rank(0)
    ops: list[Op] = []
    for side in data.draw(st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=8)):
        start, wait, work = (data.draw(st.integers(0, limit)) for limit in (300, 40, 90))
        rank.kernel(f"side_{side or 'no'}", {"a": 1, "b": 2, "": 3}[side], start, start + wait + work + 1, wait_ns=wait)
        ops.append((side, start, start + wait, start + wait + work + 1))
    samples, at = [], data.draw(st.integers(-50, 50))
    for value in data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=12)):
        end = at + data.draw(st.integers(1, 60))
        samples.append((at, end, value))
        run.add("counters", process=0, device=0, start_ns=at, end_ns=end, dram_read=value)
        at = end + data.draw(st.sampled_from([0, 0, 25]))
    result = counters(run.trace(), "kernel:side_a", "kernel:side_b")
    frame = result.to_frame()
    expected = by_loop(ops, samples)
    assert {state for _, _, state, _ in frame.index} == set(expected)
    for state, (mean, p90) in expected.items():
        assert frame["mean"][0, 0, state, "dram_read"] == pytest.approx(mean)
        assert frame["p90"][0, 0, state, "dram_read"] == p90
    states = result.ranks[0].states
    assert sum(state.time_ns for state in states.values()) == max(op[3] for op in ops) - min(op[1] for op in ops)


def test_states_shorter_than_a_sample_are_told_apart() -> None:
    """The example of the definition: 60 and 40, of which both run for 40 and 20 of 50: both reads 70, A alone 20."""
    run = Builder()
    rank = run.rank(0)
    for at in range(0, 4000, 100):
        rank.kernel("side_a", 1, at, at + 50)
        rank.kernel("side_b", 2, at, at + 40)
        rank.kernel("side_a", 1, at + 50, at + 100)
        rank.kernel("side_b", 2, at + 50, at + 70)
        for begin, value in ((at, 60), (at + 50, 40)):
            run.add("counters", process=0, device=0, start_ns=begin, end_ns=begin + 50, sm_active=value)
    device = counters(run.trace(), "kernel:side_a", "kernel:side_b").ranks[0]
    both, alone = (device.mixtures["sm_active"].mean(state) for state in ("both", "a"))
    assert both == (pytest.approx(70), pytest.approx(0, abs=1e-5))
    assert alone == (pytest.approx(20), pytest.approx(0, abs=1e-5))
    assert device.mixtures["sm_active"].mean("b") is None
    assert device.states["both"].mean("sm_active") == pytest.approx((60 * 40 + 40 * 20) / 60)
