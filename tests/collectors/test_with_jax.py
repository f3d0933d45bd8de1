"""jax.profiler's collector: on a stand-in for JAX, and on JAX itself, of the Python that $TRACEVIZ_JAX_PYTHON names."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from tests.collectors.collecting import manifest, traceviz

REAL = os.environ.get("TRACEVIZ_JAX_PYTHON", "")
STAND_IN = {
    "jax/__init__.py": """
from jax import profiler
from jax._src import xla_bridge
__version__ = "0"
def process_count(): return 1
def process_index(): return 0
def local_devices(): return []
""",
    "jax/_src/__init__.py": "",
    "jax/_src/xla_bridge.py": "def get_backend(*_):\n    return 'cpu'\n",
    "jax/profiler.py": """
import gzip, json, os
running = None
names = []
class TraceAnnotation:
    def __init__(self, name, **_): self.name = name
    def __enter__(self): return self
    def __exit__(self, *_):
        if running: names.append(self.name)
class StepTraceAnnotation(TraceAnnotation): pass
def start_trace(folder):
    global running
    if running: raise RuntimeError("Profile has already been started.")
    running = folder
def stop_trace():
    global running
    place = os.path.join(running, "plugins", "profile", "now")
    os.makedirs(place)
    events = [{"ph": "X", "name": name, "ts": 0, "dur": 1, "pid": 1, "tid": 1} for name in names]
    if "NO_JSON" not in os.environ:
        with gzip.open(os.path.join(place, "host.trace.json.gz"), "wt") as file:
            json.dump({"traceEvents": events}, file)
    open(os.path.join(place, "host.xplane.pb"), "wb").close()
    running = None
""",
}
TRAIN = """
import sys
import jax
from jax.profiler import StepTraceAnnotation, TraceAnnotation
from jax._src import xla_bridge
xla_bridge.get_backend()
for k in range(6):
    with StepTraceAnnotation("train", step_num=k), TraceAnnotation(f"inner {k}"):
        pass
if "own" in sys.argv:
    jax.profiler.start_trace(sys.argv[2])
    jax.profiler.stop_trace()
sys.exit(5)
"""


@pytest.fixture(params=["stand-in", pytest.param("jax", marks=pytest.mark.skipif(not REAL, reason="no JAX here"))])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A Python that has JAX, or what stands in for it, with a program to run."""
    (tmp_path / "train.py").write_text(TRAIN)
    if request.param == "jax":
        return REAL
    for name, text in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return sys.executable


def inner(folder: Path) -> list[str]:
    """The annotations of steps that a profile holds."""
    with gzip.open(folder / "rank0.trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    return sorted({one["name"] for one in events if str(one.get("name", "")).startswith("inner ")})


@pytest.mark.nightly
def test_all_of_a_run_is_captured(python: str, tmp_path: Path) -> None:
    ran = traceviz("collect", "jax", "-o", "out", "--", python, "train.py", cwd=tmp_path)
    assert ran.returncode == 5, ran.stderr
    assert inner(tmp_path / "out") == [f"inner {k}" for k in range(6)]
    names = ["manifest.json", "rank0.trace.json.gz", "rank0.xplane.pb"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    found = manifest(tmp_path / "out")
    assert (found["tool"], [one["path"] for one in found["captures"]]) == ("jax", ["rank0.trace.json.gz"])


@pytest.mark.parametrize("range_of_steps", [(), ("--step-range", "inner")])
def test_steps_are_those_asked_for(python: str, tmp_path: Path, range_of_steps: tuple[str, ...]) -> None:
    options = ("--steps", "2:4", *range_of_steps, "-o", "out")
    ran = traceviz("collect", "jax", *options, "--", python, "train.py", cwd=tmp_path)
    assert ran.returncode == 5, ran.stderr
    assert inner(tmp_path / "out") == ["inner 2", "inner 3"]
    assert manifest(tmp_path / "out")["captures"][0]["steps"] == [2, 4]


@pytest.mark.nightly
def test_a_space_without_json_is_the_capture(tmp_path: Path) -> None:
    for name, text in {**STAND_IN, "train.py": TRAIN}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = ("collect", "jax", "-o", "out", "--", sys.executable, "train.py")
    ran = traceviz(*command, cwd=tmp_path, NO_JSON="1")
    assert ran.returncode == 5, ran.stderr
    assert [one["path"] for one in manifest(tmp_path / "out")["captures"]] == ["rank0.xplane.pb"]


@pytest.mark.nightly
def test_a_program_s_own_profile_is_its_own(python: str, tmp_path: Path) -> None:
    ran = traceviz("collect", "jax", "-o", "out", "--", python, "train.py", "own", "theirs", cwd=tmp_path)
    assert ran.returncode == 5, ran.stderr
    assert list((tmp_path / "theirs").rglob("*.xplane.pb"))
    assert inner(tmp_path / "out") == [f"inner {k}" for k in range(6)]


@pytest.mark.nightly
def test_a_window_that_never_came_says_so(python: str, tmp_path: Path) -> None:
    ran = traceviz("collect", "jax", "--steps", "50:52", "-o", "out", "--", python, "train.py", cwd=tmp_path)
    assert ran.returncode == 5
    assert "the program ended after 6 steps" in ran.stderr
    assert "StepTraceAnnotation" in ran.stderr
