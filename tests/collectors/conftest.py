from __future__ import annotations

from pathlib import Path

import pytest

from collectors.errors import CollectError
from collectors.nsys_command import Nsys
from traceviz.commands.collect import find_nsys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name needs quoting; without a double quote, with which nsys, told to stop, loses its report."""
    folder = tmp_path / "it's 50%p -é"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def nsys() -> Nsys:
    try:
        return find_nsys()
    except CollectError:
        pytest.skip("no nsys is installed here (tools/install-nsys.sh puts one on Debian)")
