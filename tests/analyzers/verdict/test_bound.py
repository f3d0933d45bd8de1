"""What bounds a step: each instant by itself, by brute force; by hand on a few ops; a capture's raw events."""

from __future__ import annotations

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from analyzers.compare.steps import step_times_of
from analyzers.load import load
from analyzers.overlap.measure import RankOverlap, Side
from analyzers.overlap.pairing import Instances
from analyzers.steps.choose import with_steps
from analyzers.trace.narrow import Narrowing, steps_used
from analyzers.trace.run import Run
from analyzers.trace.tables import Trace
from analyzers.verdict.bound import Bound, RankBound, bound_of, ceiling_of, device_steps, exposed_of_pair
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, Rank, one_rank
from tests.support.nightly import few_by_default

DATA = Path(__file__).parents[2] / "data"
US = 1_000
GEMM, COMM = "gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
FUSED, BARRIER = "fused_moe_comm_kernel", "barrier_all_intra_node"
PARTS = ("compute_ns", "exposed_transfer_ns", "exposed_wait_ns", "exposed_copy_ns", "idle_ns")


def bound(trace: Trace, of_steps: tuple[int, ...] | None = None) -> Bound:
    found = bound_of(device_steps(trace, of_steps), None)
    assert found is not None
    return found


def figures(one: RankBound) -> dict[str, int | None]:
    names = (*PARTS, "idle_host_ns", "idle_wait_ns", "idle_profiler_ns")
    return {name.removesuffix("_ns"): ns // US if (ns := getattr(one, name)) is not None else None for name in names}


def us(rank: Rank, name: str, stream: int, start: int, end: int, launch: tuple[int, int] | None, **more: Any) -> None:
    """An op whose times are µs."""
    more = {key: value * US if key.endswith("_ns") else value for key, value in more.items()}
    if launch is not None:
        more["launch"] = (launch[0] * US, launch[1] * US)
    if name.startswith("Memcpy"):
        rank.copy(name.split()[1], stream, start * US, end * US, **more)
    else:
        rank.kernel(name, stream, start * US, end * US, **more)


def step(rank: Rank, number: int, start: int, end: int) -> None:
    rank.range(f"ProfilerStep#{number}", start * US, end * US - 1)


# By hand.


def test_idle_time_is_the_hosts_until_work_is_submitted_and_then_waits() -> None:
    """The example of the module's docstring, a step before it that ends at 0."""
    run, rank = one_rank()
    step(rank, 1, -20, 0)
    us(rank, GEMM, 7, -10, 0, (-19, -15))
    step(rank, 2, 0, 40)
    us(rank, GEMM, 7, 8, 20, (0, 5))
    us(rank, GEMM, 7, 21, 30, (12, 15))
    found = bound(run.trace(), (2,))
    assert (found.step, found.step_ns, found.steps) == (2, 30 * US, 1)
    assert (found.compute_ns, found.idle_ns, found.idle_host_ns, found.idle_wait_ns) == (21_000, 9_000, 8_000, 1_000)
    assert found.kind == "compute-bound"
    assert (
        found.sentence
        == "A step of 30.0 µs: compute 21.0, idle 9.0 (host-bound 8.0, waiting for events 1.0): compute-bound."
    )


def test_each_instant_counts_once_compute_before_transfer_before_waiting_before_copies() -> None:
    run, rank = one_rank()
    us(rank, COMM, 9, 0, 50, (-30, -20), wait_ns=20)  # waits to 20, transfers from there
    us(rank, GEMM, 7, 10, 30, (-20, -15))
    us(rank, COMM, 10, 40, 70, (-15, -10), wait_ns=20)  # waits to 60, beside the first's transfer up to 50
    us(rank, "Memcpy HtoD", 8, 45, 65, (-10, -9))
    us(rank, "Memcpy DtoH", 8, 70, 80, (-9, -8))
    found = bound(run.trace())
    # waits 0–10 and 50–60; computes 10–30; transfers 30–50 and 60–70; copies 70–80
    assert figures(found) | {"step": found.step_ns // US} == {
        "step": 80,
        "compute": 20,
        "exposed_transfer": 30,
        "exposed_wait": 20,
        "exposed_copy": 10,
        "idle": 0,
        "idle_host": 0,
        "idle_wait": 0,
        "idle_profiler": 0,
    }
    assert found.waited_ns == 40 * US  # 0–20 and 40–60
    assert (found.step, found.steps, found.kind) == (None, 1, "communication-bound")
    assert found.sentence == (
        "80.0 µs in all: compute 20.0, exposed transfer 30.0, waiting for late ranks 20.0, copies 10.0: "
        "communication-bound."
    )


def test_a_rank_without_any_step_says_nothing_of_steps() -> None:
    """A report ends with the first rank that stops: of others it may have no step's mark."""
    run = Builder()
    for number in range(2):
        rank = run.rank(number)
        if number == 0:
            step(rank, 1, -20, 0)
            step(rank, 2, 0, 40)
        for start in (0, 40):
            us(rank, GEMM, 7, start, start + 30, (start - 15, start - 12))
            us(rank, COMM, 9, start + 10, start + 40, (start - 11, start - 10))
    found = check_overlap(with_steps(run.trace())).bound
    assert found is not None
    assert [(one.rank, one.step) for one in found.ranks] == [(0, found.step)]


def test_where_no_op_is_in_any_step_all_of_it_is_one() -> None:
    """As of a range that is named like a step, and is none: all work is launched after it."""
    run = Builder()
    for number in range(2):
        rank = run.rank(number)
        step(rank, 1, -20, 0)
        step(rank, 2, 0, 40)
        us(rank, GEMM, 7, 100, 130, (100, 100))
        us(rank, COMM, 9, 110, 140 + number, (100, 100))
    found = bound(run.trace())
    assert [(one.rank, one.step, one.step_ns) for one in found.ranks] == [(0, None, 40 * US), (1, None, 41 * US)]


def test_of_several_ranks_the_one_that_waits_least_in_a_step_speaks_for_it() -> None:
    """The example of the module's docstring: steps of 10, 12, 15 and of 11, 13, 14."""
    run = Builder()
    for number, times, waits in ((0, (10, 12, 15), (0, 3, 0)), (1, (11, 13, 14), (2, 0, 1))):
        rank, at = run.rank(number), 0
        for k, (time, wait) in enumerate(zip(times, waits, strict=True)):
            step(rank, k, 100 * k, 100 * (k + 1))
            us(rank, COMM, 9, at, at + time, (100 * k, 100 * k + 1), wait_ns=wait)
            at += time
    found = bound(run.trace())
    assert (found.rank, found.step, found.step_ns, found.waited_ns, found.steps) == (1, 1, 13 * US, 0, 3)
    assert [(one.rank, one.step, one.step_ns) for one in found.ranks] == [(0, 1, 12 * US), (1, 1, 13 * US)]


@pytest.mark.parametrize(("gap", "told"), [(1, True), (30, False)])
def test_a_lost_launch_leaves_idle_time_undivided_where_much_of_it_ends_with_that_op(gap: int, told: bool) -> None:
    run, rank = one_rank()
    us(rank, GEMM, 7, 0, 100, (-9, -5))
    us(rank, GEMM, 7, 100 + gap, 200, None)
    us(rank, GEMM, 7, 210, 220, (205, 206))
    found = bound(run.trace())
    assert found.idle_ns == (gap + 10) * US
    assert (found.idle_host_ns is not None) == told


def test_what_was_launched_before_the_capture_was_submitted_all_along() -> None:
    run, rank = one_rank()
    run.correlation = 5
    us(rank, GEMM, 7, 30, 40, (20, 21))  # call 6
    early = {"process": 0, "device": 0, "context": 1, "stream": 8, "name": "gemm", "launch": -1}
    run.add("ops", **early, correlation=2, start_ns=0, end_ns=10 * US)
    run.add("ops", **early, correlation=3, start_ns=15 * US, end_ns=18 * US)
    us(rank, GEMM, 8, 50, 60, (45, 46))
    found = bound(run.trace())
    # launched within it: 30–60, and nothing early still runs at 30
    assert (found.step_ns, found.compute_ns, found.idle_ns) == (30 * US, 20 * US, 10 * US)


def test_an_unfinished_early_op_ends_where_the_first_step_begins() -> None:
    run, rank = one_rank()
    run.correlation = 5
    us(rank, GEMM, 7, 30, 60, (20, 21))
    run.add("ops", process=0, device=0, context=1, stream=8, name="gemm", launch=-1, correlation=2, end_ns=40 * US)
    assert bound(run.trace()).step_ns == 20 * US  # 40–60


def test_what_runs_in_a_graph_of_one_row_is_not_known() -> None:
    run, rank = one_rank()
    us(rank, "graph 3", 7, 0, 60, (-9, -5), kind="graph")
    us(rank, GEMM, 8, 50, 70, (-4, -3))
    found = bound(run.trace())
    assert (found.compute_ns, found.in_graphs_ns, found.kind) == (70 * US, 50 * US, "unknown")
    assert found.sentence == "70.0 µs in all: graphs (inside not recorded) 70.0: unknown."


def test_waits_for_ranks_that_were_not_captured_are_in_the_transfer_and_said() -> None:
    run, rank = one_rank()
    us(rank, COMM, 9, 0, 60, (-9, -5), wait_seen=0)
    us(rank, GEMM, 7, 50, 80, (-4, -3))
    found = bound(run.trace())
    assert (found.exposed_transfer_ns, found.unseen_ns) == (50 * US, 50 * US)
    assert "exposed communication, waits included 50.0" in found.sentence


def test_a_window_of_time_is_one_step() -> None:
    run, rank = one_rank()
    for number in range(4):
        step(rank, number, 100 * number, 100 * (number + 1))
        us(rank, GEMM, 7, 100 * number + 10, 100 * number + 60, (100 * number + 1, 100 * number + 3))
    part = Narrowing(window=(140 * US, 250 * US)).of(run.trace())
    found = bound(part)
    assert (found.step, found.step_ns, found.compute_ns) == (None, 110 * US, 60 * US)
    assert found.idle_host_ns == 50 * US
    ranks = Narrowing(ranks=(0,)).of(run.trace())
    assert bound(ranks).step is not None  # all of a rank is not a window


def test_captures_of_one_rank_that_follow_each_other_are_measured_each_by_itself() -> None:
    run = Builder()
    for begin in (0, 1000):
        rank = run.rank(0)
        for k in (0, 1):
            step(rank, begin + k, begin + 100 * k, begin + 100 * (k + 1))
            at = begin + 100 * k
            us(rank, GEMM, 7, at + 10, at + 60, (at + 1, at + 3))
    trace = run.trace
    for process in (0, 1):
        run.processes[process] = replace(run.processes[process], pid=7, first_window=0 if process else -1)
    (found,) = device_steps(trace())
    assert found.time.tolist() == [50 * US, 100 * US, 50 * US, 100 * US]


# By brute force: µs after µs.

KINDS = (GEMM, COMM, "Memcpy HtoD", "migration", "graph")


def random_run(seed: int) -> tuple[Trace, list[dict[str, Any]], list[tuple[int, int]], list[tuple[int, int]]]:
    """A rank's steps; its ops, its steps and the profiler's own work, in µs, as the oracle takes them."""
    draw = random.Random(seed)
    run, rank = one_rank()
    steps, ops = [], []
    for number in range(draw.randint(1, 4)):
        begin = 60 * number
        step(rank, number, begin, begin + 60)
        steps.append((begin, begin + 60))
    for _ in range(draw.randint(1, 14)):
        kind, called = draw.choice(KINDS), draw.randint(0, 60 * len(steps) - 1)
        took, delay = draw.randint(0, 6), draw.choice([0, 1, 3, 12, 40])
        start = called + delay
        end = start + draw.randint(1, 25)
        wait = draw.randint(0, end - start) if kind == COMM else 0
        more: dict[str, Any] = {"wait_ns": wait} if kind == COMM else {}
        if kind in ("migration", "graph"):
            more["kind"] = kind
        launch = None if kind == "migration" else (called, called + took)
        us(rank, kind, draw.randint(7, 9), start, end, launch, **more)
        ops.append({"kind": kind, "launch": launch, "start": start, "end": end, "wait": wait})
    spans, at = [], 0
    for _ in range(draw.randint(0, 3)):
        at += draw.randint(1, 40)
        spans.append((at, at + draw.randint(1, 30)))
        at = spans[-1][1] + 1
    for low, high in spans:
        run.add("overhead", process=0, start_ns=low * US, end_ns=high * US)
    return run.trace(), ops, steps, spans


def state_at(t: int, ops: list[dict[str, Any]], spans: list[tuple[int, int]]) -> str:
    """What the device does in [t, t + 1)."""
    running = [one for one in ops if one["start"] <= t < one["end"]]
    if any(one["kind"] in (GEMM, "graph") for one in running):
        return "compute"
    if any(one["kind"] == COMM and t >= one["start"] + one["wait"] for one in running):
        return "transfer"
    if any(one["kind"] == COMM for one in running):
        return "wait"
    if running:
        return "copy"
    for one in ops:
        if one["launch"] is None:
            continue
        submitted = min(one["launch"][1], one["start"])
        into_idle = not any(other["start"] <= submitted < other["end"] for other in ops)
        on_its_way = into_idle and one["start"] - submitted <= 10
        if submitted <= t < one["start"] and not on_its_way:
            return "waiting"
    return "profiler" if any(low <= t < high for low, high in spans) else "host"


@pytest.mark.parametrize("seeds", few_by_default(100, 2000))
def test_the_parts_of_random_steps_are_those_of_each_instant(seeds: int) -> None:
    for seed in range(seeds):
        check_each_instant(seed)


def check_each_instant(seed: int) -> None:
    trace, ops, steps, spans = random_run(seed)
    last: dict[int, int] = {}
    for one in ops:
        at = one["launch"][0] if one["launch"] else one["start"]
        for number, (low, high) in enumerate(steps):
            if low <= at < high:
                last[number] = max(last.get(number, one["end"]), one["end"])
    inside = [
        one
        for one in ops
        if any(low <= (one["launch"][0] if one["launch"] else one["start"]) < high for low, high in steps)
    ]
    order = sorted(last, key=lambda number: (last[number], number))
    found = {int(number): row for one in device_steps(trace) for row, number in enumerate(one.number)}
    if not last:
        return
    (columns,) = device_steps(trace)
    assert sorted(found) == sorted(order)
    before = min(one["start"] for one in inside)
    for number in order:
        states = [state_at(t, ops, spans) for t in range(before, last[number])]
        row = found[number]
        assert int(columns.time[row]) == US * len(states)
        for name in ("compute", "transfer", "wait", "copy", "host", "waiting", "profiler"):
            assert int(getattr(columns, name)[row]) == US * states.count(name), (number, name)
        waits = {t for one in ops if one["kind"] == COMM for t in range(one["start"], one["start"] + one["wait"])}
        assert int(columns.waited[row]) == US * sum(before <= t < last[number] for t in waits)
        before = last[number]


# Of real captures.

CAPTURES = {
    **{name: f"real/{name}.sync.rank*.json.gz" for name in ("dpmp_before", "dpmp_after")},
    **{name: f"real/{name}.rank*.json.gz" for name in ("trec_base", "trec_a2a_sync_base", "trec_threading_copy")},
    **{
        name: f"torch/{name}.rank*.json.gz"
        for name in ("ddp", "dpmp_overlap", "dpmp_serial", "opt_overlap", "rowpar_s4")
    },
    **{
        name: f"nsys/{name}.sqlite"
        for name in ("dpmp_overlap.4gpu", "ddp_log.2gpu", "graph_overlap.4gpu", "a2a_sync.2gpu")
    },
    "peer_copies": "nsys/peer_copies.1process.sqlite",
    "full_queue": "torch/full_queue.json.gz",
    "graph_nodes": "torch/graph_nodes.json.gz",
    "rocm": "rocm/sdk.rank*.json.gz",
    "rocprof": "rocm/rocprofv3_results.json.gz",
    "xpu": "xpu/rank*.json.gz",
    "jax": "jax/gpu4.xplane.pb",
    "stages": "public/stages-of-one-process/*",
    "contend": "contention/contend_after.rank*.json.gz",
}


def run_of(name: str) -> Trace:
    paths = sorted(path for path in DATA.glob(CAPTURES[name]) if path.suffix != ".md")
    assert paths
    return load([str(path) for path in paths])


@pytest.mark.parametrize("name", CAPTURES)
def test_parts_of_real_steps_add_up_and_take_as_long_as_compare_says(name: str) -> None:
    trace = run_of(name)
    used = steps_used(trace, Narrowing())
    numbers = used.numbers if used else None
    devices = device_steps(Narrowing(numbers=numbers).of(trace), numbers)
    assert devices
    for one in devices:
        parts = one.compute + one.transfer + one.wait + one.copy + one.host + one.waiting + one.profiler
        assert np.array_equal(parts, one.time)
        assert all(
            (getattr(one, part) >= 0).all() for part in ("compute", "transfer", "wait", "copy", "host", "waiting")
        )
    found = bound_of(devices, None)
    assert found is not None
    for rank in found.ranks:
        assert sum(getattr(rank, part) for part in PARTS) == rank.step_ns
        if rank.idle_host_ns is not None and rank.idle_wait_ns is not None:
            assert rank.idle_host_ns + rank.idle_wait_ns + rank.idle_profiler_ns == rank.idle_ns
        assert len(rank.sentence) < 180
    if any(process.first_window >= 0 for process in trace.processes):
        return  # which compare does not take apart
    timed = step_times_of(Run.of(trace))
    lanes = dict(
        zip(
            ((lane[0], device) for lane, device in zip(timed.groups.lanes, timed.groups.devices, strict=True)),
            timed.values["step_ns"],
            strict=True,
        )
    )
    for one in devices:
        at = np.searchsorted(timed.groups.numbers, one.number)
        assert np.array_equal(timed.groups.numbers[at], one.number)
        assert np.array_equal(lanes[one.rank, one.device][at], one.time)


@pytest.mark.parametrize("name", ["dpmp_before", "dpmp_after"])
def test_the_parts_of_a_real_step_are_those_of_its_raw_events(name: str) -> None:
    """From the events of the file itself, each instant between two edges by itself; waits are part of communication."""
    trace = run_of(name)
    used = steps_used(trace, Narrowing())
    assert used is not None
    found = bound_of(device_steps(trace, used.numbers), None)
    assert found is not None
    assert len(found.ranks) == 4
    for one in found.ranks:
        assert raw_parts(DATA / "real" / f"{name}.sync.rank{one.rank}.json.gz", one.step or -1) == {
            "compute": one.compute_ns,
            "communication": one.exposed_transfer_ns + one.exposed_wait_ns,
            "copy": one.exposed_copy_ns,
            "host": one.idle_host_ns,
            "waiting": one.idle_wait_ns,
        }


def raw_parts(path: Path, number: int) -> dict[str, int]:
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=str)["traceEvents"]

    def ns(text: Any) -> int:
        whole, _, decimals = str(text).partition(".")
        return int(whole) * 1000 + int(decimals.ljust(3, "0")[:3])

    spans = [one for one in events if one.get("ph") == "X"]
    calls = {
        one["args"]["correlation"]: (ns(one["ts"]), ns(one["ts"]) + ns(one["dur"]))
        for one in spans
        if one.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    # The k-th optimizer's step ends step k.
    marks = [one for one in spans if one["name"] == "Optimizer.step#Adam.step" and one["cat"] == "user_annotation"]
    bounds = [0, *sorted(ns(one["ts"]) + ns(one["dur"]) for one in marks)]
    ops = []
    for one in spans:
        if one.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        start, (called, returned) = ns(one["ts"]), calls[one["args"]["correlation"]]
        kind = "copy" if one["cat"] != "kernel" else "communication" if "nccl" in one["name"] else "compute"
        ops.append((kind, start, start + ns(one["dur"]), called, min(returned, start)))

    def end_of(step: int) -> int:
        return max(end for _, _, end, called, _ in ops if bounds[step] <= called < bounds[step + 1])

    low, high = end_of(number - 1), end_of(number)
    near = [one for one in ops if one[2] > low and one[4] < high]
    edges = sorted({low, high} | {edge for one in near for edge in (one[1], one[2], one[4]) if low < edge < high})
    waits = []
    for _, start, _, _, submitted in near:
        into_idle = not any(other[1] <= submitted < other[2] for other in ops)
        if not (into_idle and start - submitted <= 10_000):
            waits.append((submitted, start))
    found = dict.fromkeys(("compute", "communication", "copy", "host", "waiting"), 0)
    for begin, end in pairwise(edges):
        running = {kind for kind, start, stop, _, _ in near if start <= begin and end <= stop}
        kind = next((one for one in ("compute", "communication", "copy") if one in running), "")
        if not kind:
            kind = "waiting" if any(start <= begin and end <= stop for start, stop in waits) else "host"
        found[kind] += end - begin
    return found


# The ceiling.


def overlap_of(a: int, b: int, real: int, rank: int = 0) -> RankOverlap:
    return RankOverlap(rank, 0, Side(a, a, 1, (7,)), Side(b, b, 1, (8,)), real, real, Instances())


def test_the_ceiling_is_what_is_missed_on_the_worst_rank_and_no_more_than_runs_alone() -> None:
    ranks = [overlap_of(100, 60, 20), overlap_of(100, 60, 50, rank=1)]
    assert ceiling_of(ranks, {(0, 0): 30, (1, 0): 10}, 1) == 30  # of 40 missed
    assert ceiling_of(ranks, {(0, 0): 60, (1, 0): 10}, 1) == 40
    assert ceiling_of(ranks, {(0, 0): 60, (1, 0): 10}, 3) == 14  # a third, rounded up
    assert ceiling_of([overlap_of(100, 0, 0)], {}, 1) is None
    assert ceiling_of([], {}, 1) is None


def test_what_of_the_shorter_side_runs_beside_other_work_holds_nothing_up_by_itself() -> None:
    run, rank = one_rank()
    us(rank, COMM, 9, 0, 40, (-9, -8), wait_ns=10)  # A, which runs 10–40
    us(rank, GEMM, 7, 20, 25, (-9, -8))  # B
    us(rank, GEMM, 7, 50, 90, (-9, -8))
    us(rank, "Memcpy HtoD", 8, 30, 32, (-9, -8))  # neither
    trace = run.trace()
    found = check_overlap(trace)
    (one,) = found.ranks
    comm, compute = ((trace.ops.to_frame()["name"] == name).to_numpy() for name in (COMM, GEMM))
    assert exposed_of_pair(trace, comm, compute, [one]) == {(0, 0): 23 * US}  # 30 less 5 and 2
    assert found.bound is not None
    assert found.bound.ceiling_ns == 23 * US  # of 25 missed
    assert found.bound.ceiling_sentence(("A", "B")) == "Perfect overlap of A and B would save at most 23.0 µs (25.6 %)."


def test_long_names_keep_a_sentence_short_and_nothing_to_save_is_said() -> None:
    run, rank = one_rank()
    us(rank, GEMM, 7, 0, 1000, (-9, -5))
    found = replace(bound(run.trace()), ceiling_ns=0, step=3)
    assert found.ceiling_sentence(("A", "B")) == "Perfect overlap of A and B would save nothing."
    assert len(replace(found, ceiling_ns=123_456).ceiling_sentence(("x" * 300, "y" * 300))) < 180
    assert replace(found, ceiling_ns=None).ceiling_sentence(("A", "B")) == ""
