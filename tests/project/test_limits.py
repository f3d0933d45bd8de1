"""Files made to take all memory or all time are refused in bounded ones; limits are set low here."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers import gzipped
from analyzers.readers import json_stream as stream
from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.readers.nsys import nccl, stats
from analyzers.readers.nsys.file import connect

pytestmark = pytest.mark.nightly

EVENT = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2.0, "args": {"correlation": 1}}
MB = 1 << 20


def refused(path: Path, message: str) -> None:
    with pytest.raises(TracevizError, match=message) as refusal:
        kineto.read(path)
    assert refusal.value.path == str(path)


def test_a_gzip_bomb_is_refused_long_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzipped, "HARMLESS", 32 * MB)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (256 * MB) + b"]}", 9))
    began = time.process_time()
    refused(path, "unpacks to over .* 200 times its size")
    assert time.process_time() - began < 20


def test_a_bomb_of_events_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzipped, "HARMLESS", 16 * MB)
    event = json.dumps(EVENT)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(("[" + f"{event}," * 500_000 + event + "]").encode(), 9))
    assert 64 * MB / path.stat().st_size > 200
    refused(path, "unpacks to over")


def test_a_real_trace_unpacks_to_far_less_than_the_limit() -> None:
    for path in sorted((Path(__file__).parents[1] / "data" / "torch").glob("*.gz")):
        assert len(gzip.decompress(path.read_bytes())) / path.stat().st_size < gzipped.MOST_FOLD / 4


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [{"name": "%s"}]}',
        '{"traceEvents": [{"ph": "X", "args": {"x": [%s]}}]}',
        '{"more": "%s", "traceEvents": []}',
        '{"traceEvents": [], "more": "%s"}',
        '["%s"]',
        "{%s",
        "[%s",
    ],
)
@pytest.mark.parametrize("filling", ["x", "1,", " ", "{", '\\"'])
def test_one_endless_line_is_refused_or_read_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, filling: str
) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(stream, "MOST_AT_ONCE", MB)
    path = tmp_path / "line.json"
    path.write_text(text % (filling * (8 * MB // len(filling))))
    began = time.process_time()
    with pytest.raises(TracevizError):
        load([path])
    assert time.process_time() - began < 20


def test_a_million_distinct_names_take_seconds_and_not_all_memory(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        for number in range(1_000_000):
            file.write(f'{{"ph":"X","cat":"kernel","name":"k{number}","pid":0,"tid":7,"ts":{number},"dur":1}},\n')
        file.write('{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":0,"dur":1}]}')
    most = 3 << 30
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (%d, %d));"
        "from analyzers.readers.kineto.kineto_trace import read; from pathlib import Path;"
        "print(len(read(Path(sys.argv[1])).ops['name'].cat.categories))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program % (most, most), str(path)], capture_output=True, timeout=120, check=False
    )
    assert ran.stdout.strip() == b"1000001", ran.stderr.decode()[-500:]


def test_memory_that_runs_out_is_one_line(tmp_path: Path) -> None:
    program = (
        "import sys; from unittest import mock; import analyzers.load; from traceviz.__main__ import main;"
        "sys.argv = ['traceviz', 'info', 'x'];"
        "mock.patch.object(analyzers.load, 'load', side_effect=MemoryError).start(); main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr.count(b"\n")) == (2, 1)
    assert b"not enough memory" in ran.stderr


@pytest.mark.parametrize("filling", [" ", "1 ", "a ", "a(", "a (1) ", "(a) ", "-", ", "])
def test_no_line_of_a_paste_takes_forever(tmp_path: Path, filling: str) -> None:
    path = tmp_path / "paste.txt"
    path.write_text("".join(f"1 2 3 {(filling * 30_000)[:length]}\n" for length in (19_000, 30_000)))
    began = time.process_time()
    with pytest.raises(TracevizError, match="no row of a GPU trace"):
        stats.read(path)
    assert time.process_time() - began < 5


def test_a_paste_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "paste.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # no disk holds it
    with pytest.raises(TracevizError, match="more than anybody pastes"):
        stats.read(path)


def test_links_in_a_loop_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(TracevizError) as refusal:
        load([one])
    assert "\n" not in str(refusal.value)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "again").symlink_to(folder)
    with pytest.raises(TracevizError, match="no capture in this folder"):
        load([folder])


def test_a_database_is_opened_so_that_nothing_in_it_acts(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE t (x)")
    made.execute("CREATE TRIGGER late AFTER INSERT ON t BEGIN DELETE FROM t; END")
    made.commit()
    made.close()
    before = path.read_bytes()
    connection = connect(path)
    assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
    for act in ("INSERT INTO t VALUES (1)", "SELECT load_extension('x')", "CREATE TABLE u (x)"):
        with pytest.raises(sqlite3.OperationalError):
            connection.execute(act)
    connection.close()
    assert path.read_bytes() == before
    assert [other.name for other in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("path", ["manifest.json", pytest.param("export/trace.json", id="about-an-export")])
def test_a_side_file_of_10_gb_is_refused_without_reading_it(tmp_path: Path, path: str) -> None:
    """A hole of 10 GB takes no room on the disk, and would take all memory."""
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    with file.open("wb") as output:
        output.write(
            b'{"schema": "traceviz.manifest/1", "captures": ['
            if path == "manifest.json"
            else b'{"schema": "traceviz.parquet/1", '
        )
        output.truncate(10 << 30)
    began = time.process_time()
    with pytest.raises(TracevizError, match="more than any file of its kind") as refusal:
        load([file if path == "manifest.json" else file.parent])
    assert refusal.value.path == str(file)
    assert time.process_time() - began < 20


@pytest.mark.parametrize("path", ["manifest.json", pytest.param("export/trace.json", id="about-an-export")])
def test_a_side_file_that_nests_deeply_is_one_line(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    schema = "traceviz.manifest/1" if path == "manifest.json" else "traceviz.parquet/1"
    file.write_text(f'{{"schema": "{schema}", "captures": ' + "[" * 200_000)
    with pytest.raises(TracevizError):
        load([file if path == "manifest.json" else file.parent])


def test_a_payload_that_nests_deeply_says_nothing() -> None:
    assert nccl._payload_fields("[" * 200_000) == {}
