"""Captures of one process that follow each other are one rank; never ranks of their own."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.trace.narrow import EVERYTHING
from analyzers.trace.steps import find_steps
from analyzers.trace.windows import windows_of_ranks
from analyzers.verdict.check import check_overlap
from tests.support.captures import DATA
from tests.support.command_lines import invoked, run_json
from tests.support.kineto_files import KinetoFile

STAGES = DATA / "public" / "stages-of-one-process"
SECOND_NS = 10**9
BASE_NS = 1_790_000_000_000_000_000


def events_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def by_hand(stage: str) -> dict[int, tuple[int, int]]:
    """Real overlap and what could overlap of each rank in one stage, ns: k-th all-reduce with k-th, event by event."""
    ranks = []
    for rank in (0, 1):
        kernels = [one for one in events_of(next(STAGES.glob(f"*TP-{rank}-{stage}*"))) if one["cat"] == "kernel"]
        nccl = [one for one in kernels if "nccl" in one["name"]]
        ranks.append((nccl, [one for one in kernels if one not in nccl]))
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for k in range(len(ranks[0][0])):
        arrived = max(nccl[k]["ts"] for nccl, _ in ranks)
        for rank, (nccl, compute) in enumerate(ranks):
            end = nccl[k]["ts"] + nccl[k]["dur"]
            both = sum(max(0, min(end, one["ts"] + one["dur"]) - max(arrived, one["ts"])) for one in compute)
            real, could = found[rank]
            found[rank] = real + round(both * 1000), could + round((end - arrived) * 1000)
    return dict(found)


@pytest.fixture(scope="module")
def staged() -> Any:
    return check_overlap(load([STAGES]))


def test_stages_of_one_process_are_one_rank_with_two_windows() -> None:
    trace = load([STAGES])
    assert trace.rank_ids == [0, 1]
    files = {rank: [Path(path).name for path in paths] for rank, paths in windows_of_ranks(trace).items()}
    assert files == {
        rank: [f"1779464196.17-TP-{rank}-{stage}.trace.json.gz" for stage in ("DECODE", "EXTEND")] for rank in (0, 1)
    }
    (said,) = (one.message for one in trace.warnings if one.code == "windows")
    assert "TP-0-EXTEND" in said and "captures-apart" not in [one.code for one in trace.warnings]


def test_each_window_has_its_own_figures_and_the_worst_decides(staged: Any) -> None:
    """Decoding hides all of its 200 µs a step, extending none of its 500 µs, and nobody waits for another stage."""
    assert by_hand("DECODE") == {0: (2_400_000, 2_400_000), 1: (2_400_000, 2_400_000)}
    assert by_hand("EXTEND") == {0: (0, 4_500_000), 1: (0, 4_500_000)}
    for rank in staged.ranks:
        decode, extend = rank.windows
        assert (decode.real_overlap_ns, decode.could_overlap_ns) == by_hand("DECODE")[rank.rank]
        assert (extend.real_overlap_ns, extend.could_overlap_ns) == by_hand("EXTEND")[rank.rank]
        assert (rank.real_overlap_ns, rank.could_overlap_ns) == (2_400_000, 6_900_000)
    assert (staged.verdict, staged.passed, staged.job.real_overlap_ratio) == ("serialized", False, 0.0)
    assert staged.deciding_window.a.wait_ns == 0
    assert (staged.job.ranks_met, staged.job.ranks_deciding) == (0, 2)


def test_steps_of_later_windows_are_numbered_on_and_each_window_can_be_asked_for() -> None:
    trace = load([STAGES])
    assert find_steps(trace).whole == tuple(range(12 + 9))
    decode, extend = (run_json("check-overlap", str(STAGES), "--steps", steps) for steps in ("0:12", "12:21"))
    assert (decode["verdict"], extend["verdict"]) == ("overlapped", "serialized")
    assert [(one["real_overlap_ns"], one["a"]["wait_ns"]) for one in decode["ranks"]] == [
        (2_400_000, 1_200_000),
        (2_400_000, 0),
    ]


def test_one_capture_at_a_time_is_refused_where_captures_are_windows() -> None:
    with pytest.raises(TracevizError, match="are windows of one process"):
        invoked("check-overlap", str(STAGES), "--memory", "1GB")


def cycles(folder: Path, scenario: str, apart_us: int) -> list[Path]:
    """A run of two ranks as torch's handler writes two cycles of it: host, pid and time in the names."""
    paths = []
    for rank in (0, 1):
        with gzip.open(DATA / "torch" / f"{scenario}.rank{rank}.json.gz") as file:
            trace = json.load(file)
        pid = next(one["pid"] for one in trace["traceEvents"] if one.get("cat") == "cuda_runtime")
        for cycle in (0, 1):
            moved = [
                {**one, "ts": one["ts"] + cycle * apart_us} if "ts" in one else one for one in trace["traceEvents"]
            ]
            path = folder / f"node3_{pid}.{cycle + 1}.pt.trace.json"
            path.write_text(json.dumps({**trace, "traceEvents": moved}))
            paths.append(path)
    return paths


def test_cycles_of_torchs_handler_count_as_much_as_each_by_itself(tmp_path: Path) -> None:
    """Correlation ids, streams and events of the second cycle are those of the first: links stay within a cycle."""
    pair = ("nvtx:DP Embedding", "nvtx:MP Embedding")
    files = [DATA / "torch" / f"dpmp_overlap.rank{rank}.json.gz" for rank in (0, 1)]
    both, once = (
        check_overlap(load(paths), *pair, narrowing=EVERYTHING)
        for paths in (cycles(tmp_path, "dpmp_overlap", 5_000_000), files)
    )
    assert [rank.rank for rank in both.ranks] == [rank.rank for rank in once.ranks] == [0, 1]
    for rank, single in zip(both.ranks, once.ranks, strict=True):
        figures = [(one.overlap_ns, one.a.busy_ns, one.b.busy_ns, one.a.ops) for one in rank.windows]
        assert figures == [(single.overlap_ns, single.a.busy_ns, single.b.busy_ns, single.a.ops)] * 2
        assert rank.overlap_ns == 2 * single.overlap_ns
    assert [one.span_ns for one in both.times] == [2 * one.span_ns for one in once.times]


def file_of(*spans: tuple[int, int], base_ns: int = BASE_NS, rank: int | None = None) -> KinetoFile:
    made = KinetoFile(rank, base_ns=base_ns)
    for start, end in spans:
        made.kernel("gemm", 7, start, end, launch=start - 50)
    return made


def test_captures_of_one_process_at_the_same_time_are_refused_by_name(tmp_path: Path) -> None:
    first, second = file_of((100, 200), (300, 400)), file_of((300, 400), (500, 601))
    paths = [first.write(tmp_path / "a.json"), second.write(tmp_path / "b.json")]
    with pytest.raises(TracevizError, match=r"a\.json and .*b\.json are both of process 4242 .* a copy or a part"):
        load(paths)


def divided(folder: Path, names: tuple[str, str], *, skipped: int = 0, device: int = 0, earlier: int = 0) -> list[Path]:
    """Six kernels of one process, the first three in one file and the others in another; ids go from 101 to 106."""
    paths = []
    for half, name in enumerate(names):
        made = KinetoFile(None)
        made.correlation = 100 + half * (3 + skipped)
        for k in range(3 * half, 3 * half + 3):
            at = 1_000 * k - half * earlier
            made.kernel("gemm", 7, at + 100, at + 1_050, launch=at + 10, device=half * device)
        paths.append(made.write(folder / name))
    return paths


@pytest.mark.parametrize("order", [1, -1])
def test_halves_of_one_process_named_as_two_ranks_are_refused_by_name(tmp_path: Path, order: int) -> None:
    """The later file's first call has id 104, after 103; its first kernel begins 50 ns after the other's last ends."""
    divided(tmp_path, ("rank0.json", "rank1.json"))
    with pytest.raises(
        TracevizError, match=r"rank0\.json and .*rank1\.json are named as two ranks.* \(4242\)"
    ) as refusal:
        load([tmp_path / name for name in ("rank0.json", "rank1.json")[::order]])
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    "how",
    [{"skipped": 3}, {"skipped": -3}, {"device": 1}, {"earlier": 100}],
    ids=["ids far apart", "ids begin anew", "another device", "at the same time"],
)
def test_ranks_of_containers_one_after_the_other_are_no_halves(tmp_path: Path, how: dict[str, int]) -> None:
    assert load(divided(tmp_path, ("rank0.json", "rank1.json"), **how)).rank_ids == [0, 1]


def test_which_windows_belong_together_is_not_guessed(tmp_path: Path) -> None:
    """Rank 0 was captured twice while rank 1 was once, over both."""
    twice = [file_of((100, 200), base_ns=BASE_NS + k * SECOND_NS, rank=0) for k in (0, 1)]
    over_both = file_of((100, 2 * SECOND_NS), rank=1)
    paths = [made.write(tmp_path / f"{k}.json") for k, made in enumerate([*twice, over_both])]
    with pytest.raises(TracevizError, match="which of them belongs to which capture of the other ranks can't be told"):
        load(paths)
