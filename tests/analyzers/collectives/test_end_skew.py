"""One collective that a rank leaves late stays one, with its end skew, and is said to be unlike the others."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import traceviz as tv
from analyzers.load import load
from tests.support.command_lines import invoked

PUBLIC = Path(__file__).parents[2] / "data" / "public" / "end-skew-dropped"
FILES = [PUBLIC / f"rank{rank}.json.gz" for rank in (0, 1)]
Event = dict[str, Any]


def communication(content: dict[str, Any]) -> list[Event]:
    """The kernels of all-reduces, in order of time."""
    found = [e for e in content["traceEvents"] if e.get("cat") == "kernel" and "nccl" in e["name"]]
    return sorted(found, key=lambda e: float(e["ts"]))


def ends(paths: list[Path]) -> list[list[int]]:
    """When each all-reduce ends, ns, of each capture."""
    found = []
    for path in paths:
        content = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        found.append([round(1000 * (e["ts"] + e["dur"])) for e in communication(content)])
    return found


def changed(folder: Path, change: Callable[[int, list[Event]], None]) -> list[Path]:
    paths = []
    for rank, file in enumerate(FILES):
        content = json.loads(gzip.decompress(file.read_bytes()))
        kernels = communication(content)
        for one in kernels:  # as long on both ranks
            one["dur"] = 300
        change(rank, kernels)
        paths.append(folder / f"rank{rank}.json")
        paths[-1].write_text(json.dumps(content))
    return paths


def said(paths: list[Path]) -> list[str]:
    return [one.message for one in tv.collectives(load(paths)).warnings if one.code == "ends-apart"]


def test_a_late_end_is_shown_and_said() -> None:
    skew = [abs(one - other) for one, other in zip(*ends(FILES), strict=True)]
    assert skew == [0] * 10 + [300_000] + [0] * 9
    found = tv.collectives(load(FILES))
    assert found.table.end_skew_ns.tolist() == skew
    assert found.table.sure.all() and not found.table.matched_by.is_one_of(["alone"]).any()
    (text,) = said(FILES)
    assert "rank 1 ends all_reduce 10 300 µs after the first" in text and "a clock" in text
    assert "rank 1 ends all_reduce 10" in " ".join(invoked("collectives", *map(str, FILES)).output.split())


@pytest.mark.parametrize("late_rank", [0, 1])
def test_whichever_rank_and_collective_it_is(tmp_path: Path, late_rank: int) -> None:
    def late(rank: int, kernels: list[Event]) -> None:
        if rank == late_rank:
            kernels[4]["dur"] += 250

    paths = changed(tmp_path, late)
    assert tv.collectives(load(paths)).table.end_skew_ns.max() == 250_000
    (text,) = said(paths)
    assert f"rank {late_rank} ends all_reduce 4 250 µs after the first" in text


def test_ends_that_always_scatter_are_nothing_unusual(tmp_path: Path) -> None:
    random = Random(7)

    def scattered(rank: int, kernels: list[Event]) -> None:
        for one in kernels:
            one["dur"] += random.randrange(0, 400) if rank else 0

    paths = changed(tmp_path, scattered)
    skews = [abs(one - other) for one, other in zip(*ends(paths), strict=True)]
    assert max(skews) > 250_000  # as far apart as what stands out elsewhere
    assert said(paths) == []
