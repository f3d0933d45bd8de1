"""Fixtures stay small enough for everybody to clone."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
MOST = 30_000_000  # bytes


def test_fixtures_take_at_most_30_mb() -> None:
    assert (
        sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        <= MOST
    )
