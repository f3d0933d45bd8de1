"""`traceviz info`."""

from __future__ import annotations

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, emit_brief, progress

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


def info(
    context: typer.Context,
    traces: option.Traces,
    nsys: option.Nsys = None,
    comm: option.Comm = None,
    step_by: option.StepBy = None,
    workers: option.Workers = None,
    skip_bad: option.SkipBad = False,
    no_cache: option.NoCache = False,
    memory: option.Memory = None,
    dask: option.Dask = None,
    brief: option.Brief = False,
    output: option.OutputFormat = "text",
) -> None:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    options = RunOptions.of(context.params)
    from analyzers.scale import answers
    from traceviz.options.again import CommandLine
    from traceviz.output import brief as briefs
    from traceviz.output import contract
    from traceviz.output.views import info as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.info(run)
    if brief:
        emit_brief(result, output, briefs.info_headlines, briefs.info, CommandLine(context.params))
    else:
        emit(result, output, view.blocks, contract.info)
