"""`traceviz cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.output.terminal import emit

EPILOG = """\b
Examples:
  traceviz cache
  traceviz cache --limit 50GB
  traceviz cache --clear

\b
$TRACEVIZ_CACHE names another folder, or turns the cache off: TRACEVIZ_CACHE=off."""


def cache(
    context: typer.Context,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all that is in it.")] = False,
    limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Keep it at this size from now on.", show_default="20GiB at first"),
    ] = None,
    output: option.OutputFormat = "text",
) -> None:
    """What is kept of captures that were read?

    Captures as tables and nsys exports, so that the next look is quick; the least recently used go first.
    """
    size = None if limit is None else option.read_bytes(limit)
    from analyzers.cache import folder as kept
    from traceviz.output.views import cache as view

    removed = kept.clear() if clear else []
    if size is not None:
        kept.set_limit(size)
        removed += kept.prune(at_once=True)
    state = kept.state(removed)
    emit(context.params, state, view.blocks, view.document)
