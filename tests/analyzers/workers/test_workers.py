"""Captures read side by side: the same answers, one bar, errors that name the rank, and nothing left behind."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from analyzers import load
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Overall
from analyzers.readers import captures
from analyzers.readers.captures import Reading
from analyzers.workers import memory as watch
from analyzers.workers import pool
from tests.support.command_lines import run_json, run_text
from tests.support.waiting import is_alive, soon

DATA = Path(__file__).parents[2] / "data" / "torch"
RANKS = [str(DATA / f"ddp.rank{rank}.json.gz") for rank in (0, 1)]
NSYS = sorted(str(path) for path in (DATA.parent / "nsys").glob("rowpar_s1.rank*.nsys2025.sqlite"))


@pytest.fixture(autouse=True)
def for_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "WORTH_WORKERS", 0)


@pytest.mark.parametrize("command", ["check-overlap", "collectives", "syncs", "streams", "info"])
@pytest.mark.parametrize(("paths", "cache"), [(RANKS, ["--no-cache"]), (NSYS, [])], ids=["torch", "nsys-cached"])
def test_answers_do_not_depend_on_workers(command: str, paths: list[str], cache: list[str]) -> None:
    alone = run_text(command, *paths, "--workers", "1", "--no-cache")
    assert run_text(command, *paths, "--workers", "3", *cache) == alone


def doubled(number: int, progress: pool.Callable[..., None]) -> int:
    progress("counting", number, 10)
    return 2 * number


def deadly(number: int, progress: pool.Callable[..., None]) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def failing(number: int, progress: pool.Callable[..., None]) -> int:
    return 1 // number


def test_results_come_in_the_order_of_tasks_with_progress() -> None:
    heard: list[tuple[int, int, int]] = []
    found = pool.run(doubled, [(number,) for number in range(7)], 3, lambda *said: heard.append(said))
    assert found == [0, 2, 4, 6, 8, 10, 12]
    assert {(place, place, 10) for place in range(7)} | {(place, 1, 1) for place in range(7)} == set(heard)


def test_a_worker_that_dies_costs_its_task_alone() -> None:
    found = pool.run(deadly, [(number,) for number in range(5)], 2, lambda *_: None)
    assert [one for one in found if not isinstance(one, TracevizError)] == [0, 1, 3, 4]
    assert "was killed by signal 9" in str(found[2])


def test_a_bug_in_a_worker_is_no_answer() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pool.run(failing, [(0,)], 1, lambda *_: None)


HUNGRY_BYTES = 150_000_000


def hungry(folder: str, number: int, size: int, crowd: int, fit: int, progress: pool.Callable[..., None]) -> int:
    """Holds some memory, and notes how many do at the same time: first `crowd`, at last no more than `fit`.

    For a crowd it waits some seconds only: a worker may be ended before it comes.
    """
    mine = Path(folder) / f"{number}-{os.getpid()}.busy"
    mine.touch()
    mine.with_suffix(".came").touch()
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    begin, beside, came = time.monotonic(), 0, 0
    while (waited := time.monotonic() - begin) < 60:
        if waited > 0.3 and beside <= fit and (came >= crowd or waited > 5):
            break
        time.sleep(0.05)
        beside = sum(is_alive(int(path.stem.partition("-")[2])) for path in Path(folder).glob("*.busy"))
        came = len(list(Path(folder).glob("*.came")))
        (Path(folder) / f"{number}.{beside}.seen").touch()
    mine.unlink()
    return number


def room_for(count: float) -> int:
    """Bytes for this process, some bare workers, and what so many tasks hold."""
    return watch.held(os.getpid()) + 60_000_000 + int(count * HUNGRY_BYTES)


needs_proc = pytest.mark.skipif(not watch.held(os.getpid()), reason="what a process holds can't be seen here")


@needs_proc
def test_workers_that_hold_too_much_become_fewer_and_every_task_is_done(tmp_path: Path) -> None:
    tasks = [(str(tmp_path), number, HUNGRY_BYTES, 3, 1) for number in range(5)]
    eye = watch.Watch(room_for(1.6))
    assert pool.run(hungry, tasks, 3, lambda *_: None, eye) == [0, 1, 2, 3, 4]
    assert eye.ended == 2
    last = {int(path.name.split(".")[1]) for path in tmp_path.glob("4.*.seen")}
    assert last == {1}  # by then one at a time


@needs_proc
def test_a_task_too_large_by_itself_fails_and_the_others_do_not(tmp_path: Path) -> None:
    sizes = [HUNGRY_BYTES, 4 * HUNGRY_BYTES, HUNGRY_BYTES]
    tasks = [(str(tmp_path), number, size, 1, int(size == HUNGRY_BYTES)) for number, size in enumerate(sizes)]
    found = pool.run(hungry, tasks, 1, lambda *_: None, watch.Watch(room_for(1.6)))
    assert [found[0], found[2]] == [0, 2]
    assert isinstance(found[1], TracevizError)
    assert re.match(r"This alone takes more than [\d,]+ MB of memory; the budget is [\d,]+ MB\.", found[1].message)


@needs_proc
def test_what_the_caller_holds_counts_and_is_told_apart() -> None:
    with pytest.raises(TracevizError, match="What all captures come to takes"):
        pool.run(doubled, [(1,)], 1, lambda *_: None, watch.Watch(1_000_000))


@needs_proc
def test_workers_below_the_bound_are_left_alone(tmp_path: Path) -> None:
    tasks = [(str(tmp_path), number, 1000, 3, 3) for number in range(3)]
    eye = watch.Watch(1 << 40)
    assert pool.run(hungry, tasks, 3, lambda *_: None, eye) == [0, 1, 2]
    assert eye.ended == 0


@pytest.fixture
def with_a_bad_rank(tmp_path: Path) -> list[str]:
    bad = tmp_path / "rank7.json"
    bad.write_bytes(gzip.decompress(Path(RANKS[0]).read_bytes())[:200_000])
    empty = tmp_path / "rank8.json"
    empty.write_bytes(b"")
    return [*RANKS, str(bad), str(empty)]


@pytest.mark.parametrize("count", [1, 3])
def test_a_bad_rank_is_an_error_that_names_it(with_a_bad_rank: list[str], count: int) -> None:
    with pytest.raises(TracevizError, match=r"rank7\.json: is truncated"):
        load.load(with_a_bad_rank[:3], reading=Reading(workers=count))


@pytest.mark.parametrize("count", ["1", "3"])
def test_bad_ranks_are_skipped_on_request_and_named(with_a_bad_rank: list[str], count: str) -> None:
    said = run_json("check-overlap", *with_a_bad_rank, "--skip-bad", "--workers", count)
    skipped = [one["message"] for one in said["warnings"] if one["code"] == "skipped-bad"]
    assert [re.sub(r".*/", "", message.partition(" was left out")[0]) for message in skipped] == [
        "rank7.json (rank 7)",
        "rank8.json (rank 8)",
    ]
    without = run_json("check-overlap", *RANKS)
    said["warnings"] = [one for one in said["warnings"] if one["code"] != "skipped-bad"]
    assert said == without


def test_where_all_are_bad_skipping_is_no_answer(with_a_bad_rank: list[str]) -> None:
    with pytest.raises(TracevizError, match="rank7"):
        load.load(with_a_bad_rank[2:], reading=Reading(skip_bad=True, workers=2))


def test_one_bar_counts_bytes_and_files_and_never_goes_back() -> None:
    said: list[tuple[str, int, int]] = []
    overall = Overall(lambda what, done, total: said.append((what, done, total)), "reading", [100, 300])
    overall.tell(0, 5, 10)
    overall.tell(0, 1, 10)  # the reader began anew
    overall.tell(1, 1, 1)
    assert [(done, total) for _, done, total in said] == [(50, 400), (50, 400), (350, 400)]
    assert "1 of 2" in said[-1][0]


SCRIPT = """
import analyzers.readers.captures, traceviz
from analyzers import load
from analyzers.readers.captures import Reading
analyzers.readers.captures.WORTH_WORKERS = 0
print(len(load.load({paths!r}, reading=Reading(workers=2, cache=False)).rank_ids))
"""


def test_a_script_without_a_main_guard_may_use_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(paths=RANKS))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    found = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True, timeout=60
    )
    assert (found.stdout, found.stderr) == ("2\n", "")


BUSY = """
import sys, time
from pathlib import Path
from analyzers import workers
from tests.analyzers.workers.test_workers import sleepy

try:
    workers.run(sleepy, [(sys.argv[1], number) for number in range(2)], 2, lambda *_: None)
except KeyboardInterrupt:
    sys.exit(130)
"""


def sleepy(folder: str, number: int, progress: pool.Callable[..., None]) -> None:
    (Path(folder) / f"{number}.pid").write_text(str(os.getpid()))
    try:
        time.sleep(600)
    finally:
        (Path(folder) / f"{number}.cleaned").write_text("")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_no_worker_outlives_its_caller(how: signal.Signals, tmp_path: Path) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(BUSY), str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
    )
    files = [tmp_path / f"{number}.pid" for number in range(2)]
    assert soon(lambda: all(file.exists() and file.read_text() for file in files))
    pids = [int(file.read_text()) for file in files]
    caller.send_signal(how)
    _, said = caller.communicate(timeout=120)
    assert soon(lambda: not any(map(is_alive, pids)))
    assert all((tmp_path / f"{number}.cleaned").exists() for number in range(2))
    assert (caller.returncode, said) == (130 if how == signal.SIGINT else -signal.SIGKILL, "")
