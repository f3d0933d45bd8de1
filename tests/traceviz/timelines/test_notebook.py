"""What a notebook keeps of a timeline; `tests/browser/test_in_notebooks.py` looks at it in a browser."""

from __future__ import annotations

import re
import sys

import pytest

import traceviz as tv
from tests.support.timeline_traces import HOSTILE_PAIR, hostile, two_instances


@pytest.fixture(autouse=True)
def without_kaleido(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)


def test_without_kaleido_words_stand_in_where_no_script_runs() -> None:
    shown, sizes = tv.timeline(two_instances(), "nvtx:A", "nvtx:B").shown()
    assert set(shown) == {"text/html", "text/plain"}
    assert sizes == {}
    assert re.search(r"</iframe><p>.* overlapped .*trust this notebook", shown["text/html"])
    assert shown["text/plain"].startswith("Timeline: ")
    assert len(shown["text/html"]) < 3_000_000, "plotly alone takes 4.8 MB"


def test_names_stay_text_in_the_frame_and_behind_it() -> None:
    shown, _ = tv.timeline(hostile(), *HOSTILE_PAIR).shown()
    assert re.findall(r"<(\w+)", shown["text/html"]) == ["div", "iframe", "p", "script"]


def test_a_figure_that_was_changed_shows_as_plotly_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = tv.timeline(two_instances(), "nvtx:A", "nvtx:B")
    shown: list[str] = []
    monkeypatch.setattr(type(drawn), "shown", lambda self: shown.append("page") or ({}, {}))
    monkeypatch.setattr(type(drawn).__mro__[1], "_ipython_display_", lambda self: shown.append("figure"))
    pytest.importorskip("IPython", reason="a notebook has it")
    drawn._ipython_display_()
    drawn.update_layout(title="mine")
    drawn._ipython_display_()
    assert shown == ["page", "figure"]
