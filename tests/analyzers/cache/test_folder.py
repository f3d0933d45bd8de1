"""The cache of captures: the same Trace, believed only when whole, kept small, and never needed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from analyzers import load
from analyzers.cache import folder as cache
from analyzers.cache.arrow_files import Unusable, read_trace, write_trace
from analyzers.common.errors import TracevizError
from analyzers.readers import captures
from analyzers.readers.captures import read_one
from analyzers.readers.inputs import Input, kind_of
from analyzers.readers.reading import Reading
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from tests.support.caching import folder as folder
from tests.support.command_lines import run_json
from tests.support.exports import alike
from tests.support.kills import killed_everywhere
from tests.support.kineto_files import KinetoFile
from tests.support.nightly import mostly_nightly

DATA = Path(__file__).parents[2] / "data"
TORCH = DATA / "torch" / "ddp.rank0.json.gz"
NSYS = DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"
STATS = next((DATA / "nsys-stats").glob("*.txt"))
PLAIN = Reading(cache=False)
TWO_RANKS = ["torch/ddp.rank0.json.gz", "torch/ddp.rank1.json.gz"]
ONE_REPORT = ["nsys/dpmp_hidden_sync.2gpu.sqlite"]


def assert_same(one: Trace, other: Trace) -> None:
    alike(one, other)
    for name in ("captures", "processes", "warnings", "origin_utc_ns"):
        assert getattr(one, name) == getattr(other, name)


def plain(path: Path) -> Trace:
    return read_one(Input(path, kind_of(path)), PLAIN)


def looked_at(path: Path) -> Trace:
    return read_one(Input(path, kind_of(path)), Reading())


def kinds() -> dict[str, int]:
    return dict(Counter(entry.kind for entry in cache.entries()))


@pytest.mark.parametrize("path", [TORCH, NSYS, STATS], ids=lambda path: path.name)
def test_what_is_written_is_what_is_read(path: Path, tmp_path: Path) -> None:
    trace = plain(path)
    write_trace(trace, tmp_path)
    assert_same(read_trace(tmp_path), trace)


@pytest.mark.parametrize("path", [TORCH, NSYS], ids=lambda path: path.name)
def test_the_second_look_is_from_the_cache_and_equal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = looked_at(path)

    def refuse(*_: object) -> Trace:
        raise AssertionError("the capture was read again")

    assert_same(first, plain(path))
    monkeypatch.setattr(captures, "_read", refuse)
    assert_same(looked_at(path), first)


def test_columns_stay_on_the_disk_until_they_are_used(tmp_path: Path) -> None:
    write_trace(plain(TORCH), tmp_path)
    starts = read_trace(tmp_path).ops.start_ns
    assert not starts.flags.owndata
    assert not starts.flags.writeable


@pytest.mark.parametrize(
    ("command", "paths"),
    mostly_nightly(
        product(("check-overlap", "syncs", "collectives", "streams", "info"), (TWO_RANKS, ONE_REPORT)),
        lambda case: case in (("check-overlap", ONE_REPORT), ("syncs", TWO_RANKS)),
    ),
)
def test_answers_do_not_depend_on_the_cache(command: str, paths: list[str], folder: Path) -> None:
    arguments = [command, *(str(DATA / path) for path in paths)]
    without = run_json(*arguments, "--no-cache")
    assert not folder.exists() or not cache.entries()
    assert run_json(*arguments) == without  # fills it
    assert kinds() == {"traces": len(paths)}
    assert run_json(*arguments) == without  # uses it


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    event = {"ph": "X", "cat": "kernel", "name": "first", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"stream": 7}}
    for name in ("first", "other"):
        path.write_text(json.dumps({"traceEvents": [{**event, "name": name}]}))
        assert looked_at(path).ops.name.tolist() == [name]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_file_of_the_same_size_and_time_of_change_is_read_anew(tmp_path: Path, in_place: bool) -> None:
    """Put in its place, or written there with its time of change set back."""
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(TORCH.read_bytes())
    before = path.stat()
    looked_at(path)
    written = path if in_place else tmp_path / "other"
    written.write_bytes(TORCH.read_bytes())
    os.utime(written, ns=(0, before.st_mtime_ns))
    written.replace(path)
    assert (path.stat().st_ino == before.st_ino, path.stat().st_mtime_ns) == (in_place, before.st_mtime_ns)
    looked_at(path)
    assert len(cache.entries()) == 2


def test_one_content_under_two_names_keeps_both_names(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "rank3.json.gz", tmp_path / "b" / "rank5.json.gz"]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(TORCH.read_bytes())
        looked_at(path)
    for path in paths:
        assert looked_at(path).captures[0].path == str(path)
        assert looked_at(path).processes == plain(path).processes


@pytest.mark.parametrize("kind", ["early", "nsys"])
def test_one_file_under_many_paths_is_kept_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning says by its path which capture has ops that start before their launch call."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "runs")
    path = tmp_path / "runs" / "rank3.json"
    early = KinetoFile()
    early.kernel("gemm", 7, 5_000, 7_000, launch=6_000)
    path.write_bytes(early.write(path).read_bytes() if kind == "early" else NSYS.read_bytes())
    monkeypatch.chdir(tmp_path / "runs")
    for spelling in ("rank3.json", "../runs/rank3.json", "../linked/rank3.json", str(path)):
        found = looked_at(Path(spelling))
        assert_same(found, plain(Path(spelling)))
        assert found.captures[0].path == spelling
        assert kind == "nsys" or f"in {spelling} start" in found.warnings[-1].message
        assert len(cache.entries()) == 1


def test_an_error_names_the_path_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rank3.json").write_text('{"traceEvents": [')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TracevizError) as caught:
        looked_at(Path("rank3.json"))
    assert (caught.value.path, str(tmp_path) in str(caught.value)) == ("rank3.json", False)


@pytest.mark.parametrize("name", ["ops.arrow", "ranges.arrow", cache.ABOUT_FILE])
def test_an_entry_that_lacks_something_is_not_believed(name: str) -> None:
    looked_at(TORCH)
    (entry,) = cache.entries()
    file = entry.path / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(Unusable):
        read_trace(entry.path)
    assert_same(looked_at(TORCH), plain(TORCH))
    assert_same(read_trace(entry.path), plain(TORCH))  # and made anew


KEEPING = """
import pathlib
from analyzers.cache import folder as cache
from analyzers.cache import folder as keys
from analyzers.readers.captures import read_one
from analyzers.readers.inputs import Input
from analyzers.readers.reading import Reading
keys.WORTH_BYTES_PACKED = 0
"""


@pytest.mark.nightly
def test_killed_at_any_step_it_leaves_nothing_half_written_that_is_believed(folder: Path) -> None:
    expected = plain(TORCH)
    work = f'cache.clear(), read_one(Input(pathlib.Path({str(TORCH)!r}), "kineto"), Reading())'
    whole, unfinished = 0, 0
    for _ in killed_everywhere(KEEPING, work, folder):
        for entry in cache.entries():
            assert_same(read_trace(entry.path), expected)
            whole += 1
        left = list((folder / "traces").glob("new-*"))
        unfinished += len(left)
        assert_same(looked_at(TORCH), expected)
        shutil.rmtree(folder, ignore_errors=True)
    assert whole and unfinished > len(TABLES), "hardly a kill hit a half-written entry, so this proved nothing"


def test_without_a_folder_to_write_to_all_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    assert_same(looked_at(TORCH), plain(TORCH))
    assert cache.why_unusable().startswith(f"{tmp_path / 'file'} can't be written")


def test_without_a_cache_exports_go_where_they_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cache.folder_for_exports() as kept:
        assert kept == cache.root() / "nsys"
    monkeypatch.setenv(cache.VARIABLE, "off")
    with cache.folder_for_exports() as passing:
        assert passing.is_dir()
    assert not passing.exists()


def test_a_full_disk_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(trace: Trace, made: Path) -> None:
        write_trace(trace, made)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(captures, "write_trace", full)
    assert_same(looked_at(TORCH), plain(TORCH))
    assert list((folder / "traces").iterdir()) == []


def test_too_little_memory_for_the_cache_is_none_for_the_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    known = plain(TORCH)
    monkeypatch.setattr(pa, "schema", short)
    assert_same(looked_at(TORCH), known)
    assert list((folder / "traces").iterdir()) == []


def test_all_of_it_is_on_the_disk_before_it_has_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(Path(f"/proc/self/fd/{handle}").readlink()))
    looked_at(TORCH)
    [entry] = cache.entries()
    files = [path.name for path in flushed if path.parent.name.startswith("new-")]
    assert sorted(files) == sorted(path.name for path in entry.path.iterdir())
    assert [path.name.startswith("new-") for path in flushed].count(True) == 1  # the folder itself


@pytest.mark.parametrize("off", ["off", "0", "no"])
def test_turned_off_it_is_not_touched(off: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv(cache.VARIABLE, off)
    assert_same(looked_at(TORCH), plain(TORCH))
    assert not (tmp_path / "xdg").exists()
    assert not Path(off).exists()


def entry(folder: Path, name: str, size: int, used: float) -> Path:
    path = folder / "traces" / name
    path.mkdir(parents=True)
    (path / "ops.arrow").write_bytes(b"x" * size)
    (path / cache.ABOUT_FILE).write_bytes(b"")
    os.utime(path / cache.ABOUT_FILE, (used, used))
    return path


def test_the_least_recently_used_goes_first_exports_included(folder: Path) -> None:
    cache.set_limit(250)
    old, newer = entry(folder, "old", 100, 1000), entry(folder, "newer", 100, 3000)
    export = folder / "nsys" / "report.sqlite"
    export.write_bytes(b"x" * 100)
    os.utime(export, (2000, 5000))  # last used at 2000, whenever it was written
    assert [one.path for one in cache.prune()] == [old]
    cache.set_limit(100)
    assert [one.path for one in cache.prune()] == [export]
    assert newer.exists()


def test_using_an_entry_keeps_it(folder: Path) -> None:
    cache.set_limit(150)
    first, second = entry(folder, "first", 100, 1000), entry(folder, "second", 100, 2000)
    cache.touch(first)
    assert [one.path for one in cache.prune()] == [second]


def test_what_was_just_used_is_left_to_its_readers(folder: Path) -> None:
    cache.set_limit(0)
    entry(folder, "first", 100, time.time())
    assert cache.prune() == []
    assert len(cache.prune(at_once=True)) == 1


def test_what_killed_processes_left_is_swept_in_time(folder: Path) -> None:
    for kind, start in (("traces", "new"), ("nsys", "export")):
        for name, age in (("killed", cache.STALE_SECONDS + 60), ("busy", 60)):
            left = folder / kind / f"{start}-{name}"
            left.mkdir(parents=True)
            os.utime(left, (time.time() - age,) * 2)
    cache.prune()
    assert [path.name for path in folder.glob("*/*")] == ["new-busy", "export-busy"]
    assert cache.entries() == []


def test_other_code_reads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at(TORCH)
    monkeypatch.setattr(cache, "code", lambda: "of another version")
    looked_at(TORCH)
    assert len(cache.entries()) == 2


def test_a_database_that_is_being_written_is_refused_from_the_cache_too(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(NSYS.read_bytes())
    looked_at(path)
    (tmp_path / "report.sqlite-wal").write_bytes(b"more")
    with pytest.raises(TracevizError, match="open in another program"):
        looked_at(path)


def test_the_command_shows_limits_and_clears(folder: Path) -> None:
    load.load([TORCH])
    answer = run_json("cache")
    assert [Path(one["path"]).name.startswith("ddp.rank0.json.gz-") for one in answer["entries"]] == [True]
    on_disk = sum(file.stat().st_size for file in Path(answer["entries"][0]["path"]).iterdir())
    assert (answer["entries"][0]["bytes"], answer["folder"], answer["unusable"]) == (on_disk, str(folder), "")
    assert run_json("cache", "--limit", "1kB")["entries"] == []
    assert run_json("cache")["limit_bytes"] == 1000
    load.load([TORCH])
    assert len(run_json("cache", "--clear")["removed"]) == 1
    assert run_json("cache")["entries"] == []


def test_numbers_of_one_value_take_no_room(tmp_path: Path) -> None:
    trace = plain(TORCH)
    sizes = []
    for name, values in (("one", np.full(len(trace.ops), 7)), ("many", np.arange(len(trace.ops)))):
        (tmp_path / name).mkdir()
        write_trace(replace(trace, ops=trace.ops.having(bytes=values)), tmp_path / name)
        sizes.append((tmp_path / name / "ops.arrow").stat().st_size)
    assert sizes[1] - sizes[0] > 0.9 * 8 * len(trace.ops)
