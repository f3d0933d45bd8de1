"""`traceviz mcp`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from analyzers.common.errors import TracevizError
from traceviz.options import arguments as option

EPILOG = """\b
Examples:
  traceviz mcp --allow captures/
  traceviz mcp --allow /data/traces --allow tests/data --no-cache

\b
Tools: list_captures, info, check_overlap, syncs, collectives, compare, what_if, show; see docs/agents.md for how to
register it. It reads captures in the given folders alone and writes nothing but the cache.

\b
Exit code: 0 the client ended it, 2 bad input or usage, or the extra is not installed."""


def mcp(
    allow: Annotated[
        list[Path],
        typer.Option(
            "--allow", metavar="FOLDER", help="A folder whose captures may be read; repeatable.", show_default=False
        ),
    ],
    nsys: option.Nsys = None,
    comm: option.Comm = None,
    no_cache: option.NoCache = False,
) -> None:
    """Answer assistants over MCP, read-only.

    Serves the commands' brief answers on standard input and output, until the client closes them.
    """
    from traceviz.server.allowed import Allowed

    allowed = Allowed(allow)
    if importlib.util.find_spec("mcp") is None:
        raise TracevizError(
            "The MCP server needs the extra 'mcp', which is not installed.",
            hint="Run: pip install 'traceviz-gpu[mcp]'",
        )
    from traceviz.server.tools import serve

    serve(
        allowed,
        [
            *(["--nsys", nsys] if nsys else []),
            *(["--no-cache"] if no_cache else []),
            *(part for each in comm or () for part in ("--comm", each)),
        ],
    )
