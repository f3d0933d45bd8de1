"""Sync points of one call, place and reason are one group, with sums."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

import traceviz as tv
from analyzers.syncs.groups import sync_groups
from analyzers.syncs.points import host_syncs
from analyzers.trace.kernels import function
from tests.analyzers.syncs.test_points import item
from tests.support.builder import Builder
from traceviz.output.document import Table
from traceviz.output.views import syncs as view

TORCH = Path(__file__).parents[2] / "data" / "torch"


def test_the_same_sync_of_every_step_and_rank_is_one_group() -> None:
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        for step in (0, 1, 2):
            at = 1_000 * step
            rank.range(f"step {step}", at, at + 900)
            rank.kernel("lookup", 7, at + 10, at + 170, launch=(at, at + 5))
            item(rank, at + 100)
            rank.kernel("next", 7, at + 650, at + 700, launch=(at + 620, at + 625))
    (one,) = sync_groups(host_syncs(run.trace()))
    assert (one.count, one.ranks, one.range, one.api) == (6, (0, 1), "step *", "cudaStreamSynchronize")
    assert (one.duration_ns, one.longest_ns) == (6 * 88, 88)
    assert one.origin == "aten::item → aten::_local_scalar_dense"


def test_another_place_is_another_group() -> None:
    run = Builder()
    rank = run.rank(0)
    for at, name in ((0, "forward"), (1_000, "backward")):
        rank.range(name, at, at + 900)
        rank.kernel("lookup", 7, at + 10, at + 170, launch=(at, at + 5))
        item(rank, at + 100)
    assert sorted((one.range, one.count) for one in sync_groups(host_syncs(run.trace()))) == [
        ("backward", 1),
        ("forward", 1),
    ]


@pytest.mark.parametrize("name", ["delta_sync", "dpmp_hidden_sync", "item_before"])
def test_groups_add_up_to_the_listing(name: str) -> None:
    report = tv.sync_points(sorted(TORCH.glob(f"{name}.rank*.json.gz")))
    points = list(report.syncs)
    groups = sync_groups(report.syncs)
    for field in ("duration_ns", "gpu_idle_ns", "after_ns"):
        assert sum(getattr(one, field) for one in groups) == sum(getattr(one, field) for one in points)
    counted: dict[tuple[object, ...], int] = defaultdict(int)
    for one in points:
        place = one.range.rsplit("#", 1)[0] if one.range.startswith("ProfilerStep#") else one.range
        waited = function(one.waited_name) or (one.waited_stream if one.waited_stream >= 0 else "")
        counted[one.api, one.kind, place, one.chain or one.pattern, one.frame, one.copy, waited, one.hidden] += 1
    assert sorted(one.count for one in groups) == sorted(counted.values())
    short = [one for one in view.blocks(report) if isinstance(one, Table)]
    long = [one for one in view.blocks(report, verbose=True) if isinstance(one, Table)]
    assert len(short[0].rows) == len(groups)
    assert len(long[1].rows) == len(points)
