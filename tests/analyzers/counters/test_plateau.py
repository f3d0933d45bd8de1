"""A lone rank's waits by NVLink traffic, held against last arrivals in the same captures with all ranks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.counters.plateau import _alone_on_host, transfer_of
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.narrow import EVERYTHING, Narrowing
from analyzers.trace.tables import Capture, Trace
from analyzers.verdict.check import check_overlap
from tests.support import counters as raw
from tests.support.builder import Builder

UNCACHED = Reading(cache=False)


@cache
def whole(which: str) -> Trace:
    """A capture of all ranks, which no test changes."""
    return load([raw.CONTEND / f"contend_{which}.sqlite.gz"], reading=UNCACHED)


@cache
def unaligned(which: str) -> Trace:
    """The same on its own clocks."""
    return load([raw.CONTEND / f"contend_{which}.sqlite.gz"], reading=UNCACHED, align=False)


def lone(which: str, gpu: int, folder: Path, *, metrics: bool = True) -> Trace:
    """One rank's share of a capture."""
    path = raw.of_rank(which, gpu, folder)
    if not metrics:
        with closing(sqlite3.connect(path)) as database:
            database.execute("DELETE FROM GPU_METRICS")
            database.commit()
    return load([path], reading=UNCACHED)


def collectives(trace: Trace, rank: int) -> list[tuple[int, int, int, int, int, int]]:
    """Of a rank's long all-reduces: correlation, length, wait, its range, and whether waits were seen."""
    ops = trace.ops.to_frame()[
        (trace.ops.to_frame()["rank"] == rank)
        & trace.ops.to_frame()["name"].astype(str).str.contains("AllReduce_Sum_bf16")
    ]
    return [
        (op.correlation, op.end_ns - op.start_ns, op.wait_ns, op.wait_low_ns, op.wait_high_ns, op.wait_seen)
        for op in ops.itertuples()
    ]


@pytest.mark.parametrize("gpu", [0, 1, 2])
@pytest.mark.parametrize("which", ["before", "after"])
def test_waits_agree_with_last_arrivals(which: str, gpu: int, tmp_path: Path) -> None:
    expected = {one[0]: one for one in collectives(whole(which), gpu)}
    found = collectives(lone(which, gpu, tmp_path), gpu)
    assert len(found) == len(expected) >= 2
    for correlation, length, wait, low, high, seen in found:
        _, _, true, true_low, true_high, _ = expected[correlation]
        assert seen == 1
        assert low <= wait <= high <= length
        assert high - low < 0.76e6  # what buffers hold, a lull, four samples
        assert low <= true_high
        assert true_low <= high  # they can be one and the same
        if true_high - true_low < 100_000:  # clocks are known
            assert low <= true <= high


@pytest.mark.parametrize("gpu", [0, 1, 2])
def test_real_overlap_of_a_lone_rank_holds_that_of_all(gpu: int, tmp_path: Path) -> None:
    ranks = check_overlap(whole("after"), "comm", "compute", narrowing=EVERYTHING).ranks
    true = next(one for one in ranks if one.rank == gpu)
    alone = check_overlap(lone("after", gpu, tmp_path), "comm", "compute", narrowing=EVERYTHING).ranks[0]
    low, high = alone.real_overlap_bounds_ns
    assert low <= true.real_overlap_ns <= high
    assert alone.real_overlap_ns == pytest.approx(true.real_overlap_ns, rel=0.05)


def test_a_lone_rank_passes_where_it_is_asked_for_alone(tmp_path: Path) -> None:
    """With counters its waits are known; without, or as one rank of a job of which others may be worse, nothing is."""
    first = lone("after", 0, tmp_path)  # by its name the job may have had no other rank
    assert check_overlap(first, "comm", "compute").passed is None
    assert check_overlap(first, "comm", "compute", narrowing=Narrowing(ranks=(0,))).passed is True
    asked = Narrowing(ranks=(1,))
    with_counters = lone("after", 1, tmp_path)
    assert check_overlap(with_counters, "comm", "compute", narrowing=asked).passed is True
    assert check_overlap(with_counters, "comm", "compute").passed is None
    assert "waits-by-traffic" in {one.code for one in with_counters.warnings}
    without = lone("after", 1, tmp_path, metrics=False)
    assert check_overlap(without, "comm", "compute", narrowing=asked).passed is None


@pytest.mark.parametrize(
    ("traffic", "begin"),
    [
        ([78] * 20, 0),
        ([1] * 8 + [78] * 20, 8),
        ([77, 78, 76] + [1] * 8 + [78] * 20, 11),  # what buffers hold, then the wait
        ([78] * 4 + [1] * 3 + [78] * 20, 0),  # a lull of 150 µs
        ([78] * 9 + [1] * 8 + [78] * 20, None),  # more than buffers hold
        ([5] * 8 + [12] * 20, None),  # no plateau: traffic of others
        ([78] * 5, None),  # too short
        ([0] * 8 + [20, 30] + [78] * 20, 10),  # a trickle
        ([78] * 8 + [-1] + [78] * 8, None),
    ],
)
def test_the_plateau_counts(traffic: list[int], begin: int | None) -> None:
    start = np.arange(len(traffic)) * 50_000
    found = transfer_of(start, start + 50_000, np.array(traffic))
    at = None if begin is None else begin * 50_000  # three samples earlier; what buffers hold, a lull, a sample later
    expected = None if at is None else (at, at - 150_000, at + 350_000 + 200_000 + 50_000)
    assert (found and (found.begin, found.low, found.high)) == expected


def test_a_lull_of_one_sample_ends_no_stretch_however_long_that_is() -> None:
    start = np.arange(25) * 1_000_000
    found = transfer_of(start, start + 1_000_000, np.array([78] * 4 + [0] + [78] * 20))
    assert found is not None
    assert (found.begin, found.low, found.high) == (0, -3_000_000, 350_000 + 2 * 1_000_000)


@pytest.mark.parametrize(
    ("traffic", "period", "begin"),
    [
        ([0] * 8 + [100] * 20, 1_000_000, 8),
        ([0] * 8 + [6] * 20, 1_000_000, None),  # so little may be a log's, or storage's
        ([100] * 4 + [0] + [100] * 20, 1_000_000, 0),  # a lull of one sample, however long that is
        ([100] * 8 + [0] * 3 + [100] * 20, 1_000_000, 11),  # 0.8 Gbit, at 100 Gbit/s 8 ms, are what buffers hold
        ([100] * 9 + [0] * 3 + [100] * 20, 1_000_000, None),  # and this is more
        ([400] + [0] * 3 + [400] * 20, 10_000_000, 4),  # a sample may hold more than is told of it
    ],
)
def test_the_plateau_of_a_network_card_counts(traffic: list[int], period: int, begin: int | None) -> None:
    start = np.arange(len(traffic)) * period
    found = transfer_of(start, start + period, np.array(traffic), over_nvlink=False)
    assert (found and found.begin) == (None if begin is None else begin * period)
    if found is not None:  # three samples earlier; what buffers hold, a lull of a sample and a sample later
        assert found.low == found.begin - 3 * period
        assert found.high == found.begin + 800_000_000 // max(traffic) + 2 * period


def by_nics(which: str, gpu: int, folder: Path, begins: dict[int, int], *, host_gpus: int = 1) -> Trace:
    """One rank whose traffic goes over a network card: 100 Gbit/s from when each of its collectives transfers on."""
    path = raw.of_rank(which, gpu, folder)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM GPU_METRICS")
        if host_gpus == 1:
            database.execute("DELETE FROM TARGET_INFO_GPU WHERE id != ?", (gpu,))
        spans = database.execute("SELECT correlationId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
        database.commit()
    first, last = min(start for _, start, _ in spans), max(end for *_, end in spans)
    moving = [(begins[number], end) for number, _, end in spans if number in begins]
    rows = []
    for at in range(first, last, 100_000):
        busy = sum(max(0, min(at + 100_000, end) - max(at, begin)) for begin, end in moving) / 100_000
        rows += [(0, 1, f"IB: Bytes {way}", at, at + 100_000, 12.5e6 * busy) for way in ("sent", "received")]
    raw.with_nics(path, rows)
    return load([path], reading=UNCACHED)


def test_network_cards_tell_where_nvlink_does_not(tmp_path: Path) -> None:
    """Traffic begins at the real last arrivals: each wait's range holds it, to what buffers hold at 100 Gbit/s."""
    ops = unaligned("before").ops.to_frame()
    ops = ops[ops["rank"] == 0]
    starts = dict(zip(ops["correlation"], ops["start_ns"], strict=True))
    true = {one[0]: one[2] for one in collectives(whole("before"), 0)}
    begins = {number: int(starts[number] + wait) for number, wait in true.items()}
    found = collectives(by_nics("before", 0, tmp_path, begins), 0)
    assert len(found) >= 2
    for number, _, wait, low, high, seen in found:
        assert seen == 1
        assert low <= true[number] <= high
        assert abs(wait - true[number]) <= 100_000
        assert high - low <= 8_000_000 + 200_000 + 4 * 100_000


def test_network_cards_of_a_host_with_other_gpus_tell_nothing(tmp_path: Path) -> None:
    """Whose traffic it is nobody can know: other processes may use the same cards."""
    ops = unaligned("before").ops.to_frame()
    begins = dict(zip(ops["correlation"].tolist(), ops["start_ns"].tolist(), strict=True))
    assert all(one[5] == 0 for one in collectives(by_nics("before", 0, tmp_path, begins, host_gpus=4), 0))


CALLS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(-1, 3)), max_size=8)


@given(CALLS, st.lists(CALLS, min_size=1, max_size=2), st.booleans())
def test_what_else_used_a_hosts_cards_is_that_of_a_plain_loop(
    own: list[tuple[int, int, int]], others: list[list[tuple[int, int, int]]], all_work: bool
) -> None:
    """A call counts if nothing but one call of its own collective ran beside it on each other GPU."""
    run, collective = Builder(), []
    for number, calls in enumerate([own, *others]):
        rank = run.rank(number)
        run.add("devices", process=number, device=0, gpu=number)
        rank.kernel("gemm", 7, 90, 91)
        collective.append(-1)
        for start, length, of in calls:
            rank.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 9, start, start + length)
            collective.append(of)
    trace = run.trace()
    gpus = 1 + len(others) + (not all_work)
    trace = replace(
        trace,
        captures=(Capture("one", "nsys", host_gpus=gpus),),
        ops=trace.ops.having(collective=np.array(collective)),
    )
    mine = np.arange(1, 1 + len(own))
    communication = np.flatnonzero(trace.ops.to_frame()["name"].astype(str).str.contains("nccl"))
    expected = []
    for op, (start, length, of) in zip(mine.tolist(), own, strict=True):
        beside = [[it for low, its, it in calls if low < start + length and low + its > start] for calls in others]
        if all_work and all(some in ([], [of]) and (not some or of >= 0) for some in beside):
            expected.append(op)
    assert _alone_on_host(trace, mine, communication).tolist() == expected


def test_what_ran_on_another_host_used_its_own_cards() -> None:
    """A capture a host: in the second one another collective runs at the same time, which tells nothing here."""
    run = Builder()
    for number in range(2):
        rank = run.rank(number)
        run.add("devices", process=number, device=0, gpu=0)
        rank.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 9, 0, 100)
    trace = run.trace()
    first, second = trace.processes
    hosts = tuple(Capture(host, "nsys", host_gpus=1) for host in ("one", "two"))
    apart = replace(trace, captures=hosts, processes=(first, replace(second, capture=1)))
    assert _alone_on_host(apart, np.array([0]), np.array([0, 1])).tolist() == [0]
    beside = replace(trace, captures=(replace(hosts[0], host_gpus=2),), devices=trace.devices.having(gpu=[0, 1]))
    assert _alone_on_host(beside, np.array([0]), np.array([0, 1])).tolist() == []
