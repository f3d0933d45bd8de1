"""SQLite lets any column hold anything: what nsys does not write is refused in one line, or read as absent."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.nsys.nsys_export import read_sqlite
from analyzers.trace.sizes import sizes_number
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.nsys_exports import edited

EXPORT = Path(__file__).parents[3] / "data" / "nsys" / "rowpar_s1.rank0.nsys2025.sqlite"


def changed(folder: Path, *edits: str) -> Path:
    return edited(EXPORT, folder / "changed.sqlite", *edits)


def read(folder: Path, *edits: str) -> Trace:
    return read_sqlite(changed(folder, *edits))


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE StringIds SET id = 'x' WHERE rowid = 1",
        "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 'x'",
        "UPDATE TARGET_INFO_CUDA_CONTEXT_INFO SET processId = 'x'",
        "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = 'soon'",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'x'",
    ],
)
def test_texts_for_numbers_are_one_clear_error(tmp_path: Path, edit: str) -> None:
    with closing(sqlite3.connect(changed(tmp_path))) as database:
        rebuilt = edit.split()[1]
        columns = ", ".join(f'"{row[1]}"' for row in database.execute(f'PRAGMA table_info("{rebuilt}")'))
    untyped = [f"ALTER TABLE {rebuilt} RENAME TO typed", f"CREATE TABLE {rebuilt} ({columns})"]
    with pytest.raises(TracevizError) as refusal:
        read(tmp_path, *untyped, f"INSERT INTO {rebuilt} SELECT * FROM typed", edit)
    assert refusal.value.path == str(tmp_path / "changed.sqlite")
    assert "\n" not in str(refusal.value)


def test_a_gpu_that_is_not_listed_has_no_name(tmp_path: Path) -> None:
    trace = read(tmp_path, "DELETE FROM TARGET_INFO_GPU")
    assert trace.devices.name.tolist() == [""]
    assert trace.devices.sms.tolist() == [-1]


def test_row_ids_beyond_the_files_size_are_refused_before_any_memory_is_asked_for(tmp_path: Path) -> None:
    last = "(SELECT max(rowid) FROM CUPTI_ACTIVITY_KIND_KERNEL)"
    with pytest.raises(TracevizError, match="more than the file can hold"):
        read(tmp_path, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET rowid = {2**62} WHERE rowid = {last}")


@pytest.mark.parametrize("column", ["deviceId", "contextId"])
def test_an_id_that_would_become_another_one_is_refused(tmp_path: Path, column: str) -> None:
    path = changed(tmp_path, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = {2**32}")
    with pytest.raises(TracevizError, match=f"holds {2**32}") as refusal:
        load([path])
    assert refusal.value.path == str(path)


@pytest.mark.parametrize(
    "rows", ["rowid = 1", "rowid = 5", "rowid >= 5", "1"], ids=["first", "middle", "second-half", "all"]
)
def test_ids_beyond_32_bits_are_kept_whole_wherever_they_come_first(
    tmp_path: Path, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzers.readers.nsys.file.PART", 3)  # batches that fit come before and after
    beyond = 2**40 + 7
    path = changed(tmp_path, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = {beyond} WHERE {rows}")
    with closing(sqlite3.connect(path)) as database:
        expected = [
            row[0] for row in database.execute("SELECT streamId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY rowid")
        ]
    assert beyond in expected
    trace = read_sqlite(path)
    kernels = trace.ops.to_frame()["kind"] == "kernel"
    assert trace.ops.stream[kernels].tolist() == expected


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "NVTX_EVENTS"])
def test_an_endless_view_is_never_asked(tmp_path: Path, table: str) -> None:
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS start, x AS id FROM r"
    path = changed(tmp_path, f"DROP TABLE {table}", f"CREATE VIEW {table} AS {endless}")
    with pytest.raises(TracevizError, match=f"{table} is a view"):
        load([path])


@pytest.mark.parametrize("damaged", [b"CREATE TABLE \xca\xff\xfe( Ids", b"CREATE TABLE [tringIds"])
def test_a_damaged_schema_is_refused_in_one_line(tmp_path: Path, damaged: bytes) -> None:
    path = changed(tmp_path)
    data = path.read_bytes()
    assert data.count(b"CREATE TABLE StringIds") == 1
    path.write_bytes(data.replace(b"CREATE TABLE StringIds", damaged))
    with pytest.raises(TracevizError) as refusal:
        load([path])
    assert "\n" not in str(refusal.value)


def test_names_in_the_schema_that_are_no_text_are_damage(tmp_path: Path) -> None:
    path = changed(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET name = CAST(name AS BLOB) WHERE name = 'ENUM_NSYS_EVENT_TYPE'")
        assert database.execute("SELECT count(*) FROM sqlite_master WHERE typeof(name) = 'blob'").fetchone() == (1,)
        database.commit()
    with pytest.raises(TracevizError, match="malformed database schema") as refusal:
        load([path])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("edit", "left_out"),
    [
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807 WHERE rowid <= 2", "2 GPU ops"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -9223372036854775807 WHERE rowid <= 3", "3 GPU ops"),
        ("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = start + 86400000000000 WHERE rowid = 1", "1 CUDA calls"),
    ],
)
def test_times_that_cannot_be_are_left_out_and_counted(tmp_path: Path, edit: str, left_out: str) -> None:
    """They led to times beyond 64 bits in timelines, and to intervals that end before they start."""
    trace = read(tmp_path, edit)
    (message,) = [warning.message for warning in trace.warnings if warning.code == "absurd-times"]
    assert f"lie a day apart from the others: {left_out}." in message
    assert int(trace.ops.end_ns.max()) < 10**12


def test_a_table_of_copies_that_is_gone_is_noticed_by_its_calls(tmp_path: Path) -> None:
    path = changed(tmp_path, "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMSET RENAME TO SOMETHING_ELSE")
    with closing(sqlite3.connect(path)) as database:
        (calls,) = database.execute(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call JOIN SOMETHING_ELSE USING (correlationId)"
        ).fetchone()
    assert calls
    messages = {warning.code: warning.message for warning in load([path]).warnings}
    assert f"lacks: {calls} of " in messages["lost-work"]


def test_calls_of_one_operator_under_emit_nvtx_are_one_range(tmp_path: Path) -> None:
    each_its_own = (
        "UPDATE NVTX_EVENTS SET textId = NULL, text = 'aten::mm, seq = ' || (45440 + rowid) || ', op_id = ' || "
        "(990760 + rowid) || ', sizes = [[2, 2], []]' WHERE eventType = 59"
    )
    ranges = read(tmp_path, each_its_own).ranges.to_frame()
    assert len(ranges) > 3
    assert set(ranges["name"]) == {"aten::mm"}
    assert ranges["sizes"].unique().tolist() == [sizes_number([2, 2])]


@pytest.mark.parametrize("count", [60, 100, 200])
def test_names_of_ranges_may_stand_in_two_places(tmp_path: Path, count: int) -> None:
    """So many of each: numbers of one byte, as few texts have, don't hold both."""
    numbers = f"WITH RECURSIVE t(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM t WHERE i < {count - 1})"
    tid = "(SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1)"
    first = "(SELECT min(start) FROM CUPTI_ACTIVITY_KIND_RUNTIME)"
    ranges = read(
        tmp_path,
        f"INSERT INTO StringIds {numbers} SELECT 900000 + i, 'registered ' || i FROM t",
        "DELETE FROM NVTX_EVENTS WHERE eventType IN (59, 60)",
        f"INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId) {numbers} "
        f"SELECT {first} + i, {first} + i + 1, 59, {tid}, 900000 + i FROM t",
        f"INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, text) {numbers} "
        f"SELECT {first} + {count} + i, {first} + {count} + i + 1, 59, {tid}, 'literal ' || i FROM t",
    ).ranges
    named = ranges.to_frame().sort_values("start_ns")["name"].astype(str).tolist()
    assert named == [f"{kind} {at}" for kind in ("registered", "literal") for at in range(count)]


def test_calls_of_nobody_are_as_good_as_none(tmp_path: Path) -> None:
    of_nobody = "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME RENAME COLUMN globalTid TO someTid"
    found, none = (
        check_overlap(load([edited(EXPORT, tmp_path / name, edit)]), "comm", "compute", min_overlap=0.6)
        for name, edit in (("nobody.sqlite", of_nobody), ("none.sqlite", "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME"))
    )
    assert sum(rank.a.ops for rank in found.ranks)
    assert (found.ranks, found.verdict) == (none.ranks, none.verdict)
