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
from traceviz.options.command import Command, _needs_no_arrow

DATA = Path(__file__).parents[1] / "data"
CAPTURE, NSYS = DATA / "torch" / "item_before.rank0.json.gz", DATA / "nsys"


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


def test_threads_of_linear_algebra_sleep_where_captures_are_looked_at_and_other_programs_keep_theirs() -> None:
    code = f"""if True:
        import os, sys
        from traceviz.cli import main
        sys.argv = ["traceviz", "info", {str(CAPTURE)!r}, "--no-cache"]
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


LOADED = ("pyarrow", "rich.console", "pydantic")


def ran(words: list[str], before: str = "", run: str = "main()") -> tuple[list[str], str]:
    """How pandas keeps texts at the end of a command, whether others are loaded (LOADED), and what it printed."""
    code = f"""if True:
        import sys
        {before}
        from traceviz.cli import main, with_commands
        sys.argv = {["traceviz", *words]!r}
        try:
            {run}
        finally:
            from pandas import DataFrame
            storage = DataFrame({{"text": ["a"]}})["text"].dtype
            loaded = [name in sys.modules for name in {LOADED}]
            print(getattr(storage, "storage", "python"), *loaded, file=sys.stderr)
    """
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return shown.stderr.splitlines()[-1].split(), shown.stdout


@pytest.mark.parametrize("words", [["check-overlap"], ["syncs"]])
def test_a_small_capture_is_answered_without_pyarrow_as_with_it(words: list[str]) -> None:
    asked = [words[0], str(CAPTURE), *words[1:]]
    about, answer = ran(asked)
    assert about == ["python", "False", "False", "False"]
    assert len(answer) > 100
    assert ran(asked, "import pandas, pyarrow")[1] == answer


def test_pandas_has_pyarrow_where_workers_hand_back_texts_and_other_formats_are_read() -> None:
    installed = ran(["info", str(CAPTURE)], "import pandas")[0][0]  # none of pandas 2 keeps texts in it
    for words in (["info", str(CAPTURE), "--memory", "2GB"], ["info", str(CAPTURE), str(NSYS / "dpmp_serial.sqlite")]):
        assert ran(words)[0][0] == installed, words
    assert ran(["info", str(CAPTURE)], run='with_commands(["info"])()')[0][0] == installed  # it may be needed later


SIDE_BY_SIDE = """
from traceviz.options.command import TextAnswer
prepare = TextAnswer.prepare
def prepared(self, ctx):
    prepare(self, ctx)
    from analyzers.readers import captures
    captures.WORTH_WORKERS = captures.WORTH_HANDING_BACK = 0
TextAnswer.prepare = prepared
"""  # however small captures are


def test_workers_hand_tables_over_as_files_which_need_no_pyarrow_in_pandas() -> None:
    ranks = [str(CAPTURE).replace("rank0", f"rank{rank}") for rank in range(4)]
    about, answer = ran(["collectives", *ranks, "--workers", "2", "--no-cache"], f"exec({SIDE_BY_SIDE!r})")
    assert about[:2] == ["python", "True"]  # tables that workers wrote were read
    assert ran(["collectives", *ranks, "--no-cache"], "import pandas, pyarrow")[1] == answer


def test_what_needs_no_pyarrow_is_told_by_the_files_of_all_runs(tmp_path: Path) -> None:
    for name in ("a.json", "b.json.gz"):
        (tmp_path / name).touch()
    folder = str(tmp_path)
    assert _needs_no_arrow({"traces": [folder]})
    assert _needs_no_arrow({"traces": [folder], "baseline": [folder], "workers": 2, "memory": None, "dask": None})
    for option in ("memory", "dask"):
        assert not _needs_no_arrow({"traces": [folder], option: "1"})
    assert not _needs_no_arrow({"traces": [folder], "baseline": [str(tmp_path / "none.json")]})
    assert not _needs_no_arrow({"traces": ["s3://bucket/rank0.json"]})
    assert not _needs_no_arrow({})
    (tmp_path / "b.json.gz").rename(tmp_path / "b.sqlite")
    assert not _needs_no_arrow({"traces": [folder]})
    assert _needs_no_arrow({"traces": [str(tmp_path / "a.json")]})
    assert not _needs_no_arrow({"traces": [str(tmp_path / "a.json")], "baseline": [folder]})
