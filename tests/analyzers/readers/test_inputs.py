from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.inputs import MANIFEST_SCHEMA, find_inputs, kind_of

KINETO = b'{"schemaVersion": 1, "traceEvents": []}'
SQLITE = b"SQLite format 3\x00" + bytes(84)


def write(path: Path, content: bytes = KINETO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def manifest(folder: Path, *captures: object, **more: object) -> Path:
    return write(
        folder / "manifest.json", json.dumps({"schema": MANIFEST_SCHEMA, "captures": captures, **more}).encode()
    )


def found(*paths: str | Path) -> list[str]:
    inputs, _ = find_inputs(paths)
    return [one.path.name for one in inputs]


def error(*paths: str | Path) -> TracevizError:
    with pytest.raises(TracevizError) as caught:
        find_inputs(paths)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.json", KINETO, "kineto"),
        ("a.json", b"\xef\xbb\xbf \n{}", "kineto"),
        ("a.json", b'[{"ph": "X"}]', "kineto"),
        ("a.json", b"[", "kineto"),
        ("a.json.gz", gzip.compress(KINETO, mtime=0), "kineto"),
        ("misnamed.txt", gzip.compress(KINETO, mtime=0), "kineto"),
        ("a.sqlite", SQLITE, "nsys-sqlite"),
        ("misnamed.json", SQLITE, "nsys-sqlite"),
        ("a.nsys-rep", b"anything", "nsys-report"),
        ("a.qdrep", b"anything", "nsys-report"),
        ("renamed.bin", b"NVIDIA Tegra Profiler Report 1", "nsys-report"),
        ("stats.txt", b" 12 34 ncclDevKernel_AllReduce", "nsys-stats"),
        ("pasted", b"Start (ns),Duration (ns)", "nsys-stats"),
        ("vm.xplane.pb.gz", gzip.compress(b"\x0a\x00", mtime=0), "xplane"),
        ("1_results.PFTRACE.gz", gzip.compress(b"\x0a\x00", mtime=0), "perfetto"),
        ("t.perfetto-trace.gz", gzip.compress(b"\x0a\x00", mtime=0), "perfetto"),
        ("m.json", json.dumps({"schema": MANIFEST_SCHEMA}).encode(), "manifest"),
    ],
)
def test_a_file_is_what_its_content_says(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    assert kind_of(write(tmp_path / name, content)) == kind


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.json", b"", "The file is empty."),
        ("a.png", b"\x89PNG\r\n", "This is not a trace."),
        ("notes.md", b"hello", "This is not a trace."),
        ("notes.gz", gzip.compress(b"hello", mtime=0), "This is not a trace."),
        ("renamed.pb", b"\x0a\x12\x01ncclDevKernel", "This is a protocol buffer of no known kind."),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = write(tmp_path / name, content)
    assert error(path).message == says
    assert error(path).path == str(path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert error(tmp_path / "none.json").message == "There is no such file."
    assert error(tmp_path / "none*.json").message == "There is no such file."
    assert error("a\x00b").message
    assert "can't be used" in error("x" * 5000).message
    assert "can't be used" in error("~no-such-user-here/trace.json").message
    assert error().message == "No trace was given."


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert error(tmp_path / "pipe.json").message == "This is not a regular file."
    write(tmp_path / "a.json")
    assert found(tmp_path) == ["a.json"]
    assert error("/dev/null").message == "This is not a regular file."


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "gone.json")
    assert "can't be read" in error(tmp_path / "loop.json").message
    assert "No such file" in error(tmp_path / "dangling.json").message
    write(tmp_path / "a.json")
    assert found(tmp_path) == ["a.json"]


def test_a_file_that_may_not_be_read_is_an_error_not_a_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *args: object, **more: object) -> object:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "a.json")
    monkeypatch.setattr(Path, "open", refuse)
    assert error(path).message == "This can't be read (Permission denied)."
    assert error(tmp_path).path == str(path)
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert error(tmp_path).path == str(tmp_path)


def test_a_glob_and_a_folder_are_sorted_and_each_file_is_read_once(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "c.json.gz"):
        write(tmp_path / name, gzip.compress(KINETO, mtime=0) if name.endswith("gz") else KINETO)
    assert found(tmp_path / "*.json") == ["a.json", "b.json"]
    assert found(tmp_path) == ["a.json", "b.json", "c.json.gz"]
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    assert found(tmp_path / "b.json", tmp_path, tmp_path / "link.json") == ["b.json", "a.json", "c.json.gz"]


def test_a_name_with_the_marks_of_a_glob_is_taken_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "run[1].json")
    write(tmp_path / "run1.json")
    assert found(tmp_path / "run[1].json") == ["run[1].json"]


def test_a_folder_leaves_out_other_json_files_and_says_which(tmp_path: Path) -> None:
    write(tmp_path / "trace.json")
    write(tmp_path / "config.json", b'{"lr": 0.1}')
    write(tmp_path / "readme.txt", b"hello")
    (tmp_path / "folder.json").mkdir()
    inputs, skipped = find_inputs([tmp_path])
    assert [one.path.name for one in inputs] == ["trace.json"]
    assert [path.name for path in skipped] == ["config.json"]


def test_a_folder_without_captures_is_an_error(tmp_path: Path) -> None:
    assert error(tmp_path).message == "There is no capture in this folder."


def test_of_a_report_and_its_export_one_is_read(tmp_path: Path) -> None:
    report = write(tmp_path / "run.rank0.nsys-rep", b"report")
    export = write(tmp_path / "run.rank0.sqlite", SQLITE)
    os.utime(report, ns=(10**18, 10**18))
    for given in ([tmp_path], [report, export], [tmp_path / "run*"]):
        assert found(*given) == ["run.rank0.sqlite"]
    os.utime(export, ns=(10**18 - 1, 10**18 - 1))
    assert found(tmp_path) == ["run.rank0.nsys-rep"]
    assert found(export) == ["run.rank0.sqlite"], "what was asked for alone is read"


def test_a_manifest_gives_files_and_ranks(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "a.json")
    write(tmp_path / "b.json")
    path = manifest(tmp_path, {"path": "b.json", "rank": 4}, {"path": "deep/a.json"})
    for given in (path, tmp_path):
        inputs, _ = find_inputs([given])
        assert [(one.path.name, one.kind, one.rank) for one in inputs] == [
            ("b.json", "kineto", 4),
            ("a.json", "kineto", None),
        ]


@pytest.mark.parametrize(
    ("captures", "says"),
    [
        ([{"path": "gone.json"}], "The manifest names gone.json, which is not there."),
        ([{"path": "manifest.json"}], "The manifest names manifest.json, which is a manifest itself."),
        ([{"path": "a.json", "rank": "zero"}], "gives a.json the rank 'zero', which is none"),
        ([{"path": "a.json", "rank": True}], "the rank True"),
        ([{"path": "a.json", "rank": -1}], "the rank -1"),
        ([{"path": "a.json", "rank": 2**40}], "the rank 1099511627776"),
        ([{"rank": 1}], "This manifest can't be read"),
        (["a.json"], "This manifest can't be read"),
        (7, "This manifest can't be read"),
    ],
)
def test_a_manifest_that_is_wrong_says_where(tmp_path: Path, captures: object, says: str) -> None:
    write(tmp_path / "a.json")
    write(tmp_path / "manifest.json", json.dumps({"schema": MANIFEST_SCHEMA, "captures": captures}).encode())
    assert says in error(tmp_path).message


@pytest.mark.parametrize("content", ['"captures"', "[" * 100_000, '"captures": [', "\xff"])
def test_a_damaged_manifest_is_an_error(tmp_path: Path, content: str) -> None:
    write(tmp_path / "manifest.json", b'{"schema": "traceviz.manifest/1", ' + content.encode("latin1"))
    assert "This manifest can't be read" in error(tmp_path).message


def test_a_manifest_of_nothing_is_an_error(tmp_path: Path) -> None:
    manifest(tmp_path)
    assert error(tmp_path).message == "No trace was given."


NSYS = Path(__file__).parents[2] / "data" / "nsys" / "dpmp_overlap.2gpu.sqlite"


def test_one_rank_for_a_file_of_two_working_processes_is_refused(tmp_path: Path) -> None:
    path = manifest(tmp_path, {"path": str(NSYS), "rank": 4})
    with pytest.raises(TracevizError, match="this is rank 4, but 2 processes in it used the GPU"):
        load([path])


def test_what_a_capture_says_counts_before_what_its_manifest_does(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}}
    write(tmp_path / "a.json", json.dumps({"CUDA_LAUNCH_BLOCKING": "0", "traceEvents": [event]}).encode())
    stated = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_BLOCKING_WAIT": "1"}
    path = manifest(tmp_path, {"path": "a.json"}, environment=stated, world_size=8)
    (capture,) = load([path]).captures
    assert (capture.metadata["CUDA_LAUNCH_BLOCKING"], capture.metadata["NCCL_BLOCKING_WAIT"]) == ("0", "1")
    assert capture.world_size == 8
