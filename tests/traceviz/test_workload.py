from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from collectors.errors import CollectError
from collectors.workloads.catalog import WORKLOADS, find, read_sizes
from tests.collectors.collecting import manifest, traceviz
from traceviz.commands import workload
from traceviz.options.arguments import read_steps
from traceviz.output import contract

DATA = Path(__file__).parents[1] / "data" / "workloads"
CAPTURES = sorted(path.name for path in DATA.iterdir() if path.is_dir())


@cache
def ask_here(command: str, folder: str, *words: str) -> dict[str, Any]:
    """What the command answers, without a process of its own."""
    options = dict(zip(words[::2], words[1::2], strict=True))
    trace = tv.load(folder).only(steps=read_steps(options["--steps"]))
    if command == "syncs":
        return contract.syncs(tv.sync_points(trace))
    return contract.overlap(tv.check_overlap(trace, options["-a"], options["-b"]))


@pytest.mark.nightly
@pytest.mark.parametrize("name", CAPTURES)
def test_real_captures_show_what_their_workload_must(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "ask", ask_here)
    program, variant = name.split(".")[:2]
    assert workload.verify(DATA / name, WORKLOADS[program].variants[variant]) == []


@pytest.mark.parametrize(
    ("name", "like", "wrong"),
    [
        ("dpmp.serial.4gpu.torch", "dpmp.overlapped", "the verdict is serialized, not overlapped"),
        (
            "dpmp.serial.4gpu.torch",
            "dpmp.hidden-sync",
            "the host must have been blocked in 'MP Embedding'; it was in []",
        ),
        (
            "dpmp.hidden-sync.4gpu.torch",
            "dpmp.serial",
            "the host was blocked in ['MP Embedding'], and must not have been",
        ),
        ("dpmp.serial.4gpu.torch", "dpmp.race", "missing waits: 0, some expected"),
        ("dpmp.race.4gpu.torch", "dpmp.serial", "missing waits: "),
        # rowpar is bounded from above, and by the number of ranks: any overlap is too much for one chunk.
        ("rowpar.s2.2gpu.torch", "rowpar.s1", "the real overlap ratio is 0.2"),
        ("ddp.step.2gpu.torch", "rowpar.s4", "the real overlap ratio is 0.7"),
        ("ddp.step.2gpu.torch", "rowpar.s4", "the verdict is overlapped, not partial"),
        ("rowpar.s1.2gpu.torch", "rowpar.s2", "the verdict is serialized, not partial"),
        ("fsdp.step.4gpu.nsys-rank0", "rowpar.s2", "the real overlap ratio is "),
    ],
)
def test_a_capture_of_another_variant_is_not_as_expected(
    name: str, like: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "ask", ask_here)
    program, variant = like.split(".")
    problems = workload.verify(DATA / name, WORKLOADS[program].variants[variant])
    assert any(problem.startswith(wrong) for problem in problems), problems


def test_what_is_expected_of_a_number_of_ranks_is_printed() -> None:
    expected = WORKLOADS["rowpar"].variants["s2"]
    assert "with 4 ranks serialized or partial (real overlap ratio at most 0.2)" in workload.expectation(expected)
    assert "is partial (real overlap ratio at most 0.35), because" in workload.expectation(expected.of_ranks(2))
    assert (expected.of_ranks(8).verdicts, expected.of_ranks(8).at_most) == (("serialized", "partial"), 0.35)
    assert "(real overlap ratio 0)" in workload.expectation(WORKLOADS["rowpar"].variants["s1"])


@pytest.mark.parametrize("name", CAPTURES)
def test_manifests_tell_whose_each_capture_is_and_nothing_of_the_machine_but_what_matters(name: str) -> None:
    content = manifest(DATA / name)
    assert content["schema"] == "traceviz.manifest/1"
    text = json.dumps(content)
    assert not [word for word in ("/home/", "/root/", "/tmp/", "TOKEN", "SECRET") if word in text]
    world = int(name.split(".")[2][0])
    assert content["world_size"] == world
    ranks = [one["rank"] for one in content["captures"]]
    assert ranks in ([None], [0], list(range(world)))


def test_ranks_pinned_to_other_gpus_keep_their_own_numbers() -> None:
    """CUDA_VISIBLE_DEVICES was 2,3: the GPUs' numbers are not the ranks', which only the manifest tells."""
    folder = DATA / "dpmp.overlapped.2gpu.nsys-one-report.gpus2-3"
    trace = tv.load(folder)
    assert [(one.rank, one.rule) for one in trace.processes if one.rank >= 0] == [(0, "manifest"), (1, "manifest")]
    assert sorted(trace.devices["gpu"].tolist()) == [2, 3]
    assert tv.load(folder / "all-ranks.sqlite.gz").rank_ids == [2, 3]


def test_every_workload_has_sizes_for_a_cpu_and_says_what_it_expects() -> None:
    for one in WORKLOADS.values():
        assert one.sizes.keys() == one.small.keys()
        for expected in one.variants.values():
            assert expected.why in workload.expectation(expected)
    listed = workload.listing()
    assert all(f"{name}: " in listed for name in WORKLOADS)


@pytest.mark.parametrize("given", ["rows", "rows=", "rows=0", "rows=-1", "rows=x", "other=3"])
def test_a_size_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(CollectError, match="is no size of this workload"):
        read_sizes(WORKLOADS["dpmp"], [given])


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(CollectError, match=r"no workload 'x'.*There are: dpmp"):
        find("x", None)
    with pytest.raises(CollectError, match=r"no variant 'x'.*It has: serial, overlapped"):
        find("dpmp", "x")
    assert find("dpmp", None)[1] == "serial"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "variant"),
    [("dpmp", "hidden-sync"), ("pipelines", "both"), ("a2a", "garbage"), ("delta", "async"), ("fsdp", "step")],
)
def test_the_programs_run_on_gloo_ranks(tmp_path: Path, name: str, variant: str) -> None:
    pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")
    words = (
        "workload",
        name,
        "--variant",
        variant,
        "--device",
        "cpu",
        "--ranks",
        "2",
        "--steps",
        "3",
        "--results",
        "r.json",
    )
    ran = traceviz(*words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert 0 < result["min_ms"] <= result["median_ms"] <= result["p90_ms"]
    assert "step time: median" in ran.stdout


@pytest.mark.torch
@pytest.mark.parametrize("variant", ["base", "sparse-dist"])
def test_torchrecs_own_pipelines_run_on_gloo_ranks(tmp_path: Path, variant: str) -> None:
    pytest.importorskip("torchrec", reason="needs TorchRec (pip install torchrec fbgemm-gpu-cpu)")
    words = ("workload", "torchrec", "--variant", variant, "--device", "cpu", "--ranks", "2", "--steps", "3")
    ran = traceviz(*words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "step time: median" in ran.stdout


@pytest.mark.torch
def test_a_run_is_captured_and_without_a_gpu_the_check_says_why_it_fails(tmp_path: Path) -> None:
    pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")
    words = ("workload", "dpmp", "--device", "cpu", "--ranks", "2", "--collect", "torch", "--check")
    ran = traceviz(*words, cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert "There is no GPU work in this capture" in ran.stdout
    assert [one["steps"] for one in manifest(tmp_path / "captures")["captures"]] == [[11, 14], [11, 14]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--per-rank",), "--per-rank and --rank0 are ways to run nsys. Give --collect nsys too."),
        (("--rank0", "--collect", "torch"), "--per-rank and --rank0 are ways to run nsys. Give --collect nsys too."),
        (
            ("--per-rank", "--rank0", "--collect", "nsys"),
            "--per-rank and --rank0 exclude each other. Give one of them.",
        ),
        (("--variant", "x"), "dpmp has no variant 'x'. It has: serial, overlapped, hidden-sync, race."),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_printed(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    ran = traceviz("workload", "dpmp", *words, cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"traceviz: {message}\n")


def test_the_command_lists_and_refuses_in_one_line(tmp_path: Path) -> None:
    assert "hidden-sync" in traceviz("workload", cwd=tmp_path).stdout
    refused = traceviz("workload", "dpmp", "--check", "--device", "cpu", "--ranks", "1", cwd=tmp_path)
    assert (refused.returncode, refused.stderr) == (
        2,
        "traceviz: --check needs a capture. Give --collect torch or --collect nsys.\n",
    )
