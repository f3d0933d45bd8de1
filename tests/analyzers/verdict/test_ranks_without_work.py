"""A rank that was given and of which no GPU work is on record is named, and no verdict holds for all."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.trace.narrow import only_ranks
from analyzers.trace.without_work import CODE
from tests.support.command_lines import invoked

TORCH = Path(__file__).parents[2] / "data" / "torch"
PAIR = "nvtx:DP Embedding", "nvtx:MP Embedding"
GPU = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
Content = dict[str, Any]


def contents(name: str, ranks: int) -> list[Content]:
    return [json.loads(gzip.decompress((TORCH / f"{name}.rank{rank}.json.gz").read_bytes())) for rank in range(ranks)]


def write(folder: Path, some: Sequence[Content], named: str = "t.rank{}.json") -> list[Path]:
    paths = [folder / named.format(number) for number in range(len(some))]
    for path, content in zip(paths, some, strict=True):
        path.write_text(json.dumps(content))
    return paths


def without_gpu_work(content: Content) -> Content:
    return {**content, "traceEvents": [one for one in content["traceEvents"] if one.get("cat") not in GPU]}


def in_a_phase_nobody_reads(content: Content) -> Content:
    found = copy.deepcopy(content)
    for one in found["traceEvents"]:
        if one.get("cat") in GPU:
            one["ph"] = "x"
    return found


def unnamed(content: Content) -> Content:
    return {key: value for key, value in content.items() if key != "distributedInfo"}


def without_events(content: Content) -> Content:
    return {**content, "traceEvents": []}


def of_the_host_alone(content: Content) -> Content:
    kept = [one for one in content["traceEvents"] if one.get("cat") in ("cpu_op", "user_annotation", None)]
    return {**content, "traceEvents": kept}


LAUNCHES, EMPTY = "rank 1: launches recorded, no GPU work", "rank 1: its capture holds no events"
HOST = "rank 1: no launches and no GPU work recorded"


@pytest.mark.parametrize("name", [lambda one: one, unnamed], ids=["distributedInfo", "file-name"])
@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (without_gpu_work, LAUNCHES),
        (in_a_phase_nobody_reads, LAUNCHES),
        (without_events, EMPTY),
        (of_the_host_alone, HOST),
    ],
)
def test_what_passed_with_all_work_passes_no_more(
    tmp_path: Path, lose: Callable[[Content], Content], why: str, name: Callable[[Content], Content]
) -> None:
    first, second = map(name, contents("dpmp_overlap", 2))
    assert tv.check_overlap(load(write(tmp_path, [first, second])), *PAIR, min_overlap=0.001).passed
    trace = load(write(tmp_path, [first, lose(second)]))
    result = tv.check_overlap(trace, *PAIR, min_overlap=0.001)
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert result.reason.startswith(why) and result.ranks_given == 2
    assert [one.message.lower().startswith(why.lower()) for one in trace.warnings if one.code == CODE] == [True]


def test_nothing_is_said_to_be_captured_of_fewer_ranks_than_given(tmp_path: Path) -> None:
    """Of four ranks the third has launches alone; without communication, and with."""
    ranks = contents("item_before", 4)
    ranks[2] = without_gpu_work(ranks[2])
    result = tv.check_overlap(load(write(tmp_path, ranks)))
    assert (result.verdict, result.ranks_given, result.ranks_known) == ("inconclusive", 4, 4)
    assert result.reason.startswith("rank 2: launches recorded, no GPU work") and "3 of" not in result.reason
    assert [one.rank for one in result.ranks] == [0, 1, 3]


@pytest.mark.nightly
def test_a_run_without_communication_loses_no_rank_in_silence(tmp_path: Path) -> None:
    def computing(content: Content) -> Content:
        gone = {
            one["args"]["correlation"]
            for one in content["traceEvents"]
            if one.get("cat") == "kernel" and "nccl" in one["name"]
        }
        kept = [
            one
            for one in content["traceEvents"]
            if one.get("args", {}).get("correlation") not in gone and "nccl" not in str(one.get("name", "")).lower()
        ]
        return {**unnamed(content), "traceEvents": kept}

    first, second = map(computing, contents("dpmp_overlap", 2))
    paths = write(tmp_path, [first, without_gpu_work(second)])
    line = ["check-overlap", *map(str, paths), "-a", PAIR[0], "-b", PAIR[1], "--min-overlap", "10%"]
    said = invoked(*line)
    assert said.exit_code == 3
    assert LAUNCHES in " ".join(said.output.split("\n\n")[0].split())
    bounded = invoked(*line, "--memory", "1GB")
    assert bounded.exit_code == 3 and LAUNCHES in " ".join(bounded.output.split())


def test_the_others_can_be_asked_about_alone(tmp_path: Path) -> None:
    first, second = contents("dpmp_overlap", 2)
    paths = [str(path) for path in write(tmp_path, [first, without_gpu_work(second)])]
    line = ["check-overlap", *paths, "-a", PAIR[0], "-b", PAIR[1], "--min-overlap", "10%", "--accept-apparent"]
    assert invoked(*line).exit_code == 3
    assert invoked(*line, "--ranks", "0").exit_code == 0
    trace = load(paths)
    with pytest.raises(TracevizError, match=LAUNCHES):
        only_ranks(trace, (1,))


def test_an_empty_capture_is_not_called_one_of_another_day(tmp_path: Path) -> None:
    first, second = contents("dpmp_overlap", 2)
    for key in ("baseTimeNanoseconds", "distributedInfo"):
        empty = without_events({name: value for name, value in second.items() if name != key})
        trace = load(write(tmp_path, [first, empty]))
        assert not {"captures-apart", "no-common-clock"} & {one.code for one in trace.warnings}
        whole = load(write(tmp_path, [first]))
        assert trace.origin_utc_ns == whole.origin_utc_ns
        assert trace.ops["start_ns"].tolist() == whole.ops["start_ns"].tolist()


def test_a_rank_that_nothing_names_is_told_by_its_file(tmp_path: Path) -> None:
    first, second = map(unnamed, contents("dpmp_overlap", 2))
    paths = write(tmp_path, [first, without_gpu_work(second)], "part-{}.json")
    reason = tv.check_overlap(load(paths), *PAIR).reason
    assert reason.startswith(f"{paths[1]}: launches recorded, no GPU work")


def test_steps_are_whole_where_all_ranks_have_them_with_gpu_work_or_without(tmp_path: Path) -> None:
    first, second = contents("dpmp_overlap", 2)
    lost = without_gpu_work(second)
    kept = [one for one in lost["traceEvents"] if one.get("name") != "ProfilerStep#2"]
    whole, cut = (load(write(tmp_path, [first, {**lost, "traceEvents": some}])) for some in (lost["traceEvents"], kept))
    assert whole.steps is not None and whole.steps.whole == (0, 1, 2)
    assert cut.steps is not None and cut.steps.whole == (0, 1)
    assert [(one.step, one.reason) for one in cut.steps.left_out] == [(2, "not captured on rank 1")]


def test_a_launcher_beside_the_ranks_of_one_report_is_no_rank() -> None:
    for report in sorted((TORCH.parent / "nsys").glob("dpmp_*.sqlite")):
        trace = load([report])
        assert not any(one.without_work for one in trace.processes)
