from __future__ import annotations

import io
import sys

import pytest

from analyzers.common.errors import TracevizError
from traceviz.output import terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, slow: float) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal, "SLOW", slow)
    with terminal.progress() as on_progress:
        on_progress("reading [bold]a[/bold]\x1b[2J.json", 0, 100)
        on_progress("reading [bold]a[/bold]\x1b[2J.json", 100, 100)
        on_progress("of unknown length", 5, 0)
    return stream.getvalue()


def test_work_that_takes_long_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = progress_on(Terminal(), monkeypatch, 0)
    assert "reading [bold]a[/bold]" in shown
    assert "100%" in shown
    assert "\x1b[2J" not in shown


def test_quick_work_and_pipes_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress_on(Terminal(), monkeypatch, 3600) == ""
    assert progress_on(io.StringIO(), monkeypatch, 0) == ""


def test_an_error_is_one_line_with_its_place_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    error = TracevizError("It [bold]is\x1b[31m\nwrong.", path="a\nb.json", hint="Do that." + " x" * 200)
    assert terminal.fail(error) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "\x1b[31m" not in shown
    assert shown.startswith("traceviz: a\N{REPLACEMENT CHARACTER}b.json: It [bold]is")
    assert terminal.fail(TracevizError("No.", exit_code=3)) == 3
    assert capsys.readouterr().err == "traceviz: No.\n"
