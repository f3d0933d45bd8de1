"""The answer each captured scenario supports, from nsys and from torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.overlap.measure import Missed
from analyzers.trace.narrow import clip, only_ranks
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


def missed_by(name: str, source: str, cause: str) -> tuple[list[Missed], float]:
    """What a cause accounts for on each rank, and its share of all missed time, over all ranks."""
    ranks = answer(name, source).ranks
    mine = [one for rank in ranks for one in rank.missed if one.cause == cause]
    return mine, sum(one.ns for one in mine) / sum(rank.missed_ns for rank in ranks)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("name", "cause", "share", "evidence"),
    [
        ("full_gpu", "gpu-full", 0.9, "grid 132 × block 384; 132 SMs hold 132 such blocks"),
        (
            "opt_serial",
            "same-stream",
            0.5,
            "behind CatArrayBatchedCopy_vectorized of emb_lookup on the same stream",
        ),
        ("rowpar_s1", "event-dependency", 0.9, "through record on stream"),
        ("dpmp_serial", "event-dependency", 0.3, "after all 10 ops of MP Embedding were queued, so it can't meet any"),
        ("dpmp_hidden_sync", "host-sync", 0.3, "in cudaStreamSynchronize, "),
        ("delta_sync", "host-sync", 0.9, "in cudaMemcpyAsync"),
    ],
)
def test_the_cause_of_a_program_is_named_with_its_evidence(
    name: str, cause: str, share: float, evidence: str, source: str
) -> None:
    found, of_all = missed_by(name, source, cause)
    assert of_all > share
    assert all(evidence in one.evidence for one in found)
    if name == "rowpar_s1":
        assert all(("(inferred: " in one.evidence) == (source == "torch") for one in found)


@pytest.mark.parametrize("source", SOURCES)
def test_other_causes_are_not_named(source: str) -> None:
    causes = {one.cause for rank in answer("opt_serial", source).ranks for one in rank.missed}
    assert causes <= {"same-stream", "late-launch"}
    waits, late = (missed_by("dpmp_serial", source, cause)[1] for cause in ("event-dependency", "late-launch"))
    assert waits + late > 0.8
    assert missed_by("dpmp_serial", source, "host-sync")[1] == missed_by("dpmp_overlap", source, "host-sync")[1] == 0
    late_after_sync, _ = missed_by("dpmp_hidden_sync", source, "late-launch")
    assert sum(one.after_sync_ns for one in late_after_sync) == sum(one.ns for one in late_after_sync) > 0


def test_a_wait_behind_work_from_before_the_capture_is_the_same_wait_in_each_occurrence() -> None:
    """Each occurrence of DP Embedding waits by one record and wait for MP's last lookup."""
    trace = load(sorted((DATA / "workloads" / "dpmp.overlapped.4gpu.torch").glob("rank?.json.gz")))
    for rank in trace.rank_ids:
        for found in alone_by_instance(trace, DP, MP, rank=rank).values():
            assert found.most_common(1)[0][0] == "event-dependency"
            assert found["gpu-full"] < 400_000, "MP's all-to-all beside DP, at most"


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
