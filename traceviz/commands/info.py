"""`traceviz info`."""

from __future__ import annotations

import typer

from traceviz.options import arguments as option
from traceviz.options.captures import without
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


@without("ranks steps everything window no_align step_by")
def info(
    context: typer.Context,
    options: RunOptions,
    step_by: option.StepBy = None,
    brief: option.Brief = False,
    output: option.OutputFormat = "text",
) -> None:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    from analyzers.scale import answers
    from traceviz.output import brief as briefs
    from traceviz.output import contract
    from traceviz.output.views import info as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.info(run)
    emit(context.params, result, view.blocks, contract.info, view.brief, briefs.info)
