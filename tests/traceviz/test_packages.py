from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]


def import_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(words or ("-c", "import traceviz; print(traceviz.__version__)"))]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["analyzers", "collectors"])
def test_a_package_of_the_same_name_in_the_way_is_named_and_never_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("open('ran', 'w').close()\nraise SystemExit('foreign code ran')\n")
    ran = import_in(tmp_path)
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: traceviz needs its own package '{name}' ({HOME / name}), but Python finds")
    assert str(tmp_path / name) in last
    assert "Run from another folder" in last
    assert not (tmp_path / "ran").exists()


def test_a_module_of_the_same_name_in_the_way_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "analyzers.py").write_text("open('ran', 'w').close()\n")
    ran = import_in(tmp_path)
    assert ran.returncode == 1
    assert str(tmp_path) in ran.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "ran").exists()


def test_a_foreign_package_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "analyzers").mkdir()
    (tmp_path / "analyzers" / "__init__.py").write_text("")
    ran = import_in(tmp_path, "-c", "import analyzers, traceviz")
    assert ran.returncode == 1
    assert "finds another of that name first" in ran.stderr.strip().splitlines()[-1]


def test_a_plain_folder_of_that_name_does_no_harm(tmp_path: Path) -> None:
    for name in ("analyzers", "collectors"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.csv").write_text("1,2")
    ran = import_in(tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_help_needs_no_pandas(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')\n")
    ran = import_in(tmp_path, "-m", "traceviz", "--help")
    assert (ran.returncode, "check-overlap" in ran.stdout) == (0, True)
