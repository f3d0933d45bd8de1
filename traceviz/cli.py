"""The command line: `traceviz COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Annotated

import typer

from analyzers.common.errors import TracevizError
from collectors.errors import CollectError
from traceviz.commands import (
    cache,
    check_overlap,
    collect,
    collectives,
    compare,
    contract,
    counters,
    export,
    history,
    info,
    mcp,
    report,
    show,
    streams,
    syncs,
    timeline,
    what_if,
    workload,
)
from traceviz.options.command import Analysis, Command, Group
from traceviz.output.terminal import fail
from traceviz.version import __version__

app = typer.Typer(
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
command = partial(app.command, cls=Command)
analysis = partial(app.command, cls=Analysis)
analysis("check-overlap", epilog=check_overlap.EPILOG)(check_overlap.check_overlap)
analysis("collectives", epilog=collectives.EPILOG)(collectives.collectives)
analysis("syncs", epilog=syncs.EPILOG)(syncs.syncs)
analysis("streams", epilog=streams.EPILOG)(streams.streams)
analysis("show", epilog=show.EPILOG)(show.show)
analysis("counters", epilog=counters.EPILOG)(counters.counters)
analysis("timeline", epilog=timeline.EPILOG)(timeline.timeline)
analysis("report", epilog=report.EPILOG)(report.report)
analysis("export", epilog=export.EPILOG)(export.export)
analysis("compare", epilog=compare.EPILOG)(compare.compare)
analysis("contract", epilog=contract.EPILOG)(contract.contract)
analysis("what-if", epilog=what_if.EPILOG)(what_if.what_if)
analysis("history", epilog=history.EPILOG)(history.history)
app.add_typer(collect.app, name="collect")
command("workload", epilog=workload.EPILOG)(workload.workload)
analysis("info", epilog=info.EPILOG)(info.info)
command("mcp", epilog=mcp.EPILOG)(mcp.mcp)
command("cache", epilog=cache.EPILOG)(cache.cache)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"traceviz {__version__}")
        raise typer.Exit


@app.callback(epilog="Start with: traceviz info TRACE, then: traceviz check-overlap TRACE.")
def traceviz(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Did it really overlap? A verdict and the evidence from Nsight Systems and torch.profiler traces."""


def _with_what_is_asked(words: Sequence[str]) -> typer.Typer:
    """The app with the command that is asked for alone: typer builds all it has before it runs one."""
    asked = [one for one in app.registered_commands if words and one.name == words[0]]
    if not asked:
        return app
    smaller = copy(app)
    smaller.registered_commands, smaller.registered_groups = asked, []
    return smaller


def main() -> None:
    """Run the command line; errors of the user's become one line and an exit code."""
    try:
        _with_what_is_asked(sys.argv[1:])()
    except TracevizError as error:
        sys.exit(fail(error))
    except CollectError as error:
        sys.exit(fail(TracevizError(error.message, hint=error.hint, exit_code=error.exit_code)))
    except MemoryError:
        hint = "Give fewer ranks at once, or a shorter capture."
        sys.exit(fail(TracevizError("There is not enough memory for these captures.", hint=hint)))
