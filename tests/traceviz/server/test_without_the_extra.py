"""`traceviz mcp` where it can't serve: one line that says why."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.traceviz.conftest import Run

find_spec = importlib.util.find_spec


def test_without_the_extra_it_says_what_to_install(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mcp" else find_spec(name))
    code, out, err = run("mcp", "--allow", tmp_path)
    assert (code, out) == (2, "")
    assert err == (
        "traceviz: The MCP server needs the extra 'mcp', which is not installed. Run: pip install 'traceviz-gpu[mcp]'\n"
    )


def test_a_folder_that_is_not_there_is_an_error(run: Run, tmp_path: Path) -> None:
    code, _, err = run("mcp", "--allow", tmp_path / "absent")
    assert code == 2
    assert "There is no such folder. Give --allow a folder of captures." in err


def test_some_folder_has_to_be_given(run: Run) -> None:
    code, _, err = run("mcp")
    assert code == 2
    assert "--allow" in err
