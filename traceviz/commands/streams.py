"""`traceviz streams`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz streams report.nsys-rep
  traceviz streams rank*.json.gz --contention
  traceviz streams captures/ --ranks 0 --window 10ms:25ms --format json"""


def streams(
    context: typer.Context,
    *,
    contention: Annotated[
        bool, typer.Option("--contention", help="Which kernels run slower beside other streams, and beside which.")
    ] = False,
    options: RunOptions,
    output: option.OutputFormat = "text",
) -> None:
    """How many streams were busy at once?

    Per rank and device: time with 0, 1, 2 … busy streams, each stream alone, and which streams overlap.
    """
    from analyzers.scale import answers
    from traceviz.output.views import streams as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.streams(run, options.narrowing)
        costs = answers.stream_contention(run, options.narrowing) if contention else None
    emit(context.params, result, partial(view.blocks, costs=costs), partial(view.document, costs=costs))
