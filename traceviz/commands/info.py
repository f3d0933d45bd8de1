"""`traceviz info`."""

from __future__ import annotations

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


def info(
    context: typer.Context,
    traces: option.Traces,
    nsys: option.Nsys = None,
    workers: option.Workers = None,
    skip_bad: option.SkipBad = False,
    no_cache: option.NoCache = False,
    memory: option.Memory = None,
    dask: option.Dask = None,
    output: option.OutputFormat = "text",
) -> None:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    options = RunOptions.of(context.params)
    from analyzers.scale import answers
    from traceviz.output import contract
    from traceviz.output.views import info as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.info(run)
    emit(result, output, view.blocks, contract.info)
