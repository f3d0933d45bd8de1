"""What is written takes its place whole, and what stood there stays where that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.common.writing import replacing


def folder_with(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text, encoding="utf-8")
    return path


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "folder", "old")
    with replacing(folder) as made:
        folder_with(made, "new")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["folder", "folder/file"]
    assert (folder / "file").read_text(encoding="utf-8") == "new"


def test_a_folder_that_cannot_be_replaced_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path / "folder", "old")

    def refuse(made: Path, target: Path) -> Path:
        assert not folder.exists(), "it has been moved away by then"
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(TracevizError, match="Could not be written: Permission denied"), replacing(folder) as made:
        folder_with(made, "new")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["folder", "folder/file"]
    assert (folder / "file").read_text(encoding="utf-8") == "old"


def test_a_folder_stays_where_the_new_one_was_not_made(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "folder", "old")
    with pytest.raises(ZeroDivisionError), replacing(folder) as made:
        folder_with(made, "half")
        raise ZeroDivisionError
    assert (folder / "file").read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [folder]
