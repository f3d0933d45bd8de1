"""What is run for each of nsys' modes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.launchers import launcher_of
from collectors.nsys_command import Nsys
from collectors.with_nsys import SUPERVISE, NsysOptions, plan_run

NSYS = Nsys(Path("/opt/x/nsys"), (2024, 6, 1), {})


@pytest.mark.parametrize(
    ("mode", "command", "wrapped_outside", "ranks"),
    [
        ("one-report", ["torchrun", "train.py"], True, None),
        ("per-rank", ["torchrun", "train.py"], False, None),
        ("rank0", ["mpirun", "-n", "2", "python", "train.py"], False, [0]),
        ("per-rank", ["python", "train.py"], True, None),
    ],
)
def test_nsys_runs_around_the_command_or_around_its_ranks(
    mode: str, command: list[str], wrapped_outside: bool, ranks: list[int] | None
) -> None:
    options = NsysOptions(Path("/out"), NSYS, mode)
    plan = plan_run(command, options, ["/opt/nsys", "profile"], Path("/out"), launcher_of(command), None)
    assert ("/opt/nsys" in plan.command) == wrapped_outside
    settings = json.loads(plan.environment["TRACEVIZ_HOOK"])
    assert (settings["wrap"] is None) == wrapped_outside
    assert settings["ranks"] == ranks


@pytest.mark.parametrize(("folder", "output"), [("/out", "/out/rank3"), ("/50%p", "/50%%p/rank3")])
def test_behind_a_launcher_each_rank_writes_its_own_report(folder: str, output: str) -> None:
    """A percent sign in a path is no placeholder of nsys."""
    plan = plan_run(["./program"], NsysOptions(Path(folder), NSYS), ["/opt/nsys", "profile"], Path(folder), None, 3)
    assert plan.command == [*SUPERVISE, "/opt/nsys", "profile", f"--output={output}", "--", "./program"]
    assert plan.mode == "own-rank"
