"""Older and newer exports, made from real ones by taking away or renaming what versions differ in."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys.nsys_export import read_sqlite
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from tests.support.exports import alike
from tests.support.nightly import mostly_nightly
from tests.support.nsys_exports import Edit, edited

DATA = Path(__file__).parents[3] / "data" / "nsys"
ONE_REPORT = DATA / "dpmp_hidden_sync.2gpu.nsys2023.sqlite"
NEWER = DATA / "dpmp_overlap.4gpu.sqlite"
ONE_RANK = DATA / "rowpar_s1.rank1.nsys2025.sqlite"
GRAPH_NODES = DATA / "collectives.2gpu.pinned.sqlite"
ACTIVITY = ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "CUDA_EVENT", "GRAPH_TRACE")


def tables_of(database: sqlite3.Connection) -> dict[str, str]:
    return dict(database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())


def drop_columns(table: str, *columns: str) -> Edit:
    def edit(database: sqlite3.Connection) -> None:
        if table in tables_of(database):
            there = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            for column in there & set(columns):
                database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")

    return edit


def declare(table: str, kind: str) -> Edit:
    """The same table with every integer column declared as something else; SQLite converts the values."""

    def edit(database: sqlite3.Connection) -> None:
        sql = re.sub(r"--[^\n]*", "", tables_of(database)[table]).replace("INTEGER", kind)
        database.execute(f"ALTER TABLE {table} RENAME TO before")
        database.execute(sql)
        database.execute(f"INSERT INTO {table} SELECT * FROM before")
        database.execute("DROP TABLE before")

    return edit


@pytest.fixture
def read_edited(tmp_path: Path) -> Callable[..., Trace]:
    def read(source: Path, *edits: Edit) -> Trace:
        copy = edited(source, tmp_path / source.name, *edits)
        trace = read_sqlite(copy)
        copy.unlink()
        assert list(tmp_path.iterdir()) == []
        return trace

    return read


def assert_same(found: Trace, source: Path, *but: str) -> None:
    """All tables equal the unedited export's, but for some columns or tables."""
    alike(found, read_sqlite(source), *but)


def test_without_enum_tables_the_numbers_mean_the_same(read_edited: Callable[..., Trace]) -> None:
    def drop_enums(database: sqlite3.Connection) -> None:
        for table in tables_of(database):
            if table.startswith("ENUM_"):
                database.execute(f"DROP TABLE {table}")

    for source in (ONE_REPORT, DATA / "peer_copies.1process.sqlite"):
        assert_same(read_edited(source, drop_enums), source)


def test_columns_of_newer_versions_are_not_needed(read_edited: Callable[..., Trace]) -> None:
    columns = ("greenContextId", "mangledName", "sharedMemoryLimitConfig", "graphNodeId", "launchType", "copyCount")
    edits = [drop_columns(f"CUPTI_ACTIVITY_KIND_{kind}", *columns) for kind in ACTIVITY]
    assert_same(read_edited(ONE_REPORT, *edits), ONE_REPORT)
    assert_same(read_edited(NEWER, *edits), NEWER)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("TARGET_INFO_SYSTEM_ENV", "name"),
        ("META_DATA_CAPTURE", "value"),
        ("TARGET_INFO_CUDA_DEVICE", "gpuId"),
        ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
    ],
)
def test_what_describes_a_capture_may_lack_a_column(read_edited: Callable[..., Trace], table: str, column: str) -> None:
    assert len(read_edited(NEWER, drop_columns(table, column)).ops) == len(read_sqlite(NEWER).ops)


def test_without_event_sync_ids_records_and_waits_stay(read_edited: Callable[..., Trace]) -> None:
    edits = [drop_columns(f"CUPTI_ACTIVITY_KIND_{kind}", "eventSyncId") for kind in ("SYNCHRONIZATION", "CUDA_EVENT")]
    trace = read_edited(NEWER, *edits)
    assert_same(trace, NEWER, "event_sync")
    assert (trace.syncs.to_frame()["event_sync"] == -1).all()
    assert any("links from a recorded event" in lack for lack in trace.captures[0].lacks)


def test_range_names_may_all_stand_in_text_or_all_in_string_ids(read_edited: Callable[..., Trace]) -> None:
    to_text = "UPDATE NVTX_EVENTS SET text = (SELECT value FROM StringIds WHERE id = textId) WHERE text IS NULL"
    assert_same(read_edited(NEWER, to_text, drop_columns("NVTX_EVENTS", "textId")), NEWER)
    to_ids = [
        "INSERT INTO StringIds SELECT 5000 + rowid, text FROM NVTX_EVENTS WHERE text IS NOT NULL",
        "UPDATE NVTX_EVENTS SET textId = 5000 + rowid WHERE text IS NOT NULL",
        drop_columns("NVTX_EVENTS", "text"),
    ]
    assert_same(read_edited(NEWER, *to_ids), NEWER)


def test_without_domains_every_range_is_in_the_default_one(read_edited: Callable[..., Trace]) -> None:
    trace = read_edited(NEWER, "DELETE FROM NVTX_EVENTS WHERE eventType = 75", drop_columns("NVTX_EVENTS", "domainId"))
    assert_same(trace, NEWER, "domain")
    assert set(trace.ranges.to_frame()["domain"]) == {""}


def test_call_names_may_come_without_version(read_edited: Callable[..., Trace]) -> None:
    def strip(database: sqlite3.Connection) -> None:
        for number, value in database.execute("SELECT id, value FROM StringIds").fetchall():
            database.execute("UPDATE StringIds SET value = ? WHERE id = ?", (re.sub(r"_v\d+$", "", value), number))

    assert_same(read_edited(ONE_REPORT, strip), ONE_REPORT)


def test_one_process_owns_all_work_where_the_export_does_not_say(read_edited: Callable[..., Trace]) -> None:
    edits = [drop_columns(f"CUPTI_ACTIVITY_KIND_{kind}", "globalPid") for kind in ACTIVITY]
    assert_same(read_edited(ONE_RANK, *edits), ONE_RANK)


def test_of_several_processes_the_correlation_id_tells_the_owner_or_the_export_is_refused(
    read_edited: Callable[..., Trace],
) -> None:
    apart = [
        f"UPDATE CUPTI_ACTIVITY_KIND_{kind} SET correlationId = correlationId + 100000 "
        f"WHERE ({key} >> 24) % 2 = 0 AND correlationId IS NOT NULL"
        for kind, key in [("RUNTIME", "globalTid"), *((kind, "globalPid") for kind in ("KERNEL", "MEMCPY", "MEMSET"))]
    ]
    drop = [drop_columns(f"CUPTI_ACTIVITY_KIND_{kind}", "globalPid") for kind in ("KERNEL", "MEMCPY", "MEMSET")]
    trace = read_edited(ONE_REPORT, *apart, *drop)
    pd.testing.assert_series_equal(trace.ops.to_frame()["process"], read_sqlite(ONE_REPORT).ops.to_frame()["process"])
    with pytest.raises(TracevizError, match="does not say whose"):
        read_edited(ONE_REPORT, *drop)


def test_old_exports_name_their_metadata_and_default_streams_otherwise(read_edited: Callable[..., Trace]) -> None:
    trace = read_edited(
        ONE_RANK,
        "ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA",
        "CREATE TABLE TARGET_INFO_CUDA_NULL_STREAM AS SELECT nullStreamId AS streamId, processId, contextId "
        "FROM TARGET_INFO_CUDA_CONTEXT_INFO",
        "DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO",
    )
    assert_same(trace, ONE_RANK)
    assert trace.captures[0].schema == "3.20.3"


def test_the_oldest_exports_have_no_metadata_at_all(read_edited: Callable[..., Trace]) -> None:
    def strip(database: sqlite3.Connection) -> None:
        for table in tables_of(database):
            if table.startswith(("ENUM_", "META_DATA", "TARGET_INFO", "DIAGNOSTIC", "NVTX_PAYLOAD", "ANALYSIS")):
                database.execute(f"DROP TABLE {table}")

    trace = read_edited(ONE_RANK, strip)
    assert_same(trace, ONE_RANK, "devices", "streams")
    assert (trace.origin_utc_ns, trace.captures[0].schema) == (None, "")
    assert trace.devices.to_frame()[["process", "device", "gpu"]].to_numpy().tolist() == [[0, 1, 1]]


def test_without_calls_work_has_no_launch_and_the_capture_says_so(read_edited: Callable[..., Trace]) -> None:
    """And kinds of syncs are told by their ids."""
    trace = read_edited(ONE_REPORT, "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    assert_same(trace, ONE_REPORT, "api", "launch", "comms")
    assert len(trace.api) == 0
    assert set(trace.ops.to_frame()["launch"]) == {-1}
    assert any("CUDA calls" in lack for lack in trace.captures[0].lacks)


def test_each_table_may_be_missing(read_edited: Callable[..., Trace]) -> None:
    for kind in ACTIVITY:
        trace = read_edited(NEWER, f"DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_{kind}")
        assert len(trace.api) == 1024
    trace = read_edited(NEWER, "DROP TABLE NVTX_EVENTS")
    assert len(trace.ranges) == len(trace.comms) == 0
    assert any("NVTX ranges" in lack for lack in trace.captures[0].lacks)


def test_a_capture_without_gpu_work_is_an_empty_trace(read_edited: Callable[..., Trace]) -> None:
    trace = read_edited(NEWER, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert len(trace.ops) == 0
    assert list(trace.ops.columns) == list(TABLES["ops"].schema)


def test_null_reads_as_not_said_never_as_zero(read_edited: Callable[..., Trace]) -> None:
    trace = read_edited(
        ONE_REPORT,
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = NULL",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET srcKind = NULL, dstKind = NULL",
        "UPDATE NVTX_EVENTS SET text = NULL WHERE text = 'merge'",
    )
    kernels = trace.ops.to_frame()[trace.ops.to_frame()["kind"] == "kernel"]
    assert set(kernels["correlation"]) == set(kernels["launch"]) == {-1}
    assert set(trace.ops.to_frame()["source_memory"]) == {""}
    assert (trace.ranges.to_frame()["name"] == "").sum() == 6


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "TEXT", "REAL", ""])
def test_values_are_exact_whatever_their_columns_are_declared_as(read_edited: Callable[..., Trace], kind: str) -> None:
    edits = [declare(f"CUPTI_ACTIVITY_KIND_{name}", kind) for name in ("KERNEL", "RUNTIME", "SYNCHRONIZATION")]
    if kind == "REAL":  # a double cannot hold a global id; nsys has never stored one as such
        edits = [declare("TARGET_INFO_CUDA_STREAM", kind)]
    assert_same(read_edited(ONE_REPORT, *edits), ONE_REPORT)


@pytest.mark.parametrize("value", ["'soon'", "1.5", "x'00ff'"])
def test_what_is_no_integer_is_refused_with_its_table(read_edited: Callable[..., Trace], value: str) -> None:
    with pytest.raises(TracevizError, match="CUPTI_ACTIVITY_KIND_KERNEL"):
        read_edited(ONE_REPORT, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {value} WHERE rowid = 5")


def test_a_range_that_was_never_closed_lasts_to_the_end(read_edited: Callable[..., Trace]) -> None:
    trace = read_edited(
        ONE_REPORT, "UPDATE NVTX_EVENTS SET eventType = 60, end = NULL WHERE text = 'step 0' AND eventType = 59"
    )
    assert_same(trace, ONE_REPORT, "end_ns")
    assert set(trace.ranges.to_frame().loc[trace.ranges.to_frame()["name"] == "step 0", "end_ns"]) == {
        trace.captures[0].last_ns
    }
    assert {"unclosed-ranges"} <= {warning.code for warning in trace.warnings}


def test_work_without_an_end_is_left_out_and_counted(read_edited: Callable[..., Trace]) -> None:
    # the export declares times NOT NULL, so an end that lies before its start stands for a broken one
    trace = read_edited(ONE_REPORT, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid <= 3")
    assert len(trace.ops) == 142
    stated = {warning.code: warning.message for warning in trace.warnings}
    assert "3 GPU ops" in stated["no-times"]


def test_sparse_correlation_ids_join_as_dense_ones_do(read_edited: Callable[..., Trace]) -> None:
    edits = [
        f"UPDATE CUPTI_ACTIVITY_KIND_{kind} SET correlationId = correlationId * 1000000007"
        for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT")
    ]
    assert_same(read_edited(ONE_REPORT, *edits), ONE_REPORT, "correlation", "comms")


def test_the_graph_of_a_kernel_comes_from_its_node_or_its_own_column(read_edited: Callable[..., Trace]) -> None:
    assert set(read_sqlite(GRAPH_NODES).ops.to_frame()["graph"]) == {-1, 2}
    as_columns = [
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN graphId INTEGER",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphId = graphNodeId / 4294967296",
    ]
    assert_same(read_edited(GRAPH_NODES, *as_columns), GRAPH_NODES)
    zeros = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = 0 WHERE graphNodeId IS NULL"
    assert_same(read_edited(GRAPH_NODES, zeros), GRAPH_NODES)


@pytest.mark.parametrize(("hand", "normalized"), [(0, True), (1_000_000, False), (-5, True)])
def test_shifted_exports_read_in_session_time(read_edited: Callable[..., Trace], hand: int, normalized: bool) -> None:
    """As nsys 2023.4 writes them with --ts-shift and --ts-normalize: the start time stays, all events move."""
    original = read_sqlite(ONE_REPORT)
    total = hand + (original.origin_utc_ns if normalized else 0)
    moved = [
        f"UPDATE {table} SET start = start + {total}, end = end + {total}"
        for table in (
            "NVTX_EVENTS",
            "PROFILER_OVERHEAD",
            *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("RUNTIME", *ACTIVITY[:4])),
        )
    ]
    messages = {
        "EXPORT_PARAM_TIME_NORMALIZE": str(normalized).lower(),
        "EXPORT_PARAM_TIME_SHIFT": hand,
        "EXPORT_CONFIG_TIME_SHIFT": total,
    }
    notes = [f"UPDATE META_DATA_EXPORT SET value = '{value}' WHERE name = '{name}'" for name, value in messages.items()]
    trace = read_edited(ONE_REPORT, *moved, *notes)
    assert_same(trace, ONE_REPORT)
    assert trace.origin_utc_ns == original.origin_utc_ns + hand  # reports aligned by hand stay aligned


def test_the_environment_names_a_rank_only_where_one_process_works(read_edited: Callable[..., Trace]) -> None:
    variable = "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', '{}')"
    several = read_edited(NEWER, variable.format('RANK="5"'))
    assert [process.claims for process in several.processes] == [{"gpu": gpu} for gpu in range(4)]
    assert several.captures[0].world_size is None
    forget = "DELETE FROM META_DATA_CAPTURE WHERE value LIKE '%RANK=%' OR value LIKE 'WORLD%'"
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        alone = read_edited(ONE_RANK, forget, variable.format(f'{name}="7"'), variable.format('SLURM_NTASKS="8"'))
        assert alone.processes[0].claims["environment"] == 7
        assert alone.captures[0].world_size == 8


def test_what_bounds_the_hardware_queues_is_kept(read_edited: Callable[..., Trace]) -> None:
    value = (
        "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'CUDA_DEVICE_MAX_CONNECTIONS=\"1\"')"
    )
    assert read_edited(NEWER, value).captures[0].metadata["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


@pytest.mark.parametrize("part", mostly_nightly([7, 100, 10**6], lambda part: part == 100))
def test_big_tables_are_read_in_row_order_in_parts_by_several_readers(
    monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr("analyzers.readers.nsys.file.PART", part)
    monkeypatch.setattr("analyzers.readers.nsys.file.BIG_PART", 10)
    monkeypatch.setattr("analyzers.readers.nsys.file.READERS", 3)
    found = read_sqlite(ONE_REPORT)
    monkeypatch.undo()
    assert_same(found, ONE_REPORT)
    assert np.array_equal(found.ops.to_frame()["correlation"].head(4), [376, 411, 446, 481])


def test_rows_that_were_deleted_leave_no_holes(read_edited: Callable[..., Trace]) -> None:
    trace = read_edited(
        ONE_REPORT,
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid % 3 = 1",
        "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid BETWEEN 100 AND 200",
    )
    assert (len(trace.ops), len(trace.api)) == (145 - 45, 476 - 101)
    assert trace.ops.start_ns.min() > 0
