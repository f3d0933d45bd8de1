from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.errors import CollectError
from collectors.launchers import launcher_of, rank_in
from collectors.nsys_command import Request, build
from collectors.nsys_find import Nsys, find_nsys, parse_options
from collectors.with_nsys import NsysOptions, plan_run

OPTIONS = {
    "--trace": "Possible values are 'cuda', 'nvtx', 'osrt' or 'none'.",
    "--sample": "Possible values are 'process-tree', 'system-wide' or 'none'.",
    "--cpuctxsw": "Possible values are 'process-tree' or 'none'.",
    "--force-overwrite": "Possible values are 'true' or 'false'.",
    "--cuda-graph-trace": "Possible values for <granularity> are 'graph' or 'node'.",
    "--cuda-event-trace": "Possible values are 'true' or 'false'.",
    "--capture-range": "Possible values are none, cudaProfilerApi, nvtx, hotkey.",
    "--capture-range-end": "Possible values are 'none', 'stop', 'stop-shutdown'.",
}


def nsys(*without: str) -> Nsys:
    return Nsys(
        Path("/opt/x/nsys"), (2024, 6, 1), {name: said for name, said in OPTIONS.items() if name not in without}
    )


def test_all_that_is_known_is_asked_for() -> None:
    words, notes = build(nsys(), Request("/out/all", between_calls=True))
    assert words == [
        "/opt/x/nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-event-trace=true",
        "--force-overwrite=true",
        "--cuda-graph-trace=graph",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--output=/out/all",
    ]
    assert notes == []


def test_what_a_version_lacks_is_left_out_with_a_note() -> None:
    words, notes = build(nsys("--cuda-event-trace", "--cuda-graph-trace"), Request("/out/all"))
    assert not [word for word in words if word.startswith(("--cuda-event-trace", "--cuda-graph-trace"))]
    assert [note.split(":")[0] for note in notes] == [
        "nsys 2024.6.1 lacks --cuda-event-trace",
        "nsys 2024.6.1 lacks --cuda-graph-trace",
    ]


def test_a_value_that_a_version_lacks_is_left_out_with_a_note() -> None:
    old = nsys()
    old.options["--capture-range-end"] = "Possible values are 'none' or 'repeat'."
    words, notes = build(old, Request("/out/all", between_calls=True))
    assert "--capture-range-end=stop" not in words
    assert "lacks --capture-range-end=stop" in notes[0]


def test_without_capture_ranges_single_steps_are_refused() -> None:
    with pytest.raises(CollectError, match="can't capture single steps"):
        build(nsys("--capture-range"), Request("/out/all", between_calls=True))


def test_a_percent_sign_in_a_path_is_no_placeholder_of_nsys() -> None:
    assert build(nsys(), Request("/out/50%p"))[0][-1] == "--output=/out/50%%p"


def test_options_are_read_from_the_help_with_short_and_marked_forms() -> None:
    said = "\t-b, --backtrace=\n\n\t   Select.\n\n\t(Experimental) --ib-switch=<x>\n\n\t   A list.\n\n\t--no-value\n"
    assert list(parse_options(said)) == ["--backtrace", "--ib-switch", "--no-value"]


@pytest.mark.parametrize(
    ("command", "name", "variables"),
    [
        (["torchrun", "train.py"], "torchrun", ("RANK",)),
        (["/usr/bin/srun", "-n", "8", "torchrun", "train.py"], "torchrun", ("RANK",)),
        (["srun", "python", "train.py"], "srun", ("SLURM_PROCID",)),
        (["python", "-m", "torch.distributed.run", "train.py"], "torchrun", ("RANK",)),
        (["python3", "/x/bin/torchrun", "train.py"], "torchrun", ("RANK",)),
        (["timeout", "60", "torchrun", "train.py"], "torchrun", ("RANK",)),
    ],
)
def test_launchers_are_told_by_their_words(command: list[str], name: str, variables: tuple[str, ...]) -> None:
    launcher = launcher_of(command)
    assert launcher is not None
    assert (launcher.name, launcher.variables) == (name, variables)


@pytest.mark.parametrize("command", [["python", "train.py"], ["./a.out", "torchrun"], ["python", "-c", "torchrun"]])
def test_a_plain_program_has_no_launcher(command: list[str]) -> None:
    assert launcher_of(command) is None


def test_mpi_tells_ranks_by_the_variables_of_several_implementations() -> None:
    launcher = launcher_of(["mpirun", "-n", "2", "python", "x.py"])
    assert launcher is not None
    assert rank_in({"PMI_RANK": "1"}, launcher.variables) == 1
    assert rank_in({"OMPI_COMM_WORLD_RANK": "3"}, launcher.variables) == 3
    assert rank_in({"SLURM_PROCID": "2"}, launcher.variables) is None


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
    import json

    options = NsysOptions(Path("/out"), mode)
    plan = plan_run(command, options, ["/opt/nsys", "profile"], Path("/out"), launcher_of(command), None)
    assert (plan.command[0] == "/opt/nsys") == wrapped_outside
    settings = json.loads(plan.environment["TRACEVIZ_HOOK"])
    assert (settings["wrap"] is None) == wrapped_outside
    assert settings["ranks"] == ranks


def test_behind_a_launcher_each_rank_writes_its_own_report() -> None:
    plan = plan_run(["./program"], NsysOptions(Path("/out")), ["/opt/nsys", "profile"], Path("/out"), None, 3)
    assert plan.command == ["/opt/nsys", "profile", "--output=/out/rank3", "./program"]
    assert plan.mode == "own-rank"


def fake_nsys(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\necho 'NVIDIA Nsight Systems version {version}.1-1v0'\n")
    path.chmod(0o755)
    return path


def test_the_chosen_nsys_comes_before_the_path_and_a_relative_entry_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path, chosen = fake_nsys(tmp_path / "a", "2024.1.1"), fake_nsys(tmp_path / "b", "2022.2.2")
    fake_nsys(tmp_path / "here", "2025.9.9")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACEVIZ_NSYS", raising=False)
    monkeypatch.setenv("PATH", os.pathsep.join(["here", str(on_path.parent), "/bin"]))
    assert find_nsys().path == on_path
    assert find_nsys(str(chosen)).version == (2022, 2, 2, 1)
    monkeypatch.setenv("TRACEVIZ_NSYS", str(chosen))
    assert find_nsys().path == chosen
    with pytest.raises(CollectError, match="no nsys runs at"):
        find_nsys(str(tmp_path / "none"))
