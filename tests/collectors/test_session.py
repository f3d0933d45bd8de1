"""What collectors share: the manifest and what is kept out of it, the folder, and what starts a command's ranks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from analyzers.readers.inputs import find_inputs
from collectors import manifest as manifests
from collectors import session
from collectors.errors import CollectError
from collectors.launchers import launcher_of, rank_in
from collectors.manifest import CaptureEntry, Manifest, safe_command, safe_environment
from collectors.session import Steps

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "abc",
    "HF_TOKEN": "hf_12345678",
    "WANDB_API_KEY": "k",
    "NCCL_SECRET": "x",
    "DATABASE_URL": "postgres://me:pw@host/db",
    "PATH": "/home/somebody/bin",
}


def test_only_variables_on_the_list_are_recorded() -> None:
    known = {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_ALGO": "Ring", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "WORLD_SIZE": "2"}
    assert safe_environment({**SECRETS, **known}) == known


@pytest.mark.parametrize(
    "words",
    [
        ["--token", "SECRET"],
        ["--hf-token=SECRET"],
        ["--api_key", "SECRET"],
        ["PASSWORD=SECRET", "train.py"],
        ["--db", "postgres://me:SECRET@host/db"],
        ["hf_SECRETSECRET"],
        ["--tokens", "SECRET,SECRET2"],
        ["--token", "123456"],
        ["--auth-tokens=123456"],
        ["--password=123456", "--passphrase", "SECRET"],
        ["--authorization", "Bearer SECRET"],
        ["-H", "Authorization: Bearer SECRET"],
        ["https://host/path?token=SECRET"],
        ["sh", "-c", "cd /work; HF_TOKEN=SECRET python train.py --api-key SECRET"],
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_the_command(words: list[str]) -> None:
    output = " ".join(safe_command(["torchrun", *words, "--lr", "0.1"]))
    assert not [secret for secret in ("SECRET", "123456") if secret in output]
    assert safe_command(["torchrun", *words, "--lr", "0.1"])[-2:] == ["--lr", "0.1"]


@pytest.mark.parametrize(
    "words",
    [
        ["--tokens", "4096"],
        ["--size", "tokens=8192"],
        ["--num-tokens=1e6"],
        ["--max-tokens", "4k"],
        ["--token-dropout", "0.1"],
        ["--tokenizer", "gpt2"],
        ["--tokenizer-path=gpt2"],
        ["--author", "me"],
        ["sh", "-c", "python  train.py --tokens 4096"],
        ["x", "--use-auth", "--lr", "1"],
    ],
)
def test_a_count_of_tokens_is_no_secret(words: list[str]) -> None:
    assert safe_command(words) == words


def test_the_analyzers_read_the_manifest_with_its_ranks(tmp_path: Path) -> None:
    for name in ("rank0.json.gz", "rank3.json.gz"):
        (tmp_path / name).write_bytes(b"\x1f\x8b rest")
    manifests.write(
        tmp_path,
        Manifest("torch", "per-rank", ["x"], [CaptureEntry("rank0.json.gz", 0), CaptureEntry("rank3.json.gz", 3)]),
    )
    inputs, _ = find_inputs([tmp_path])
    assert [(one.path.name, one.rank) for one in inputs] == [("rank0.json.gz", 0), ("rank3.json.gz", 3)]


def test_ranks_that_collect_for_themselves_share_a_manifest(tmp_path: Path) -> None:
    for rank in (2, 0, 1):
        own = Manifest("nsys", "own-rank", ["x"], [CaptureEntry(f"rank{rank}.nsys-rep", rank)], ranks=[{"rank": rank}])
        manifests.write(tmp_path, own)
    content = json.loads((tmp_path / "manifest.json").read_text())
    assert [one["rank"] for one in content["captures"]] == [0, 1, 2]
    assert sorted(one["rank"] for one in content["ranks"]) == [0, 1, 2]


def test_git_tells_commit_and_changes(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y"]
    assert manifests.git(tmp_path) is None
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a").write_text("1")
    subprocess.run([*git, "add", "a"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    clean = manifests.git(tmp_path)
    assert clean is not None
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (tmp_path / "a").write_text("2")
    changed = manifests.git(tmp_path)
    assert changed is not None
    assert changed["dirty"] is True


def test_captures_of_another_run_are_never_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path.parent / f"{tmp_path.name}.file").touch()
    with pytest.raises(CollectError, match=r"file is no folder\. Give another one with -o\."):
        session.prepare(tmp_path.parent / f"{tmp_path.name}.file", overwrite=True)
    (tmp_path / "rank0.json.gz").write_text("old")
    with pytest.raises(CollectError, match="holds captures already"):
        session.prepare(tmp_path, overwrite=False)
    assert (tmp_path / "rank0.json.gz").exists()
    session.prepare(tmp_path, overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_of_several_processes_of_a_rank_the_one_that_captured_speaks(tmp_path: Path) -> None:
    for pid, state in ((1, "waiting"), (2, "captured"), (3, "other")):
        (tmp_path / f".about-h-{pid}.json").write_text(json.dumps({"rank": 0, "pid": pid, "state": state}))
    assert [one["pid"] for one in session.reports_of_ranks(tmp_path)] == [2]


@pytest.mark.parametrize(("first", "last", "named"), [(3, 3, None), (5, 2, "step"), (0, 2, None), (-1, 2, "step")])
def test_windows_that_cannot_be_captured_are_refused(first: int, last: int, named: str | None) -> None:
    with pytest.raises(CollectError):
        Steps(first, last, step_range=named)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        free = 100

    monkeypatch.setattr("shutil.disk_usage", lambda folder: Full)
    assert session.full_disks(tmp_path, tmp_path / "none") == [f"The disk of {tmp_path} is full."]


def test_a_step_that_the_profiler_slows_is_noted_of_the_worst_rank() -> None:
    def rank(number: int, unprofiled: float | None, profiled: float | None) -> dict[str, object]:
        return {"rank": number, "step_ms": {"unprofiled": unprofiled, "profiled": profiled}}

    noted = session.slowed([rank(0, 10.0, 11.5), rank(1, 10.0, 12.5), rank(2, None, 99.0), {"rank": 3}])
    (note,) = noted
    assert note == "Rank 1: a step took 12.5 ms while it was captured, and 10 ms before: 25 % more is the profiler's."
    assert session.slowed([rank(0, 10.0, 10.9), rank(1, 10.0, None)]) == []
    assert session.slowed([]) == []


@pytest.mark.parametrize(
    ("command", "name", "variables"),
    [
        (["torchrun", "train.py"], "torchrun", ("RANK",)),
        (["/usr/bin/srun", "-n", "8", "torchrun", "train.py"], "torchrun", ("RANK",)),
        (["srun", "python", "train.py"], "srun", ("SLURM_PROCID",)),
        (["python3", "/x/bin/torchrun", "train.py"], "torchrun", ("RANK",)),
        (["timeout", "60", "torchrun", "train.py"], "torchrun", ("RANK",)),
        (["python", "train.py"], "", ()),
        (["./a.out", "torchrun"], "", ()),
        (["python", "-c", "torchrun"], "", ()),
    ],
)
def test_launchers_are_told_by_their_words(command: list[str], name: str, variables: tuple[str, ...]) -> None:
    launcher = launcher_of(command)
    assert (launcher.name, launcher.variables) == (name, variables) if launcher else name == ""


def test_mpi_tells_ranks_by_the_variables_of_several_implementations() -> None:
    launcher = launcher_of(["mpirun", "-n", "2", "python", "x.py"])
    assert launcher is not None
    assert rank_in({"PMI_RANK": "1"}, launcher.variables) == 1
    assert rank_in({"OMPI_COMM_WORLD_RANK": "3"}, launcher.variables) == 3
    assert rank_in({"SLURM_PROCID": "2"}, launcher.variables) is None
