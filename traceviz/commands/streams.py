"""`traceviz streams`."""

from __future__ import annotations

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
    traces: option.Traces,
    contention: Annotated[
        bool, typer.Option("--contention", help="Which kernels run slower beside other streams, and beside which.")
    ] = False,
    ranks: option.Ranks = None,
    steps: option.StepRange = None,
    step_by: option.StepBy = None,
    everything: option.Everything = False,
    window: option.Window = None,
    no_align: option.NoAlign = False,
    nsys: option.Nsys = None,
    comm: option.Comm = None,
    workers: option.Workers = None,
    skip_bad: option.SkipBad = False,
    no_cache: option.NoCache = False,
    memory: option.Memory = None,
    dask: option.Dask = None,
    output: option.OutputFormat = "text",
) -> None:
    """How many streams were busy at once?

    Per rank and device: time with 0, 1, 2 … busy streams, each stream alone, and which streams overlap.
    """
    options = RunOptions.of(context.params)
    from analyzers.scale import answers
    from traceviz.output import contract
    from traceviz.output.views import streams as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.streams(run, options.narrowing)
        costs = answers.stream_contention(run, options.narrowing) if contention else None
    emit((result, costs), output, lambda both: view.blocks(*both), lambda both: contract.streams(*both))
