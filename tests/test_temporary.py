"""What is written for the time of a block is gone after it, wherever in it, before it or behind it a signal came."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from analyzers.common.temporary import temporary_file, temporary_folder
from analyzers.common.writing import create, replacing, replacing_folder
from analyzers.scale import answer_cache

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files not closed


class Interrupted(BaseException):
    """As what the handler of a signal raises."""


def interrupted_at(place: int, work: Callable[[], None]) -> bool:
    """Whether work was interrupted at one of the places where Python looks for signals; it has fewer if not."""
    seen = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        # Python 3.10 leaves a generator without its `finally` where a profiler raises as it goes on; signals don't
        goes_on = event == "call" and frame.f_lasti >= 0 and sys.version_info < (3, 11)
        if event in ("call", "c_return") and not goes_on:
            seen += 1
            if seen == place:
                sys.setprofile(None)
                raise Interrupted

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    except Interrupted:
        return True
    finally:
        sys.setprofile(before)
    return False


def everywhere(work: Callable[[], None], after: Callable[[], None], before: Callable[[], object] = bool) -> int:
    """How many places a piece of work could be interrupted at; each time what holds before it is made to, and looked at
    what holds after it."""
    place = 1
    before()
    while interrupted_at(place, work):
        after()
        place += 1
        before()
    after()
    return place - 1


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_temporary_file_goes(tmp_path: Path) -> None:
    def work() -> None:
        with temporary_file(tmp_path, ".new-") as made:
            made.write_text("half")
            made.write_text("whole")

    def after() -> None:
        assert names(tmp_path) == set()

    assert everywhere(work, after) > 20


def test_a_temporary_folder_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    def work() -> None:
        with temporary_folder(tmp_path) as made:
            (made / "inner").mkdir()
            (made / "inner" / "file").write_text("x")

    def after() -> None:
        assert names(tmp_path) == set()

    assert everywhere(work, after) > 20


@pytest.mark.parametrize("there", [True, False])
def test_a_file_is_the_old_one_or_the_new_one_and_nothing_lies_beside_it(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "page.html"

    def before() -> None:
        path.write_text("old")
        if not there:
            path.unlink()

    def work() -> None:
        with replacing(path) as beside:
            beside.write_text("new")

    def after() -> None:
        assert names(tmp_path) == {"page.html"} if there else names(tmp_path) <= {"page.html"}
        assert not path.exists() or path.read_text() in ("new", "old" if there else "new")

    assert everywhere(work, after, before) > 20
    assert path.read_text() == "new"


def test_what_is_created_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    def work() -> None:
        create(path, lambda beside: beside.write_text("new"))

    def after() -> None:
        assert names(tmp_path) <= {"runs.db"}
        assert not path.exists() or path.read_text() == "new"

    assert everywhere(work, after, before=lambda: path.unlink(missing_ok=True)) > 20
    assert path.read_text() == "new"


def test_a_folder_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "report"

    def work() -> None:
        with replacing_folder(path) as beside:
            (beside / "number").write_text("x" * (len((path / "number").read_text()) + 1))

    def after() -> None:
        assert names(tmp_path) == {"report"}
        assert set((path / "number").read_text()) == {"x"}

    path.mkdir()
    (path / "number").write_text("x")
    assert everywhere(work, after) > 40
    assert len((path / "number").read_text()) > 1


def test_an_answer_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEVIZ_CACHE", str(tmp_path))

    kept = tmp_path / "answers" / "name"

    def work() -> None:
        answer_cache.keep("name", "answer")

    def after() -> None:
        if kept.parent.is_dir():
            assert names(kept.parent) <= {"name"}
        assert not kept.exists() or answer_cache.kept("name") == "answer"

    assert everywhere(work, after, before=lambda: kept.unlink(missing_ok=True)) > 40
    assert answer_cache.kept("name") == "answer"
