"""The same answers from a Dask cluster: a real scheduler and workers on loopback, one of them killed midway."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_lines import in_parts, without_replay
from tests.support.endings import soon

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("distributed", "fsspec"))), reason="needs Dask (the extra `cluster`)"
    ),
]

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
TORCH = [str(DATA / "torch" / f"dpmp_overlap.rank{rank}.json.gz") for rank in (0, 1)]
NSYS = sorted(str(path) for path in (DATA / "nsys").glob("rowpar_s1.rank*.nsys2025.sqlite"))


def started(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment["DASK_DISTRIBUTED__WORKER__DAEMON"] = "True"
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            cwd=ROOT, env=environment)  # fmt: skip


def announced(file: Path) -> str:
    """The address in a scheduler's file, "" until that is whole."""
    try:
        return str(json.loads(file.read_text())["address"])
    except (OSError, ValueError):
        return ""


@contextlib.contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """A scheduler and workers, each a process of its own, listening on 127.0.0.1 alone."""
    where = folder / "scheduler.json"
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    running = [started("-m", "distributed.cli.dask_scheduler", *local, "--port", "0", "--scheduler-file", str(where))]
    try:
        assert soon(lambda: bool(announced(where)))
        address = announced(where)
        assert re.match(r"tcp://127\.0\.0\.1:\d+$", address)
        more = [*local, "--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]
        running += [started("-m", "distributed.cli.dask_worker", address, *more) for _ in range(workers)]
        wait_for(address, workers)
        yield address, running[1:]
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.communicate()


def script(text: str, *arguments: str) -> str:
    """What a Python program of its own prints; Dask's threads and warnings are no business of pytest's."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    found = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, cwd=ROOT,
                           env=environment, timeout=180, check=False)  # fmt: skip
    assert found.returncode in (0, 1, 3) and "Traceback" not in found.stderr, found.stderr[-3000:]
    return found.stdout


def wait_for(address: str, workers: int) -> None:
    script(
        "import sys; from distributed import Client\n"
        "with Client(sys.argv[1]) as client: client.wait_for_workers(int(sys.argv[2]), timeout=60)",
        address,
        str(workers),
    )


COMMAND = "from traceviz.cli import main; main()"
ASKING = """
import json, sys
from tests.support.command_lines import run_text
print(json.dumps([run_text(*words) for words in json.loads(sys.argv[1])]))
"""


def test_answers_are_those_of_this_machine(tmp_path: Path) -> None:
    questions = [
        [command, *paths]
        for paths in (TORCH, NSYS)
        for command in ("check-overlap", "collectives", "streams", "syncs", "info")
    ]
    urls = ["check-overlap", *(f"file://{path}" for path in TORCH)]
    with cluster(tmp_path, 2) as (address, _):
        asked = [[*question, "--dask", address] for question in (*questions, urls)]
        *answers, of_urls = json.loads(script(ASKING, json.dumps(asked)))
        first = script(COMMAND, *questions[0], "--format", "json", "--dask", address)
    assert [without_replay(json.loads(one)) for one in answers] == [in_parts(*question) for question in questions]
    assert of_urls == first == answers[0]


KILLING = """
import json, os, signal, sys
from dataclasses import replace
from distributed import Client
from analyzers.readers.reading import Reading
from analyzers.scale import parts
from analyzers.verdict import check
from analyzers.workers.dask import dask_workers
from traceviz.output import contract

address, killed, paths = sys.argv[1], sys.argv[2], sys.argv[3:]

def one_dies(killed):
    "On a worker: whichever is first to begin a task is killed amid it."
    from analyzers.workers import local
    attempt = local.attempt
    def fatal(function, task):
        try:
            os.close(os.open(killed, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return attempt(function, task)
        os.kill(os.getpid(), signal.SIGKILL)
    local.attempt = fatal

with Client(address) as client, dask_workers(client) as workers:
    client.run(one_dies, killed)
    run = parts.open_run(paths, Reading(cache=False), workers)
    result = check.check_overlap(run, "comm", "compute")
    print(json.dumps(contract.overlap(result), indent=1))
    assert len(client.scheduler_info()["workers"]) == 1
    import traceviz as tv
    assert contract.overlap(replace(tv.check_overlap(paths, dask=client), worth_unknown="")) == contract.overlap(result)
"""


def test_a_worker_killed_midway_changes_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as (address, workers):
        answer = json.loads(script(KILLING, address, str(tmp_path / "killed"), *NSYS))
        assert without_replay(answer) == in_parts("check-overlap", *NSYS)
        assert sorted(worker.poll() is None for worker in workers) == [False, True]


def test_a_scheduler_that_is_not_there_is_an_error_in_one_line() -> None:
    environment = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}
    program = "import analyzers.workers.dask as dask; dask.CONNECT_SECONDS = 1; " + COMMAND
    found = subprocess.run(
        [sys.executable, "-c", program, "check-overlap", *TORCH, "--dask", "tcp://127.0.0.1:9"],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 2
    assert "No Dask scheduler answers at tcp://127.0.0.1:9" in found.stderr
    assert "Traceback" not in found.stderr
