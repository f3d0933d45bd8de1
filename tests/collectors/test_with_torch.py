"""torch.profiler on real gloo ranks, without a GPU: what is in a trace's steps, and what the program notices."""

from __future__ import annotations

import gzip
import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.collecting import HOME, TRAIN, environment, manifest, running, torchrun, traceviz

pytest.importorskip("torch.nn", reason="needs torch (pip install torch): it runs real ranks")
pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name needs quoting everywhere, with a training program in it."""
    folder = tmp_path / 'it\'s a "dir" -é $HOME'
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    return folder


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def steps(path: Path) -> list[str]:
    """The steps that are whole in a trace: the annotations the program makes itself."""
    names = [event["name"] for event in events(path) if event.get("cat") == "user_annotation"]
    return [name for name in names if name.startswith("step ")]


def test_every_rank_of_an_unmodified_program_is_captured(folder: Path) -> None:
    words = ("-x", "--", "a b", "'q'", "")
    command = torchrun(Path("train.py"), *words)
    ran = traceviz("collect", "torch", "--steps", "4:6", "-o", "out", "--", *command, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"ARGUMENTS {list(words)}") == 2
    assert f"PATH {HOME}\n" in ran.stdout  # a rank sees the PYTHONPATH it was given
    made = manifest(folder / "out")
    assert [(one["path"], one["rank"], one["steps"]) for one in made["captures"]] == [
        ("rank0.json.gz", 0, [4, 6]),
        ("rank1.json.gz", 1, [4, 6]),
    ]
    assert (made["schema"], made["world_size"], made["exit_code"]) == ("traceviz.manifest/1", 2, 0)
    for rank in (0, 1):
        names = {event["name"] for event in events(folder / "out" / f"rank{rank}.json.gz")}
        assert {"ProfilerStep#4", "ProfilerStep#5", "aten::linear"} <= names
        assert not names & {"ProfilerStep#3", "ProfilerStep#6"}
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "manifest.json",
        "rank0.json.gz",
        "rank1.json.gz",
    ]


def test_steps_are_those_of_a_named_range(folder: Path) -> None:
    options = ("--steps", "0:2", "--step-range", "step", "-o", "out")
    ran = traceviz("collect", "torch", *options, "--", sys.executable, "train.py", cwd=folder, CODE="7")
    assert ran.returncode == 7
    assert steps(folder / "out" / "rank0.json.gz") == ["step 0", "step 1"]


def test_shapes_stacks_and_memory_are_recorded_on_request(folder: Path) -> None:
    command = [sys.executable, "train.py"]
    traceviz("collect", "torch", "-o", "with", "--shapes", "--stacks", "--memory", "--", *command, cwd=folder)
    traceviz("collect", "torch", "-o", "without", "--", *command, cwd=folder)

    def shown(where: str) -> tuple[bool, bool, bool]:
        found = events(folder / where / "rank0.json.gz")
        shapes = any("Input Dims" in event.get("args", {}) for event in found)
        stacks = any(event.get("cat") == "python_function" for event in found)
        return shapes, stacks, any(event["name"] == "[memory]" for event in found)

    assert (shown("with"), shown("without")) == ((True, True, True), (False, False, False))


def test_a_program_that_ends_inside_the_window_leaves_what_there_was(folder: Path) -> None:
    command = [sys.executable, "train.py"]
    ran = traceviz("collect", "torch", "--steps", "8:400", "--", *command, cwd=folder)
    assert ran.returncode == 0
    assert "the program ended in step 12; the window was to end before step 400" in ran.stderr
    assert steps(folder / "captures" / "rank0.json.gz")[-1] == "step 11"


def test_a_program_that_ends_before_the_window_is_told_and_ends_with_3(folder: Path) -> None:
    ran = traceviz("collect", "torch", "--steps", "100:102", "--", sys.executable, "train.py", cwd=folder)
    assert ran.returncode == 3
    assert "the program ended after 12 steps" in ran.stderr
    assert "nothing usable" in ran.stderr


def test_a_program_without_steps_is_told(tmp_path: Path) -> None:
    ran = traceviz("collect", "torch", "--", sys.executable, "-c", "import torch", cwd=tmp_path)
    assert ran.returncode == 3
    assert "No process of the command came to an optimizer step" in ran.stderr


OWN_PROFILER = TRAIN.replace(
    "for index in range", "from torch.profiler import profile\nown = profile()\nown.start()\nfor index in range"
).replace("sys.exit(", "own.stop()\nown.export_chrome_trace('own.json')\nsys.exit(")


def test_a_program_that_profiles_itself_is_left_alone_and_told(folder: Path) -> None:
    (folder / "own.py").write_text(OWN_PROFILER)
    ran = traceviz("collect", "torch", "--", sys.executable, "own.py", cwd=folder, CODE="4")
    assert ran.returncode == 4, ran.stderr
    assert "the program's own profiler is running; use its traces" in ran.stderr
    assert "step 11" in (folder / "own.json").read_text()


def test_a_profiler_that_starts_inside_the_window_gets_its_way(folder: Path) -> None:
    late = OWN_PROFILER.replace("own.start()\n", "").replace(
        "    time.sleep", "    if index == 7:\n        own.start()\n    time.sleep"
    )
    (folder / "late.py").write_text(late)
    ran = traceviz("collect", "torch", "--steps", "5:400", "--", sys.executable, "late.py", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "the program began its own profiler" in ran.stderr
    assert "step 11" in (folder / "own.json").read_text()
    assert "step 6" in steps(folder / "captures" / "rank0.json.gz")


def test_children_that_a_program_forks_neither_capture_nor_disturb(folder: Path) -> None:
    forks = TRAIN.replace(
        "    time.sleep",
        "    import multiprocessing\n"
        "    child = multiprocessing.get_context('fork').Process(target=optimizer.step)\n"
        "    child.start()\n"
        "    child.join()\n"
        "    assert child.exitcode == 0\n"
        "    time.sleep",
    )
    (folder / "forks.py").write_text(forks)
    ran = traceviz("collect", "torch", "--steps", "3:6", "--", sys.executable, "forks.py", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    pids = {event["pid"] for event in events(folder / "captures" / "rank0.json.gz") if event.get("cat") == "cpu_op"}
    assert len(pids) == 1
    assert [one["rank"] for one in manifest(folder / "captures")["captures"]] == [0]


def test_when_a_rank_is_killed_the_others_trace_is_readable_and_no_process_is_left(folder: Path) -> None:
    command = torchrun(folder / "train.py")
    more = {"DIES_AFTER": "8", "STEPS": "400", "PAUSE": "0.05"}
    ran = traceviz("collect", "torch", "--steps", "3:300", "-o", "out", "--", *command, cwd=folder, **more)
    assert ran.returncode == 1
    assert "step 5" in steps(folder / "out" / "rank0.json.gz")
    assert [one["rank"] for one in manifest(folder / "out")["captures"]] == [0]
    assert "Rank 1 was ended while it captured" in ran.stderr
    assert running(str(folder)) == []


def test_a_rank_killed_behind_the_window_costs_nothing(folder: Path) -> None:
    more = {"DIES_AFTER": "9", "STEPS": "400", "PAUSE": "0.05"}
    command = torchrun(folder / "train.py")
    ran = traceviz("collect", "torch", "--steps", "3:5", "-o", "out", "--", *command, cwd=folder, **more)
    assert ran.returncode == 1
    assert [one["rank"] for one in manifest(folder / "out")["captures"]] == [0, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_keeps_what_was_captured_and_leaves_nothing_running(
    folder: Path, number: signal.Signals
) -> None:
    words = ["collect", "torch", "--steps", "3:400", "-o", "out", "--", *torchrun(folder / "train.py")]
    process = subprocess.Popen(
        [sys.executable, "-m", "traceviz", *words],
        cwd=folder,
        env=environment(STEPS="400", PAUSE="0.05"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "STEP 9" not in process.stdout.readline():
        pass
    process.send_signal(number)
    _, errors = process.communicate(timeout=90)
    assert process.returncode != 0
    assert f"stopped by {number.name}" in errors
    assert len(list((folder / "out").glob("rank*.json.gz"))) == 2
    time.sleep(0.1)
    assert running(str(folder)) == []


def test_told_to_end_while_it_writes_it_ends_when_the_trace_is_there(folder: Path) -> None:
    """As launchers do to ranks whose peer has died, and which are already writing because of that."""
    slow = (
        "write = torch.profiler.profile.export_chrome_trace\n"
        "def slow(self, path):\n    os.kill(os.getpid(), 15)\n    time.sleep(0.2)\n    write(self, path)\n"
        "torch.profiler.profile.export_chrome_trace = slow\nfor index in range"
    )
    (folder / "train.py").write_text(TRAIN.replace("for index in range", slow))
    ran = traceviz("collect", "torch", "--steps", "3:5", "-o", "out", "--", sys.executable, "train.py", cwd=folder)
    assert ran.returncode == 128 + signal.SIGTERM
    assert steps(folder / "out" / "rank0.json.gz") == ["step 3", "step 4"]
    assert "STEP 5" not in ran.stdout


def test_idle_the_hook_costs_little_and_nothing_after_the_window(folder: Path) -> None:
    timed = TRAIN.replace(
        "sys.exit(",
        "from torch.optim import optimizer as module\n"
        "print('HOOKS', len(module._global_optimizer_post_hooks))\nsys.exit(",
    )
    (folder / "timed.py").write_text(timed)
    ran = traceviz("collect", "torch", "--steps", "3:5", "--", sys.executable, "timed.py", cwd=folder)
    assert "HOOKS 0" in ran.stdout, ran.stderr


SLEEPS = """
import time
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index in range(9):
    time.sleep(0.03 if index in (5, 6) else 0.02)
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
"""


def test_a_rank_says_what_a_step_takes_before_it_is_profiled_and_while_it_is(folder: Path) -> None:
    """Steps 5 and 6 sleep for 30 ms, those before for 20: no clock can read less."""
    (folder / "sleeps.py").write_text(SLEEPS)
    ran = traceviz("collect", "torch", "--steps", "5:7", "-o", "out", "--", sys.executable, "sleeps.py", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    made = manifest(folder / "out")
    (rank,) = made["ranks"]
    assert 20 <= rank["step_ms"]["unprofiled"] < rank["step_ms"]["profiled"]
    assert rank["step_ms"]["profiled"] >= 30
    assert [note for note in made["notes"] if note.startswith("Rank 0: a step took ")]


class Event:
    """Stands for a CUDA event at a time; `done` says whether the GPU has come to it."""

    def __init__(self, ms: float, *, done: bool = True) -> None:
        self.ms, self.done = ms, done

    def query(self) -> bool:
        return self.done

    def elapsed_time(self, end: Event) -> float:
        return end.ms - self.ms


class Failed(Event):
    """CUDA tells an earlier error to whoever asks next: a saved capture stays one."""

    def query(self) -> bool:
        raise RuntimeError("CUDA error: unspecified launch failure")


def test_step_times_are_medians_of_what_the_gpu_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOME / "collectors" / "inject"))
    times = importlib.import_module("_traceviz_capture").StepTimes()
    times.marks = {1: Event(0), 2: Event(10), 3: Event(30), 4: Event(31), 5: Event(99, done=False), 6: 1.0, 7: 1.5}
    assert times.median_ms(1, 4) == 10, "of 10, 20 and 1"
    assert times.median_ms(4, 6) is None, "never waited for, and no two clocks are compared"
    assert times.median_ms(6, 7) == 500
    times.marks = {1: Event(0), 2: Failed(10)}
    assert times.median_ms(1, 2) is None


def test_a_rank_told_to_end_asks_its_gpu_nothing(folder: Path) -> None:
    """Its main thread may hold the driver, blocked by a full launch queue: asking would never return."""
    asks = SLEEPS + "    if index == 6:\n        os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(9)\n"
    asks = "import os, signal\n" + asks + "\n"
    (folder / "ends.py").write_text(asks)
    ran = traceviz("collect", "torch", "--steps", "3:9", "-o", "out", "--", sys.executable, "ends.py", cwd=folder)
    assert ran.returncode == 128 + 15, ran.stderr
    (rank,) = manifest(folder / "out")["ranks"]
    assert rank["state"] == "captured"
    assert rank["step_ms"] is None
