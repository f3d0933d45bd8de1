"""`traceviz history`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.output.terminal import emit

EPILOG = """\b
Examples:
  traceviz history results.db
  traceviz history results.db -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o trend.html

\b
Exit code: 0 no regression (or too few runs to tell), 1 a regression, 2 bad input or usage, 3 no run of the pair."""


def history(
    context: typer.Context,
    database: Annotated[Path, typer.Argument(metavar="DB", help="What --save wrote.", show_default=False)],
    a: Annotated[
        str | None, typer.Option("-a", metavar="SEL", help="Only pairs of this side …", show_default=False)
    ] = None,
    b: Annotated[str | None, typer.Option("-b", metavar="SEL", help="… and this one.", show_default=False)] = None,
    plot: Annotated[
        Path | None, typer.Option("-o", metavar="HTML", help="Draw the trend into this page.", show_default=False)
    ] = None,
    output: option.OutputFormat = "text",
) -> None:
    """How did a pair's overlap and step time go from run to run?

    Ends with 1 where the newest run is worse than the runs before it scatter, on the same GPUs.
    """
    from analyzers.select import language
    from traceviz.history.database import saved_runs
    from traceviz.history.trends import trends
    from traceviz.output.views import history as view
    from traceviz.timelines.trend import write_plot

    sides = [None if text is None else str(language.parse(text)) for text in (a, b)]
    found = trends(saved_runs(database), *sides)
    if plot is not None:
        write_plot(found, plot)
    emit(context.params, found, view.blocks, view.document)
    raise typer.Exit(3 if not found else int(any(one.call == "regression" for one in found)))
