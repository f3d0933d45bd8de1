"""Captures that can't be ranks of one run are refused; what is merely odd is a warning."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.trace.one_run import check_one_run
from analyzers.trace.ranks import assign_ranks
from analyzers.trace.tables import Capture, Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder
from tests.support.kineto_files import KinetoFile

DAY_NS = 24 * 3600 * 10**9
BASE_NS = 1_790_000_000_000_000_000


def written(folder: Path, *files: KinetoFile) -> list[Path]:
    """Each with one kernel from 100 to 200 ns."""
    for file in files:
        file.kernel("gemm", 7, 100, 200, launch=10)
    return [file.write(folder / f"{k}.json") for k, file in enumerate(files)]


def with_group(rank: int, name: str, ranks: str) -> KinetoFile:
    file = KinetoFile(rank, world_size=4)
    file.kernel("ncclDevKernel_AllReduce", 9, 300, 400, launch=20)
    file.events[-1]["args"] |= {
        "Collective name": "allreduce", "Process Group Name": name, "Process Group Ranks": ranks, "Group size": 2,
    }  # fmt: skip
    return file


def test_world_sizes_that_disagree_are_refused(tmp_path: Path) -> None:
    files = written(tmp_path, KinetoFile(0, world_size=2), KinetoFile(1, world_size=4))
    with pytest.raises(TracevizError, match=r"0\.json is of a job of 2 ranks, and .*1\.json of one of 4"):
        load(files)
    load(written(tmp_path, KinetoFile(0, world_size=2), KinetoFile(1)))


def test_a_group_that_two_of_its_ranks_know_by_other_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TracevizError, match="Rank 0 says that process group 1 has the ranks 0, 1, rank 1 that it has 1"
    ):
        load(written(tmp_path, with_group(0, "1", "[0, 1]"), with_group(1, "1", "[1, 2]")))


@pytest.mark.parametrize(
    ("name", "ranks"), [("1", "[0, 1]"), ("2", "[1, 2]"), ("1", "[1, 2, ...]"), ("1", "[2, 3]"), ("1", "")]
)
def test_groups_that_need_not_be_one_are_no_contradiction(tmp_path: Path, name: str, ranks: str) -> None:
    load(written(tmp_path, with_group(0, "1", "[0, 1]"), with_group(1, name, ranks)))


def test_a_rank_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TracevizError, match="both say they are rank 1"):
        load(written(tmp_path, KinetoFile(1), KinetoFile(1)))


def test_captures_days_apart_are_refused_and_some_time_apart_a_warning(tmp_path: Path) -> None:
    """They end 200 ns after their base."""
    for apart_ns, days in ((DAY_NS + 300, "1.0"), (3 * DAY_NS, "3.0")):
        files = written(tmp_path, KinetoFile(0), KinetoFile(1, base_ns=BASE_NS + apart_ns))
        with pytest.raises(TracevizError, match=f"{days} days after"):
            load(files)
    for apart_ns, odd in ((0, False), (100, False), (60 * 10**9, True)):
        trace = load(written(tmp_path, KinetoFile(0), KinetoFile(1, base_ns=BASE_NS + apart_ns)))
        assert ("captures-apart" in [one.code for one in trace.warnings]) is odd


def test_a_relative_path_keeps_its_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Runs").mkdir()
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "Runs", KinetoFile(0), KinetoFile(1, base_ns=BASE_NS + 60 * 10**9))
    result = check_overlap(load([Path("Runs/0.json"), Path("Runs/1.json")]), accept_apparent=True)
    assert result.reason is not None
    assert "Runs/1.json begins 60.0 s after Runs/0.json ends" in result.reason


def test_a_capture_given_twice_under_two_names_is_refused(tmp_path: Path) -> None:
    """Nothing in it says its rank: by order, or by the files' names, a copy would be another one."""

    def file(last_ns: int, kernels: int = 9) -> KinetoFile:
        made = KinetoFile(None)
        for k in range(kernels):
            made.kernel("gemm", 7, 100 + 100 * k, 190 + 100 * k, launch=10 + k)
        made.kernel("gemm", 7, 1_000, last_ns, launch=50)
        return made

    for names in (("a.json", "b.json"), ("rank0.json", "rank1.json")):
        paths = [file(1_100).write(tmp_path / name) for name in names]
        with pytest.raises(TracevizError, match=r"holds the same work, to the ns, as"):
            load(paths)
    load([paths[0], file(1_101).write(tmp_path / "c.rank2.json")])
    load([file(1_100, kernels=2).write(tmp_path / f"few.rank{rank}.json") for rank in (0, 1)])  # alike by chance


def kernels(count: int, first: int = 0, *, seed: int = 0, moved_ns: int = 0, rank: int, device: int) -> KinetoFile:
    """So many kernels from one on, of a program whose kernels last from 50 to 90 ns by chance."""
    made = KinetoFile(rank, base_ns=BASE_NS + moved_ns)
    draw = random.Random(seed)
    lasting = [draw.randint(50, 90) for _ in range(first + count)]
    for k in range(first, first + count):
        made.kernel("gemm", 7, 100 + 100 * k, 100 + 100 * k + lasting[k], launch=10 + 100 * k, device=device)
    return made


@pytest.mark.parametrize("first", [0, 40], ids=["the first ops", "the last ops"])
@pytest.mark.parametrize("moved_ns", [0, 3_500])
@pytest.mark.parametrize("lengths", [(100, 60), (60, 100)])
def test_a_part_of_a_capture_as_another_rank_is_told_to_the_ns(
    tmp_path: Path, first: int, moved_ns: int, lengths: tuple[int, int]
) -> None:
    """Of one pid and device it is refused; where these differ, too, it leaves the verdict open."""

    def files(device: int, seed: int = 0) -> list[Path]:
        made = [
            kernels(count, first if count == 60 else 0, rank=rank, device=rank * device, seed=rank * seed,
                    moved_ns=rank * moved_ns)
            for rank, count in enumerate(lengths)
        ]  # fmt: skip
        return [one.write(tmp_path / f"{rank}.json") for rank, one in enumerate(made)]

    part = 1 if lengths[1] == 60 else 0
    with pytest.raises(TracevizError, match=rf"{part}\.json holds the same work, to the ns, as .*{1 - part}\.json"):
        load(files(0))
    (doubt,) = [one.message for one in load(files(1)).warnings if one.code == "not-one-run"]
    assert doubt.startswith(f"all ops of rank {part} in ")
    for device in (0, 1):
        assert "not-one-run" not in [one.code for one in load(files(device, seed=1)).warnings]


def on_gpus(*claims: tuple[str, int]) -> Trace:
    """A capture and a process of each host and GPU."""
    builder = Builder()
    for number, (_, gpu) in enumerate(claims):
        builder.rank(number).kernel("gemm", 7, 100, 200 + gpu)
    trace = builder.trace()
    captures = tuple(Capture(f"{k}.sqlite", "nsys", host=host) for k, (host, _) in enumerate(claims))
    processes = tuple(
        replace(one, capture=k, claims={"environment": k, "gpu": claims[k][1]}) for k, one in enumerate(trace.processes)
    )
    return assign_ranks(replace(trace, captures=captures, processes=processes))


@pytest.mark.parametrize(
    ("claims", "odd"),
    [
        ([("node3", 0), ("node3", 0)], True),
        ([("node3", 0), ("node3", 1)], False),
        ([("node3", 0), ("node4", 0)], False),
        ([("localhost", 0), ("localhost", 0)], False),  # who knows whose
        ([("", 0), ("", 0)], False),
        ([("node3", -1), ("node3", -1)], False),
    ],
)
def test_ranks_of_two_captures_on_one_gpu_of_one_host_are_a_warning(claims: list[tuple[str, int]], odd: bool) -> None:
    trace = check_one_run(on_gpus(*claims))
    found = [one.message for one in trace.warnings if one.code == "same-gpu"]
    assert found == (
        ["Rank 0 of 0.sqlite and rank 1 of 1.sqlite both used GPU 0 of node3: are they ranks of one run?"]
        if odd
        else []
    )
