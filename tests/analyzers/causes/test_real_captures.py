"""The answer each captured scenario supports, from nsys and from torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.overlap.measure import Missed
from analyzers.trace.narrow import clip, only_ranks, only_steps
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from tests.support.causes_of import alone_by_instance

pytestmark = pytest.mark.nightly

DATA = Path(__file__).parents[2] / "data"
DP, MP = "nvtx:DP Embedding", "nvtx:MP Embedding"
SCENARIOS = {
    "full_gpu": ("nvtx:branch A", "nvtx:branch B"),
    "opt_serial": ("nvtx:optimizer", "nvtx:emb_lookup"),
    "rowpar_s1": ("comm", "compute"),
    "dpmp_serial": (DP, MP),
    "dpmp_hidden_sync": (DP, MP),
    "dpmp_overlap": (DP, MP),
    "a2a_sync": ("comm", "compute"),
    "delta_sync": ("memcpy:DtoH", "compute"),
}
SOURCES = ["nsys", "torch"]


@cache
def capture(name: str, source: str) -> Trace:
    files = sorted(DATA.glob(f"nsys/{name}.2gpu.sqlite" if source == "nsys" else f"torch/{name}.rank?.json.gz"))
    return load(files)


@cache
def answer(name: str, source: str) -> OverlapResult:
    return check_overlap(capture(name, source), *SCENARIOS[name])


def part(name: str, source: str, cause: str) -> float:
    """Share of all missed time, over all ranks, that a cause accounts for."""
    ranks = answer(name, source).ranks
    mine = sum(one.ns for rank in ranks for one in rank.missed if one.cause == cause)
    return mine / sum(rank.missed_ns for rank in ranks)


def missed_by(name: str, source: str, cause: str) -> list[Missed]:
    return [one for rank in answer(name, source).ranks for one in rank.missed if one.cause == cause]


@pytest.mark.parametrize("source", SOURCES)
def test_full_gpu_is_almost_all_gpu_full(source: str) -> None:
    assert part("full_gpu", source, "gpu-full") > 0.9
    for one in missed_by("full_gpu", source, "gpu-full"):
        assert "grid 132 × block 384; 132 SMs hold 132 such blocks" in one.evidence


@pytest.mark.parametrize("source", SOURCES)
def test_an_optimizer_behind_the_lookup_is_held_by_their_stream(source: str) -> None:
    assert {one.cause for rank in answer("opt_serial", source).ranks for one in rank.missed} <= {
        "same-stream",
        "late-launch",
    }
    assert part("opt_serial", source, "same-stream") > 0.5
    for one in missed_by("opt_serial", source, "same-stream"):
        assert "was queued behind CatArrayBatchedCopy_vectorized of emb_lookup on the same stream" in one.evidence


@pytest.mark.parametrize("source", SOURCES)
def test_one_chunk_waits_for_its_own_matmul_by_an_event(source: str) -> None:
    assert part("rowpar_s1", source, "event-dependency") > 0.9
    for one in missed_by("rowpar_s1", source, "event-dependency"):
        assert "through record on stream" in one.evidence
        assert ("(inferred: " in one.evidence) == (source == "torch")


@pytest.mark.parametrize("source", SOURCES)
def test_serial_dp_waits_for_the_all_to_all_and_for_launches(source: str) -> None:
    assert part("dpmp_serial", source, "host-sync") == 0
    assert part("dpmp_serial", source, "event-dependency") > 0.3
    assert part("dpmp_serial", source, "event-dependency") + part("dpmp_serial", source, "late-launch") > 0.8
    for one in missed_by("dpmp_serial", source, "event-dependency"):
        assert "for ncclDevKernel_SendRecv of MP Embedding on stream" in one.evidence
        assert "after all 10 ops of MP Embedding were queued, so it can't meet any" in one.evidence


@pytest.mark.parametrize("source", SOURCES)
def test_a_hidden_sync_is_named_and_the_late_launches_follow_it(source: str) -> None:
    assert part("dpmp_hidden_sync", source, "host-sync") > 0.3
    for one in missed_by("dpmp_hidden_sync", source, "host-sync"):
        origin = (
            ", from aten::item in 'MP Embedding'"
            if source == "torch"
            else ", as .item() or nonzero() does (DtoH, 1 B), in"
        )
        assert f"in cudaStreamSynchronize{origin}" in one.evidence
        assert "'MP Embedding'" in one.evidence
    late = missed_by("dpmp_hidden_sync", source, "late-launch")
    assert sum(one.after_sync_ns for one in late) == sum(one.ns for one in late) > 0


def test_a_hidden_sync_is_found_with_its_line_where_stacks_are_there() -> None:
    trace = load([DATA / "torch-stacks" / "dpmp_hidden_sync.rank0.json.gz"])
    (rank,) = check_overlap(trace, DP, MP).ranks
    (sync,) = [one for one in rank.missed if one.cause == "host-sync"]
    assert "from aten::item in 'MP Embedding' (train.py(" in sync.evidence


@pytest.mark.parametrize("source", SOURCES)
def test_a_wait_issued_too_late_binds_and_is_next_behind_a_slow_host(source: str) -> None:
    """Where DP is launched late behind a wait that is released later still, the wait binds; elsewhere it is next."""
    assert part("dpmp_overlap", source, "host-sync") == 0
    for rank in answer("dpmp_overlap", source).ranks:
        wait, late = rank.missed[:2]
        assert (wait.cause, late.cause) == ("event-dependency", "late-launch")
        assert late.after_sync_ns == 0
        assert late.next_cause == "event-dependency"
        assert "its wait was issued after 9 of 10 ops of MP Embedding were queued" in wait.evidence
        assert "next in line: event-dependency, its wait issued after 9 of 10 ops of MP Embedding" in late.next_behind
        for text in (wait.evidence, late.next_behind):
            assert "a faster host could only meet the rest (ncclDevKernel_SendRecv)" in text


def test_a_wait_behind_work_from_before_the_capture_is_the_same_wait_in_each_occurrence() -> None:
    """Each occurrence of DP Embedding waits by one record and wait for MP's last lookup."""
    trace = load(sorted((DATA / "workloads" / "dpmp.overlapped.4gpu.torch").glob("rank?.json.gz")))
    for rank in trace.rank_ids:
        for found in alone_by_instance(trace, DP, MP, rank=rank).values():
            assert found.most_common(1)[0][0] == "event-dependency"
            assert found["gpu-full"] < 400_000, "MP's all-to-all beside DP, at most"


@pytest.mark.parametrize("source", SOURCES)
def test_a_pageable_copy_blocks_the_host(source: str) -> None:
    assert part("delta_sync", source, "host-sync") > 0.9
    for one in missed_by("delta_sync", source, "host-sync"):
        assert "in cudaMemcpyAsync" in one.evidence


@pytest.mark.parametrize("name", list(SCENARIOS))
@pytest.mark.parametrize("source", SOURCES)
def test_ranks_and_windows_are_explained_as_in_the_whole(name: str, source: str) -> None:
    trace, whole = capture(name, source), answer(name, source)
    for rank in whole.ranks:
        (same,) = check_overlap(only_ranks(trace, (rank.rank,)), *SCENARIOS[name]).ranks
        assert same.missed == rank.missed
        assert same.missed_ns == rank.missed_ns
    low, high = int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())
    for rank, same in zip(whole.ranks, check_overlap(clip(trace, low, high), *SCENARIOS[name]).ranks, strict=True):
        assert (same.missed, same.missed_ns, same.achievable_ns) == (rank.missed, rank.missed_ns, rank.achievable_ns)


def test_a_window_around_one_instance_explains_it_as_its_step_does() -> None:
    trace = capture("dpmp_overlap", "nsys")
    for step in (0, 1, 2):
        (one, _) = check_overlap(only_steps(only_ranks(trace, (0, 1)), step, step + 1), DP, MP).ranks
        (instance,) = one.instances
        (windowed,) = check_overlap(clip(only_ranks(trace, (0,)), instance.start_ns, instance.end_ns), DP, MP).ranks
        assert [(m.cause, m.ns, m.evidence) for m in windowed.missed] == [
            (m.cause, m.ns, m.evidence) for m in one.missed
        ]
