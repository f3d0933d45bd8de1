"""Where a device's time goes, and other tools' figures: counted nanosecond by nanosecond, and by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceviz as tv
from analyzers.overlap.peers import DeviceTime, device_times
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import one_rank
from traceviz.output import contract

TORCH = Path(__file__).parents[2] / "data" / "torch"
SPAN = 60
KINDS = ("comm", "compute", "memcpy", "memset", "peer copy")
OPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, SPAN - 1), st.integers(0, 12)), min_size=1, max_size=9)


def trace_of(ops: list[tuple[str, int, int]]) -> Trace:
    """Each op on a stream of its own: (kind, start, length)."""
    run, rank = one_rank()
    for stream, (kind, start, length) in enumerate(ops):
        if kind == "memcpy":
            rank.copy("HtoD", stream, start, start + length)
        elif kind == "peer copy":
            rank.copy("PtoP", stream, start, start + length)
        elif kind == "memset":
            rank.op("Memset", stream, start, start + length, kind="memset")
        else:
            rank.kernel("ncclDevKernel_AllReduce" if kind == "comm" else "gemm", stream, start, start + length)
    return run.trace()


def of_pair(trace: Trace, a: str, b: str) -> DeviceTime:
    (found,) = check_overlap(trace, a, b).times
    return found


@given(OPS)
def test_every_nanosecond_is_counted_once(ops: list[tuple[str, int, int]]) -> None:
    """A grid of nanoseconds says of each what runs."""
    runs = {kind: np.zeros(SPAN + 12, bool) for kind in KINDS}
    for kind, start, length in ops:
        runs[kind][start : start + length] = True
    low, high = min(start for _, start, _ in ops), max(start + length for _, start, length in ops)
    trace = trace_of(ops)
    names = trace.ops.to_frame()["name"].astype(str)
    a, b = names.str.startswith("nccl").to_numpy(), names.eq("gemm").to_numpy()
    (found,) = device_times(trace, a, b, {})
    is_a, is_b = runs["comm"], runs["compute"]
    copies, computes = runs["memcpy"] | runs["peer copy"], is_b | runs["memset"]
    anything = copies | computes | is_a
    assert (found.a_only_ns, found.b_only_ns, found.both_ns) == (
        (is_a & ~is_b).sum(),
        (is_b & ~is_a).sum(),
        (is_a & is_b).sum(),
    )
    assert (found.other_ns, found.idle_ns) == ((anything & ~is_a & ~is_b).sum(), (high - low) - anything.sum())
    assert found.span_ns == high - low
    # HTA: communication kernels against computation kernels; copies between GPUs are neither.
    assert (found.hta.communication_ns, found.hta.overlap_ns) == (is_a.sum(), (is_a & is_b).sum())
    lens = found.tracelens
    assert (lens.total_time_ns, lens.computation_ns) == (high - low, computes.sum())
    assert lens.exposed_comm_ns == (is_a & ~computes).sum()
    assert lens.exposed_memcpy_ns == (copies & ~computes & ~is_a).sum()
    assert lens.computation_ns + lens.exposed_comm_ns + lens.exposed_memcpy_ns + lens.idle_ns == lens.total_time_ns
    assert (lens.total_comm_ns, lens.total_memcpy_ns) == (is_a.sum(), copies.sum())


def test_the_example_of_the_definition() -> None:
    run, rank = one_rank()
    rank.kernel("a", 1, 0, 40)
    rank.kernel("a", 1, 60, 70)
    rank.kernel("b", 2, 20, 50)
    rank.copy("HtoD", 3, 50, 55)
    found = of_pair(run.trace(), "kernel:a", "kernel:b")
    assert (found.a_only_ns, found.both_ns, found.b_only_ns, found.other_ns, found.idle_ns) == (30, 20, 10, 5, 5)
    assert found.hta.comm_comp_overlap is None  # where HTA says NaN


@pytest.mark.parametrize("name", ["ddp.rank0", "rowpar_s4.rank1", "a2a_async.rank0"])
def test_a_real_capture_reads_as_other_tools_do(name: str) -> None:
    """Their sweep over the events of the file: +1 for communication, +2 for computation; both run where it is 3."""
    path = TORCH / f"{name}.json.gz"
    with gzip.open(path, "rt") as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X" and one.get("cat") == "kernel"]
    edges: list[tuple[int, int, bool]] = []
    for one in events:
        start, length = (round(float(one[key]) * 1000) for key in ("ts", "dur"))
        is_comm = one["name"].startswith("nccl")
        edges += [(start, 1, is_comm), (start + length, -1, is_comm)]
    counts, before = {True: 0, False: 0}, 0
    comm = both = 0
    for at, step, is_comm in sorted(edges, key=lambda edge: edge[0]):
        comm += (at - before) * (counts[True] > 0)
        both += (at - before) * (counts[True] > 0 and counts[False] > 0)
        counts[is_comm] += step
        before = at
    (found,) = tv.check_overlap(path, "comm", "compute").times
    assert (found.hta.communication_ns, found.hta.overlap_ns) == (comm, both)
    assert found.hta.comm_comp_overlap == pytest.approx(both / comm)
    said = contract.overlap(tv.check_overlap(path))["device_times"][0]
    assert said["hta"]["comm_comp_overlap"] == found.hta.comm_comp_overlap
    assert said["tracelens"]["exposed_comm_ns"] <= comm - both  # memsets are computation there
