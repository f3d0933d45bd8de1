"""Commands read texts, choices and what is not given as typer would, without pydantic."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from traceviz.cli import app, main
from traceviz.options.command import Command

DATA = Path(__file__).parents[1] / "data"
CAPTURE = str(DATA / "torch" / "item_before.rank0.json.gz")


def told(context: typer.Context, value: str | None) -> str:
    """What an option's callback makes of its value."""
    return f"{context.info_name} {value}"


def every_kind(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument()],
    text: str = "text",
    perhaps: str | None = None,
    several: list[str] | None = None,
    choice: Literal["a", "b"] = "a",
    number: Annotated[int | None, typer.Option(min=1)] = None,
    place: Path | None = None,
    flag: bool = False,
    called: Annotated[str | None, typer.Option(callback=told)] = None,
) -> None:
    print(sorted(context.params.items()))


@pytest.mark.parametrize(
    "line",
    [
        "one", "one two --text= --perhaps x", "one --several x --several y --choice b", "one --number 3 --place /tmp",
        "one --flag --called x", "--help", "", "one --choice c", "one --number 0", "one --number x", "one --text",
    ],
)  # fmt: skip
def test_a_command_reads_its_line_as_typer_does(line: str) -> None:
    def answer(**settings: Any) -> tuple[int, str]:
        app = typer.Typer(rich_markup_mode=None)
        app.command("name", **settings)(every_kind)
        result = CliRunner().invoke(app, line.split(" ") if line else [])
        return result.exit_code, result.output

    assert answer(cls=Command) == answer()


@pytest.mark.parametrize(
    "line", ["--help", "-h", "", "--version", "--verson", "-- -h", "--", "--help info", "-- info -h"]
)
def test_a_line_that_runs_no_command_says_what_the_whole_program_says(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["traceviz", *line.split()])

    def answer(run: Callable[[], object]) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            run()
        return ended.value.code, *capsys.readouterr()

    assert answer(main) == answer(app)


LONG_TO_LOAD = ("pydantic", "pandas", "pyarrow", "plotly", "rich.console")
RANKS = [str(DATA / "torch" / f"dpmp_overlap.rank{rank}.json.gz") for rank in range(2)]
SMALL = (
    *(([name, *RANKS], []) for name in ("check-overlap", "syncs", "collectives", "streams", "info", "what-if")),
    (["compare", CAPTURE, CAPTURE], ["pydantic"]),  # which reads paths
    (["check-overlap", str(DATA / "nsys" / "a2a_async.2gpu.sqlite")], ["pyarrow"]),
)


@pytest.mark.parametrize(("words", "loaded"), SMALL)
def test_small_captures_are_answered_without_what_takes_long_to_load(words: list[str], loaded: list[str]) -> None:
    code = f"""if True:
        import sys
        from traceviz.cli import main
        sys.argv = {["traceviz", *words, "--no-cache"]!r}
        try:
            main()
        finally:
            print([name for name in {LONG_TO_LOAD!r} if name in sys.modules])
    """
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert len(shown) > 100
    assert shown.splitlines()[-1] == str(loaded)


def test_threads_of_linear_algebra_sleep_where_captures_are_looked_at_and_other_programs_keep_theirs() -> None:
    code = f"""if True:
        import os, sys
        from traceviz.cli import main
        sys.argv = ["traceviz", "info", {CAPTURE!r}, "--no-cache"]
        found = []
        sys.addaudithook(lambda event, about: event == "import" and about[0] == "numpy" and found.append(asked()))
        def asked():
            return os.environ.get("OPENBLAS_THREAD_TIMEOUT")
        try:
            main()
        finally:
            print(found[0])
    """
    unset = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=unset).stdout
    assert shown.splitlines()[-1] == "4"  # before numpy starts them
    starting = {one.name for one in app.registered_commands if one.cls is Command}
    assert starting == {"workload", "mcp", "cache"}
