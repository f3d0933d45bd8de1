"""No collectives on record are none only where nothing was lost."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_lines import invoked, run_json
from tests.support.kineto_files import ten_steps

WHY = "launches have no GPU work on record: 2 of 50 of rank 0"


def test_what_lost_work_may_have_had_collectives(tmp_path: Path) -> None:
    whole, holed = ten_steps(tmp_path / "whole.json"), ten_steps(tmp_path / "holed.json", (12, 13))
    result = invoked("collectives", str(whole))
    assert (result.exit_code, result.stdout.startswith("NO COLLECTIVES")) == (0, True)
    result = invoked("collectives", str(holed))
    assert result.exit_code == 3
    first = " ".join(result.stdout.split("\n\n")[0].split())
    assert first == f"INCONCLUSIVE whether there were collectives can't be told: {WHY}."
    assert run_json("collectives", str(whole))["reason"] == ""
    brief = json.loads(invoked("collectives", "--brief", str(holed), "--format", "json").stdout)
    assert brief["reason"] == f"whether there were collectives can't be told: {WHY}"
    assert brief["lines"] == [f"INCONCLUSIVE: {brief['reason']}."]


def test_one_launch_without_work_may_have_been_the_only_collective(tmp_path: Path) -> None:
    """1 of 51 launches is 1.96 %: little of those on record, and too much to say that there are none."""
    path = ten_steps(tmp_path / "t.json", (7,))
    content = json.loads(path.read_text())
    more = [dict(one, args={**one["args"], "correlation": 51}) for one in content["traceEvents"][-2:]]
    content["traceEvents"] += [{**one, "ts": one["ts"] + 1} for one in more]
    path.write_text(json.dumps(content))
    result = invoked("collectives", str(path))
    assert (result.exit_code, "of 51 of rank 0." in " ".join(result.stdout.split())) == (3, True)
    path.write_text(path.read_text().replace("gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"))
    assert invoked("collectives", str(path)).exit_code == 0


def test_those_on_record_are_shown_with_a_caveat(tmp_path: Path) -> None:
    path = ten_steps(tmp_path / "t.json", (12, 13))
    path.write_text(path.read_text().replace("gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"))
    result = invoked("collectives", str(path))
    assert result.exit_code == 0
    assert "2 of 50 of rank 0. Their work is in no figure" in " ".join(result.stdout.split())
    assert len(run_json("collectives", str(path))["collectives"]) == 48  # of 50
