"""The manual's pages: what they show is what commands print, their Python runs, their links lead somewhere.

`python -m tests.project.test_docs` writes the outputs anew.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.causes.table import CAUSES
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

ROOT = Path(__file__).parents[2]
PAGES = (
    "definitions",
    "capturing-well",
    "reading-a-verdict",
    "cannot-tell",
    "contention",
    "what-if",
    "contracts",
    "agents",
    "python",
    "commands",
)
BY_PAGE = pytest.mark.parametrize("page", PAGES)
SHOWN = re.compile(r"```bash\n(traceviz .*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def read(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def printed(command: str) -> str:
    """What a command of the manual prints; commands in it may end with 1 or 3, which answer a question."""
    command = re.sub(r"^traceviz", f"{shlex.quote(sys.executable)} -m traceviz", command)
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    ran = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode in (0, 1, 3)
    assert ran.stderr == ""
    return ran.stdout


COMMANDS = [(page, *match) for page in PAGES for match in SHOWN.findall(read(page))]
COMMANDS.append(("comparing", *SHOWN.findall(read("comparing"))[0]))  # its other commands name files of the reader's


@pytest.mark.parametrize(("page", "command", "shown"), COMMANDS)
def test_commands_print_what_is_shown(page: str, command: str, shown: str) -> None:
    output = printed(command)
    assert output
    assert shown in ("", output), f"python -m tests.project.test_docs writes {page}.md anew"


@BY_PAGE
def test_python_runs_and_prints_what_its_comments_say(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("tests", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(block, namespace)
        assert output.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)


@BY_PAGE
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", read(page)):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        path = ROOT / "docs" / (name or f"{page}.md")
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


def test_the_projects_files_that_pages_name_are_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = re.compile(r"(?<![\w/.-])(?:tests|tools|analyzers|collectors|traceviz)/[\w/-]+\.(?:py|sh|txt)\b")
    gone = {
        f"{page.name}: {path}"
        for page in pages
        for path in named.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    }
    assert not gone


def example(page: str, words: str) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if words in block)


def chunks(early: bool) -> Trace:
    """Three chunks on two ranks; where asked, rank 1's chunk 2 sends 10 ns before its product ends."""
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        for chunk in range(3):
            at = 1000 * chunk
            rank.range(f"chunk {chunk}", at, at + 100)
            rank.kernel("sgemm", stream=20 + chunk, start=at + 200, end=at + 500, launch=(at + 10, at + 20))
            start = at + 490 if early and (number, chunk) == (1, 2) else at + 500
            reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
            rank.kernel(reduce, stream=9, start=start, end=at + 700, launch=(at + 30, at + 40))
    return run.trace()


@pytest.mark.parametrize(("early", "found"), [(False, []), (True, [(1, "chunk 2")])])
def test_the_question_no_command_covers_is_answered_in_under_ten_lines(early: bool, found: list[Any]) -> None:
    code = example("python", 'in_ranges("chunk *")')
    lines = [line for line in code.splitlines() if not line.startswith("print")]
    assert len(lines) < 10
    namespace: dict[str, Any] = {"tv": tv, "trace": tv.Trace.of(chunks(early))}
    exec("\n".join(line for line in lines if "tv.load" not in line), namespace)
    assert [(rank, name) for rank, name, _ in namespace["early"].index] == found
    assert len(namespace["span"]) == 6


def test_every_cause_is_defined_and_has_a_remedy() -> None:
    for page in ("definitions", "reading-a-verdict"):
        assert tuple(re.findall(r"^\| `([a-z-]+)` \|", read(page), re.MULTILINE)) == CAUSES


def test_every_warning_is_explained() -> None:
    """By the codes that stand in the source."""
    codes = set()
    for path in (ROOT / "analyzers").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {
            getattr(node.targets[0], "id", ""): node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                code = named.get(getattr(node.args[0], "id", ""), node.args[0])
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name in ("TraceWarning", "warn") and isinstance(code, ast.Constant):
                    codes.add(str(code.value))
    table = read("cannot-tell").partition("## Warnings")[2]
    explained = {
        code for cell in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for code in re.findall("`(.*?)`", cell)
    }
    assert codes - explained == set(), "explain them in docs/cannot-tell.md"
    assert explained - codes <= {"other-steps", "other-ranks"}


def test_every_table_of_an_exported_database_is_described(tmp_path: Path) -> None:
    import sqlite3

    path = tv.load(ROOT / "tests/data/torch/dpmp_overlap.rank0.json.gz").to_sqlite(tmp_path / "x.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as database:
        query = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite%'"
        names = {name for (name,) in database.execute(query)}
    described = set(re.findall(r"`([a-z_]+)`", read("python").partition("**SQLite**")[2]))
    assert names - described == set()


if __name__ == "__main__":
    for each in (*PAGES, "comparing"):
        text = read(each)
        for command, _ in SHOWN.findall(text):
            before = f"```bash\n{command}```\n\n```text\n"
            if before in text:
                head, _, rest = text.partition(before)
                text = f"{head}{before}{printed(command)}```{rest.partition('```')[2]}"
        (ROOT / "docs" / f"{each}.md").write_text(text, encoding="utf-8")
