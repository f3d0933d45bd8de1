"""`traceviz syncs`."""

from __future__ import annotations

from functools import partial

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, emit_brief, progress

EPILOG = """\b
Examples:
  traceviz syncs report.nsys-rep
  traceviz syncs rank0.json.gz --steps 10
  traceviz syncs captures/ --ranks 0 --format json

\b
Exit code: 0, 2 bad input or usage, 3 no CUDA calls but launches, or none with names, so that nothing can be told."""


def syncs(
    context: typer.Context,
    traces: option.Traces,
    ranks: option.Ranks = None,
    steps: option.StepRange = None,
    step_by: option.StepBy = None,
    window: option.Window = None,
    no_align: option.NoAlign = False,
    nsys: option.Nsys = None,
    comm: option.Comm = None,
    workers: option.Workers = None,
    skip_bad: option.SkipBad = False,
    no_cache: option.NoCache = False,
    memory: option.Memory = None,
    dask: option.Dask = None,
    brief: option.Brief = False,
    verbose: option.Verbose = False,
    output: option.OutputFormat = "text",
) -> None:
    """Where did the host wait, and is anything unordered?

    Host sync points by the GPU idle time they cost, copies nobody waits for, missing waits between streams, and the
    plan of stream-parallel loops.
    """
    options = RunOptions.of(context.params)
    from analyzers.scale import answers
    from traceviz.options.again import CommandLine
    from traceviz.output import brief as briefs
    from traceviz.output import contract
    from traceviz.output.views import syncs as view

    with progress() as on_progress, options.opened(on_progress, lists=True, by_process=True, calls_alone=True) as run:
        result = answers.syncs(run, options.narrowing, missing_only=True)
    if brief:
        emit_brief(result, output, briefs.sync_headlines, briefs.syncs, CommandLine(context.params))
    else:
        emit(result, output, partial(view.blocks, verbose=verbose), contract.syncs)
    raise typer.Exit(result.exit_code)
