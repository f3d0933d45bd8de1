"""Exports as folders of tables give the Trace that the SQLite export gives, to the byte."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.nsys.export import find_nsys
from analyzers.readers.nsys.folder import NsysFolder
from analyzers.readers.nsys.nsys_export import read_folder, read_sqlite
from analyzers.trace.tables import Trace
from tests.support.exports import alike
from tests.support.nightly import mostly_nightly
from tests.support.nsys_exports import as_folder

DATA = Path(__file__).parents[3] / "data" / "nsys"
EXPORTS = sorted(DATA.glob("*.sqlite"))
QUICK = ("dpmp_hidden_sync.2gpu.nsys2023", "collectives.2gpu.pinned")  # an old schema, and a new one


def assert_same(one: Trace, other: Trace, *, but: tuple[str, ...] = ()) -> None:
    alike(one, other, *but)
    assert one.processes == other.processes
    if not but:
        assert [replace(each, path="") for each in one.captures] == [replace(each, path="") for each in other.captures]
        assert [each.code for each in one.warnings] == [each.code for each in other.warnings]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("export", mostly_nightly(EXPORTS, lambda path: path.stem in QUICK), ids=lambda path: path.stem)
def test_a_folder_gives_what_its_export_gives(tmp_path: Path, export: Path, kind: str) -> None:
    folder = as_folder(export, tmp_path / export.stem, kind, rows_at_once=97)
    assert_same(read_folder(folder), read_sqlite(export))


@pytest.fixture
def real_nsys() -> str:
    return str(next(find_nsys()).path)


@pytest.mark.nsys
@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_folders_of_the_real_nsys_do(tmp_path: Path, real_nsys: str, kind: str) -> None:
    """Nsys 2023.4 leaves event records out of such folders; all else is there."""
    report = DATA / "dpmp_hidden_sync.2gpu.nsys2023.nsys-rep"
    for made in ("sqlite", kind):
        command = [
            real_nsys,
            "export",
            "--quiet=true",
            f"--type={made}",
            f"--output={tmp_path / f'r.{made}'}",
            str(report),
        ]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    folder, export = read_folder(tmp_path / f"r.{kind}"), read_sqlite(tmp_path / "r.sqlite")
    assert len(folder.ops) == 145
    assert_same(folder, export, but=() if len(folder.records) else ("records",))


def test_a_folder_is_one_capture_and_found_by_its_name(tmp_path: Path) -> None:
    for rank in range(2):
        as_folder(DATA / f"rowpar_s1.rank{rank}.nsys2025.sqlite", tmp_path / f"job.rank{rank}")
    trace = load([tmp_path / "job.rank0", tmp_path / "job.rank1"])
    assert [Path(one.path).name for one in trace.captures] == ["job.rank0", "job.rank1"]
    assert trace.rank_ids == [0, 1]


@pytest.mark.parametrize(
    ("hurt", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:300]), "CUPTI_ACTIVITY_KIND_KERNEL.* can't be read"),
        (lambda file: file.write_bytes(b""), "CUPTI_ACTIVITY_KIND_KERNEL.* can't be read"),
        (lambda file: (file.parent / f"META_DATA_EXPORT{file.suffix}").unlink(), "incomplete"),
        (lambda file: file.write_bytes(b"PAR1" + bytes(100)), "CUPTI_ACTIVITY_KIND_KERNEL.* can't be read"),
    ],
    ids=["cut off", "empty", "unfinished", "no table"],
)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path, hurt, message: str, kind: str) -> None:  # type: ignore[no-untyped-def]
    folder = as_folder(EXPORTS[0], tmp_path / "export", kind)
    hurt(folder / f"CUPTI_ACTIVITY_KIND_KERNEL.{kind}")
    with pytest.raises(TracevizError, match=message) as refusal:
        load([folder])
    assert "\n" not in str(refusal.value)


def test_a_column_of_another_type_is_refused_by_its_name(tmp_path: Path) -> None:
    file = as_folder(EXPORTS[0], tmp_path / "export") / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table = pq.read_table(file)
    at = table.schema.get_field_index("start")
    pq.write_table(table.set_column(at, "start", table["start"].cast(pa.string())), file)
    message = r"^table CUPTI_ACTIVITY_KIND_KERNEL holds text values where integers belong \(start\)\.$"
    with pytest.raises(TracevizError) as refusal:
        load([tmp_path / "export"])
    assert re.match(message, refusal.value.message)


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder = as_folder(EXPORTS[0], tmp_path / "export")
    with pytest.raises(TracevizError, match="changed while it was being read"), NsysFolder(folder):
        os.utime(folder / "StringIds.parquet", ns=(1, 1))
