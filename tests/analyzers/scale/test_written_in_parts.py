"""What is written of a run that is looked at capture by capture is, to the byte, what is written of it as a whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from analyzers.replay import worth
from tests.support.command_lines import invoked, run_text
from traceviz.history.database import TABLES
from traceviz.reports import report

pytestmark = pytest.mark.nightly

DATA = Path(__file__).parents[2] / "data"
TORCH = [str(DATA / "torch" / f"dpmp_overlap.rank{rank}.json.gz") for rank in (0, 1)]
NSYS = sorted(str(path) for path in (DATA / "nsys").glob("rowpar_s1.rank*.nsys2025.sqlite"))
PAIR = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
RUNS = {
    "torch": [*TORCH, *PAIR],
    "nsys": NSYS,
    "a-part": [*NSYS, "--ranks", "1-2", "--window", "25ms:60ms"],
    "steps-in-another-order": [*reversed(TORCH), *PAIR, "--steps", "1:2"],
    "one-capture": [str(DATA / "nsys" / "dpmp_overlap.4gpu.sqlite"), "--ranks", "1,3"],
}


def written(*words: str, path: Path) -> tuple[str, dict[str, bytes]]:
    """What a command says, and the file that it writes, or all those of a folder."""
    result = invoked(*words, "-o", str(path))
    assert result.exit_code in (0, 1, 3), result.output
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return result.stdout.replace(str(path), "it"), {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "perfetto"])
@pytest.mark.parametrize("name", RUNS)
def test_an_export_in_parts_is_that_of_the_whole(name: str, kind: str, tmp_path: Path) -> None:
    words = ["export", *RUNS[name], "--to", kind]
    whole = written(*words, path=tmp_path / "whole" / "x")
    assert written(*words, "--memory", "8GB", "--workers", "1", path=tmp_path / "parts" / "x") == whole


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()


@pytest.mark.parametrize("name", RUNS)
def test_what_is_saved_in_parts_is_what_is_saved_of_the_whole(name: str, tmp_path: Path) -> None:
    saved = {}
    for how, more in (("whole", []), ("parts", ["--memory", "8GB", "--workers", "1"])):
        path = tmp_path / how / "history.db"
        result = invoked("check-overlap", *RUNS[name], "--save", str(path), *more)
        assert result.exit_code in (0, 1, 3), result.output
        with closing(sqlite3.connect(path)) as database:
            tables = {table: database.execute(f"select * from {table}").fetchall() for table in TABLES}
            columns = [row[1] for row in database.execute("pragma table_info(runs)")]
        tables["runs"] = [{**dict(zip(columns, row, strict=True)), "saved_utc": "some time"} for row in tables["runs"]]
        saved[how] = tables
    assert saved["parts"] == saved["whole"]
    assert saved["whole"]["ranks"]


SERIAL = [str(DATA / "torch" / "dpmp_serial.rank*.json.gz"), str(DATA / "torch" / "dpmp_overlap.rank*.json.gz")]
ROW = [str(DATA / "nsys" / f"{name}.rank*.nsys2025.sqlite") for name in ("rowpar_s1", "rowpar_s1")]
COMPARED = {
    "torch": [*SERIAL, *PAIR, "--claimed", "1.3x"],
    "torch-sides-of-kernels": SERIAL,
    "nsys": ROW,
    "a-rank": [*SERIAL, *PAIR, "--ranks", "1"],
    "steps": [*SERIAL, *PAIR, "--steps", "1:3"],
    "a-window": [*ROW, "--window", "25ms:60ms"],
}


@pytest.mark.parametrize("name", COMPARED)
def test_runs_compared_in_parts_differ_as_they_do_as_wholes(name: str) -> None:
    whole = run_text("compare", *COMPARED[name])
    assert run_text("compare", *COMPARED[name], "--memory", "8GB", "--workers", "1") == whole


@pytest.mark.parametrize("name", RUNS)
def test_a_timeline_in_parts_is_that_of_the_whole(name: str, tmp_path: Path) -> None:
    whole = written("timeline", *RUNS[name], path=tmp_path / "whole" / "x.html")
    more = ["--memory", "8GB", "--workers", "1"]
    assert written("timeline", *RUNS[name], *more, path=tmp_path / "parts" / "x.html") == whole


def test_a_timeline_of_compared_runs_in_parts_is_that_of_the_whole(tmp_path: Path) -> None:
    pages = [tmp_path / "whole" / "x.html", tmp_path / "parts" / "x.html"]
    for page, more in zip(pages, ([], ["--memory", "8GB", "--workers", "1"]), strict=True):
        run_text("compare", *SERIAL, *PAIR, "--timeline", str(page), *more)
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_report_in_parts_is_that_of_the_whole_but_for_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "MOST_OPS", 0)  # which takes all of a run
    monkeypatch.setattr(report, "MOST_OPS", 0)
    serial = ["--baseline", str(DATA / "torch" / "dpmp_serial.rank0.json.gz")]
    for name in RUNS:
        words = ["report", *RUNS[name], *(serial if name == "torch" else ())]
        whole = written(*words, path=tmp_path / "whole" / name)
        assert written(*words, "--memory", "8GB", "--workers", "1", path=tmp_path / "parts" / name) == whole
