"""Parquet loads back equal; SQLite holds the same rows, linked and indexed; `traceviz export` writes all three."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import traceviz as tv
from analyzers.export.parquet import to_parquet
from analyzers.export.sqlite import to_sqlite
from analyzers.trace.narrow import only_ranks
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.command_lines import invoked
from tests.support.exports import answers, same_tables
from traceviz.cli import main

DATA = Path(__file__).parents[2] / "data"
PAIR = ("nvtx:DP Embedding", "nvtx:MP Embedding")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return tv.load(DATA / "torch" / "dpmp_overlap.rank*.json.gz").data


@pytest.fixture
def database(trace: Trace, tmp_path: Path) -> Any:
    with closing(sqlite3.connect(to_sqlite(trace, tmp_path / "x.sqlite", *PAIR))) as connection:
        yield connection


@pytest.mark.parametrize(
    "name",
    [
        "nsys/dpmp_overlap.4gpu.sqlite",
        "nsys/graph_overlap.4gpu.sqlite",
        "workloads/a2a.garbage.2gpu.torch",
        "nsys-stats/small.csv",
    ],
)
def test_parquet_loads_back_equal(name: str, tmp_path: Path) -> None:
    before = tv.load(DATA / name).data
    answered = answers(before)
    folder = to_parquet(before, tmp_path / "x")
    for after in (tv.load(folder).data, tv.load(folder / "trace.json").data):
        same_tables(before, after)
        assert answers(after) == answered


def test_only_an_earlier_export_is_replaced(trace: Trace, tmp_path: Path) -> None:
    folder = to_parquet(trace, tmp_path / "x")
    with pytest.raises(tv.TracevizError, match="there already"):
        to_parquet(trace, folder)
    to_parquet(only_ranks(trace, (1,)), folder, overwrite=True)
    assert tv.load(folder).rank_ids == [1]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(tv.TracevizError, match="no export"):
        to_parquet(trace, mine, overwrite=True)
    assert (mine / "thesis.tex").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine", "x"]


@pytest.mark.parametrize("damage", ["missing", "cut", "short", "about"])
def test_a_damaged_folder_is_refused_in_one_line(damage: str, trace: Trace, tmp_path: Path) -> None:
    folder = to_parquet(trace, tmp_path / "x")
    ops = folder / "ops.parquet"
    if damage == "missing":
        ops.unlink()
    elif damage == "cut":
        ops.write_bytes(ops.read_bytes()[:500])
    elif damage == "short":
        pd.read_parquet(ops).iloc[:5].to_parquet(ops)
    else:
        (folder / "trace.json").write_text('{"schema": "traceviz.parquet/1", "tables": {}}', encoding="utf-8")
    with pytest.raises(tv.TracevizError) as raised:
        tv.load(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["ops", "match_calls"])
def test_a_table_without_a_column_is_refused_not_filled_with_defaults(name: str, trace: Trace, tmp_path: Path) -> None:
    path = to_parquet(trace, tmp_path / "x") / f"{name}.parquet"
    frame = pd.read_parquet(path)
    lacking = "stream" if name == "ops" else "member"
    frame.drop(columns=lacking).to_parquet(path)
    with pytest.raises(tv.TracevizError, match=f"{name}.parquet has no column {lacking}"):
        tv.load(path.parent)


def test_sqlite_has_every_row_and_value(trace: Trace, database: sqlite3.Connection) -> None:
    for name in TABLES:
        assert database.execute(f"select count(*) from {name}").fetchone()[0] == len(getattr(trace, name).to_frame())
    stored = pd.read_sql_query(
        "select name, rank, stream, start_ns, end_ns, wait_ns from ops_named order by id", database
    )
    for column in stored:
        assert stored[column].tolist() == trace.ops.to_frame()[column].astype(object).tolist()
    lengths = database.execute("select sum(duration_ns) from ops_named").fetchone()[0]
    assert lengths == int((trace.ops.to_frame()["end_ns"] - trace.ops.to_frame()["start_ns"]).sum())


def test_what_is_not_known_is_null_and_all_else_as_it_is(tmp_path: Path) -> None:
    """−1 is no number of bytes, but a time; texts hold whatever they hold, and the empty one is none."""
    told = [(-1, -1, "it's"), (0, 0, "x\0y"), (20, 7, "7"), (30, (1 << 63) - 1, "")]
    run = Builder()
    rank = run.rank(0)
    for start, size, name in told:
        rank.kernel(name, 7, start, start + 9, bytes=size, declared=name)
    with closing(sqlite3.connect(to_sqlite(run.trace(), tmp_path / "x.db"))) as connection:
        found = connection.execute("select start_ns, bytes, name, declared from ops_named order by id").fetchall()
    assert found == [(start, None if size == -1 else size, name or None, name or None) for start, size, name in told]


def test_sqlite_is_typed_linked_and_indexed(database: sqlite3.Connection) -> None:
    assert database.execute("pragma foreign_key_check").fetchall() == []
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    types = {row[1]: row[2] for row in database.execute("pragma table_info(ops)")}
    assert types["start_ns"] == "INTEGER"
    assert types["kind"] == "TEXT"
    links = {(row[3], row[2]) for row in database.execute("pragma foreign_key_list(ops)")}
    assert links == {("process", "processes"), ("launch", "api"), ("name_id", "names")}
    plan = database.execute("explain query plan select * from ops where start_ns between 1 and 2").fetchall()
    assert "INDEX" in str(plan)
    indexed = {
        (table, ", ".join(row[2] for row in database.execute(f"pragma index_info({index})")))
        for table in ("ops", "api", "ranges")
        for _, index, *_ in database.execute(f"pragma index_list({table})").fetchall()
    }
    times_and_names = {(table, column) for table in ("ops", "api", "ranges") for column in ("start_ns", "name_id")}
    calls = {("ops", "process, correlation"), ("api", "process, correlation"), ("ops", "launch")}
    assert indexed == {*times_and_names, *calls, ("ops", "rank, device, stream, start_ns")}
    wrong = [
        (table, kind)
        for (table,) in database.execute(
            "select name from sqlite_master where type = 'table' and name not like 'sqlite%'"
        )
        for _, column, _, *_ in database.execute(f"pragma table_info({table})")
        for (kind,) in database.execute(f"select distinct typeof([{column}]) from {table} where [{column}] is not null")
        if column.endswith(("_ns", "rank", "device", "stream")) and kind != "integer"
    ]
    assert not wrong


def test_sqlite_holds_the_findings(trace: Trace, database: sqlite3.Connection) -> None:
    result = tv.check_overlap(trace, *PAIR)
    assert database.execute("select verdict, real_overlap_ns from verdict").fetchone() == (
        result.verdict,
        result.job.real_overlap_ns,
    )
    missed = dict(database.execute("select rank, sum(ns) from missed group by rank").fetchall())
    assert missed == {rank.rank: rank.missed_ns for rank in result.ranks}
    waits = database.execute("select sum(wait_ns) from collective_calls").fetchone()[0]
    assert waits == int(trace.ops.wait_ns.sum())


def test_what_is_not_known_of_an_inconclusive_run_is_null_and_typed(tmp_path: Path) -> None:
    one_rank = tv.load(DATA / "torch" / "delta_sync.rank0.json.gz").data
    path = to_sqlite(one_rank, tmp_path / "x.db", "nvtx:not there", "compute")
    with closing(sqlite3.connect(path)) as connection:
        query = "select verdict, rank, real_overlap_ratio, reason from verdict"
        verdict, rank, ratio, reason = connection.execute(query).fetchone()
        types = {row[1]: row[2] for row in connection.execute("pragma table_info(overlap)")}
    assert (verdict, rank, ratio) == ("inconclusive", None, None)
    assert "not there" in reason
    assert types["a_busy_ns"] == "INTEGER"


def test_a_part_in_sqlite_links_to_nothing_it_does_not_hold(trace: Trace, tmp_path: Path) -> None:
    with closing(sqlite3.connect(to_sqlite(only_ranks(trace, (1,)), tmp_path / "x.db", *PAIR))) as connection:
        assert connection.execute("pragma foreign_key_check").fetchall() == []
        assert connection.execute("select distinct rank from ops").fetchall() == [(1,)]


def test_an_exported_sqlite_is_not_taken_for_a_report(trace: Trace, tmp_path: Path) -> None:
    path = to_sqlite(trace, tmp_path / "x.sqlite")
    with pytest.raises(tv.TracevizError) as raised:
        tv.load(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.sqlite", "x.db", "tables"])
def test_the_command_writes_what_the_name_says(name: str, tmp_path: Path) -> None:
    arguments = ["export", str(DATA / "torch" / "dpmp_overlap.rank0.json.gz"), "-o", str(tmp_path / name)]
    arguments += ["--to", "parquet"] if name == "tables" else []
    ran = invoked(*arguments)
    assert ran.exit_code == 0, ran.output
    assert "GPU ops of 1 rank(s)" in ran.output
    assert (tmp_path / name).exists()
    before = (tmp_path / name).stat().st_mtime_ns
    with pytest.raises(tv.TracevizError, match=r"there already.*--force"):
        invoked(*arguments)
    assert (tmp_path / name).stat().st_mtime_ns == before
    assert invoked(*arguments, "--force").exit_code == 0


def test_a_name_that_says_nothing_is_an_error_of_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["traceviz", "export", str(DATA / "torch" / "ddp.rank0.json.gz"), "-o", str(tmp_path / "x.txt")]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--to" in capsys.readouterr().err
    assert not os.listdir(tmp_path)  # noqa: PTH208
