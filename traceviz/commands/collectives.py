"""`traceviz collectives`."""

from __future__ import annotations

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz collectives report.nsys-rep
  traceviz collectives rank*.json.gz --steps 10:13
  traceviz collectives pasted-cuda_gpu_trace.txt --format md

\b
Exit code: 0, 2 bad input or usage, 3 work was lost, so that not all collectives may be on record."""


def collectives(
    context: typer.Context,
    options: RunOptions,
    brief: option.Brief = False,
    output: option.OutputFormat = "text",
) -> None:
    """What did each collective really cost?

    Fastest rank, last arrival, wait and transfer on every rank, end skew and bus bandwidth; how clocks were aligned.
    """
    from analyzers.scale import answers
    from traceviz.output.views import collectives as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.collectives(run, options.narrowing)
    emit(context.params, result, view.blocks, view.document, view.brief, view.brief_document)
    raise typer.Exit(result.exit_code)
