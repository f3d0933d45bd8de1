"""What the tests of the cache share."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.cache import folder as cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of each test's own that takes the smallest captures."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "WORTH_BYTES", 0)
    monkeypatch.setattr(cache, "WORTH_BYTES_PACKED", 0)
    return tmp_path / "cache"
