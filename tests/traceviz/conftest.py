"""The command line, run in the process of the test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.kineto_files import pair_of_ranges
from traceviz import cli


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def running(*words: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["traceviz", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return running


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A and B of 100 ns each, one after the other and then half together: 200 / 150 = 1.33x of at most 200 / 100."""
    return (
        pair_of_ranges("A", "B", overlap=0).write(tmp_path / "serial.json"),
        pair_of_ranges("A", "B", overlap=50).write(tmp_path / "beside.json"),
    )


def in_a_line(text: str) -> str:
    return " ".join(text.split())
