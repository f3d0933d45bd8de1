"""What stands first in every Python of a collected command is interrupted quietly, and leaves signals as they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INJECT = Path(__file__).parents[1] / "collectors" / "inject"
SETTINGS = {"rank_variables": [], "wrap": [], "ranks": []}
SAYS = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python whose environment imports nothing of its own before us."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


def run(python: str, folder: Path, program: str = SAYS) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (INJECT, folder)))
    environment = {**os.environ, "PYTHONPATH": path, "TRACEVIZ_HOOK": json.dumps(SETTINGS)}
    return subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("module", ["types", "keyword", "json"])
def test_an_interrupt_amid_what_it_imports_ends_the_process_without_a_trace(
    python: str, tmp_path: Path, module: str
) -> None:
    """`importlib.util` and the hook itself need these; ours come before Python's own."""
    (tmp_path / f"{module}.py").write_text(f"import os\nos.kill(os.getpid(), {int(signal.SIGINT)})\n")
    ran = run(python, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, "", "")


def test_the_program_and_a_sitecustomize_of_its_own_find_the_handler_they_would_have_found(
    python: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SAYS)
    ran = run(python, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\nTrue\n", "")


def test_a_handler_that_is_not_pythons_stays(python: str, tmp_path: Path) -> None:
    """A shell has what it runs in the background ignore SIGINT."""
    ignores = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    (tmp_path / "starts").write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -c "{ignores}" "{python}" "$@"\n')
    (tmp_path / "starts").chmod(0o755)
    ran = run(str(tmp_path / "starts"), tmp_path, SAYS.replace("default_int_handler", "SIG_IGN"))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", "")


def test_where_the_search_for_the_programs_own_fails_the_handler_is_back(python: str, tmp_path: Path) -> None:
    finder = "import sys\nclass Broken:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
    finder += "        if name == 'sitecustomize' and 'importlib.util' in sys.modules: raise RuntimeError('broken')\n"
    (tmp_path / "keyword.py").write_text(finder + "sys.meta_path.insert(0, Broken)\niskeyword = set().__contains__\n")
    ran = run(python, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "True\n")
    assert "broken" in ran.stderr
