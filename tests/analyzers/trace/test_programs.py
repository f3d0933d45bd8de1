"""Captures of different programs, of different times and copies of one are no ranks of one run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.trace.one_run import DOUBTED
from analyzers.verdict.check import check_overlap
from tests.support.captures import DATA
from tests.support.kineto_files import KinetoFile

BASE_NS = 1_790_000_000_000_000_000


def read(name: str) -> Any:
    with gzip.open(DATA / name) as file:
        return json.load(file)


def at_the_time_of(trace: Any, other: Any) -> Any:
    """A capture moved so that it begins with another."""

    def begin(one: Any) -> float:
        start: float = min(event["ts"] for event in one["traceEvents"] if event.get("ph") == "X")
        return start + one.get("baseTimeNanoseconds", 0) / 1000

    by = begin(other) - begin(trace)
    moved = [{**event, "ts": event["ts"] + by} if "ts" in event else event for event in trace["traceEvents"]]
    return {**trace, "traceEvents": moved}


def written(folder: Path, *traces: Any) -> list[Path]:
    paths = [folder / f"t.rank{rank}.json" for rank in range(len(traces))]
    for path, trace in zip(paths, traces, strict=True):
        path.write_text(json.dumps(trace))
    return paths


def doubts(paths: list[Path]) -> list[str]:
    return [one.message for one in load(paths).warnings if one.code == DOUBTED]


def test_the_same_work_is_refused_whatever_ranks_it_claims(tmp_path: Path) -> None:
    """The file of rank 0 given twice, the copy's distributedInfo changed to rank 1; and moved by a second besides."""
    trace = read("torch/dpmp_overlap.rank0.json.gz")
    copy = {**trace, "distributedInfo": {**trace["distributedInfo"], "rank": 1}}
    later = {**copy, "baseTimeNanoseconds": copy.get("baseTimeNanoseconds", 0) + 10**9}
    for other in (copy, later):
        with pytest.raises(TracevizError, match=r"rank1\.json holds the same work, to the ns, as .*rank0\.json"):
            load(written(tmp_path, trace, other))


def test_the_same_times_of_another_process_leave_the_verdict_open(tmp_path: Path) -> None:
    """Of hundreds of ops; a few of the same times are found in examples made up by hand."""
    trace = read("torch/dpmp_overlap.rank0.json.gz")
    pids = {event["pid"] for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime"}
    events = [{**one, "pid": 9999} if one.get("pid") in pids else one for one in trace["traceEvents"]]
    copy = {**trace, "traceEvents": events, "distributedInfo": {**trace["distributedInfo"], "rank": 1}}
    paths = written(tmp_path, trace, copy)
    assert "one may be a copy of the other" in doubts(paths)[0]
    result = check_overlap(load(paths))
    assert (result.verdict, result.passed, result.exit_code) == ("inconclusive", None, 3)
    assert "one may be a copy of the other" in result.reason


def test_ranks_that_make_no_call_in_common_leave_the_verdict_open(tmp_path: Path) -> None:
    """DDP's rank 0 and FSDP's rank 1 share most kernels and operators, and a group 0; their calls are others."""
    first = read("workloads/ddp.step.2gpu.torch/rank0.json.gz")
    other = at_the_time_of(read("workloads/fsdp.step.2gpu.torch/rank1.json.gz"), first)
    paths = written(tmp_path, first, other)
    assert "make no call in common" in doubts(paths)[0]
    assert check_overlap(load(paths)).exit_code == 3


def program(rank: int, kernels: str, group: str = "", ranks: str = "[0, 1]", *, at_ns: int = 0) -> KinetoFile:
    file = KinetoFile(rank, base_ns=BASE_NS + at_ns)
    for k, letter in enumerate(kernels):
        file.range(f"range {letter}", 100 * k, 100 * k + 90)
        file.kernel(f"kernel_{letter}", 7, 100 * k + 20, 100 * k + 80 + rank, launch=100 * k + 10)
    if group:
        file.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9, 1000, 1100, launch=900)
        file.events[-1]["args"] |= {
            "Collective name": "allreduce", "Process Group Name": group, "Process Group Ranks": ranks,
            "Group size": 2, "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float",
        }  # fmt: skip
    return file


def load_both(folder: Path, *files: KinetoFile) -> Any:
    return load([file.write(folder / f"{k}.json") for k, file in enumerate(files)])


def test_programs_without_process_groups_are_doubted(tmp_path: Path) -> None:
    trace = load_both(tmp_path, program(0, "abcd"), program(1, "wxyz"))
    (why,) = (one.message for one in trace.warnings if one.code == DOUBTED)
    assert "run different programs: their kernels are kernel_a, kernel_b, kernel_c … against kernel_w" in why
    assert "no collective says that they belong together" in why


def test_stages_that_differ_are_of_one_program_where_a_group_makes_the_same_calls(tmp_path: Path) -> None:
    trace = load_both(tmp_path, program(0, "abcd", "pp"), program(1, "wxyz", "pp"))
    assert DOUBTED not in [one.code for one in trace.warnings]


def test_programs_with_process_groups_of_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TracevizError, match="they name no process group in common"):
        load_both(tmp_path, program(0, "abcd", "tp"), program(1, "wxyz", "dp"))


@pytest.mark.parametrize("kernels", ["abxy", "ab", "abcd"])
def test_ranks_that_share_half_of_what_they_run_are_of_one_program(tmp_path: Path, kernels: str) -> None:
    trace = load_both(tmp_path, program(0, "abcd"), program(1, kernels))
    assert DOUBTED not in [one.code for one in trace.warnings]


MULTI_RANK = sorted({path.parent / path.name.replace("rank0", "rank*") for path in DATA.rglob("*rank0.json.gz")})


@pytest.mark.parametrize(
    "run", [path for path in MULTI_RANK if "pp" in path.name or "pipe" in path.name or "trec" in path.name]
)
def test_pipelines_and_embeddings_are_not_doubted(run: Path) -> None:
    """Their ranks differ most of all captures here."""
    assert doubts(sorted(run.parent.glob(run.name))) == []
