"""Files of formats that aren't read: each is called by its name, and what to give in its place is said in one line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"),
    [
        ("kernels.ncu-rep", b"NVR\0rest", "Nsight Compute", "nsys profile"),
        ("renamed.bin", b"NVR\0rest", "Nsight Compute", "nsys profile"),
        ("report.qdstrm", b"\x01\x02", "raw stream", "QdstrmImporter"),
        ("trace.otf2", b"OTF2", "OTF2", "rocprofv3"),
        ("report.h5", b"\x89HDF\r\n", "HDF5", "nsys export"),
        ("model.pb", b"\x0a\x10", "protocol buffer", "xplane.pb"),
        ("CUPTI_ACTIVITY_KIND_KERNEL.parquet", b"PAR1", "one table", "folder"),
        ("CUPTI_ACTIVITY_KIND_KERNEL.arrow", b"\xff\xff\xff\xff", "one table", "folder"),
        ("snapshot.pickle", b"\x80\x04", "pickled", "export_chrome_trace"),
        ("odd", b"\x01\x02", "not a trace", "Give"),
    ],
)
def test_a_format_that_is_not_read_is_named(tmp_path: Path, name: str, content: bytes, what: str, hint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TracevizError) as refusal:
        load([tmp_path / name])
    assert what in refusal.value.message
    assert hint in str(refusal.value.hint)
    assert "\n" not in str(refusal.value)


def test_a_database_of_rocprofv3_is_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "results.db") as connection:
        connection.execute("CREATE TABLE rocpd_kernel_dispatch_0001 (id INTEGER)")
        connection.execute("CREATE TABLE rocpd_string_0001 (id INTEGER)")
    connection.close()
    with pytest.raises(TracevizError, match="rocpd database of rocprofv3") as refusal:
        load([tmp_path / "results.db"])
    assert "json" in str(refusal.value.hint)
