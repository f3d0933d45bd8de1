"""`traceviz syncs`."""

from __future__ import annotations

from functools import partial

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz syncs report.nsys-rep
  traceviz syncs rank0.json.gz --steps 10
  traceviz syncs captures/ --ranks 0 --format json

\b
Exit code: 0, 2 bad input or usage, 3 no CUDA calls but launches, or none with names, so that nothing can be told."""


@without("everything")
def syncs(
    context: typer.Context,
    options: RunOptions,
    brief: option.Brief = False,
    verbose: option.Verbose = False,
    output: option.OutputFormat = "text",
) -> None:
    """Where did the host wait, and is anything unordered?

    Host sync points by the GPU idle time they cost, copies nobody waits for, missing waits between streams, and the
    plan of stream-parallel loops.
    """
    from analyzers.scale import answers
    from traceviz.output.views import syncs as view

    with progress() as on_progress, options.opened(on_progress, lists=True, calls_alone=True) as run:
        result = answers.syncs(run, options.narrowing, missing_only=True)
    blocks = partial(view.blocks, verbose=verbose)
    emit(context.params, result, blocks, view.document, view.brief, view.brief_document)
    raise typer.Exit(result.exit_code)
