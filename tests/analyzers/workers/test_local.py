"""Captures read side by side: the same answers, one bar, errors that name the rank, and nothing left behind."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from analyzers import load
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Overall, Progress, silent
from analyzers.readers import captures
from analyzers.readers.inputs import Input
from analyzers.readers.reading import Reading
from analyzers.workers.local import local_workers
from tests.support.command_lines import run_json, run_text
from tests.support.endings import is_alive, soon
from tests.support.nightly import mostly_nightly

DATA = Path(__file__).parents[2] / "data" / "torch"
RANKS = [str(DATA / f"ddp.rank{rank}.json.gz") for rank in (0, 1)]
NSYS = sorted(str(path) for path in (DATA.parent / "nsys").glob("rowpar_s1.rank*.nsys2025.sqlite"))


@pytest.fixture(autouse=True)
def for_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "WORTH_WORKERS", 0)
    monkeypatch.setattr(captures, "WORTH_HANDING_BACK", 0)


@pytest.mark.parametrize(
    ("command", "kind"),
    mostly_nightly(
        product(("check-overlap", "syncs", "collectives", "streams", "info"), ("torch", "nsys-cached")),
        lambda case: case in (("check-overlap", "nsys-cached"), ("syncs", "torch")),
    ),
)
def test_answers_do_not_depend_on_workers(command: str, kind: str) -> None:
    paths, cache = {"torch": (RANKS, ["--no-cache"]), "nsys-cached": (NSYS, [])}[kind]
    alone = run_text(command, *paths, "--workers", "1", "--no-cache")
    assert run_text(command, *paths, "--workers", "3", *cache) == alone


def doubled(number: int, progress: Progress) -> int:
    progress("counting", number, 10)
    return 2 * number


def deadly(folder: str, number: int, times: int, progress: Progress) -> int:
    """Number 2 is killed so many times, as the system does it when memory is short."""
    died = Path(folder) / f"{number}.died"
    deaths = len(died.read_text()) if died.exists() else 0
    if number == 2 and deaths < times:
        died.write_text("x" * (deaths + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    (Path(folder) / f"{number}.{os.getpid()}.done").touch()
    return number


def failing(number: int, progress: Progress) -> float:
    return 1 / number


def refusing(number: int, progress: Progress) -> int:
    if number == 1:
        raise TracevizError("no trace", hint="Give one.")
    return number


def nobody(count: int) -> Overall:
    return Overall(silent, "counting", [1] * count)


def test_results_come_in_the_order_of_tasks_with_progress() -> None:
    heard: list[tuple[int, int, int]] = []
    overall = nobody(7)
    overall.update = lambda *counts: heard.append(counts)  # type: ignore[method-assign]
    with local_workers(3) as workers:
        assert workers.map(doubled, [(number,) for number in range(7)], overall) == [0, 2, 4, 6, 8, 10, 12]
    assert {(number, number, 10) for number in range(7)} | {(number, 1, 1) for number in range(7)} == set(heard)


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_of_the_user_s_is_the_result_of_its_task(count: int) -> None:
    with local_workers(count) as workers:
        zero, error, two = workers.map(refusing, [(0,), (1,), (2,)], nobody(3))
    assert (zero, str(error), two) == (0, "no trace Give one.", 2)


@pytest.mark.parametrize("count", [1, 2])
def test_a_bug_in_a_worker_is_no_answer(count: int) -> None:
    with local_workers(count) as workers, pytest.raises(ZeroDivisionError):
        workers.map(failing, [(0,), (1,)], nobody(2))


@pytest.mark.nightly
def test_what_a_killed_worker_left_is_done_by_fewer(tmp_path: Path) -> None:
    with local_workers(2) as workers:
        assert workers.map(deadly, [(str(tmp_path), number, 1) for number in range(5)], nobody(5)) == [0, 1, 2, 3, 4]
        assert workers.count == 1
        assert workers.map(doubled, [(1,), (2,)], nobody(2)) == [2, 4]  # and what comes next is done as well


@pytest.mark.nightly
def test_a_worker_that_is_killed_again_is_one_clear_error(tmp_path: Path) -> None:
    with (
        local_workers(2) as workers,
        pytest.raises(TracevizError, match=r"was killed, .*Was memory short\? Give fewer"),
    ):
        workers.map(deadly, [(str(tmp_path), number, 2) for number in range(5)], nobody(5))


@pytest.mark.nightly
def test_workers_stay_for_the_next_tasks() -> None:
    with local_workers(2) as workers:
        first, second = (set(workers.map(pid_of, [(number,) for number in range(4)], nobody(4))) for _ in range(2))
    assert len(first | second) <= 2
    assert not any(map(is_alive, first))


def pid_of(number: int, progress: Progress) -> int:
    return os.getpid()


@pytest.fixture
def with_a_bad_rank(tmp_path: Path) -> list[str]:
    bad = tmp_path / "rank7.json"
    bad.write_bytes(gzip.decompress(Path(RANKS[0]).read_bytes())[:200_000])
    empty = tmp_path / "rank8.json"
    empty.write_bytes(b"")
    return [*RANKS, str(bad), str(empty)]


@pytest.mark.parametrize("count", mostly_nightly([1, 3], lambda count: count == 1))
def test_a_bad_rank_is_an_error_that_names_it(with_a_bad_rank: list[str], count: int) -> None:
    with pytest.raises(TracevizError, match=r"rank7\.json: is truncated"):
        load.load(with_a_bad_rank[:3], reading=Reading(workers=count))


@pytest.mark.nightly
@pytest.mark.parametrize("count", ["1", "3"])
def test_bad_ranks_are_skipped_on_request_and_named(with_a_bad_rank: list[str], count: str) -> None:
    answer = run_json("check-overlap", *with_a_bad_rank, "--skip-bad", "--workers", count)
    skipped = [one["message"] for one in answer["warnings"] if one["code"] == "skipped-bad"]
    assert [re.sub(r".*/", "", message.partition(" was left out")[0]) for message in skipped] == [
        "rank7.json (rank 7)",
        "rank8.json (rank 8)",
    ]
    without = run_json("check-overlap", *RANKS)
    answer["warnings"] = [one for one in answer["warnings"] if one["code"] != "skipped-bad"]
    assert answer == without


def test_where_all_are_bad_skipping_is_no_answer(with_a_bad_rank: list[str]) -> None:
    with pytest.raises(TracevizError, match="rank7"):
        load.load(with_a_bad_rank[2:], reading=Reading(skip_bad=True, workers=2))


def test_one_bar_counts_bytes_and_files_and_never_goes_back() -> None:
    reported: list[tuple[str, int, int]] = []
    overall = Overall(lambda what, done, total: reported.append((what, done, total)), "reading", [100, 300])
    overall.update(0, 5, 10)
    overall.update(0, 1, 10)  # the reader began anew
    overall.update(1, 1, 1)
    assert [(done, total) for _, done, total in reported] == [(50, 400), (50, 400), (350, 400)]
    assert "1 of 2" in reported[-1][0]


SCRIPT = """
import analyzers.readers.captures, traceviz
from analyzers import load
from analyzers.readers.reading import Reading
analyzers.readers.captures.WORTH_WORKERS = analyzers.readers.captures.WORTH_HANDING_BACK = 0
print(len(load.load({paths!r}, reading=Reading(workers=2, cache=False)).rank_ids))
"""


@pytest.mark.nightly
def test_a_script_without_a_main_guard_may_use_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(paths=RANKS))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    found = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True, timeout=60
    )
    assert (found.stdout, found.stderr) == ("2\n", "")


COMMAND = """
import sys
import analyzers.readers.captures
from analyzers.scale import parts
from tests.analyzers.workers.test_local import sleepy
from traceviz.__main__ import main

analyzers.readers.captures.WORTH_WORKERS = analyzers.readers.captures.WORTH_HANDING_BACK = 0
analyzers.readers.captures._read_apart = parts.summarize_one = sleepy
main()
"""


def sleepy(one: Input, reading: Reading, scratch: Path, progress: Progress) -> None:
    Path(os.environ["PIDS"], f"{one.path.name}.pid").write_text(str(os.getpid()))
    time.sleep(600)


@pytest.mark.parametrize(
    ("how", "ways"),
    mostly_nightly(product(("SIGINT", "SIGTERM"), ("whole", "by parts")), lambda case: case == ("SIGINT", "by parts")),
)
def test_an_interrupted_command_leaves_no_process(how: str, ways: str, tmp_path: Path) -> None:
    more = ["--memory", "8GB"] if ways == "by parts" else []
    words = ["info", *RANKS, "--workers", "2", "--no-cache", *more]
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PIDS": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    (tmp_path / "tmp").mkdir()
    assert soon(lambda: len([file for file in tmp_path.glob("*.pid") if file.read_text()]) == 2)
    os.killpg(command.pid, signal.Signals[how])  # as a terminal does: all of them hear it
    output, _ = command.communicate(timeout=120)
    assert (command.returncode, output) == (128 + signal.Signals[how], "")
    assert soon(lambda: not in_session(command.pid))
    assert not list((tmp_path / "tmp").iterdir())


def in_session(session: int) -> list[str]:
    """Processes that run in a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = path.read_text().rpartition(")")[2].split()[:4]
            if its_session == str(session) and state != "Z":
                found.append(path.parent.name)
    return found


@pytest.mark.nightly
def test_loky_is_loaded_only_where_workers_are_used() -> None:
    script = "import sys; from traceviz.cli import app; app(standalone_mode=False); print('loky' in sys.modules)"
    for count, used in (("1", "False"), ("2", "True")):
        words = ["streams", *RANKS, "--no-cache", "--workers", count, "--memory", "8GB", "--format", "md"]
        found = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True, timeout=120
        )
        assert found.stdout.splitlines()[-1] == used
