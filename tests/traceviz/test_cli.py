from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.endings import answered
from tests.support.kineto_files import KinetoFile, pair_of_ranges
from tests.traceviz.conftest import Run

DATA = Path(__file__).parents[1] / "data"
SIDES = ("-a", "nvtx:A", "-b", "nvtx:B")
COMMANDS = ("check-overlap", "streams", "info")


def in_a_process(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    ran = subprocess.run(
        [sys.executable, "-m", "traceviz", *map(str, words)],
        capture_output=True,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    return answered(ran)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A and B of 100 ns each, half of them together."""
    return pair_of_ranges("A", "B", overlap=50).write(tmp_path / "half.json")


@pytest.mark.parametrize(("overlap", "code", "verdict"), [(60, 0, "OVERLAPPED"), (50, 1, "PARTIAL"), (0, 1, "SERIAL")])
def test_the_exit_code_is_the_verdict(run: Run, tmp_path: Path, overlap: int, code: int, verdict: str) -> None:
    path = pair_of_ranges("A", "B", overlap=overlap).write(tmp_path / "t.json")
    ran = run("check-overlap", path, *SIDES)
    assert (ran.code, ran.out.startswith(verdict)) == (code, True)


def test_an_empty_side_exits_3_with_the_reason_and_no_figure(run: Run, capture: Path) -> None:
    ran = run("check-overlap", capture, "-a", "nvtx:a", "-b", "nvtx:B")
    assert ran.code == 3
    assert ran.out.startswith("INCONCLUSIVE  'nvtx:a': no range 'a'; did you mean 'A' (1 launch)?\n")
    assert "NaN" not in ran.out
    assert "0 %" not in ran.out


def test_the_bar_can_be_moved(run: Run, capture: Path) -> None:
    assert run("check-overlap", capture, *SIDES, "--min-overlap", "50%").code == 0
    assert run("check-overlap", capture, *SIDES, "--min-overlap", "0.51").code == 1


def test_one_device_by_hand(run: Run, capture: Path) -> None:
    answer = json.loads(run("check-overlap", capture, *SIDES, "--format", "json").out)
    side = {"busy_ns": 100, "wait_ns": 0, "ops": 1}
    (rank,) = answer.pop("ranks")
    (instance,) = rank.pop("instances")
    for key, value in {
        "rank": 0, "device": 0, "a": {**side, "streams": [7]}, "b": {**side, "streams": [9]}, "overlap_ns": 50,
        "overlap_ratio": 0.5, "real_overlap_ns": 50, "real_overlap_ratio": 0.5, "achievable_ns": 100,
    }.items():  # fmt: skip
        assert rank[key] == value
    assert instance["label"] == "occurrence 0"
    assert instance["end_ns"] - instance["start_ns"] == 150
    for key, value in {
        "schema": "traceviz.overlap/3", "verdict": "partial", "passed": False, "bar": 0.6,
    }.items():  # fmt: skip
        assert answer[key] == value
    # Launches are the only calls on record: waits may have been, too, so none is said to be missing.
    assert [warning["code"] for warning in answer["warnings"]] == ["waits-not-recorded", "few-instances"]
    assert (answer["pair"]["a"], answer["pair"]["b"]) == ("nvtx:A", "nvtx:B")
    assert answer["job"]["rank"] == 0
    assert answer["job"]["real_overlap_ratio"] == 0.5


def test_streams_and_info_as_json(run: Run, capture: Path) -> None:
    streams = json.loads(run("streams", capture, "--format", "json").out)
    assert streams["schema"] == "traceviz.streams/1"
    (rank,) = streams["ranks"]
    assert rank["busy_streams_ns"] == [0, 100, 50]
    assert [use["stream"] for use in rank["streams"]] == [7, 9]
    assert rank["overlap_ns"] == [[100, 50], [50, 100]]
    info = json.loads(run("info", capture, "--format", "json").out)
    assert info["schema"] == "traceviz.info/2"
    assert [(one["name"], one["occurrences"], one["launches"]) for one in info["ranges"]] == [("A", 1, 1), ("B", 1, 1)]
    assert info["ranks"][0]["kernels"] == 2
    assert info["captures"][0]["path"] == str(capture)


@pytest.mark.parametrize("kind", ["text", "json", "md"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_name_reaches_no_terminal_and_breaks_no_format(
    run: Run, tmp_path: Path, command: str, kind: str
) -> None:
    evil = "\x1b]0;owned\x07|<script>x</script>\n[b]@me\u202e"
    file = pair_of_ranges(evil, "B", overlap=10)
    file.kernel(evil, 7, 2000, 2100, launch=300)
    ran = run(command, file.write(tmp_path / "t.json"), "--format", kind)
    assert ran.err == ""
    assert ran.out.endswith("\n")
    assert not {"\x1b", "\u202e"} & set(ran.out)
    if kind == "md":
        assert "<script>" not in ran.out
        assert "\n|---" in ran.out
    if kind == "json":
        json.loads(ran.out)


def test_parts_of_a_trace_can_be_asked_for(run: Run, tmp_path: Path) -> None:
    for rank in (0, 1):
        pair_of_ranges("A", "B", overlap=10 + 40 * rank, rank=rank).write(tmp_path / f"t{rank}.json")
    answer = json.loads(run("check-overlap", tmp_path, *SIDES, "--ranks", "1", "--format", "json").out)
    assert [(rank["rank"], rank["overlap_ns"]) for rank in answer["ranks"]] == [(1, 50)]
    assert run("check-overlap", tmp_path, "--ranks", "5").err == "traceviz: There is no rank 5; there are 0, 1.\n"
    assert "No steps: no range is named like one" in run("check-overlap", tmp_path, "--steps", "1").err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("gone.json", None),
        ("empty.json", b""),
        ("image.png", b"\x89PNG\r\n\x1a\n"),
        ("cut.json", b'{"traceEvents": [{"ph": "X", "cat": "ker'),
        ("list.json", b"[1, 2, 3"),
        ("not.json", b"{'a': 1}"),
        ("cut.json.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abc"),
        ("cut.sqlite", b"SQLite format 3\x00" + bytes(200)),
        ("no-gpu-work.json", b'{"schemaVersion": 1, "traceEvents": []}'),
        ("fake.nsys-rep", b"no report"),
    ],
)
def test_a_bad_input_is_one_line_and_exit_2_and_leaves_nothing_behind(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, content: bytes | None
) -> None:
    monkeypatch.setenv("TRACEVIZ_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "input"
    folder.mkdir()
    path = folder / name
    if content is not None:
        path.write_bytes(content)
    before = sorted(folder.iterdir())
    ran = run(command, path)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"traceviz: {path}: ")
    assert ran.err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ("-a", "nonsense"),
        ("-a", "kernel:~("),
        ("-a", "nvtx:A", "-b", "nvtx:A"),
        ("--min-overlap", "150%"),
        ("--ranks", "x"),
        ("--steps", "3:1"),
        ("--window", "1:2"),
        ("--window", "5ms:5ms"),
        ("--window", "100s:200s"),
    ],
)
def test_an_option_that_can_not_be_used_is_one_line(run: Run, capture: Path, words: tuple[str, ...]) -> None:
    ran = run("check-overlap", capture, *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("traceviz: ")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("words", [("--format", "xml"), ("--nosuch",), ()])
def test_usage_that_is_wrong_exits_2(run: Run, words: tuple[str, ...]) -> None:
    ran = run("check-overlap", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err


def test_the_version(run: Run) -> None:
    assert run("--version").out == "traceviz 0.1.0\n"


def test_a_pipe_gets_neither_colours_nor_progress(capture: Path) -> None:
    ran = in_a_process("check-overlap", capture, *SIDES)
    assert ran.returncode == 1
    assert ran.stderr == b""
    assert b"\x1b" not in ran.stdout


def test_no_color_is_honoured_on_a_terminal(run: Run, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("check-overlap", capture, *SIDES).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in run("check-overlap", capture, *SIDES).out


@pytest.mark.parametrize("kind", ["text", "json", "md"])
def test_a_reader_that_goes_away_leaves_the_exit_code(tmp_path: Path, kind: str) -> None:
    file = KinetoFile()
    for k in range(500):  # more than a pipe holds
        file.range("A", 1000 * k, 1000 * k + 50)
        file.range("B", 1000 * k + 100, 1000 * k + 150)
        file.kernel("kernel a", 7, 1000 * k + 200, 1000 * k + 900, launch=1000 * k + 10)
        file.kernel("kernel b", 9, 1000 * k + 200, 1000 * k + 900, launch=1000 * k + 110)
    path = file.write(tmp_path / "t.json")
    words = [sys.executable, "-m", "traceviz", "check-overlap", str(path), *SIDES, "--format", kind]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        output = process.stderr.read()
        assert (process.wait(), output) == (0, b"")


@pytest.mark.parametrize("kind", ["text", "md"])
def test_a_terminal_without_unicode_gets_plain_letters(kind: str) -> None:
    ran = in_a_process(
        "collectives", DATA / "torch" / "a2a_sync.rank0.json.gz", "--format", kind, PYTHONIOENCODING="ascii"
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b" us" in ran.stdout


@pytest.mark.parametrize("columns", ["abc", "0", "-5", "1", "", "400"])
def test_any_width_can_be_asked_for(run: Run, capture: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ran = run("check-overlap", capture, *SIDES)
    assert (ran.code, ran.err) == (1, "")
    assert "PARTIAL" in ran.out


def test_a_path_that_is_no_text_is_reported(tmp_path: Path) -> None:
    ran = in_a_process("info", os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json"))
    assert ran.returncode == 2
    assert ran.stderr.count(b"\n") == 1
    assert b"There is no such file" in ran.stderr
