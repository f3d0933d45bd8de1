"""Files of formats that aren't read: each is called by its name, and what to give in its place is said in one line."""

from __future__ import annotations

import gzip
import shutil
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


PUBLIC = Path(__file__).parents[2] / "data" / "public"
PROTON_NOW = (  # names of lanes first, keys in order of the alphabet
    '{"displayTimeUnit":"us","traceEvents":[{"args":{"name":"Trace"},"name":"process_name","ph":"M","pid":0,"tid":0},'
    '{"args":{"name":"GPU Stream 7"},"name":"thread_name","ph":"M","pid":0,"tid":200007}]}\n'
)
PROTON_TREE = '[{"children":[{"children":[],"frame":{"name":"k","type":"function"},"metrics":{"time (ns)":3}}]}]'
ROCPROF_NAMES = '{"traceEvents":[{"args":{"name":"CPU HIP API"},"ph":"M","pid":2,"name":"process_name"}'
NCCL_FIRST = '[\n{"name": "Group API", "cat": "GROUP_API", "ph": "b", "id": 0, "pid": 1, "tid": 1, "ts": 1.5},\n'
ORT = '[\n{"cat" : "Session","pid" :8,"tid" :8,"dur" :698,"ts" :11,"ph" : "X","name" :"model_loading","args" : {}},\n'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (PUBLIC / "proton-json-lines" / "run.chrome_trace", "a trace of Triton's Proton"),
        (PROTON_NOW, "a trace of Triton's Proton"),
        (PROTON_TREE, "a tree of metrics (hatchet) of Triton's Proton"),
        (PUBLIC / "rocprof-v1-json" / "results.json", "rocprof (v1 or v2)"),
        (ROCPROF_NAMES, "rocprof (v1 or v2)"),
        (PUBLIC / "nccl-profiler-json" / "ncclprof.json", "NCCL's profiler plugin"),
        (NCCL_FIRST, "NCCL's profiler plugin"),
        (ORT, "ONNX Runtime"),
    ],
)
@pytest.mark.parametrize("name", ["run.json", "trace.json.gz", "any"])
def test_json_of_other_tools_is_named(tmp_path: Path, content: Path | str, what: str, name: str) -> None:
    """Whatever the file is called; in a folder it is left out, as nobody named it."""
    plain = content.encode() if isinstance(content, str) else content.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(plain, mtime=0) if name.endswith(".gz") else plain)
    with pytest.raises(TracevizError) as refusal:
        load([tmp_path / name])
    assert what in refusal.value.message
    assert "isn't read" in refusal.value.message
    assert refusal.value.hint
    assert "Record the trace again" not in str(refusal.value)
    assert refusal.value.exit_code == 2
    shutil.copy(PUBLIC / "nixl-ep-names" / "trace.json", tmp_path / "torch.json")
    trace = load([tmp_path])
    assert len(trace.captures) == 1
    assert ("skipped-file" in {one.code for one in trace.warnings}) is (name != "any")


def test_what_torch_wrote_is_read_whatever_its_events_are_called(tmp_path: Path) -> None:
    content = (PUBLIC / "nixl-ep-names" / "trace.json").read_text()
    (tmp_path / "x.json").write_text(
        content.replace('"cbid"', '"BeginNs"').replace('"context"', '"call_stack": [], "context"')
    )
    assert len(load([tmp_path / "x.json"]).ops) == len(load([PUBLIC / "nixl-ep-names" / "trace.json"]).ops)


def test_a_database_of_rocprofv3_is_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "results.db") as connection:
        connection.execute("CREATE TABLE rocpd_kernel_dispatch_0001 (id INTEGER)")
        connection.execute("CREATE TABLE rocpd_string_0001 (id INTEGER)")
    connection.close()
    with pytest.raises(TracevizError, match="rocpd database of rocprofv3") as refusal:
        load([tmp_path / "results.db"])
    assert "json" in str(refusal.value.hint)
