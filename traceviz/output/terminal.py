"""The terminal: where results go, where progress goes, and how an error ends a command."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from analyzers.common.errors import TracevizError
from analyzers.common.progress import NOTE_SEPARATOR, Progress
from traceviz.options.again import CommandLine
from traceviz.options.arguments import Format
from traceviz.output.document import Block, markdown, plain
from traceviz.output.records import to_json

if TYPE_CHECKING:
    from rich.progress import TaskID

Result = TypeVar("Result")
PIPE_WIDTH = 140  # nobody looks at a pipe through an 80-column window
LEAST_WIDTH = 20
PIECE_CHARACTERS = 1 << 20  # characters
_COLOURS_ASKED = ("FORCE_COLOR", "TTY_COMPATIBLE")  # variables by which rich has colours in a pipe, too
SLOW = 1.0  # seconds before progress is worth showing
_IN_PLAIN_LETTERS = "traceviz.plain"
_PLAIN_LETTERS = {"µ": "u", "–": "-", "…": "...", "•": "-", "×": "x", "\u200b": ""}


def emit(
    given: Mapping[str, Any],
    result: Result,
    blocks: Callable[[Result], Sequence[Block]],
    document: Callable[[Result], dict[str, Any]] = to_json,
    short_blocks: Callable[[Result], Sequence[Block]] | None = None,
    short_document: Callable[[Result, CommandLine], dict[str, Any]] | None = None,
) -> None:
    """Print a result to standard output.

    Parameters
    ----------
    given : a command's `Context.params`: `output` is the format, `brief` asks for the short forms.
    document : what JSON has; by itself all fields of the result.
    short_blocks, short_document : the first lines alone, and what programs and assistants need, on one line of JSON.
    """
    kind: Format = given["output"]
    is_brief = given.get("brief", False)
    if kind != "json":
        put(as_text(kind, (short_blocks if is_brief and short_blocks else blocks)(result)))
    elif is_brief and short_document:
        from traceviz.output.brief import as_line  # which takes numpy's time, as `--help` need not

        put(f"{as_line(short_document(result, CommandLine(given)))}\n")
    else:
        put(as_json(document(result)))


def put(text: str) -> None:
    """Print a text to standard output as far as somebody reads it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_IN_PLAIN_LETTERS)
    try:
        for at in range(0, len(text), PIECE_CHARACTERS):  # encoded all at once, it would be in memory twice
            sys.stdout.write(text[at : at + PIECE_CHARACTERS])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has gone; the exit code still answers
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def as_json(contract: dict[str, Any]) -> str:
    """A result for programs."""
    import msgspec

    # Asked for indents, `json` writes in Python, piece by piece, which takes 2.6 times as long.
    return msgspec.json.format(json.dumps(contract, allow_nan=False), indent=1) + "\n"


def as_text(kind: Format, blocks: Sequence[Block]) -> str:
    """A result for people: Markdown, or as wide as the terminal is."""
    if kind == "md":
        return markdown(blocks)
    from traceviz.output.printed import print_blocks, without_colours

    is_terminal = sys.stdout.isatty()
    if not is_terminal and not any(os.environ.get(name) for name in _COLOURS_ASKED):
        return without_colours(blocks, _pipe_width(), getattr(sys.stdout, "encoding", None) or "utf-8")
    from rich.console import Console

    console = Console(width=None if is_terminal else _pipe_width())
    with console.capture() as captured:  # left to print, it would end the command with 1 at a broken pipe
        print_blocks(blocks, console)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _pipe_width() -> int:
    asked = os.environ.get("COLUMNS", "")
    return max(int(asked), LEAST_WIDTH) if asked.isdecimal() else PIPE_WIDTH


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """For a terminal that lacks a character: the nearest it has."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN_LETTERS.get(character, "?") for character in lacking), error.end


codecs.register_error(_IN_PLAIN_LETTERS, _in_plain_letters)


def fail(error: TracevizError) -> int:
    """Print an error to standard error in the project's form; returns the exit code."""
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors=_IN_PLAIN_LETTERS)
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    where = f"{plain(error.path)}: " if error.path else ""
    console.print("traceviz: ", style="bold red", end="")
    console.print(f"{where}{plain(error.message)}{' ' + plain(error.hint) if error.hint else ''}", markup=False)
    return error.exit_code


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on standard error for work that takes over a second; silent when it is no terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    started = time.monotonic()
    tasks: dict[str, TaskID] = {}

    def on_progress(what: str, done: int, total: int) -> None:
        if time.monotonic() - started < SLOW:
            return
        bars.start()
        work, description = what.partition(NOTE_SEPARATOR)[0], plain(what).replace("[", r"\[")
        if work not in tasks:
            tasks[work] = bars.add_task(description, total=total or None)
        bars.update(tasks[work], description=description, completed=done, total=total or None)

    try:
        yield on_progress
    finally:
        bars.stop()
