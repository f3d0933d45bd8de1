"""`traceviz syncs`."""

from __future__ import annotations

from traceviz.options.arguments import (
    Dask,
    Format,
    Memory,
    NoAlign,
    NoCache,
    Nsys,
    OutputFormat,
    Ranks,
    SkipBad,
    StepRange,
    Traces,
    Window,
    Workers,
)
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz syncs report.nsys-rep
  traceviz syncs rank0.json.gz --steps 10
  traceviz syncs captures/ --ranks 0 --format json"""


def syncs(
    traces: Traces,
    ranks: Ranks = None,
    steps: StepRange = None,
    window: Window = None,
    no_align: NoAlign = False,
    nsys: Nsys = None,
    workers: Workers = None,
    skip_bad: SkipBad = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    dask: Dask = None,
    output: OutputFormat = Format.text,
) -> None:
    """Where did the host wait, and is anything unordered?

    Host sync points by the GPU idle time they cost, with the operator that brought them; copies nobody waits for;
    missing waits between streams; and the plan of stream-parallel loops.
    """
    options = RunOptions.of(
        traces,
        ranks=ranks,
        steps=steps,
        window=window,
        no_align=no_align,
        nsys=nsys,
        workers=workers,
        skip_bad=skip_bad,
        no_cache=no_cache,
        memory=memory,
        dask=dask,
    )
    from analyzers.scale import answers
    from traceviz.output import contract
    from traceviz.output.views import syncs as view

    with progress() as on_progress, options.opened(on_progress, lists=True) as run:
        result = answers.syncs(run, options.narrowing)
    emit(result, output, view.blocks, contract.syncs)
