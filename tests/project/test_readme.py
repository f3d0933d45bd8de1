"""What the README shows is what the program does."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from analyzers.select import language as selectors
from tests.project.test_docs import WIDTH
from traceviz.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def example_output() -> str:
    """What the first command prints after its installation."""
    install, ask = re.split(r"(?=\.venv/bin/traceviz)", blocks("bash")[0])
    assert "install ." in install
    command = ask.replace(".venv/bin/traceviz", f"{shlex.quote(sys.executable)} -m traceviz")
    environment = os.environ | {"COLUMNS": WIDTH}
    run = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stderr == ""
    return re.sub(r"[ \t]+$", "", run.stdout, flags=re.MULTILINE)


def test_example_output_is_what_the_example_command_prints() -> None:
    assert blocks("text") == [example_output()], (
        "python -m tests.project.test_readme writes the new output into the README"
    )


def test_python_example_prints_what_its_comment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = blocks("python")
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert re.findall(r"print\(.*?\)  # (.*)", example) == printed.getvalue().splitlines()


def test_every_command_has_its_line() -> None:
    listed = re.findall(r"^\| `traceviz ([a-z-]+)", section("Commands"), re.MULTILINE)
    assert listed == list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_selectors_shown_are_selectors() -> None:
    code = re.findall(r"`([^`]+)`", section("Selectors"))
    shown = [text for text in code if re.match(r"[a-z]+(:|$)", text)]
    assert {selectors.parse(text) for text in shown}
    named = {atom.kind for text in shown for atom in selectors.atoms(selectors.parse(text))}
    assert named == {*selectors.BARE, *selectors.SELECTOR_KINDS}


def test_files_it_points_to_are_there() -> None:
    missing = [path for path in re.findall(r"\]\(([^):#]+)\)", README) if not (ROOT / path).exists()]
    assert not missing


if __name__ == "__main__":
    (shown,) = blocks("text")
    anew = README.replace(f"```text\n{shown}```", f"```text\n{example_output()}```")
    (ROOT / "README.md").write_text(anew, encoding="utf-8")
