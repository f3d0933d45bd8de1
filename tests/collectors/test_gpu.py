"""Collectors on real GPUs. Skipped without them; on a machine that has some: `python -m pytest -m gpu tests`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.trace.memory import memory_peaks
from collectors.manifest import gpus
from collectors.nsys_command import Nsys, build
from tests.collectors.collecting import environment, manifest, running, torchrun, traceviz

pytestmark = pytest.mark.gpu

# `work(n)` launches n kernels and nothing else, so that what a capture holds can be counted.
HEAD = """
import os, sys, time
import torch, torch.distributed as dist
import traceviz as tv

ranks, rank = "RANK" in os.environ, int(os.environ.get("RANK", 0))
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
torch.cuda.set_device(device)
if ranks:
    dist.init_process_group("nccl", device_id=device)
x = torch.zeros(1 << 20, device=device)

def work(n):
    for _ in range(n):
        x.add_(1)

work(5)
torch.cuda.synchronize()
"""
BLOCK = """
capture = tv.capture(sys.argv[1], name="my block")
try:
    with capture:
        with capture.range("inside"):
            work(3)
        torch.cuda.nvtx.range_push("left open")
        raise ValueError
except ValueError:
    pass
level = torch.cuda.nvtx.range_push("probe")
print("LEVEL", level, flush=True)
assert level <= 0, "a range was left open"  # below 0: nobody keeps count
torch.cuda.nvtx.range_pop()
work(4)
torch.cuda.synchronize()
"""
CALLS = """
@tv.capture(sys.argv[1], name="calls")
def measured(n):
    work(n)
    return n

assert [measured(1), measured(2)] == [1, 2]
work(4)
torch.cuda.synchronize()
"""
STEPS = """
for index in range(int(os.environ.get("STEPS", 14))):
    with torch.cuda.nvtx.range(f"step {index}"), torch.profiler.record_function(f"step {index}"):
        work(3)
        if ranks:
            dist.all_reduce(x)
            if "BLOCKS" in os.environ:
                x[0].item()
    time.sleep(0.02)
    if rank == 1 and str(index) == os.environ.get("DIES_AFTER"):
        os.kill(os.getpid(), 9)
"""
# Step 7 takes the most, and the allocator has nothing of the size in store.
TAKES = """
for index in range(10):
    with torch.cuda.nvtx.range(f"step {index}"), torch.profiler.record_function(f"step {index}"):
        taken = torch.ones(512 << 20 if index == 7 else 256 << 20, dtype=torch.uint8, device=device)
        work(3)
        del taken
print("PEAKS", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
"""


@pytest.fixture(autouse=True, scope="module")
def devices() -> int:
    """How many GPUs are here."""
    count = len(gpus())
    if not count:
        pytest.skip("no GPU is here")
    return count


@pytest.fixture
def nsys_words(folder: Path, nsys: Nsys) -> list[str]:
    return [*build(nsys, between_calls=True)[0], f"--output={folder / 'block'}".replace("%", "%%")]


def python(folder: Path, body: str, *before: str, ranks: int = 1) -> None:
    """Run a program that captures into the folder `out`."""
    script = folder / "program.py"
    script.write_text(HEAD + body)
    command = torchrun(script, "out", ranks=ranks) if ranks > 1 else [sys.executable, str(script), "out"]
    ran = subprocess.run(
        [*before, *command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout)  # pytest -rP shows it


def added(trace: Any, rank: int = 0) -> int:
    """How many of a rank's kernels are those of `work`, launched within the capture."""
    ops = trace.only(ranks=rank).ops
    ops = ops[ops["launch"] >= 0]
    return int(ops["name"].astype(str).str.contains("elementwise").sum())


def added_around(trace: Any, rank: int, first: str, last: str) -> tuple[int, int, int]:
    """Likewise, by when each was launched: before the step `first`, from there to the end of `last`, and after that."""
    one = trace.only(ranks=rank)
    ops, ranges = one.ops, one.ranges
    ops = ops[(ops["launch"] >= 0) & ops["name"].astype(str).str.contains("elementwise")]
    called = one.api["start_ns"].to_numpy()[ops["launch"].to_numpy()]
    ranges = ranges[ranges["process"].isin(ops["process"]) & ranges["name"].isin([first, last])]
    begin, end = ranges["start_ns"].min(), ranges["end_ns"].max()
    before, after = int((called < begin).sum()), int((called > end).sum())
    return before, len(ops) - before - after, after


def test_a_block_is_what_is_captured_and_its_ranges_are_closed_behind_an_exception(folder: Path) -> None:
    python(folder, BLOCK)
    trace = tv.load(folder / "out")
    assert added(trace) == 3
    assert {"my block", "inside"} <= set(trace.ranges["name"].astype(str))
    made = manifest(folder / "out")
    assert (made["mode"], [one["rank"] for one in made["captures"]]) == ("own-rank", [0])


def test_ranks_that_capture_a_block_share_a_manifest(folder: Path, devices: int) -> None:
    if devices < 2:
        pytest.skip("needs 2 GPUs")
    python(folder, BLOCK, ranks=2)
    trace = tv.load(folder / "out")
    assert [added(trace, rank) for rank in trace.rank_ids] == [3, 3]


def test_under_nsys_the_block_is_what_nsys_captures(folder: Path, nsys_words: list[str]) -> None:
    python(folder, BLOCK, *nsys_words)
    trace = tv.load(folder / "block.nsys-rep")
    assert added(trace) == 3
    ends = dict(zip(trace.ranges["name"].astype(str), trace.ranges["end_ns"], strict=True))
    assert ends["inside"] < ends["left open"] <= ends["my block"]


def test_under_nsys_a_decorated_functions_first_call_is_captured(folder: Path, nsys_words: list[str]) -> None:
    python(folder, CALLS, *nsys_words)
    assert added(tv.load(folder / "block.nsys-rep")) == 1


@pytest.mark.parametrize("tool", [("torch",), ("nsys",), ("nsys", "--per-rank")], ids=" ".join)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_steps_asked_for_are_there_whole(
    folder: Path, devices: int, tool: tuple[str, ...], ranks: int, nsys_words: list[str]
) -> None:
    """Ranks on the last GPUs of the machine: a rank's number is not its GPU's."""
    if devices < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    (folder / "train.py").write_text(HEAD + STEPS)
    last = ",".join(map(str, range(devices - ranks, devices)))
    command = torchrun(folder / "train.py", ranks=ranks)
    words = ("collect", *tool, "--steps", "6:8", "--step-range", "step", "-o", "out", "--", *command)
    ran = traceviz(*words, cwd=folder, CUDA_VISIBLE_DEVICES=last)
    assert ran.returncode == 0, ran.stderr
    trace = tv.load(folder / "out")
    assert trace.rank_ids == list(range(ranks))
    for rank in trace.rank_ids:
        assert added(trace.only(steps=(6, 8)), rank) == 6
        before, within, after = added_around(trace, rank, "step 6", "step 7")
        assert within == 6
        assert before == 0 if tool == ("torch",) else before <= 3  # nsys begins a step early, some of it is too late
        if tool != ("nsys",):  # one report over a whole command takes a while to end; the ranks run on meanwhile
            assert after == 0


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("torch", "--steps", "6:9", "--step-range", "step"), "allocator"),
        (("nsys",), "driver-change"),
        (("nsys", "--steps", "6:9", "--step-range", "step"), "driver"),
    ],
    ids=["torch", "nsys", "nsys-steps"],
)
def test_memory_peaks_are_what_torch_counted(
    folder: Path, words: tuple[str, ...], seen: str, nsys_words: list[str]
) -> None:
    (folder / "train.py").write_text(HEAD + TAKES)
    ran = traceviz("collect", *words, "--memory", "-o", "out", "--", sys.executable, "train.py", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    allocated, reserved = map(int, re.findall(r"^PEAKS (\d+) (\d+)$", ran.stdout, re.MULTILINE)[0])
    [peak] = memory_peaks(tv.load(folder / "out").data, [6, 7, 8])
    assert peak.source == seen
    if seen == "allocator":
        assert (peak.peak_bytes, peak.reserved_peak_bytes) == (allocated, reserved)
    else:  # what the allocator took, before the captured steps, too, and constants of the loaded kernels
        assert reserved <= peak.peak_bytes < reserved + (1 << 20)


@pytest.mark.parametrize("host", ["free", "blocked"])
@pytest.mark.parametrize("tool", [("torch",), ("nsys",), ("nsys", "--per-rank")], ids=" ".join)
def test_when_a_rank_is_killed_the_others_work_is_there_and_nothing_runs_on(
    folder: Path, devices: int, tool: tuple[str, ...], host: str, nsys_words: list[str]
) -> None:
    """Its GPU then spins in a collective for the dead rank, and a host that waits for it runs no Python."""
    if devices < 2:
        pytest.skip("needs 2 GPUs")
    (folder / "train.py").write_text(HEAD + STEPS)
    command = torchrun(folder / "train.py")
    words = ("collect", *tool, "--steps", "6:400", "--step-range", "step", "-o", "out", "--", *command)
    more = {"BLOCKS": "1"} if host == "blocked" else {}
    ran = traceviz(*words, cwd=folder, DIES_AFTER="9", STEPS="400", **more)
    assert ran.returncode == 1, ran.stderr
    captured = [one["rank"] for one in manifest(folder / "out")["captures"]]
    assert captured == ([0] if tool == ("torch",) else [0, 1] if "--per-rank" in tool else [None])
    assert running(str(folder)) == []
    trace = tv.load(folder / "out", skip_bad=True)  # nsys' report of the killed rank may hold no GPU work
    assert 0 in trace.rank_ids
    assert added(trace.only(steps=(6, 9))) == 9  # of the rank that lives on


def test_one_that_is_told_to_end_leaves_its_work(folder: Path, nsys: Nsys) -> None:
    """Its events are in GPU buffers that go with it, so nsys takes them first."""
    (folder / "train.py").write_text(HEAD + "print('ready', flush=True)\ntime.sleep(300)\n")
    words = [sys.executable, "-m", "traceviz", "collect", "nsys", "-o", "out", "--", sys.executable, "train.py"]
    process = subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "ready" not in process.stdout.readline():
        pass
    process.terminate()
    process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGTERM
    assert added(tv.load(folder / "out")) == 6  # the five, and the one that made zeros of x
