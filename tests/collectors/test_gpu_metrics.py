"""GPU counters: what is asked of nsys, for which GPU, and whether the driver lets us. With an nsys of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectors import gpu_metrics
from collectors.errors import CollectError
from collectors.gpu_metrics import check_permission, option_of, read_frequency
from collectors.inject import _traceviz_gpu
from collectors.launchers import launcher_of
from collectors.nsys_command import Nsys
from collectors.with_nsys import NsysOptions, plan_run

LISTED = (
    "Possible --gpu-metrics-devices values are:\n\t0: NVIDIA H100 PCI[0000:09:00.0]\n\tall: Select all supported GPUs\n"
)


def fake(folder: Path, says: str, *options: str) -> Nsys:
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{says}\nEOF\n")
    path.chmod(0o755)
    return Nsys(path, (2025, 3, 2), dict.fromkeys(options or ("--gpu-metrics-devices", "--gpu-metrics-frequency"), ""))


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver that lets everybody profile, and a process without capabilities."""
    (tmp_path / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    (tmp_path / "status").write_text("Name:\tx\nCapEff:\t0000000000000000\n")
    monkeypatch.setattr(gpu_metrics, "PARAMETERS", tmp_path / "params")
    monkeypatch.setattr(gpu_metrics, "STATUS", tmp_path / "status")
    return tmp_path


def test_counters_are_sampled_where_everybody_may(tmp_path: Path) -> None:
    check_permission(fake(tmp_path, LISTED))


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
def test_what_nsys_says_is_passed_on_with_what_to_do(says: str, tmp_path: Path) -> None:
    with pytest.raises(CollectError) as error:
        check_permission(fake(tmp_path, says))
    assert says.splitlines()[-1].strip().rstrip(".") in error.value.message
    asks_for_rights = "NVreg_RestrictProfilingToAdminUsers=0" in (error.value.hint or "")
    assert asks_for_rights == ("ERR_NVGPUCTRPERM" in says)


def test_a_driver_that_asks_for_an_administrator(driver: Path) -> None:
    (driver / "params").write_text("RmProfilingAdminOnly: 1\n")
    with pytest.raises(CollectError, match="RmProfilingAdminOnly"):
        check_permission(fake(driver, LISTED))
    (driver / "status").write_text("CapEff:\t000001ffffffffff\n")
    check_permission(fake(driver, LISTED))
    (driver / "status").write_text(f"CapEff:\t{0x1FFFFFFFFFF & ~(1 << 21):016x}\n")  # a container's root
    with pytest.raises(CollectError, match="only administrators"):
        check_permission(fake(driver, LISTED))


def test_the_option_of_older_versions(tmp_path: Path) -> None:
    assert option_of(fake(tmp_path, "")) == "--gpu-metrics-devices"
    assert option_of(fake(tmp_path, "", "--gpu-metrics-device")) == "--gpu-metrics-device"
    with pytest.raises(CollectError, match="can't sample GPU counters"):
        option_of(fake(tmp_path, "", "--sample"))


@pytest.mark.parametrize("text", ["5", "200001", "", "fast", "-20000"])
def test_rates_that_nsys_does_not_take_are_refused(text: str) -> None:
    with pytest.raises(CollectError, match="--gpu-metrics"):
        read_frequency(text)


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
    assert _traceviz_gpu.own_gpu(environment) == gpu


def planned(mode: str, command: list[str], rank: int | None = None) -> tuple[list[str], dict[str, object], list[str]]:
    nsys = Nsys(Path("/opt/x/nsys"), (2025, 3, 2), dict.fromkeys(("--gpu-metrics-devices",), ""))
    options = NsysOptions(Path("/out"), nsys, mode, gpu_metrics=20_000)
    plan = plan_run(command, options, ["/opt/nsys", "profile"], Path("/out"), launcher_of(command), rank)
    return plan.command, json.loads(plan.environment["TRACEVIZ_HOOK"]), plan.notes


def test_one_report_samples_all_and_a_report_a_rank_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    command, _, _ = planned("one-report", ["torchrun", "train.py"])
    assert "--gpu-metrics-devices=all" in command
    command, settings, _ = planned("per-rank", ["torchrun", "train.py"])
    assert not [word for word in command if "gpu-metrics" in word]
    assert settings["gpu_metrics"] == "--gpu-metrics-devices"
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    command, _, _ = planned("one-report", ["./program"], 3)
    assert "--gpu-metrics-devices=3" in command
    monkeypatch.delenv("OMPI_COMM_WORLD_LOCAL_RANK")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    command, _, notes = planned("one-report", ["./program"], 3)
    assert not [word for word in command if "gpu-metrics" in word]
    assert "which GPU is its own" in notes[0]


def test_the_hook_gives_each_rank_its_gpu(tmp_path: Path) -> None:
    """The wrapped words, as the hook in a rank's Python would run them."""
    inject = Path(_traceviz_gpu.__file__).parent
    program = (
        f"import os, sys; sys.path.insert(0, {str(inject)!r}); import _traceviz_hook as hook\n"
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


@pytest.mark.parametrize("words", [["--gpu-metrics"], ["--gpu-metrics=50kHz"]])
def test_the_rate_may_be_left_out(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    from collectors import with_nsys
    from tests.support.command_lines import invoked
    from traceviz.commands import collect

    asked: list[int | None] = []
    monkeypatch.setattr(collect, "find_nsys", lambda _: fake(tmp_path, LISTED))
    monkeypatch.setattr(with_nsys, "collect", lambda _, options: asked.append(options.gpu_metrics))
    monkeypatch.setattr(collect, "end", lambda _: None)
    ran = invoked("collect", "nsys", *words, "--", "program", "--gpu-metrics")
    assert ran.exit_code == 0, ran.output
    assert asked == [20_000 if words == ["--gpu-metrics"] else 50_000]
