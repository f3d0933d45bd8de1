from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.clocks.align import align
from analyzers.common.errors import TracevizError
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, one_rank
from tests.traceviz.conftest import Run
from traceviz.history import database as history
from traceviz.history.trends import trends

TORCH = Path(__file__).parents[1] / "data" / "torch"
SIDES = ("-a", "nvtx:optimizer", "-b", "nvtx:emb_lookup")


def trace_of(overlap: int, *, gpu: str = "H200", step: int = 0) -> Trace:
    """Communication and compute of 100 ns that overlap by so much, in two steps."""
    run = Builder()
    rank = run.rank(0, device=1)
    run.add("devices", process=0, device=1, name=gpu)
    for number in (0, 1):
        at = 1000 * number
        rank.range(f"step {number}", at, at + 900)
        rank.kernel("gemm", 7, at + 100, at + 200, launch=(at + 1, at + 2))
        rank.kernel("ncclDevKernel_AllReduce", 9, at + 200 - overlap, at + 300 - overlap, launch=(at + 3, at + 4))
    rank.kernel("gemm", 7, 1200, 1200 + step, launch=(1005, 1006))
    return run.trace()


def saved(path: Path, *overlaps: int, **more: str) -> None:
    for overlap in overlaps:
        trace = trace_of(overlap, **more)  # type: ignore[arg-type]
        history.save(path, check_overlap(trace, explain=False), trace, commit="abc")


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 60, 40)
    first, second = history.saved_runs(path)
    assert (first.id, second.id, first.a, first.b, first.commit_id, first.gpus) == (
        1,
        2,
        "comm",
        "compute",
        "abc",
        "1 x H200",
    )
    assert (first.real_overlap_ratio, second.real_overlap_ratio) == (0.6, 0.4)
    assert (first.step_ns, first.steps) == (round((1000 + 140) / 2), 2)


def test_tables_are_typed_linked_and_indexed(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 60)
    database = sqlite3.connect(path)
    kinds = {row[1]: row[2] for row in database.execute("PRAGMA table_info(runs)")}
    assert (kinds["id"], kinds["step_ns"], kinds["gpus"]) == ("INTEGER", "INTEGER", "TEXT")
    assert kinds["real_overlap_ratio"] == "REAL"
    for table, other in (("runs", "pairs"), ("ranks", "runs"), ("versions", "runs")):
        assert [row[2] for row in database.execute(f"PRAGMA foreign_key_list({table})")] == [other]
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    assert len([1 for row in database.execute("PRAGMA index_list(runs)")]) == 2
    rows = database.execute("SELECT run_id, rank, device, a_busy_ns, overlap_ns FROM ranks").fetchall()
    assert rows == [(1, 0, 1, 200, 120)]
    assert ("traceviz", "0.1.0") in database.execute("SELECT name, version FROM versions").fetchall()
    database.close()


def test_runs_that_save_at_once_all_get_in(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    words = [
        sys.executable,
        "-m",
        "traceviz",
        "check-overlap",
        str(TORCH / "full_gpu.rank0.json.gz"),
        "--save",
        str(path),
    ]
    running = [subprocess.Popen(words, cwd=TORCH.parents[2], stdout=subprocess.DEVNULL) for _ in range(5)]
    assert {one.wait() for one in running} <= {0, 1, 3}
    assert [one.id for one in history.saved_runs(path)] == [1, 2, 3, 4, 5]


def test_a_run_is_saved_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.db"
    saved(path, 60)
    monkeypatch.setattr(history, "versions_of", lambda trace: {"x": object()})
    with pytest.raises(TracevizError):
        saved(path, 50)
    database = sqlite3.connect(path)
    assert [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("runs", "ranks")] == [1, 1]
    database.close()


def foreign(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE pairs (id INTEGER)")
    database.commit()
    database.close()


def damaged(path: Path) -> None:
    saved(path, 60, 50)
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)


def cut(path: Path) -> None:
    saved(path, 60)
    path.write_bytes(path.read_bytes()[:5000])


def newer(path: Path) -> None:
    saved(path, 60)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (foreign, "a database of something else"),
        (damaged, "This is damaged"),
        (cut, "This is damaged"),
        (newer, "A newer traceviz"),
        (
            lambda path: path.write_text("no database at all, and long enough to be one" * 9),
            "This is damaged, or no SQLite",
        ),
        (lambda path: path.mkdir(), ""),
    ],
)
def test_a_file_that_is_no_history_is_one_clear_error_and_stays_as_it_was(
    run: Run, tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "r.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    code, out, err = run("history", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"traceviz: {path}: ")
    assert message in err
    code, out, err = run("check-overlap", TORCH / "full_gpu.rank0.json.gz", "--save", path)
    assert (code, err.count("\n")) == (2, 1)
    assert out, "the verdict is shown all the same"
    assert message in err
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_missing_history_and_a_missing_folder(run: Run, tmp_path: Path) -> None:
    assert run("history", tmp_path / "r.db")[0] == 2
    code, _, err = run("check-overlap", TORCH / "full_gpu.rank0.json.gz", "--save", tmp_path / "no" / "r.db")
    assert (code, "This can't be opened" in err) == (2, True)
    (tmp_path / "empty.db").touch()
    assert "This holds no history yet" in run("history", tmp_path / "empty.db")[2]


def test_a_regression_ends_with_1_and_noise_does_not(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 40, 42, 38)  # none reaches the bar, so that no verdict flips
    assert run("history", path)[0] == 0
    saved(path, 39)
    code, out, _ = run("history", path)
    assert (code, out.startswith("STEADY  run 4")) == (0, True)
    saved(path, 5)
    code, out, _ = run("history", path)
    assert (code, out.startswith("REGRESSION  run 5")) == (1, True)
    answer = json.loads(run("history", path, "--format", "json")[1])
    assert (answer["schema"], answer["pairs"][0]["call"]) == ("traceviz.history/2", "regression")
    assert [one["id"] for one in answer["pairs"][0]["runs"]] == [1, 2, 3, 4, 5]


def test_a_verdict_that_flips_is_a_regression_however_few_the_runs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 61, 59)  # of a bar of 60 %: overlapped, then partial
    code, out, _ = run("history", path)
    assert (code, out.startswith("REGRESSION  run 2")) == (1, True)
    assert "the verdict was overlapped and is partial: regression" in " ".join(out.split())
    saved(path, 61)
    (one,) = trends(history.saved_runs(path))
    assert (one.call, one.flip, one.verdict_before) == ("improvement", "improvement", "partial")
    saved(path, 62)
    assert trends(history.saved_runs(path))[0].flip == ""


def test_no_trend_is_told_across_rules(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 80, 81, 79, 80)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET rule = 'another'")
    saved(path, 20)
    (one,) = trends(history.saved_runs(path))
    assert (len(one.runs), one.other_rules, one.call) == (1, 4, "too-few")
    code, out, _ = run("history", path)
    assert (code, "4 runs are left out, whose figures are by another rule" in " ".join(out.split())) == (0, True)


def of_one_rank_of_four(overlap: int) -> Trace:
    """Communication of 100 ns whose three peers were not captured, beside compute for so much of it."""
    run, rank = one_rank()
    row = rank.kernel("ncclDevKernel_AllReduce", 9, 200 - overlap, 300 - overlap)
    run.rows["ops"][row]["correlation"] = correlation = run.next_correlation()
    run.add("comms", process=0, correlation=correlation, operation="allreduce", group="0", group_size=4)
    rank.kernel("gemm", 7, 100, 200)
    return align(run.trace()).trace


def test_apparent_and_real_figures_are_no_trend_together(run: Run, tmp_path: Path) -> None:
    """Apparent figures of 80 % and a real one of 20 %: nothing got worse, another thing was measured."""
    path = tmp_path / "r.db"
    for overlap in (80, 81, 79, 80):
        trace = of_one_rank_of_four(overlap)
        history.save(path, check_overlap(trace, explain=False, accept_apparent=True), trace)
    (one,) = trends(history.saved_runs(path))
    assert (one.apparent, one.call, one.others_apparent) == (1, "steady", 0)
    out = " ".join(run("history", path)[1].split())
    assert "apparent overlap 80 %" in out
    assert "real overlap" not in out
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET apparent = 0 WHERE id = 1")
        database.execute("UPDATE runs SET apparent = NULL WHERE id = 2")
    trace = of_one_rank_of_four(20)
    result = check_overlap(trace, explain=False)
    history.save(path, replace(result, job=replace(result.job, apparent=False)), trace)
    (one,) = trends(history.saved_runs(path))
    assert [each.id for each in one.runs] == [1, 5]
    assert (one.apparent, one.call, one.others_apparent, one.other_rules) == (0, "too-few", 3, 0)
    code, out, _ = run("history", path)
    assert (code, "3 runs are left out, whose overlap is apparent, or may be" in " ".join(out.split())) == (0, True)
    (pair,) = json.loads(run("history", path, "--format", "json")[1])["pairs"]
    assert (pair["apparent"], pair["others_apparent"]) == (0, 3)


def test_what_is_expected_is_a_ratio_between_0_and_1(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 95, 60, 90, 92)
    saved(tmp_path / "low.db", 5, 40, 10, 8)
    for name in ("r.db", "low.db"):
        (one,) = trends(history.saved_runs(tmp_path / name))
        assert one.overlap is not None
        assert one.step is not None
        assert 0 <= one.overlap.low < one.overlap.high <= 1  # type: ignore[operator]
        assert one.step.low >= 0  # type: ignore[operator]


def test_a_step_that_takes_longer_is_a_regression_though_it_overlaps_as_before(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 60, 60, 60)
    trace = trace_of(60, step=500)
    history.save(path, check_overlap(trace, "comm", "compute", explain=False), trace)
    (one,) = trends(history.saved_runs(path))
    assert one.step is not None
    assert (one.call, one.step.call) == ("regression", "regression")


def test_runs_on_other_gpus_are_no_measure(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    saved(path, 60, 60, 60, 60)
    saved(path, 5, gpu="L4")
    assert [(one.gpus, one.call) for one in trends(history.saved_runs(path))] == [
        ("1 x H200", "steady"),
        ("1 x L4", "too-few"),
    ]


def test_pairs_are_told_apart_and_can_be_asked_for(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    for name in ("opt_overlap", "opt_serial"):
        for sides in (SIDES, ()):
            run("check-overlap", TORCH / f"{name}.rank0.json.gz", *sides, "--save", path, "--commit", name)
    answer = json.loads(run("history", path, *SIDES, "--format", "json")[1])
    (pair,) = answer["pairs"]
    assert [one["commit_id"] for one in pair["runs"]] == ["opt_overlap", "opt_serial"]
    assert pair["runs"][0]["gpus"] == "1 x NVIDIA H200"
    assert len(json.loads(run("history", path, "--format", "json")[1])["pairs"]) == 2
    assert run("history", path, "-a", "memcpy")[0] == 3


def test_the_plot_is_one_page_and_shows_hostile_names_as_text(run: Run, tmp_path: Path) -> None:
    path, page = tmp_path / "r.db", tmp_path / "t.html"
    saved(path, 60, 60, 60, gpu="</script><img src=x onerror=alert(1)>")
    saved(path, 50, gpu="</script><img src=x onerror=alert(1)>")
    assert run("history", path, "-o", page)[0] == 1
    text = page.read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert "cdn" not in text.lower().partition("plotly.js v")[0]
    code, _, err = run("history", path, "-o", tmp_path / "t.pdf")
    assert (code, "Name it .html" in err) == (2, True)
    assert run("history", path, "-o", tmp_path / "no" / "t.html")[0] == 2


def test_the_plot_has_the_bar_commits_flips_and_what_stands_in_hovers(run: Run, tmp_path: Path) -> None:
    """Overlaps of 40, 70, 80 and 30 % against a bar of 60: partial, overlapped, overlapped, partial."""
    path, page = tmp_path / "r.db", tmp_path / "t.html"
    saved(path, 40, 70, 80, 30)
    run("history", path, "-o", page)
    text = page.read_text(encoding="utf-8")
    for code, letter in (("\\u003c", "<"), ("\\u003e", ">"), ("\\u002f", "/")):
        text = text.replace(code, letter)
    assert '"ticktext":["abc","abc","abc","abc"]' in text
    assert '"symbol":["circle","triangle-up","circle","triangle-down"]' in text
    assert '"y":[60.0,60.0,60.0,60.0]' in text
    assert "<b>overlapped</b> (was worse before)<br>run 2<br>commit abc" in text
    assert "<b>overlapped</b><br>run 3" in text
    assert "<b>partial</b> (was better before)<br>run 4" in text


def test_the_commit_comes_from_ci_or_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in history.COMMITS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert history.current_commit() == ""
    monkeypatch.setenv("CI_COMMIT_SHA", "123")
    assert history.current_commit() == "123"
