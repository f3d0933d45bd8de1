"""What `pyproject.toml` and the README claim of versions, names and systems is what is tested."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from collectors import processes, session
from collectors.errors import CollectError
from tests.support.command_lines import run_json

ROOT = Path(__file__).parents[2]


def test_lower_bounds_are_the_lowest_versions_tested() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(
        re.fullmatch(r"([\w-]+)>=([\d.]+),<\d+(?:\.\d+)?(?:; .*)?", requirement).groups()  # type: ignore[union-attr]
        for requirement in project["dependencies"]
    )
    tested = dict(
        re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "tests/constraints-lowest.txt").read_text("utf-8"), re.MULTILINE)
    )
    for needed in re.findall(
        r"(?:pytest|pytest-xdist|hypothesis|kaleido|mcp|protobuf)>=[\d.]+",
        " ".join(project["optional-dependencies"]["dev"]),
    ):
        name, bound = needed.split(">=")
        bounds[name] = bound
    assert all(_padded(tested[name]) == _padded(bound) for name, bound in bounds.items())
    assert tested.keys() == bounds.keys()


def test_extras_are_named_with_the_name_of_the_distribution() -> None:
    """The command's name is another project's on the package index: `pip install` of it would bring that one."""
    paths = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "action.yml")]
    paths += [path for folder in ("analyzers", "collectors", "traceviz") for path in (ROOT / folder).rglob("*.py")]
    paths += (ROOT / "docs").rglob("*.md")
    wrong = re.compile(r"(?<![\w-])traceviz\[(png|notebook|cluster|collect|dev)|pip install '?traceviz(?!-gpu)\b")
    assert not [path.name for path in paths if wrong.search(path.read_text(encoding="utf-8"))]


# What only Linux has of what a program might use without thinking of it.
WITHOUT_LINUX = """
import os, select, signal, time
for module, names in (
    (os, "sched_getaffinity sched_setaffinity waitid waitid_result pidfd_open eventfd memfd_create posix_fadvise "
         "posix_fallocate copy_file_range splice getrandom setresuid prlimit O_TMPFILE O_DIRECT"),
    (select, "epoll"),
    (signal, "sigtimedwait sigwaitinfo"),
    (time, "CLOCK_BOOTTIME"),
):
    for name in names.split():
        vars(module).pop(name, None)
"""


def test_looking_at_a_trace_does_without_what_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LINUX, encoding="utf-8")
    asked = ["check-overlap", "tests/data/torch/dpmp_overlap.rank*.json.gz"]
    elsewhere = subprocess.run(
        [sys.executable, "-m", "traceviz", *asked, "--format", "json", "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert elsewhere.stderr == ""
    assert json.loads(elsewhere.stdout) == run_json(*asked)


def test_collecting_says_that_it_needs_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CollectError, match=r"collecting needs Linux\. Collect there"):
        session.prepare(tmp_path / "captures", overwrite=False)
    assert not (tmp_path / "captures").exists()
    with pytest.raises(CollectError, match="needs Linux"):
        processes.run(["true"], {})


def _padded(version: str) -> list[int]:
    return ([int(part) for part in version.split(".")] + [0, 0])[:3]
