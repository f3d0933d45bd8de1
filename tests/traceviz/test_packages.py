from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
BY_NAME = pytest.mark.parametrize("name", ["analyzers", "collectors"])
FOREIGN = "open('ran', 'w').close()\nraise SystemExit('foreign code ran')\n"


def import_in(folder: Path, *words: str, home: Path = HOME) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(words or ("-c", "import traceviz; print(traceviz.__version__)"))]
    environment = {**os.environ, "PYTHONPATH": str(home)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def refusal(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 1
    return ran.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("path", ["analyzers/__init__.py", "collectors/__init__.py", "analyzers.py"])
def test_a_package_of_the_same_name_in_the_way_is_named_and_never_run(tmp_path: Path, path: str) -> None:
    name, foreign = path.partition("/")[0].removesuffix(".py"), tmp_path / path
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text(FOREIGN)
    message = refusal(import_in(tmp_path))
    assert message.startswith(f"ImportError: traceviz needs its own package '{name}' ({HOME / name}), but Python finds")
    assert str(foreign) in message
    assert not (tmp_path / "ran").exists()


def test_a_foreign_package_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "analyzers").mkdir()
    (tmp_path / "analyzers" / "__init__.py").write_text("")
    assert "needs its own package 'analyzers'" in refusal(import_in(tmp_path, "-c", "import analyzers, traceviz"))


def test_a_plain_folder_of_that_name_does_no_harm(tmp_path: Path) -> None:
    for name in ("analyzers", "collectors"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.csv").write_text("1,2")
    ran = import_in(tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder as of installed packages, with ours in it."""
    for name in ("traceviz", "analyzers", "collectors"):
        shutil.copytree(HOME / name, tmp_path / "site" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "site"


def import_installed(folder: Path) -> subprocess.CompletedProcess[str]:
    """Without what is installed beside the tests, the development install above all."""
    return import_in(folder.parent, "-S", "-c", "import traceviz", home=folder)


def test_what_is_installed_whole_is_imported(installed: Path) -> None:
    ran = import_installed(installed)
    assert (ran.returncode, ran.stderr) == (0, "")


@BY_NAME
def test_what_another_distribution_installed_over_ours_or_took_away_is_named_and_never_run(
    tmp_path: Path, installed: Path, name: str
) -> None:
    own = installed / name / "__init__.py"
    for spoil in (lambda: own.write_text(FOREIGN), own.unlink, lambda: shutil.rmtree(own.parent)):
        spoil()
        message = refusal(import_installed(installed))
        assert message.startswith(f"ImportError: traceviz is not installed whole: {own} is missing, or another")
        assert not (tmp_path / "ran").exists()


def test_the_help_needs_no_pandas(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')\n")
    ran = import_in(tmp_path, "-m", "traceviz", "--help")
    assert (ran.returncode, "check-overlap" in ran.stdout) == (0, True)
