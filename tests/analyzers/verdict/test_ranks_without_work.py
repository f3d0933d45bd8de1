"""A rank that was given and has no GPU work, on record or in what is looked at, is named: no verdict speaks for it."""

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
from analyzers.trace.narrow import Narrowing, only_ranks
from analyzers.trace.ranks import NO_GPU_WORK
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.command_lines import invoked
from tests.support.kineto_files import KinetoFile

STEP_NS = 10_000


def rank(number: int, first_step: int, *, overlaps: bool) -> KinetoFile:
    """Three steps in which a and b run 1 µs each, all of it or none of it side by side; no collectives."""
    file = KinetoFile(number)
    for k in range(3):
        at = k * STEP_NS
        file.range(f"ProfilerStep#{first_step + k}", at, at + STEP_NS - 100)
        file.kernel("kernel_a", 7, at + 1000, at + 2000, launch=at + 10)
        start = at + (1000 if overlaps else 3000) + number
        file.kernel("kernel_b", 9, start, start + 1000, launch=at + 20)
    return file


@pytest.fixture
def run(tmp_path: Path) -> Trace:
    """Rank 0 numbers its steps 0 to 2 and overlaps; rank 1 numbers its 7 to 9, and does not."""
    files = [rank(0, 0, overlaps=True), rank(1, 7, overlaps=False)]
    return load([file.write(tmp_path / f"{k}.json") for k, file in enumerate(files)])


KERNELS = ("kernel:kernel_a", "kernel:kernel_b")


def test_steps_that_leave_a_rank_out_name_it_and_decide_nothing(run: Trace) -> None:
    result = check_overlap(run, *KERNELS, narrowing=Narrowing(steps=(1, 2)))
    assert (result.verdict, result.passed, result.exit_code) == ("inconclusive", None, 3)
    assert "100 % on rank 0, but rank 1, of which a capture was given, has no GPU work in step 1" in result.reason
    assert "was captured" not in result.reason
    assert "--ranks 0" in result.reason


def test_a_selector_that_picks_nothing_on_a_rank_never_passes(tmp_path: Path) -> None:
    """Rank 1 runs neither side: what rank 0 meets it can't be said to meet, and what rank 0 misses stays missed."""
    other = KinetoFile(1)
    for k in range(3):
        other.range(f"ProfilerStep#{k}", k * STEP_NS, (k + 1) * STEP_NS - 100)
        other.kernel("conv", 7, k * STEP_NS + 1000, k * STEP_NS + 2000, launch=k * STEP_NS + 10)
        other.kernel("pool", 9, k * STEP_NS + 1000, k * STEP_NS + 2001, launch=k * STEP_NS + 20)
    for overlaps, passed in ((True, None), (False, False)):
        paths = [file.write(tmp_path / f"{k}.json") for k, file in enumerate((rank(0, 0, overlaps=overlaps), other))]
        result = check_overlap(load(paths), *KERNELS)
        assert result.passed is passed, result.reason
    found = check_overlap(load([rank(0, 0, overlaps=True).write(tmp_path / "0.json"), paths[1]]), *KERNELS)
    assert "neither side ran on rank 1" in found.reason


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
    assert [one.message.lower().startswith(why.lower()) for one in trace.warnings if one.code == NO_GPU_WORK] == [True]


def test_nothing_is_said_to_be_captured_of_fewer_ranks_than_given(tmp_path: Path) -> None:
    """Of four ranks the third has launches alone; without communication, and with."""
    ranks = contents("item_before", 4)
    ranks[2] = without_gpu_work(ranks[2])
    result = tv.check_overlap(load(write(tmp_path, ranks)))
    assert (result.verdict, result.ranks_given, result.ranks_known) == ("inconclusive", 4, 4)
    assert result.reason.startswith("rank 2: launches recorded, no GPU work") and "3 of" not in result.reason
    assert [one.rank for one in result.ranks] == [0, 1, 3]


def test_the_others_can_be_asked_about_alone(tmp_path: Path) -> None:
    first, second = contents("dpmp_overlap", 2)
    paths = [str(path) for path in write(tmp_path, [first, without_gpu_work(second)])]
    line = ["check-overlap", *paths, "-a", PAIR[0], "-b", PAIR[1], "--min-overlap", "10%", "--accept-apparent"]
    assert invoked(*line).exit_code == 3
    assert invoked(*line, "--ranks", "0").exit_code == 0
    trace = load(paths)
    with pytest.raises(TracevizError, match=LAUNCHES):
        only_ranks(trace, (1,))


def test_a_rank_that_nothing_names_is_told_by_its_file(tmp_path: Path) -> None:
    first, second = map(unnamed, contents("dpmp_overlap", 2))
    paths = write(tmp_path, [first, without_gpu_work(second)], "part-{}.json")
    reason = tv.check_overlap(load(paths), *PAIR).reason
    assert reason.startswith(f"{paths[1]}: launches recorded, no GPU work")
