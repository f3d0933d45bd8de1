"""rocprofv3's collector against a stand-in that keeps what it was called with: no GPU of AMD's is here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from collectors.manifest import Manifest
from collectors.session import Begun
from collectors.with_rocprof import plan
from tests.collectors.collecting import manifest, traceviz
from tests.support.made import rocprof

STAND_IN = """#!{python}
import json, os, sys
words = sys.argv[1:]
if "--help" in words:
    print({help!r})
    sys.exit(0)
at = words.index("--")
folder, name = (words[words.index(option) + 1] for option in ("--output-directory", "--output-file"))
with open(os.path.join(folder, "words-" + name + ".json"), "w") as file:
    json.dump(words[:at], file)
with open({capture!r}) as capture, open(os.path.join(folder, name + "_results.json"), "w") as file:
    file.write(capture.read())
os.execvp(words[at + 1], words[at + 1:])
"""
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "train.py"], env=dict(os.environ, RANK=str(rank))) for rank in (0, 1)]
sys.exit(max(rank.wait() for rank in ranks))
"""
TRACED = ["--kernel-trace", "--memory-copy-trace", "--hip-trace", "--marker-trace", "--rccl-trace"]
WRITTEN = ["--output-format", "json", "--output-directory"]


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    return made(tmp_path, " ".join(TRACED))


def made(folder: Path, known: str) -> Path:
    (folder / "made.json").write_text(rocprof.capture(0))
    path = folder / "rocprofv3"
    path.write_text(STAND_IN.format(python=sys.executable, help=known, capture=str(folder / "made.json")))
    path.chmod(0o755)
    return path


def test_a_program_runs_under_rocprofv3_with_all_that_is_wanted(tmp_path: Path, stand_in: Path) -> None:
    options = ("--rocprofv3", str(stand_in), "-o", "out")
    program = (sys.executable, "-c", "import sys; sys.exit(7)")
    ran = traceviz("collect", "rocprofv3", *options, "--", *program, cwd=tmp_path, GPU_MAX_HW_QUEUES="1")
    assert ran.returncode == 7, ran.stderr
    words = json.loads((tmp_path / "out" / "words-rank0.json").read_text())
    assert words == [*TRACED, *WRITTEN, str(tmp_path / "out"), "--output-file", "rank0"]
    found = manifest(tmp_path / "out")
    assert (found["tool"], found["environment"]["GPU_MAX_HW_QUEUES"]) == ("rocprofv3", "1")
    assert [(one["path"], one["rank"]) for one in found["captures"]] == [("rank0_results.json", 0)]
    said = traceviz("info", "out", cwd=tmp_path)
    assert "GPU_MAX_HW_QUEUES=1 is on record on rank 0" in " ".join(said.stdout.split())


@pytest.mark.nightly
def test_each_rank_of_a_launcher_is_wrapped_by_itself(tmp_path: Path, stand_in: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nos.write(1, f'RANK {os.environ[\"RANK\"]}\\n'.encode())\n")
    launcher = tmp_path / "torchrun"
    launcher.write_text(f"#!{sys.executable}\n{LAUNCHER}")
    launcher.chmod(0o755)
    options = ("--rocprofv3", str(stand_in), "-o", "out")
    ran = traceviz("collect", "rocprofv3", *options, "--", str(launcher), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.split("\n")[:2]) == ["RANK 0", "RANK 1"]
    found = manifest(tmp_path / "out")
    assert [(one["path"], one["rank"]) for one in found["captures"]] == [(f"rank{k}_results.json", k) for k in (0, 1)]


@pytest.mark.nightly
def test_what_an_older_one_does_not_know_is_left_out_and_said(tmp_path: Path) -> None:
    old = made(tmp_path, " ".join(TRACED[:-1]))
    options = ("--rocprofv3", str(old), "-o", "out")
    ran = traceviz("collect", "rocprofv3", *options, "--", sys.executable, "-c", "", cwd=tmp_path)
    assert "knows no --rccl-trace" in ran.stderr
    assert "--rccl-trace" not in json.loads((tmp_path / "out" / "words-rank0.json").read_text())


def test_behind_a_launcher_a_rank_has_a_file_of_its_own() -> None:
    begun = Begun(Path("/out"), Manifest("rocprofv3", "own-rank", []), None, 3)
    words, _ = plan(["./program"], ["/opt/rocm/bin/rocprofv3"], begun)
    assert words == ["/opt/rocm/bin/rocprofv3", "--output-file", "rank3", "--", "./program"]
