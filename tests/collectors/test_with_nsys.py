"""A real nsys without a GPU: NVTX and the OS runtime of plain programs and of gloo ranks."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from collectors.nsys_command import Nsys
from tests.collectors.collecting import TRAIN, environment, manifest, running, torchrun, under_nsys

pytestmark = pytest.mark.nsys
TRACE = ("--trace", "nvtx,osrt")
SLEEPY = "import sys, time\nprint('ready', flush=True)\nfor _ in range(600): time.sleep(0.1)\n"


def readable(report: Path, nsys: Nsys, tmp_path: Path) -> bool:
    """Whether nsys itself can export a report."""
    made = tmp_path / f"{report.stem}.sqlite"
    command = [str(nsys.path), "export", "--type=sqlite", "--force-overwrite=true", f"--output={made}", str(report)]
    subprocess.run(command, capture_output=True, check=True)
    with closing(sqlite3.connect(made)) as database:
        return database.execute("SELECT count(*) FROM META_DATA_EXPORT").fetchone()[0] > 0


def test_a_plain_program_is_captured_and_ends_with_its_own_code(folder: Path, nsys: Nsys, tmp_path: Path) -> None:
    words = (
        *TRACE,
        "-o",
        "out",
        "--",
        sys.executable,
        "-c",
        "import sys; print(sys.argv); sys.exit(5)",
    )
    ran = under_nsys(*words, "a b", "--x", "'q'", cwd=folder)
    assert ran.returncode == 5, ran.stderr
    assert "['-c', 'a b', '--x', \"'q'\"]" in ran.stdout
    made = manifest(folder / "out")
    assert [(one["path"], one["rank"]) for one in made["captures"]] == [("all-ranks.nsys-rep", None)]
    assert (made["tool"], made["mode"], made["exit_code"]) == ("nsys", "one-report", 5)
    assert made["versions"]["nsys"] == nsys.release
    assert readable(folder / "out" / "all-ranks.nsys-rep", nsys, tmp_path)


def test_names_that_begin_with_a_dash_are_names(folder: Path, nsys: Nsys, tmp_path: Path) -> None:
    """And a program that forks ends as it would have."""
    (folder / "-x y.py").write_text(
        "import os, sys\nchild = os.fork()\nif child: os.waitpid(child, 0)\nprint(sys.argv, flush=True)\n"
    )
    words = (*TRACE, "-o", "-out", "--", sys.executable, "--", "-x y.py", "-o", "--")
    ran = under_nsys(*words, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("['-x y.py', '-o', '--']") == 2
    assert readable(folder / "-out" / "all-ranks.nsys-rep", nsys, tmp_path)


def started(folder: Path, script: str) -> subprocess.Popen[str]:
    """A collected script that has said that it is ready."""
    (folder / "sleepy.py").write_text(script)
    words = ["collect", "nsys", *TRACE, "-o", "out", "--", sys.executable, str(folder / "sleepy.py")]
    process = subprocess.Popen(
        ["env", "--default-signal=HUP", sys.executable, "-m", "traceviz", *words],  # what runs under nohup ignores it
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    while "ready" not in process.stdout.readline():
        pass
    return process


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_interrupted_the_report_is_kept_and_nothing_runs_on(
    folder: Path, nsys: Nsys, tmp_path: Path, number: signal.Signals
) -> None:
    process = started(folder, SLEEPY)
    os.killpg(process.pid, number)  # as a batch system does: everybody in the group at once
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0
    assert f"stopped by {number.name}" in errors
    assert readable(folder / "out" / "all-ranks.nsys-rep", nsys, tmp_path)
    assert running(str(folder)) == []


def test_signals_that_nsys_itself_would_die_of_reach_the_program(folder: Path, nsys: Nsys, tmp_path: Path) -> None:
    """Batch systems warn by SIGUSR1 before they end a job; a terminal that closes sends SIGHUP."""
    heard = "import signal\nsignal.signal(signal.SIGUSR1, lambda number, frame: print('heard', number, flush=True))\n"
    process = started(folder, heard + SLEEPY)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout is not None
    assert process.stdout.readline() == f"heard {signal.SIGUSR1.value}\n"
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGHUP
    assert "stopped by SIGHUP" in errors
    assert readable(folder / "out" / "all-ranks.nsys-rep", nsys, tmp_path)
    assert running(str(folder)) == []


def test_modes_exclude_each_other(folder: Path) -> None:
    ran = under_nsys("--rank0", "--per-rank", "--", "true", cwd=folder)
    assert (ran.returncode, "exclude each other" in ran.stderr) == (2, True)


def test_ranks_of_any_python_program_are_told_by_their_variables(folder: Path, nsys: Nsys) -> None:
    """A launcher that is a shell script, as mpirun starts ranks: by a variable of their own, without torch."""
    starts = 'for r in 0 2; do OMPI_COMM_WORLD_RANK=$r "$@" & all="$all $!"; done'
    ends = "code=0; for one in $all; do wait $one || code=$?; done; exit $code"  # as mpirun tells of a rank that fails
    (folder / "mpirun").write_text(f"#!/bin/sh\n{starts}\n{ends}\n")
    (folder / "mpirun").chmod(0o755)
    words = (
        "--per-rank",
        *TRACE,
        "-o",
        "out",
        "--",
        "./mpirun",
        sys.executable,
        "-c",
        "print('hello')",
    )
    ran = under_nsys(*words, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("hello") == 2, ran.stdout + ran.stderr
    found = [(one["path"], one["rank"]) for one in manifest(folder / "out")["captures"]]
    assert found == [("rank0.nsys-rep", 0), ("rank2.nsys-rep", 2)]


def test_behind_a_launcher_programs_in_any_language_are_captured(folder: Path, nsys: Nsys) -> None:
    for rank in ("0", "1"):
        ran = under_nsys(*TRACE, "-o", "out", "--", "echo", "hi", cwd=folder, PMI_RANK=rank)
        assert ran.returncode == 0, ran.stderr
    assert [one["rank"] for one in manifest(folder / "out")["captures"]] == [0, 1]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("mode", "captures"),
    [
        ("--one-report", [("all-ranks.nsys-rep", None)]),
        ("--per-rank", [("rank0.nsys-rep", 0), ("rank1.nsys-rep", 1)]),
        ("--rank0", [("rank0.nsys-rep", 0)]),
    ],
)
def test_the_three_modes_on_real_ranks(
    folder: Path, nsys: Nsys, mode: str, captures: list[tuple[str, int | None]]
) -> None:
    pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")
    (folder / "train.py").write_text(TRAIN)
    ran = under_nsys(mode, *TRACE, "-o", "out", "--", *torchrun(folder / "train.py", "a b"), cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("ARGUMENTS ['a b']") == 2
    made = manifest(folder / "out")
    assert [(one["path"], one["rank"]) for one in made["captures"]] == captures
    assert (made["world_size"], [one["rank"] for one in made["ranks"]]) == (2, [0, 1])


@pytest.mark.torch
@pytest.mark.parametrize(("mode", "ranks"), [("--one-report", [None]), ("--per-rank", [0, 1])])
def test_when_a_rank_is_killed_every_rank_leaves_a_readable_report_and_no_process(
    folder: Path, nsys: Nsys, tmp_path: Path, mode: str, ranks: list[int | None]
) -> None:
    pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")
    (folder / "train.py").write_text(TRAIN)
    command = torchrun(folder / "train.py")
    more = {"DIES_AFTER": "6", "STEPS": "400", "PAUSE": "0.1"}
    ran = under_nsys(mode, *TRACE, "-o", "out", "--", *command, cwd=folder, **more)
    assert ran.returncode == 1
    captures = manifest(folder / "out")["captures"]
    assert [one["rank"] for one in captures] == ranks
    assert all(readable(folder / "out" / one["path"], nsys, tmp_path) for one in captures)
    assert running(str(folder)) == []
    assert not [line for line in running("nsys") if str(folder) in line]
