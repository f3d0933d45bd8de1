"""Ops and launches that lost their numbers alone: nothing is lost, and that is what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.info import info
from analyzers.load import load
from analyzers.trace.narrow import EVERYTHING
from analyzers.verdict.check import check_overlap

TRACE = Path(__file__).parents[2] / "data" / "public" / "correlation-zero" / "trace.json"
Event = dict[str, Any]


def events() -> list[Event]:
    found: list[Event] = json.loads(TRACE.read_text(encoding="utf-8"))["traceEvents"]
    return found


def write(folder: Path, some: list[Event]) -> Path:
    path = folder / "trace.json"
    whole = json.loads(TRACE.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**whole, "traceEvents": some}), encoding="utf-8")
    return path


def said(path: Path) -> dict[str, str]:
    return {one.code: one.message for one in load([path]).warnings}


def number(event: Event) -> int:
    return int(event.get("args", {}).get("correlation", -1))


def test_links_alone_are_missing() -> None:
    kernels = [one for one in events() if one.get("cat") == "kernel"]
    without = [one for one in kernels if number(one) == 0]
    found = said(TRACE)
    assert f"{len(without)} GPU ops of {len(kernels)} on rank 0" in found["missing-links"]
    assert not {"lost-work", "missing-launch"} & found.keys()


def test_figures_hold_all_work() -> None:
    result = check_overlap(load([TRACE]), narrowing=EVERYTHING, accept_apparent=True)
    sides = [[one for one in events() if one.get("cat") == "kernel" and ("nccl" in one["name"]) == c] for c in (1, 0)]
    busy = [sum(round(one["dur"] * 1000) for one in side) for side in sides]  # no kernel runs beside its like
    assert [side.busy_ns for side in (result.ranks[0].a, result.ranks[0].b)] == busy
    assert [side.ops for side in (result.ranks[0].a, result.ranks[0].b)] == [len(side) for side in sides]


def test_one_kernel_less_is_a_loss(tmp_path: Path) -> None:
    some = events()
    first = next(one for one in some if one.get("cat") == "kernel" and number(one) == 0)
    found = said(write(tmp_path, [one for one in some if one is not first]))
    assert "lost-work" in found
    assert "missing-links" not in found


def test_kernels_before_their_launches_are_others(tmp_path: Path) -> None:
    """The first of them starts before any launch without an op was made: one of those has lost its op."""
    some = events()
    first = next(one for one in some if one.get("cat") == "kernel" and number(one) == 0)
    first["ts"] = min(one["ts"] for one in some) + 1
    found = said(write(tmp_path, some))
    assert "lost-work" in found
    assert "missing-links" not in found


@pytest.mark.parametrize("which", ["gemm and all", "one"])
def test_other_kernels_without_numbers_are_told_alike(tmp_path: Path, which: str) -> None:
    some = events()
    for one in [one for one in some if one.get("cat") == "kernel"][: None if which == "gemm and all" else 1]:
        one["args"]["correlation"] = 0
    without = [one for one in some if one.get("cat") == "kernel" and number(one) == 0]
    path = write(tmp_path, some)
    assert f"{len(without)} GPU ops of 10 on rank 0" in said(path)["missing-links"]
    assert "lost-work" not in said(path)
    assert info(load([path])).ranks[0].kernels == 5
