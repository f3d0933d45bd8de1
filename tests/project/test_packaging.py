"""The bounds that `pyproject.toml` claims are those that are tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_lower_bounds_are_the_lowest_versions_tested() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(
        re.fullmatch(r"([\w-]+)>=([\d.]+),<\d+(?:\.\d+)?", requirement).groups()  # type: ignore[union-attr]
        for requirement in project["dependencies"]
    )
    tested = dict(
        re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "tests/constraints-lowest.txt").read_text("utf-8"), re.MULTILINE)
    )
    for needed in re.findall(r"(?:pytest|hypothesis)>=[\d.]+", " ".join(project["optional-dependencies"]["dev"])):
        name, bound = needed.split(">=")
        bounds[name] = bound
    assert all(_padded(tested[name]) == _padded(bound) for name, bound in bounds.items())
    assert tested.keys() == bounds.keys()


def _padded(version: str) -> list[int]:
    return ([int(part) for part in version.split(".")] + [0, 0])[:3]
