"""Answers given before: the same to the byte, found by all that decides them, believed only when whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analyzers import load
from analyzers.cache import folder as cache
from analyzers.cache import keys
from analyzers.common.errors import TracevizError
from analyzers.scale import answer_cache
from tests.support.caching import folder as folder
from tests.support.command_lines import run_json
from tests.support.kills import killed_everywhere
from traceviz.cli import app

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
TORCH = [str(DATA / "torch" / f"dpmp_overlap.rank{rank}.json.gz") for rank in (0, 1)]
SERIAL = [str(DATA / "torch" / f"dpmp_serial.rank{rank}.json.gz") for rank in (0, 1)]
NSYS = str(DATA / "nsys" / "dpmp_hidden_sync.2gpu.sqlite")
COMMANDS = {
    "check-overlap": ["check-overlap", *TORCH, "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"],
    "collectives": ["collectives", *TORCH],
    "syncs": ["syncs", NSYS],
    "streams": ["streams", *TORCH],
    "info": ["info", *TORCH],
    "compare": ["compare", SERIAL[0], TORCH[0]],
}


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code in (0, 1, 3), (result.output, result.exception)
    return result


def kept() -> list[cache.Entry]:
    return [entry for entry in cache.entries() if entry.kind == "answers"]


def same(one: Result, other: Result) -> None:
    assert (one.stdout_bytes, one.stderr_bytes, one.exit_code) == (
        other.stdout_bytes,
        other.stderr_bytes,
        other.exit_code,
    )


def answered_rightly(*words: str, new: bool) -> None:
    """What comes with a cache is what comes without; `new` is whether that took an answer which was not there."""
    before = len(kept())
    same(run(*words), run(*words, "--no-cache"))
    assert len(kept()) - before == new, words


@pytest.mark.parametrize("form", ["json", "text", "md"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_question_is_answered_alike_without_reading(
    command: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*COMMANDS[command], "--format", form]
    without = run(*words, "--no-cache")
    assert not kept()
    same(run(*words), without)
    assert len(kept()) == 1

    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("it was worked out anew")

    monkeypatch.setattr(load, "load", nothing)
    same(run(*words), without)


def test_text_is_set_anew_for_each_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("70", "200"):
        monkeypatch.setenv("COLUMNS", width)
        answered_rightly(*COMMANDS["check-overlap"], new=width == "70")
    answered_rightly(*COMMANDS["check-overlap"], "--format", "md", new=False)  # of the same blocks


@pytest.mark.once
@pytest.mark.parametrize(
    "more",
    [
        ["-a", "comm"],
        ["-b", "compute"],
        ["--min-overlap", "1%"],
        ["--ranks", "1"],
        ["--steps", "1"],
        ["--window", "1ms:900ms"],
        ["--no-align"],
        ["--nsys", "/elsewhere/nsys"],
        ["--baseline", SERIAL[0], "--baseline", SERIAL[1]],
        ["--skip-bad"],
        [TORCH[1]],
    ],
    ids=" ".join,
)
def test_another_question_has_another_answer(more: list[str]) -> None:
    words = ["check-overlap", TORCH[0], "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding", "--format", "json"]
    if more[0] == "--ranks":
        words.append(TORCH[1])
    answered_rightly(*words, new=True)
    answered_rightly(*words, *more, new=True)
    answered_rightly(*words, new=False)


def test_how_an_answer_is_come_by_does_not_change_it() -> None:
    for place, more in enumerate(([], ["--workers", "3"], ["--memory", "8GB"], ["--memory", "9GB", "--workers", "1"])):
        answered_rightly(*COMMANDS["check-overlap"], *more, new=place == 0)


def copied(paths: Sequence[str], folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [Path(shutil.copy(path, folder)) for path in paths]


def test_a_capture_more_in_the_folder_is_another_question(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    copied(TORCH[:1], runs)
    answered_rightly("check-overlap", str(runs), new=True)
    copied(TORCH[1:], runs)
    answered_rightly("check-overlap", str(runs), new=True)
    (runs / "notes.json").write_text('{"no": "capture"}')  # named in a warning
    answered_rightly("check-overlap", str(runs), new=True)
    answered_rightly("check-overlap", str(runs), new=False)


def test_a_capture_changed_in_place_is_another_question(tmp_path: Path) -> None:
    (path,) = copied(TORCH[:1], tmp_path / "runs")
    answered_rightly("streams", str(path), new=True)
    path.write_bytes(Path(SERIAL[0]).read_bytes())
    answered_rightly("streams", str(path), new=True)
    path.write_bytes(Path(TORCH[0]).read_bytes())
    answered_rightly("streams", str(path), new=False)


def test_a_large_capture_that_was_touched_is_another_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WHOLE", 1 << 10)  # of a larger one only pieces are hashed
    monkeypatch.setattr(cache, "PIECE", 16)
    (path,) = copied(TORCH[:1], tmp_path / "runs")
    answered_rightly("streams", str(path), new=True)
    os.utime(path, ns=(0, 10**9))
    answered_rightly("streams", str(path), new=True)


def test_another_manifest_is_another_question(tmp_path: Path) -> None:
    paths = copied(TORCH, tmp_path / "runs")
    for ranks in ((0, 1), (1, 0), (4, 9)):
        captures = [{"path": path.name, "rank": rank} for path, rank in zip(paths, ranks, strict=True)]
        manifest = {"schema": "traceviz.manifest/1", "captures": captures}
        (tmp_path / "runs" / "manifest.json").write_text(json.dumps(manifest))
        answered_rightly("info", str(tmp_path / "runs"), new=True)


def test_which_of_a_report_and_its_export_is_read_is_part_of_the_question(tmp_path: Path) -> None:
    export = Path(shutil.copy(NSYS, tmp_path / "run.sqlite"))
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report")
    names = []
    for age in (100, -100):
        os.utime(report, (export.stat().st_mtime - age,) * 2)
        names.append(answer_cache.name_of(["info"], [[str(tmp_path)]]))
    assert all(names) and names[0] != names[1]


@pytest.mark.parametrize("name", ["code", "_libraries"])
def test_other_code_answers_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answered_rightly("streams", *TORCH, new=True)
    other = (lambda *_: "other") if name == "code" else (lambda: [("numpy", 1)])
    monkeypatch.setattr(answer_cache, name, other)
    answered_rightly("streams", *TORCH, new=True)


def test_all_sources_are_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("analyzers", "traceviz"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(keys, "__file__", str(tmp_path / "analyzers" / "cache_keys.py"))
    name = keys.code.__wrapped__
    seen = {name("analyzers", "traceviz")}
    for changed in ("analyzers/verdict/check.py", "traceviz/contract.py", "traceviz/views/overlap.py"):
        (tmp_path / changed).write_text((tmp_path / changed).read_text() + "\n")
        seen.add(name("analyzers", "traceviz"))
    assert len(seen) == 4


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_answer_is_not_believed(damage: str) -> None:
    answered_rightly("streams", *TORCH, new=True)
    (entry,) = kept()
    whole = entry.path.read_bytes()
    flipped = bytearray(whole)
    flipped[-20] ^= 1
    entry.path.write_bytes({"cut": whole[: len(whole) // 2], "flipped": bytes(flipped), "empty": b""}[damage])
    answered_rightly("streams", *TORCH, new=False)
    assert entry.path.read_bytes() == whole  # made anew


def test_killed_at_any_step_it_leaves_nothing_half_written_that_is_believed(folder: Path) -> None:
    text, whole, unfinished = "words " * 50_000, 0, 0
    for place in killed_everywhere(
        "from analyzers import cache_answers", 'cache_answers.keep("answer", "words " * 50_000)', folder
    ):
        found = [answer_cache.kept(entry.path.name) for entry in kept()]
        assert found in ([], [text]), place
        whole += len(found)
        unfinished += len(list((folder / "answers").glob("new-*")))
        shutil.rmtree(folder, ignore_errors=True)
    assert whole and unfinished, "no kill hit a half-written answer, so this proved nothing"


def test_without_the_cache_none_is_found_or_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered_rightly("streams", *TORCH, new=True)
    (entry,) = kept()
    entry.path.write_bytes(b"never read")
    run("streams", *TORCH, "--no-cache")
    monkeypatch.setenv(cache.VARIABLE, "off")
    same(run("streams", *TORCH), run("streams", *TORCH, "--no-cache"))
    assert entry.path.read_bytes() == b"never read"


def test_where_the_cache_cannot_be_written_answers_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    answered_rightly("streams", *TORCH, new=False)


def test_small_captures_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "WORTH_BYTES_PACKED", 1 << 30)
    answered_rightly("streams", *TORCH, new=False)


def test_an_answer_that_lacks_a_bad_capture_is_not_kept(tmp_path: Path) -> None:
    paths = copied(TORCH, tmp_path / "runs")
    bad = tmp_path / "runs" / "rank7.json"
    bad.write_text('{"traceEvents": [')
    answered_rightly("streams", *map(str, paths), str(bad), "--skip-bad", new=False)


def test_what_a_command_does_beside_answering_is_done_each_time(tmp_path: Path) -> None:
    words = ["check-overlap", *TORCH, "--save", str(tmp_path / "runs.db")]
    for times in (1, 2):
        run(*words)
        (pair,) = run_json("history", str(tmp_path / "runs.db"))["pairs"]
        assert len(pair["runs"]) == times
    assert not kept()


def test_a_database_that_is_being_written_is_refused_whatever_was_answered(tmp_path: Path) -> None:
    path = Path(shutil.copy(NSYS, tmp_path / "report.sqlite"))
    answered_rightly("info", str(path), new=True)
    (tmp_path / "report.sqlite-wal").write_bytes(b"more")
    error = CliRunner().invoke(app, ["info", str(path)]).exception
    assert isinstance(error, TracevizError) and "open in another program" in error.message


AGAIN = """
import sys
import typer
brought = set(sys.modules)  # old versions of typer load rich themselves
from analyzers import cache_keys
from traceviz.cli import main
cache_keys.WORTH_BYTES_PACKED = 0
try:
    main()
finally:
    slow = {"numpy", "pandas", "pyarrow", "connectorx", "plotly", "isal", "msgspec"} & set(sys.modules)
    if "json" in sys.argv:
        slow |= {"rich"} & (set(sys.modules) - brought)
    print(sorted(slow), file=sys.stderr)
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_answer_is_found_without_loading_what_works_it_out(form: str, folder: Path) -> None:
    words = [sys.executable, "-c", AGAIN, *COMMANDS["check-overlap"], "--format", form]
    first, again = (subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False) for _ in range(2))
    assert "numpy" in first.stderr
    assert (again.stdout, again.returncode, again.stderr) == (first.stdout, first.returncode, "[]\n")


def test_the_command_shows_limits_and_clears_them() -> None:
    answered_rightly("streams", *TORCH, new=True)
    (entry,) = kept()
    shown = {one["path"]: one for one in run_json("cache")["entries"]}[str(entry.path)]
    assert (shown["kind"], shown["bytes"]) == ("answers", entry.path.stat().st_size)
    assert "answer" in run("cache").stdout
    cache.set_limit(1)
    cache.prune(at_once=True)
    assert not kept()
    answered_rightly("streams", *TORCH, new=True)
    cache.clear()
    assert not kept()


def test_an_answer_in_use_outlives_one_that_is_not() -> None:
    answer_cache.keep("old", "x" * 100)
    answer_cache.keep("new", "x" * 100)
    for name, used in (("old", 1000), ("new", 2000)):
        os.utime(cache.root() / "answers" / name, (used, used))
    assert answer_cache.kept("old") is not None  # which is a use
    cache.set_limit(200)
    assert [entry.path.name for entry in cache.prune()] == ["new"]


def test_an_answer_too_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "MOST_BYTES", 10)
    answer_cache.keep("long", "x" * 11)
    assert answer_cache.kept("long") is None
