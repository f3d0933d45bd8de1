"""Launches on record, and no row of what they launched: said so, and `syncs` answers from the calls."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import traceviz as tv
from tests.support.command_lines import invoked
from tests.support.nsys_exports import edited

DATA = Path(__file__).parents[1] / "data"
PUBLIC = DATA / "public" / "launches-without-kernels-nsys" / "report.sqlite.gz"
EXPORT = DATA / "nsys" / "rowpar_s1.rank0.nsys2025.sqlite"
OF_GPU = ("KERNEL", "MEMCPY", "MEMSET")


def calls(path: Path, name: str) -> list[tuple[int, int]]:
    sql = (
        "SELECT start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId "
        f"WHERE value LIKE '{name}%' ORDER BY start"
    )
    with closing(sqlite3.connect(path)) as database:
        return database.execute(sql).fetchall()


def without_work(folder: Path) -> Path:
    return edited(EXPORT, folder / "r.sqlite", *(f"DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_{one}" for one in OF_GPU))


@pytest.mark.parametrize("command", ["info", "check-overlap", "streams", "collectives"])
def test_what_is_there_is_said_with_wsl2_by_its_name(tmp_path: Path, command: str) -> None:
    path = edited(PUBLIC, tmp_path / "report.sqlite")
    with pytest.raises(tv.TracevizError) as error:
        invoked(command, str(path))
    said = str(error.value)
    assert f"{len(calls(path, 'cudaLaunchKernel'))} launches of kernels and copies, and no row" in said
    assert "WSL2 (5.15.146.1-microsoft-standard-WSL2)" in said
    assert "traceviz syncs answers" in said


@pytest.mark.parametrize("more", [[], ["--memory", "2GiB"]])
def test_syncs_are_answered_from_the_calls(tmp_path: Path, more: list[str]) -> None:
    path = edited(PUBLIC, tmp_path / "report.sqlite")
    result = invoked("syncs", str(path), "--format", "json", *more)
    found = json.loads(result.stdout)
    ((start, stop),) = calls(path, "cudaDeviceSynchronize")
    assert result.exit_code == 0
    assert [(one["rank"], one["kind"], one["duration_ns"]) for one in found["syncs"]] == [(0, "device", stop - start)]
    assert [(one["gpu_idle_ns"], one["after_ns"]) for one in found["syncs"] + found["groups"]] == [(None, None)] * 2
    assert [one["code"] for one in found["warnings"]] == ["no-gpu-rows"]


def test_syncs_say_that_idle_time_is_not_known(tmp_path: Path) -> None:
    said = " ".join(invoked("syncs", str(edited(PUBLIC, tmp_path / "report.sqlite"))).stdout.split())
    assert "how long GPUs were idle can't be told: no GPU work was recorded" in said


def test_of_a_real_capture_the_explicit_syncs_stay(tmp_path: Path) -> None:
    path = without_work(tmp_path)
    found, whole = tv.sync_points(path).to_frame(), tv.sync_points(EXPORT).to_frame()
    kinds = ["stream", "device", "event"]
    explicit, before = (set(frame[frame["kind"].isin(kinds)]["start_ns"]) for frame in (found, whole))
    assert explicit >= before
    assert before


def test_elsewhere_no_windows_is_named(tmp_path: Path) -> None:
    with pytest.raises(tv.TracevizError, match="launches of kernels and copies, and no row") as error:
        tv.info(without_work(tmp_path))
    assert "WSL" not in str(error.value)
