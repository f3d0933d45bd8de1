from __future__ import annotations

import pytest

from analyzers.readers.kineto import fast


@pytest.fixture(autouse=True)
def _small_files_are_read_as_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """By themselves pieces of a few events are decoded one by one, and most files here have no others."""
    monkeypatch.setattr(fast, "SCANNED_BYTES", 0)
