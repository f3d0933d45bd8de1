"""What is asked of nsys: options, GPU counters, and what it runs around. With an nsys of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys import export
from collectors import nsys_command
from collectors.errors import CollectError
from collectors.inject import _traceviz_hook as hook
from collectors.launchers import launcher_of
from collectors.manifest import Manifest
from collectors.nsys_command import (
    Nsys,
    build,
    check_counters_allowed,
    counter_option,
    frequency_words,
    options_of,
    parse_options,
    read_frequency,
)
from collectors.session import Begun
from collectors.with_nsys import SUPERVISE, NsysOptions, Plan, plan_run
from tests.support.command_lines import invoked
from traceviz.commands.collect import find_nsys

OPTIONS = {
    "--session-new": "",
    "--env-var": "",
    "--trace": "Possible values are 'cuda', 'nvtx', 'osrt' or 'none'.",
    "--sample": "Possible values are 'process-tree', 'system-wide' or 'none'.",
    "--cpuctxsw": "Possible values are 'process-tree' or 'none'.",
    "--force-overwrite": "Possible values are 'true' or 'false'.",
    "--cuda-graph-trace": "Possible values for <granularity> are 'graph' or 'node'.",
    "--cuda-memory-usage": "Possible values are 'true' or 'false'.",
    "--cuda-event-trace": "Possible values are 'true' or 'false'.",
    "--capture-range": "Possible values are none, cudaProfilerApi, nvtx, hotkey.",
    "--capture-range-end": "Possible values are 'none', 'stop', 'stop-shutdown'.",
    "--gpu-metrics-devices": "",
}


def nsys(*without: str, **told: str) -> Nsys:
    options = {name: told.get(name, text) for name, text in OPTIONS.items() if name not in without}
    return Nsys(Path("/opt/x/nsys"), (2024, 6, 1), options)


def test_all_that_is_known_is_asked_for() -> None:
    words, notes = build(nsys(), between_calls=True, memory=True)
    assert words == [
        "/opt/x/nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-event-trace=true",
        "--force-overwrite=true",
        "--cuda-graph-trace=graph",
        "--cuda-memory-usage=true",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
    ]
    assert notes == []


@pytest.mark.parametrize(
    ("version", "lacking"),
    [
        (nsys("--cuda-event-trace"), "--cuda-event-trace"),
        (nsys("--cuda-graph-trace"), "--cuda-graph-trace"),
        (nsys("--cuda-memory-usage"), "--cuda-memory-usage"),
        (nsys(**{"--capture-range-end": "Possible values are 'none' or 'repeat'."}), "--capture-range-end=stop"),
    ],
)
def test_what_a_version_lacks_is_left_out_with_a_note(version: Nsys, lacking: str) -> None:
    words, (note,) = build(version, between_calls=True, memory=True)
    assert not [word for word in words if word.startswith(f"{lacking.partition('=')[0]}=")]
    assert note.startswith(f"nsys 2024.6.1 lacks {lacking}: ")


@pytest.mark.parametrize(
    ("version", "asked", "why"),
    [
        (nsys(), {"trace": ("nvtx",), "memory": True}, "with CUDA only"),
        (nsys(), {"trace": ("cuda", "nvxt")}, "can't trace 'cuda,nvxt'"),
        (nsys("--capture-range"), {"between_calls": True}, "can't capture single steps"),
        (nsys("--session-new"), {}, "lacks --session-new, which collecting needs"),
    ],
)
def test_without_what_a_capture_needs_it_is_refused(version: Nsys, asked: dict[str, object], why: str) -> None:
    with pytest.raises(CollectError, match=why):
        build(version, **asked)  # type: ignore[arg-type]


def test_options_are_read_from_the_help_with_short_and_marked_forms(tmp_path: Path) -> None:
    text = "\t-b, --backtrace=\n\n\t   Select.\n\n\t(Experimental) --ib-switch=<x>\n\n\t   A list.\n\n\t--no-value\n"
    assert list(parse_options(text)) == ["--backtrace", "--ib-switch", "--no-value"]
    assert list(options_of(said(tmp_path, text).path)) == ["--backtrace", "--ib-switch", "--no-value"]
    (tmp_path / "nsys").write_text("#!/bin/sh\necho '\t--no-value'\nexit 1\n")
    assert options_of(tmp_path / "none") == options_of(tmp_path / "nsys") == {}


def said(folder: Path, text: str, *options: str) -> Nsys:
    """An nsys that says this, whatever it is asked."""
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\n")
    path.chmod(0o755)
    return Nsys(path, (2025, 3, 2), dict.fromkeys(options or ("--gpu-metrics-devices", "--gpu-metrics-frequency"), ""))


def test_without_an_nsys_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nsys is looked for is proven with the analyzers, which export with what is found."""
    monkeypatch.setattr(export, "FOLDERS", ())
    monkeypatch.setenv("PATH", f"{tmp_path / 'empty'}")
    monkeypatch.delenv("TRACEVIZ_NSYS", raising=False)
    with pytest.raises(CollectError, match=r"nsys is not here\. Install .* or collect torch\."):
        find_nsys()
    with pytest.raises(TracevizError, match="no nsys runs at"):
        find_nsys(str(tmp_path / "none"))
    monkeypatch.undo()
    there = said(tmp_path, "NVIDIA Nsight Systems version 2022.2.2.1-1v0").path
    assert (find_nsys(str(there)).path, find_nsys(str(there)).release) == (there, "2022.2.2")


LISTED = (
    "Possible --gpu-metrics-devices values are:\n\t0: NVIDIA H100 PCI[0000:09:00.0]\n\tall: Select all supported GPUs\n"
)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver that lets everybody profile, and a process without capabilities."""
    (tmp_path / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    (tmp_path / "status").write_text("Name:\tx\nCapEff:\t0000000000000000\n")
    monkeypatch.setattr(nsys_command, "PARAMETERS", tmp_path / "params")
    monkeypatch.setattr(nsys_command, "PROC_STATUS", tmp_path / "status")
    return tmp_path


@pytest.mark.parametrize(
    "says",
    [
        "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM.",
        "The user running nsys does not have permission to access NVIDIA GPU Performance Counters on the target "
        "device. For more details, please visit https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        "Possible --gpu-metrics-device values are:\n\tNVIDIA GPUs not found, feature is not available",
        "None of the installed GPUs are supported.",
    ],
)
def test_what_nsys_says_of_counters_is_passed_on_with_what_to_do(says: str, driver: Path) -> None:
    with pytest.raises(CollectError) as error:
        check_counters_allowed(said(driver, says))
    assert says.splitlines()[-1].strip().rstrip(".") in error.value.message
    asks_for_rights = "NVreg_RestrictProfilingToAdminUsers=0" in (error.value.hint or "")
    assert asks_for_rights == ("ERR_NVGPUCTRPERM" in says)


def test_counters_are_sampled_where_everybody_may_or_an_administrator_asks(driver: Path) -> None:
    check_counters_allowed(said(driver, LISTED))
    (driver / "params").write_text("RmProfilingAdminOnly: 1\n")
    with pytest.raises(CollectError, match="RmProfilingAdminOnly"):
        check_counters_allowed(said(driver, LISTED))
    (driver / "status").write_text("CapEff:\t000001ffffffffff\n")
    check_counters_allowed(said(driver, LISTED))
    (driver / "status").write_text(f"CapEff:\t{0x1FFFFFFFFFF & ~(1 << 21):016x}\n")  # a container's root
    with pytest.raises(CollectError, match="only administrators"):
        check_counters_allowed(said(driver, LISTED))


def test_the_options_of_counters_in_older_versions(tmp_path: Path) -> None:
    assert counter_option(said(tmp_path, "")) == "--gpu-metrics-devices"
    assert frequency_words(said(tmp_path, ""), 50_000) == ["--gpu-metrics-frequency=50000"]
    assert frequency_words(said(tmp_path, "", "--gpu-metrics-devices"), 50_000) == []
    assert counter_option(said(tmp_path, "", "--gpu-metrics-device")) == "--gpu-metrics-device"
    with pytest.raises(CollectError, match="can't sample GPU counters"):
        counter_option(said(tmp_path, "", "--sample"))


@pytest.mark.parametrize("text", ["5", "200001", "", "fast", "-20000"])
def test_rates_that_nsys_does_not_take_are_refused(text: str) -> None:
    with pytest.raises(CollectError, match="--gpu-metrics"):
        read_frequency(text)


@pytest.mark.parametrize(("words", "hz"), [("--gpu-metrics", 20_000), ("--gpu-metrics=50kHz", 50_000)])
def test_the_rate_may_be_left_out(words: str, hz: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collectors import with_nsys
    from traceviz.commands import collect

    asked: list[int | None] = []
    monkeypatch.setattr(collect, "find_nsys", lambda _: said(tmp_path, LISTED))
    monkeypatch.setattr(with_nsys, "collect", lambda _, options: asked.append(options.gpu_metrics))
    monkeypatch.setattr(collect, "end", lambda _: None)
    ran = invoked("collect", "nsys", words, "--", "program", "--gpu-metrics")
    assert ran.exit_code == 0, ran.output
    assert asked == [hz]


@pytest.mark.parametrize(
    ("environment", "gpu"),
    [
        ({"LOCAL_RANK": "2"}, "2"),
        ({"RANK": "2"}, None),
        ({"SLURM_LOCALID": "3"}, "3"),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}, "6"),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "5"}, "5"),  # pinned: its device 0
        ({"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}, None),
        ({"LOCAL_RANK": "4", "CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({}, None),
    ],
)
def test_a_ranks_own_gpu(environment: dict[str, str], gpu: str | None) -> None:
    assert hook.own_gpu(environment) == gpu


def test_the_hook_gives_each_rank_its_gpu(tmp_path: Path) -> None:
    """The wrapped words, as the hook in a rank's Python would run them."""
    program = (
        f"import os, sys; sys.path.insert(0, {hook.HERE!r}); import _traceviz_hook as hook\n"
        "os.execv = lambda path, words: print(*words, sep='\\n')\n"
        "settings = {'tool': 'nsys', 'folder': '/out', 'wrap': ['nsys'], 'gpu_metrics': '--gpu-metrics-devices'}\n"
        "hook.wrap(settings, 1)"
    )
    environment = {**os.environ, "LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--gpu-metrics-devices=6" in ran.stdout.splitlines()
    assert "--output=/out/rank1" in ran.stdout.splitlines()


def planned(mode: str, *command: str, rank: int | None = None, folder: str = "/out", hz: int | None = None) -> Plan:
    options = NsysOptions(Path(folder), nsys=nsys(), mode=mode, gpu_metrics=hz)
    launcher = launcher_of(command) if rank is None else None
    begun = Begun(Path(folder), Manifest("nsys", mode, []), launcher, rank)
    return plan_run(command, options, ["/opt/nsys", "profile"], begun)


@pytest.mark.parametrize(
    ("mode", "command", "wrapped_outside", "ranks"),
    [
        ("one-report", "torchrun train.py", True, None),
        ("per-rank", "torchrun train.py", False, None),
        ("rank0", "mpirun -n 2 python train.py", False, [0]),
        ("per-rank", "python train.py", True, None),
    ],
)
def test_nsys_runs_around_the_command_or_around_its_ranks(
    mode: str, command: str, wrapped_outside: bool, ranks: list[int] | None
) -> None:
    plan = planned(mode, *command.split())
    assert ("/opt/nsys" in plan.command) == wrapped_outside
    settings = json.loads(plan.environment["TRACEVIZ_HOOK"])
    assert (settings["wrap"] is None) == wrapped_outside
    assert (settings["ranks"], settings["shared"]) == (ranks, mode == "one-report")


@pytest.mark.parametrize(("folder", "output"), [("/out", "/out/rank3"), ("/50%p", "/50%%p/rank3")])
def test_behind_a_launcher_each_rank_writes_its_own_report(folder: str, output: str) -> None:
    """A percent sign in a path is no placeholder of nsys."""
    plan = planned("one-report", "./program", rank=3, folder=folder)
    assert plan.command == [*SUPERVISE, "/opt/nsys", "profile", f"--output={output}", "--", "./program"]
    assert plan.mode == "own-rank"


def test_behind_a_launcher_only_rank_0_is_captured_where_that_is_asked() -> None:
    assert planned("rank0", "./program", rank=3).command == ["./program"]
    assert SUPERVISE[0] in planned("rank0", "./program", rank=0).command


def test_one_report_samples_all_gpus_and_a_report_a_rank_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--gpu-metrics-devices=all" in planned("one-report", "torchrun", "train.py", hz=20_000).command
    apart = planned("per-rank", "torchrun", "train.py", hz=20_000)
    assert not [word for word in apart.command if "gpu-metrics" in word]
    assert json.loads(apart.environment["TRACEVIZ_HOOK"])["gpu_metrics"] == "--gpu-metrics-devices"
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    assert "--gpu-metrics-devices=3" in planned("one-report", "./program", rank=3, hz=20_000).command
    monkeypatch.delenv("OMPI_COMM_WORLD_LOCAL_RANK")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    unknown = planned("one-report", "./program", rank=3, hz=20_000)
    assert not [word for word in unknown.command if "gpu-metrics" in word]
    assert "which GPU is its own" in unknown.notes[0]
