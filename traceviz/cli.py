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
from traceviz.options.command import Analysis, Command, Group
from traceviz.options.run import with_run_options
from traceviz.output.terminal import fail

# In the order of `--help`; each is the function of its name in the module of its name, or a group of commands.
COMMANDS = (
    "check-overlap",
    "collectives",
    "syncs",
    "streams",
    "show",
    "counters",
    "timeline",
    "report",
    "export",
    "compare",
    "contract",
    "what-if",
    "history",
    "collect",
    "workload",
    "info",
    "mcp",
    "cache",
)
WITHOUT_CAPTURES = ("collect", "workload", "mcp", "cache")  # that look at no captures in this process


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


def with_commands(names: Sequence[str]) -> typer.Typer:
    """The app with some of its commands: to have typer build them all takes as long as a small answer."""
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
        here = name.replace("-", "_")
        module = import_module(f"traceviz.commands.{here}")
        if hasattr(module, "app"):
            found.add_typer(module.app, name=name)
        else:
            kind = Command if name in WITHOUT_CAPTURES else Analysis
            found.command(name, cls=kind, epilog=module.EPILOG)(with_run_options(getattr(module, here)))
    return found


def __getattr__(name: str) -> Any:
    """`app` has all commands, which are imported when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = with_commands(COMMANDS)
    return globals()[name]


def main() -> None:
    """Run the command line; errors of the user's become one line and an exit code."""
    asked = [name for name in sys.argv[1:2] if name in COMMANDS]
    try:
        with_commands(asked or COMMANDS)()
    except TracevizError as error:
        sys.exit(fail(error))
    except CollectError as error:
        sys.exit(fail(TracevizError(error.message, hint=error.hint, exit_code=error.exit_code)))
    except MemoryError:
        hint = "Give fewer ranks at once, or a shorter capture."
        sys.exit(fail(TracevizError("There is not enough memory for these captures.", hint=hint)))
