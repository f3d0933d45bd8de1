"""What an export holds that was not used: counted by kind, and no verdict rests on what may be missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.info import info
from analyzers.load import load
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.exports import same_tables
from tests.support.nsys_exports import Edit, as_folder, edited

DATA = Path(__file__).parents[3] / "data"
PUBLIC, EXPORT = DATA / "public", DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"
KERNEL, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
EMBEDDINGS = ("nvtx:DP Embedding", "nvtx:MP Embedding")


def public(folder: Path, name: str) -> Path:
    return edited(PUBLIC / name / "report.sqlite.gz", folder / "report.sqlite")


def changed(folder: Path, *edits: Edit) -> Trace:
    return load([edited(EXPORT, folder / "changed.sqlite", *edits)])


def count(path: Path, sql: str) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute(sql).fetchone()[0])


def codes(trace: Trace) -> set[str]:
    return {one.code for one in trace.warnings}


@pytest.mark.parametrize("version", [2, 17])
def test_versions_of_all_tables_change_nothing(tmp_path: Path, version: int) -> None:
    names = (KERNEL, RUNTIME, NVTX, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT")
    edits = [f"ALTER TABLE {name} RENAME TO {name}_V{version}" for name in names]
    trace, plain = changed(tmp_path, *edits), load([EXPORT])
    same_tables(replace(trace, captures=plain.captures), plain)  # but for the path
    assert info(trace).unused == info(plain).unused
    assert codes(trace) == codes(plain)


def test_a_folder_of_tables_with_versions_is_read_alike(tmp_path: Path) -> None:
    edits = [f"ALTER TABLE {name} RENAME TO {name}_V2" for name in (KERNEL, NVTX)]
    path = edited(EXPORT, tmp_path / "changed.sqlite", *edits)
    trace, plain = load([as_folder(path, tmp_path / "folder", "parquet")]), load([EXPORT])
    same_tables(replace(trace, captures=plain.captures), plain)  # but for the path
    assert info(trace).unused == info(plain).unused


def test_the_newest_version_with_rows_is_read_and_another_bars_a_verdict(tmp_path: Path) -> None:
    rows = count(EXPORT, f"SELECT count(*) FROM {KERNEL}")
    edits = [
        f"ALTER TABLE {KERNEL} RENAME TO {KERNEL}_V3",
        f"CREATE TABLE {KERNEL}_V2 AS SELECT * FROM {KERNEL}_V3 LIMIT 5",
        f"CREATE TABLE {KERNEL}_V4 AS SELECT * FROM {KERNEL}_V3 LIMIT 0",
    ]
    trace = changed(tmp_path, *edits)
    assert int((trace.ops.to_frame()["kind"] == "kernel").sum()) == rows
    assert info(trace).unused[f"{KERNEL}_V2"] == 5
    result = check_overlap(trace, *EMBEDDINGS)
    assert result.verdict == "inconclusive"
    assert f"5 rows of {KERNEL}_V2" in result.reason


def test_unknown_activities_are_counted_and_bar_a_verdict_where_gpus_may_have_worked(tmp_path: Path) -> None:
    of_gpu = "CREATE TABLE CUPTI_ACTIVITY_KIND_TENSOR (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER)"
    rows = "INSERT INTO CUPTI_ACTIVITY_KIND_TENSOR VALUES (1, 2, 0, 7), (3, 4, 0, 7), (5, 6, 0, 7)"
    trace = changed(tmp_path, of_gpu, rows)
    assert info(trace).unused["CUPTI_ACTIVITY_KIND_TENSOR"] == 3
    result = check_overlap(trace, *EMBEDDINGS)
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert "3 rows of CUPTI_ACTIVITY_KIND_TENSOR" in result.reason


def test_unknown_tables_of_the_host_are_counted_and_bar_nothing(tmp_path: Path) -> None:
    calls = "CREATE TABLE CUPTI_ACTIVITY_KIND_OPENACC_DATA (start INTEGER, end INTEGER, globalTid INTEGER)"
    system = "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER)"
    rows = [f"INSERT INTO {name} VALUES (1, 2, 3)" for name in ("CUPTI_ACTIVITY_KIND_OPENACC_DATA", "OSRT_API")]
    trace, plain = changed(tmp_path, calls, system, *rows), load([EXPORT])
    added = {"CUPTI_ACTIVITY_KIND_OPENACC_DATA": 1, "OSRT_API": 1}
    assert info(trace).unused == {**info(plain).unused, **added}
    assert codes(trace) == codes(plain)
    assert check_overlap(trace, *EMBEDDINGS).verdict == check_overlap(plain, *EMBEDDINGS).verdict


def test_without_other_work_the_error_names_the_unknown_table(tmp_path: Path) -> None:
    path = public(tmp_path, "suffixed-tables")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"ALTER TABLE {KERNEL}_V3 RENAME COLUMN streamId TO lane")
        database.commit()
    with pytest.raises(TracevizError, match=f"20 rows of {KERNEL}_V3"):
        load([path])


@pytest.mark.parametrize("pair", [EMBEDDINGS, ("comm", "compute"), ("stream:35", "stream:7")])
def test_kernels_whose_names_are_nowhere_bar_every_verdict(tmp_path: Path, pair: tuple[str, str]) -> None:
    which = "SELECT id FROM StringIds WHERE value LIKE '%nccl%Dev%'"
    named = count(EXPORT, f"SELECT count(*) FROM {KERNEL} WHERE demangledName IN ({which})")
    trace = changed(tmp_path, "DELETE FROM StringIds WHERE value LIKE '%nccl%Dev%'")
    result = check_overlap(trace, *pair)
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert f"names of {named:,} kernels are not in the export" in result.reason
    assert named > 0


def test_lost_names_of_ranges_bar_verdicts_on_ranges_alone(tmp_path: Path) -> None:
    made = f'UPDATE {NVTX} SET text = NULL, textId = 1 << 30 WHERE rowid IN (SELECT rowid FROM {NVTX} WHERE "text" LIKE'
    trace = changed(tmp_path, f"{made} 'MP Embedding' LIMIT 2)")
    result = check_overlap(trace, *EMBEDDINGS)
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert "names of 2 NVTX ranges" in result.reason
    of_streams = ("stream:35", "stream:7")
    assert check_overlap(trace, *of_streams).verdict == check_overlap(load([EXPORT]), *of_streams).verdict


def test_lost_names_of_calls_are_said_and_bar_nothing(tmp_path: Path) -> None:
    calls = "SELECT id FROM StringIds WHERE value LIKE 'cudaEventRecord%'"
    named = count(EXPORT, f"SELECT count(*) FROM {RUNTIME} WHERE nameId IN ({calls})")
    trace = changed(tmp_path, "DELETE FROM StringIds WHERE value LIKE 'cudaEventRecord%'")
    said = next(one.message for one in trace.warnings if one.code == "call-names-lost")
    assert f"names of {named:,} CUDA calls" in said
    assert check_overlap(trace, *EMBEDDINGS).verdict == check_overlap(load([EXPORT]), *EMBEDDINGS).verdict
