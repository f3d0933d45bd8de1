"""A DualPipe profile of one rank answers as it is: DeepEP against compute, dispatch and combine told apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.load import load
from analyzers.syncs.crossings import crossings

CAPTURE = Path(__file__).parents[2] / "data" / "dualpipe" / "dualpipe.rank0.json.gz"
BOOKS = ("cached_notify", "get_dispatch_layout")


def _profile() -> dict[str, Any]:
    return json.loads(gzip.decompress(CAPTURE.read_bytes()))


def _kernels() -> list[dict[str, Any]]:
    return [one for one in _profile()["traceEvents"] if one["cat"] == "kernel"]


def _instants(kernels: list[dict[str, Any]]) -> set[int]:
    """Each microsecond in which one of the kernels runs."""
    return {us for one in kernels for us in range(one["ts"], one["ts"] + one["dur"])}


def _is_books(name: str) -> bool:
    return any(part in name for part in BOOKS)


@pytest.mark.parametrize(
    ("selector", "part"), [("comm", ""), ("collective:dispatch", "dispatch<"), ("collective:combine", "combine<")]
)
def test_apparent_overlap_is_counted_microsecond_by_microsecond(selector: str, part: str) -> None:
    kernels = _kernels()
    ours = [one for one in kernels if "dpsk::ep::" in one["name"] and not _is_books(one["name"])]
    side = [one for one in ours if part in one["name"] or (part == "dispatch<" and "notify_" in one["name"])]
    compute = [one for one in kernels if "dpsk::ep::" not in one["name"]]
    a, b = _instants(side), _instants(compute)
    result = tv.check_overlap(CAPTURE, selector, "compute")
    [rank] = result.ranks
    assert (rank.a.ops, rank.b.ops) == (len(side), len(compute))
    assert (rank.a.busy_ns, rank.b.busy_ns) == (1000 * len(a), 1000 * len(b))
    assert rank.overlap_ns == 1000 * len(a & b)
    assert rank.is_apparent
    assert result.verdict == "inconclusive"
    assert "apparent" in result.sentence
    if selector == "comm":
        assert rank.overlap_ratio == pytest.approx(0.96, abs=0.01)
        assert tv.check_overlap(CAPTURE, accept_apparent=True).verdict == "overlapped"


def test_where_launches_alone_are_on_record_no_race_and_no_full_gpu_is_claimed() -> None:
    """Published profiles are cut down to kernels and launches: that no wait is there says nothing of the program's."""
    result = tv.check_overlap(CAPTURE)
    assert "waits-not-recorded" in {one.code for one in result.warnings}
    assert "missing-wait" not in {one.code for one in result.warnings}
    assert not crossings(load([CAPTURE])).missing
    missed = result.ranks[0].missed
    assert "gpu-full" not in {one.cause for one in missed} | {one.next_cause for one in missed}
