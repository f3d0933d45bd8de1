"""`traceviz info`."""

from __future__ import annotations

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


@without("ranks steps everything window no_align")
def info(
    context: typer.Context,
    options: RunOptions,
    brief: option.Brief = False,
    output: option.OutputFormat = "text",
) -> None:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    from analyzers.scale import answers
    from traceviz.output.views import info as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.info(run)
    emit(context.params, result, view.blocks, view.document, view.brief, view.brief_document)
