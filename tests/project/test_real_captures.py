"""Real captures of two and four H200: every figure equals one counted from the file by `tests.support.raw_captures`."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.select.language import Atom
from analyzers.trace.narrow import EVERYTHING, only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import raw_captures
from tests.support.raw_captures import Ambiguous, Device, Figures, Raw

pytestmark = pytest.mark.nightly

TORCH, NSYS = (Path(__file__).parents[1] / "data" / kind for kind in ("torch", "nsys"))
SCENARIOS = sorted(path.name.split(".")[0] for path in TORCH.glob("*.rank1.json.gz"))
ONE_REPORT = sorted(NSYS.glob("*gpu*.sqlite")) + sorted(NSYS.glob("peer*.sqlite"))
PER_RANK = sorted(NSYS.glob("rowpar_s1.rank?.nsys2025.sqlite"))


def torch_files(scenario: str) -> list[Path]:
    return sorted(TORCH.glob(f"{scenario}.rank?.json.gz"))


@cache
def loaded(paths: tuple[Path, ...]) -> Trace:
    return load(paths)


def selector(word: str) -> str:
    return word if word in ("comm", "compute") else str(Atom("nvtx", word))


def answered(trace: Trace, a: str, b: str) -> dict[Device, Figures]:
    pid = {process.rank: process.pid for process in trace.processes}
    result = check_overlap(trace, selector(a), selector(b), narrowing=EVERYTHING)  # warm-up and all
    working = [rank for rank in result.ranks if rank.a.ops or rank.b.ops]  # another has launches alone
    return {(pid[rank.rank], rank.device): (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) for rank in working}


def agrees(trace: Trace, raw: Raw) -> None:
    """Communication against computation, and every two ranges, are as counted."""
    words = [*raw.names, "comm", "compute"]
    picked = {word: raw_captures.picked(raw, word) for word in words}
    for a, b in itertools.combinations(words, 2):
        try:
            expected = raw_captures.figures(raw, picked[a], picked[b])
        except Ambiguous:
            with pytest.raises(TracevizError, match=r"pick the same|share"):
                answered(trace, a, b)
        else:
            assert answered(trace, a, b) == expected, (a, b)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_pair_of_a_torch_trace_is_as_counted(scenario: str) -> None:
    files = torch_files(scenario)
    assert len(files) == (4 if scenario == "item_before" else 2)
    agrees(loaded(tuple(files)), raw_captures.read_kineto(files))


@pytest.mark.parametrize("path", ONE_REPORT, ids=lambda path: path.name)
def test_every_pair_of_an_nsys_report_is_as_counted(path: Path) -> None:
    agrees(loaded((path,)), raw_captures.read_nsys([path]))


def test_every_pair_of_a_report_a_rank_is_as_counted() -> None:
    assert len(PER_RANK) == 4
    agrees(loaded(tuple(PER_RANK)), raw_captures.read_nsys(PER_RANK))


@pytest.mark.parametrize(
    ("scenario", "a", "b", "known"),
    [
        ("dpmp_serial", "DP Embedding", "MP Embedding", [(0, None), (0, None)]),
        ("dpmp_overlap", "DP Embedding", "MP Embedding", [(162_879, 1_012_379), (212_705, 1_012_835)]),
        ("dpmp_hidden_sync", "DP Embedding", "MP Embedding", [(0, None), (84_256, 996_290)]),
    ],
)
def test_known_answers(scenario: str, a: str, b: str, known: list[tuple[int, int | None]]) -> None:
    result = check_overlap(loaded(tuple(torch_files(scenario))), selector(a), selector(b))
    assert [rank.rank for rank in result.ranks] == [0, 1]
    for rank, (overlap, shorter) in zip(result.ranks, known, strict=True):
        assert rank.overlap_ns == overlap
        assert shorter in (None, min(rank.a.busy_ns, rank.b.busy_ns))


@pytest.mark.parametrize(
    ("scenario", "a", "b", "known"),
    [
        ("dpmp_overlap", "DP Embedding", "MP Embedding", [0.161, 0.210]),
        ("dpmp_hidden_sync", "DP Embedding", "MP Embedding", [0.0, 0.085]),
        ("dpmp_race", "DP Embedding", "MP Embedding", [0.313, 0.368]),
        ("full_gpu", "branch A", "branch B", [0.076, 0.080]),
    ],
)
def test_known_ratios(scenario: str, a: str, b: str, known: list[float]) -> None:
    result = check_overlap(loaded(tuple(torch_files(scenario))), selector(a), selector(b))
    assert [round(rank.overlap_ratio or 0.0, 3) for rank in result.ranks] == known


def test_the_hidden_sync_leaves_dp_beside_the_all_to_all_only_though_the_sides_use_other_streams() -> None:
    trace = loaded(tuple(torch_files("dpmp_hidden_sync")))
    whole = check_overlap(trace, "nvtx:DP Embedding", "nvtx:MP Embedding").ranks[1]
    assert not set(whole.a.streams) & set(whole.b.streams)
    assert check_overlap(trace, "nvtx:DP Embedding", "nvtx:MP Embedding+comm").ranks[1].overlap_ns == 84_256
    assert check_overlap(trace, "nvtx:DP Embedding", "nvtx:MP Embedding+!comm").ranks[1].overlap_ns == 0


def test_two_streams_that_each_fill_the_gpu_only_meet_at_their_tails() -> None:
    result = check_overlap(loaded(tuple(torch_files("full_gpu"))), "nvtx:branch A", "nvtx:branch B")
    assert (result.verdict, result.exit_code) == ("serialized", 1)
    for rank in result.ranks:
        assert not set(rank.a.streams) & set(rank.b.streams)


def test_a_side_that_is_not_there_is_inconclusive() -> None:
    result = check_overlap(loaded(tuple(torch_files("full_gpu"))), "comm", "memcpy:PtoP")
    assert (result.verdict, result.exit_code, result.job.real_overlap_ratio) == ("inconclusive", 3, None)


def test_one_report_of_four_gpus_and_its_ranks_one_by_one_say_the_same() -> None:
    trace = loaded((NSYS / "dpmp_overlap.4gpu.sqlite",))
    together = check_overlap(trace, "nvtx:DP Embedding", "nvtx:MP Embedding").ranks
    alone = [
        check_overlap(only_ranks(trace, (rank,)), "nvtx:DP Embedding", "nvtx:MP Embedding").ranks[0]
        for rank in trace.rank_ids
    ]
    assert [(one.rank, one.overlap_ns, one.a.busy_ns) for one in alone] == [
        (one.rank, one.overlap_ns, one.a.busy_ns) for one in together
    ]


def test_a_graph_as_one_row_is_inconclusive_for_kernels() -> None:
    result = check_overlap(loaded((NSYS / "graph_overlap.4gpu.sqlite",)))
    assert (result.verdict, result.exit_code) == ("inconclusive", 3)
    assert "--cuda-graph-trace=node" in result.reason
