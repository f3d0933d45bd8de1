"""The command line: `traceviz COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from analyzers.common.errors import TracevizError
from collectors.errors import CollectError
from traceviz import __version__
from traceviz.options.captures import with_run_options
from traceviz.options.command import OWN_PROCESS, Analysis, Command, Group, TextAnswer
from traceviz.output.terminal import fail

# In the order of `--help`; each is the function of its name in the module of its name, or a group of commands.
COMMANDS: dict[str, type[Command] | None] = {
    "check-overlap": TextAnswer,
    "collectives": TextAnswer,
    "syncs": TextAnswer,
    "streams": TextAnswer,
    "show": TextAnswer,
    "counters": TextAnswer,
    "timeline": Analysis,
    "report": Analysis,
    "export": Analysis,
    "compare": TextAnswer,
    "contract": Analysis,
    "what-if": TextAnswer,
    "history": Analysis,
    "collect": None,
    "workload": Command,
    "info": TextAnswer,
    "mcp": Command,
    "cache": Command,
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"traceviz {__version__}")
        raise typer.Exit


def traceviz(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Did it really overlap? A verdict and the evidence from Nsight Systems and torch.profiler traces."""


def with_commands(names: Sequence[str], *, listed: bool = False) -> typer.Typer:
    """The app with some of its commands: to import them all, and have typer build them, takes its time.

    listed : only so that they are listed: without their options, which take typer longest to build, none can be run.
    """
    found = typer.Typer(
        cls=Group,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    found.callback(epilog="Start with: traceviz info TRACE, then: traceviz check-overlap TRACE.")(traceviz)
    for name in names:
        kind, here = COMMANDS[name], name.replace("-", "_")
        module = import_module(f"traceviz.commands.{here}")
        if kind is None:
            found.add_typer(typer.Typer(help=module.app.info.help) if listed else module.app, name=name)
        elif listed:
            found.command(name, help=getattr(module, here).__doc__)(_nothing)
        else:
            found.command(name, cls=kind, epilog=module.EPILOG)(with_run_options(getattr(module, here)))
    return found


def _nothing() -> None:
    """A command that is not run."""


def __getattr__(name: str) -> Any:
    """`app` has all commands, which are imported when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = with_commands(list(COMMANDS))
    return globals()[name]


def main() -> None:
    """Run the command line; errors of the user's become one line and an exit code."""
    try:
        asked = [name for name in sys.argv[1:2] if name in COMMANDS]
        only_options = all(word.startswith("-") for word in sys.argv[1:])  # no command is among them
        with_commands(asked or list(COMMANDS), listed=only_options)(obj=OWN_PROCESS)
    except TracevizError as error:
        sys.exit(fail(error))
    except CollectError as error:
        sys.exit(fail(TracevizError(error.message, hint=error.hint, exit_code=error.exit_code)))
    except MemoryError:
        hint = "Give fewer ranks at once, or a shorter capture."
        sys.exit(fail(TracevizError("There is not enough memory for these captures.", hint=hint)))
