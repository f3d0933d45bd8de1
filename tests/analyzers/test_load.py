from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import traceviz
from analyzers.load import load
from analyzers.readers.inputs import MANIFEST_SCHEMA
from tests.support.kineto_files import pair_of_ranges


def test_captures_of_two_ranks_become_one_trace(tmp_path: Path) -> None:
    for rank in (1, 0):
        pair_of_ranges("A", "B", overlap=20 + rank, rank=rank).write(tmp_path / f"trace{rank}.json")
    trace = traceviz.load(tmp_path / "trace1.json", tmp_path / "trace0.json").data
    result = traceviz.check_overlap(trace, a="nvtx:A", b="nvtx:B")
    assert [(rank.rank, rank.overlap_ns) for rank in result.ranks] == [(0, 20), (1, 21)]
    assert repr(trace).endswith("4 GPU ops, 4 CUDA calls, ranks 0, 1>")


def test_a_manifest_has_the_last_word_on_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        pair_of_ranges("A", "B", overlap=20 + rank, rank=rank).write(tmp_path / f"trace{rank}.json")
    captures = [{"path": "trace0.json", "rank": 5}, {"path": "trace1.json", "rank": 3}]
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": MANIFEST_SCHEMA, "captures": captures}))
    trace = load([tmp_path])
    assert trace.rank_ids == [3, 5]
    codes = {warning.code for warning in trace.warnings}
    assert codes == {"rank-conflict", "clocks-not-aligned", "waits-not-recorded"}, "it holds no calls but launches"


def test_a_file_of_a_folder_that_is_no_trace_is_reported(tmp_path: Path) -> None:
    pair_of_ranges("A", "B", overlap=20).write(tmp_path / "trace.json")
    (tmp_path / "config.json").write_text('{"lr": 1}')
    assert {warning.code for warning in load([tmp_path]).warnings} == {"skipped-file", "waits-not-recorded"}


def test_pasted_text_without_a_row_of_a_gpu_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stats.txt").write_text("1 2 ncclDevKernel_AllReduce")
    with pytest.raises(traceviz.TracevizError, match="no row of a GPU trace"):
        load([tmp_path / "stats.txt"])


REPORT = (
    Path(__file__).parents[1] / "data" / "nsys" / "collectives.2gpu.pinned.sqlite"
)  # its processes are 1070 and 1071


@pytest.mark.parametrize(
    ("ranks", "by_pid", "rule"),
    [
        ([{"pid": 1070, "rank": 0}, {"pid": 1071, "rank": 1}], {1070: 0, 1071: 1}, "manifest"),
        ([{"pid": 1070, "rank": 7}, {"pid": 1071, "rank": 4}, {"pid": 9, "rank": 0}], {1070: 7, 1071: 4}, "manifest"),
        ([{"pid": 1070, "rank": 7}], None, "gpu"),  # one is unknown, so the manifest is no rule for both
        ([{"pid": 1070, "rank": 7}, {"pid": 1070, "rank": 8}, {"pid": 1071, "rank": 4}], None, "gpu"),  # two hosts
        ([{"pid": "1070", "rank": 7}, {"pid": 1071, "rank": -1}, {}], None, "gpu"),
    ],
)
def test_in_a_report_over_several_ranks_the_manifest_tells_them_by_pid(
    tmp_path: Path, ranks: list[object], by_pid: dict[int, int] | None, rule: str
) -> None:
    shutil.copy(REPORT, tmp_path / "all-ranks.sqlite")
    captures = [{"path": "all-ranks.sqlite", "rank": None}]
    content = {"schema": MANIFEST_SCHEMA, "captures": captures, "ranks": ranks}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    assigned = {one.pid: (one.rank, one.rule) for one in load([tmp_path]).processes if one.rank >= 0}
    without = {one.pid: one.rank for one in load([REPORT]).processes if one.rank >= 0}
    assert assigned == {pid: (rank, rule) for pid, rank in (by_pid or without).items()}
