"""What can't be read is refused in one line that says why, and nothing is left beside it."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.nsys.nsys_export import read_sqlite
from tests.support.nsys_exports import edited

DATA = Path(__file__).parents[3] / "data" / "nsys"
EXPORT = DATA / "rowpar_s1.rank0.nsys2025.sqlite"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    target = tmp_path / "odd name %20 ?#é" / "run'1.sqlite"
    target.parent.mkdir()
    shutil.copyfile(EXPORT, target)
    return target


@contextmanager
def untouched(path: Path) -> Iterator[None]:
    """The file and its folder are afterwards as they were."""
    before = {other.name: other.read_bytes() for other in path.parent.iterdir()}
    yield
    assert {other.name: other.read_bytes() for other in path.parent.iterdir()} == before


def refused(path: Path) -> str:
    with untouched(path), pytest.raises(TracevizError) as caught:
        read_sqlite(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.message + (caught.value.hint or "")


def readable(path: Path) -> None:
    with untouched(path):
        assert len(read_sqlite(path).ops) == 13


def test_an_odd_path_is_read(copy: Path) -> None:
    readable(copy)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda _: b"", "empty"),
        (lambda _: b'{"traceEvents": []}', "not an SQLite file"),
        *((lambda whole, size=size: whole[:size], "cut short") for size in (16, 50, 4096, 90_000)),
    ],
)
def test_what_is_no_whole_database(copy: Path, content: Callable[[bytes], bytes], says: str) -> None:
    copy.write_bytes(content(copy.read_bytes()))
    assert says in refused(copy)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TracevizError, match="can't be read"):
        read_sqlite(tmp_path)


@pytest.mark.parametrize("table", ["sqlite_master", "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds", "NVTX_EVENTS"])
def test_damaged_pages(copy: Path, table: str) -> None:
    database = sqlite3.connect(copy)
    pages = dict(database.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'").fetchall())
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    data = bytearray(copy.read_bytes())
    start = size * (pages.get(table, 2) - 1)
    data[start : start + size] = b"\xab" * size
    copy.write_bytes(data)
    assert "xport the report again" in refused(copy)


def test_another_programs_database(copy: Path) -> None:
    copy.unlink()
    database = sqlite3.connect(copy)
    database.execute("CREATE TABLE notes (text TEXT)")
    database.commit()
    database.close()
    assert "not an nsys export" in refused(copy)


@pytest.mark.parametrize("edit", ["DROP TABLE META_DATA_EXPORT", "DELETE FROM META_DATA_EXPORT"])
def test_a_partial_export(copy: Path, edit: str) -> None:
    edited(EXPORT, copy, edit)
    assert "incomplete nsys export" in refused(copy)
    assert "nsys export --type sqlite" in refused(copy)


def test_a_file_another_program_is_writing(copy: Path) -> None:
    database = sqlite3.connect(copy, isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(TracevizError, match="locked by another program"):
            read_sqlite(copy)
    finally:
        database.execute("ROLLBACK")
        database.close()
    readable(copy)


def test_a_killed_writers_journal(copy: Path) -> None:
    copy.with_name(copy.name + "-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    assert "its writer was killed" in refused(copy)


def test_a_write_ahead_log_is_read_if_it_was_folded_in(copy: Path) -> None:
    database = sqlite3.connect(copy)
    database.execute("PRAGMA journal_mode = wal")
    database.close()
    assert copy.read_bytes()[18:20] == b"\x02\x02"
    readable(copy)
    database = sqlite3.connect(copy)
    database.execute("CREATE TABLE more (text TEXT)")
    database.commit()
    try:
        assert "open in another program" in refused(copy)
    finally:
        database.close()


def test_a_read_only_file_in_a_read_only_folder(copy: Path) -> None:
    copy.chmod(0o444)
    copy.parent.chmod(0o555)
    try:
        readable(copy)
    finally:
        copy.parent.chmod(0o755)


def test_a_file_that_changes_while_it_is_read(copy: Path) -> None:
    with pytest.raises(TracevizError, match="changed while it was being read"):
        read_sqlite(copy, lambda what, done, total: os.utime(copy, ns=(done, done)))


def test_a_gzipped_export_is_read_as_the_export_is_and_refused_where_it_is_cut_or_damaged(tmp_path: Path) -> None:
    packed, content = tmp_path / "report.sqlite.gz", gzip.compress(EXPORT.read_bytes(), 1)
    packed.write_bytes(content)
    found, plain = load([packed], align=False), load([EXPORT], align=False)
    assert found.captures == (replace(plain.captures[0], path=str(packed)),)
    assert found.ops.to_frame().equals(plain.ops.to_frame())
    for changed, says in (
        (content[:-500], "ends too early"),
        (content[:5000] + b"\xff" * 500 + content[5500:], "damaged"),
    ):
        packed.write_bytes(changed)
        with pytest.raises(TracevizError, match=says) as refusal:
            load([packed])
        assert refusal.value.path == str(packed)
