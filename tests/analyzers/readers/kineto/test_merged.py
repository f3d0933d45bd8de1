"""Files in which ranks were merged: split by their labels, refused where these are missing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.kineto.merged import label_of
from analyzers.verdict.check import check_overlap
from tests.support.captures import DATA
from tests.support.kineto_files import KinetoFile

PUBLIC = DATA / "public" / "merged-file-two-devices" / "merged.trace.json.gz"
FILES = [DATA / "torch" / f"dpmp_overlap.rank{rank}.json.gz" for rank in (0, 1)]
Event = dict[str, Any]


@cache
def of_ranks() -> list[Any]:
    found = []
    for path in FILES:
        with gzip.open(path) as file:
            found.append(json.load(file))
    return found


def merged(path: Path, pid_of: Callable[[int, Any], Any], more: list[Event] | None = None) -> Path:
    """Both ranks' events in one file, each pid written anew by its rank."""
    first = of_ranks()[0]
    base = first.get("baseTimeNanoseconds", 0)
    events = list(more or [])
    for rank, trace in enumerate(of_ranks()):
        ahead = (trace.get("baseTimeNanoseconds", 0) - base) / 1000
        events += [
            {**one, "pid": pid_of(rank, one["pid"]), "ts": one["ts"] + ahead}
            for one in trace["traceEvents"]
            if one.get("ph") == "X"
        ]
    path.write_text(json.dumps({**first, "traceEvents": events}))
    return path


def figures(paths: list[Path]) -> Any:
    result = check_overlap(load(paths), "nvtx:DP Embedding", "nvtx:MP Embedding", explain=False)
    return [(one.rank, one.a.ops, one.a.busy_ns, one.b.ops, one.b.busy_ns, one.overlap_ns) for one in result.ranks]


def test_labels_before_pids_are_the_ranks() -> None:
    trace = load([PUBLIC])
    result = check_overlap(trace)
    assert (result.verdict, result.ranks_given, result.ranks_known) == ("overlapped", 2, 2)
    assert [(one.rank, one.device) for one in result.ranks] == [(0, 0), (1, 1)]
    assert trace.processes[1].rule == "label"


@pytest.mark.parametrize(
    "label", ["[TP{tp:02d}] {pid}", "[DP00-TP{tp:02d}] {pid}", "rank {tp}: {pid}"], ids=["tp", "dp-tp", "rank"]
)
def test_a_merged_file_answers_as_the_files_it_was_made_of(tmp_path: Path, label: str) -> None:
    """Both ranks have the same threads, streams and correlation ids: nothing but the label tells them apart."""
    path = merged(tmp_path / "merged.json", lambda rank, pid: label.format(tp=rank, pid=pid))
    assert figures([path]) == figures(FILES)


def test_a_rank_in_the_offset_of_pids_is_told_by_it(tmp_path: Path) -> None:
    path = merged(tmp_path / "merged.json", lambda rank, pid: 1_000_000 * rank + pid if isinstance(pid, int) else pid)
    assert figures([path]) == figures(FILES)


def test_names_of_processes_tell_ranks(tmp_path: Path) -> None:
    """Of 626 and 70626 no offset tells anything, as both GPUs' rows are of other pids."""
    pids: dict[tuple[int, Any], int] = {}

    def pid_of(rank: int, pid: Any) -> Any:
        return pids.setdefault((rank, pid), 100 + 7 * len(pids)) if isinstance(pid, int) else pid

    merged(tmp_path / "merged.json", pid_of)
    named = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": f"rank {rank} python"}}
        for (rank, _), pid in pids.items()
    ]
    assert figures([merged(tmp_path / "merged.json", pid_of, named)]) == figures(FILES)


def test_several_ranks_without_labels_are_refused_by_name(tmp_path: Path) -> None:
    """Each calls its GPU device 0, as ranks pinned by CUDA_VISIBLE_DEVICES do."""

    def pinned(events: list[Event]) -> list[Event]:
        return [
            {**one, "pid": 0, "args": {**one["args"], "device": 0}} if "device" in one.get("args", {}) else one
            for one in events
        ]

    path = merged(tmp_path / "merged.json", lambda rank, pid: pid)
    trace = json.loads(path.read_text())
    path.write_text(json.dumps({**trace, "traceEvents": pinned(trace["traceEvents"])}))
    with pytest.raises(TracevizError, match=r"holds the work of 2 processes \(\d+, \d+\), and neither labels nor ids"):
        load([path])


def steps(path: Path, *marks: tuple[int, int, int, int]) -> Path:
    """Marks of torch.profiler's steps in one process: number, thread, begin and end in ns."""
    file = KinetoFile()
    for number, thread, start, end in marks:
        file.range(f"ProfilerStep#{number}", start, end)
        file.events[-1]["tid"] = thread
        file.kernel("gemm", 7, start + 10, end, launch=start + 1)
    return file.write(path)


@pytest.mark.parametrize(
    "marks",
    [
        [(0, 1, 0, 1000), (0, 1, 300, 1400)],  # they cross on one thread
        [(0, 1, 0, 1000), (0, 2, 300, 1400)],
        [(0, 1, 0, 1000), (0, 2, 300, 800)],  # no thread has a step within another's
        [(0, 1, 0, 1000), (0, 1, 1500, 2000), (1, 1, 2000, 3000), (1, 1, 2900, 3500)],
    ],
)
def test_the_same_step_twice_at_once_in_one_process_is_of_two_ranks(tmp_path: Path, marks: list[Any]) -> None:
    path = steps(tmp_path / "x.json", *marks)
    with pytest.raises(TracevizError, match=r"holds the events of several ranks under one process \(4242\)") as refusal:
        load([path])
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    "marks",
    [
        [(0, 1, 0, 1000), (0, 1, 1000, 2000)],  # two cycles, each from 0
        [(0, 1, 0, 1000), (1, 2, 300, 1400)],  # two numbers
        [(0, 1, 0, 1000), (0, 1, 0, 1000)],  # one mark written twice
        [(0, 1, 0, 1000), (0, 1, 200, 900)],
    ],
)
def test_other_marks_of_one_process_are_of_one_rank(tmp_path: Path, marks: list[Any]) -> None:
    assert len(load([steps(tmp_path / "x.json", *marks)]).rank_ids) == 1


def test_a_label_that_some_processes_lack_is_refused(tmp_path: Path) -> None:
    path = merged(tmp_path / "merged.json", lambda rank, pid: f"[TP00] {pid}" if rank == 0 else pid)
    with pytest.raises(TracevizError, match=r"holds several ranks' events, and those of process .* have no label"):
        load([path])


def test_four_labels_of_two_dimensions_are_counted_in_order() -> None:
    assert label_of("[DP01-TP03] 17") == (("dp", 1), ("tp", 3))
    assert label_of("wrapper 12") == label_of("5000") == ()
