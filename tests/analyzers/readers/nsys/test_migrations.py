"""Pages of unified memory that the driver moves are no copies of the program: a kind of their own, on no stream."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from analyzers.info import info
from analyzers.load import load
from analyzers.select.select import select
from analyzers.streams import streams
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.nsys_exports import Edit, edited

SOURCE = Path(__file__).parents[3] / "data" / "public" / "unified-memory-migrations" / "report.sqlite.gz"
MEMCPY, RUNTIME = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME"


def export(folder: Path, *edits: Edit) -> Path:
    return edited(SOURCE, folder / "report.sqlite", *edits)


def rows(path: Path, sql: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(sql).fetchall()


def picked(trace: Trace, selector: str) -> int:
    return int(select(trace, selector).picked.sum())


def test_migrations_are_no_copies_and_have_no_stream_and_no_launch_to_lack(tmp_path: Path) -> None:
    path = export(tmp_path)
    ((of_driver,),) = rows(path, f"SELECT count(*) FROM {MEMCPY} WHERE copyKind IN (11, 12) AND migrationCause > 0")
    ((kernels,),) = rows(path, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    trace = load([path])
    assert picked(trace, "memcpy") == picked(trace, "copy") == picked(trace, "memcpy:HtoD") == 0
    assert (
        picked(trace, "migration") == picked(trace, "migration:fault") == picked(trace, "migration:HtoD") == of_driver
    )
    assert picked(trace, "migration:prefetch") == picked(trace, "stream:0") == 0
    assert set(trace.ops.stream[trace.ops.kind.is_one_of(("migration",))]) == {-1}
    assert not any(one.code in ("missing-launch", "lost-work", "launched-before") for one in trace.warnings)
    (rank,) = info(trace).ranks
    assert (rank.kernels, rank.copies, rank.migrations, rank.streams) == (kernels, 0, of_driver, 1)
    assert [use.stream for use in streams(trace).ranks[0].streams] == [7]


def test_no_verdict_takes_them_for_copies_or_for_work_beside_a_kernel(tmp_path: Path) -> None:
    trace = load([export(tmp_path)])
    result = check_overlap(trace, "memcpy", "compute")
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert "160 page migrations of unified memory are no copies of the program" in result.reason
    result = check_overlap(trace, "migration", "compute")
    assert (result.verdict, result.passed) == ("inconclusive", None)
    assert "stands still" in result.reason


@pytest.mark.parametrize(
    ("cause", "word"), [(1, "asked for"), (2, "page fault"), (3, "prefetch"), (4, "eviction"), (5, "counters")]
)
def test_causes_are_told_apart(tmp_path: Path, cause: int, word: str) -> None:
    first = f"UPDATE {MEMCPY} SET migrationCause = {cause}, copyKind = 12 WHERE rowid <= 7"
    trace = load([export(tmp_path, first)])
    expected = 160 if cause == 2 else 7
    assert picked(trace, f"migration:{word}") == expected
    assert picked(trace, "migration:DtoH") == 7
    said = next(one.message for one in trace.warnings if one.code == "page-migrations")
    assert "160 page migrations" in said
    assert f"{expected} " in said


def test_kinds_are_known_without_the_table_that_names_them(tmp_path: Path) -> None:
    trace = load([export(tmp_path, "DROP TABLE ENUM_CUDA_MEMCPY_OPER")])
    assert (picked(trace, "memcpy"), picked(trace, "migration")) == (0, 160)


def test_copies_beside_migrations_keep_their_verdict(tmp_path: Path) -> None:
    """Half of the rows become copies of the program's, on a stream of their own: these alone are a side."""
    own = f"UPDATE {MEMCPY} SET copyKind = 1, migrationCause = NULL, streamId = 13 WHERE rowid % 2"
    path = export(tmp_path, own)
    result = check_overlap(load([path]), "memcpy", "compute")
    spans = rows(path, f"SELECT start, end FROM {MEMCPY} WHERE copyKind = 1")
    kernels = rows(path, "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL")
    both = sum(max(min(end, high) - max(start, low), 0) for start, end in spans for low, high in kernels)
    assert (result.ranks[0].a.ops, result.ranks[0].overlap_ns) == (80, both)  # neither runs beside its like
    assert any(one.code == "page-migrations" for one in result.warnings)


def test_pages_that_the_program_asked_for_may_be_a_side(tmp_path: Path) -> None:
    result = check_overlap(load([export(tmp_path, f"UPDATE {MEMCPY} SET migrationCause = 1")]), "migration", "compute")
    assert result.verdict != "inconclusive"
