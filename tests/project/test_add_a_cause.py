"""A new cause is a record in a module of its own, and a line in `analyzers/causes/table.py`: all else follows."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzers.causes.table import CAUSES

ROOT = Path(__file__).parents[2]
CAPTURE = [str(path) for path in sorted((ROOT / "tests/data/torch").glob("dpmp_serial.rank*"))]
PAIR = ("-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding")
SUGGESTED = {Path("analyzers/replay/suggest.py")}  # which change takes a cause out: by none is one without a line there

COPY_ENGINE = """
from analyzers.causes.cause import Cause
from analyzers.causes.explain import BEHIND_BY_EVENT

COPY_ENGINE = Cause(
    name="copy-engine",
    label="busy copy engine",
    meaning="a copy whose engine another copy held",
    look_at="copies of both sides",
    remedy="fewer, larger copies",
    claims=lambda parts: parts.state == BEHIND_BY_EVENT,
    evidence=lambda gap: f"{gap.side_op} found the copy engine taken",
    finding=lambda gap: f"copy engine busy: {gap.side} waited for {gap.other}",
    alike=lambda gap: gap.op_name,
    removed=BEHIND_BY_EVENT,
)
"""


@pytest.fixture(scope="module")
def run_with_new_cause(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """What a copy of the project prints, with one cause more."""
    folder = tmp_path_factory.mktemp("project")
    for package in ("analyzers", "traceviz", "collectors", "docs"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "analyzers/causes/copy_engine.py").write_text(COPY_ENGINE, encoding="utf-8")
    table = folder / "analyzers/causes/table.py"
    text = table.read_text(encoding="utf-8")
    text = text.replace(
        "\nCAUSE_TABLE = (\n",
        "\nfrom analyzers.causes.copy_engine import COPY_ENGINE\nCAUSE_TABLE = (\n    COPY_ENGINE,\n",
    )
    table.write_text(text, encoding="utf-8")

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        env = {"PYTHONPATH": str(folder), "COLUMNS": "112", "PATH": "", "TRACEVIZ_NO_CACHE": "1", "HOME": str(folder)}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    return run


def test_answers_know_it(run_with_new_cause: Callable[..., str]) -> None:
    check = ("-m", "traceviz", "check-overlap", *CAPTURE, *PAIR)
    text = " ".join(run_with_new_cause(*check, "--verbose").split())
    assert all(words in text for words in ("copy-engine", "found the copy engine taken", "copy engine busy")), text
    ranks = json.loads(run_with_new_cause(*check, "--format", "json"))["ranks"]
    of_new = [one for rank in ranks for one in rank["missed"] if one["cause"] == "copy-engine"]
    assert of_new
    assert all(one["recoverable_ns"] is not None for one in of_new), "what it removes gives it a worth"


def test_the_timeline_knows_it(run_with_new_cause: Callable[..., str], tmp_path: Path) -> None:
    page = tmp_path / "timeline.html"
    run_with_new_cause("-m", "traceviz", "timeline", *CAPTURE, *PAIR, "-o", str(page))
    assert "blocked by busy copy engine" in page.read_text(encoding="utf-8")


def test_the_manual_knows_it(run_with_new_cause: Callable[..., str]) -> None:
    written = "from tests.project.test_docs import read, with_cause_tables\nprint(with_cause_tables(read({!r})))"
    definitions, advice = (
        run_with_new_cause("-c", written.format(page)) for page in ("definitions", "reading-a-verdict")
    )
    assert "| `copy-engine` | a copy whose engine another copy held |" in definitions
    assert "| `copy-engine` | copies of both sides | fewer, larger copies |" in advice


def test_no_cause_is_listed_elsewhere() -> None:
    codes = {name for name in CAUSES if "-" in name}
    listed = {
        path.relative_to(ROOT): node.value
        for package in ("analyzers", "traceviz")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in codes
    }
    assert {path for path in listed if path.parent != Path("analyzers/causes")} <= SUGGESTED, listed
