"""Bringing the captures of all ranks together on the first, without a GPU; on real ones in test_gpu_contracts.py."""

from __future__ import annotations

import json
from pathlib import Path

import traceviz as tv
from collectors import manifest as manifests
from collectors import steps
from collectors.manifest import CaptureEntry, Manifest

DATA = Path(__file__).parents[1] / "data" / "workloads" / "dpmp.overlapped.2gpu.torch"


def own_folder(folder: Path) -> Path:
    """What the first rank's profiler leaves."""
    own = folder / "of-rank0"
    own.mkdir(parents=True)
    (own / "rank0.json.gz").write_bytes((DATA / "rank0.json.gz").read_bytes())
    manifests.write(own, Manifest("torch", "own-rank", ["pytest"], [CaptureEntry("rank0.json.gz", 0)]))
    return own


def test_traces_of_all_ranks_lie_together_and_the_manifest_names_them(tmp_path: Path) -> None:
    own = own_folder(tmp_path)
    steps.bring_together(own, [(DATA / f"rank{rank}.json.gz").read_bytes() for rank in (0, 1)], tmp_path)
    assert tv.load(tmp_path).rank_ids == [0, 1]
    made = json.loads((tmp_path / "manifest.json").read_text())
    assert (made["mode"], [one["rank"] for one in made["captures"]]) == ("per-rank", [0, 1])


def test_a_single_process_keeps_its_own(tmp_path: Path) -> None:
    steps.bring_together(own_folder(tmp_path), [None], tmp_path)
    assert tv.load(tmp_path).rank_ids == [0]
