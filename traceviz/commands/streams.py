"""`traceviz streams`."""

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
  traceviz streams report.nsys-rep
  traceviz streams rank0.json.gz rank1.json.gz --steps 1
  traceviz streams captures/ --ranks 0 --window 10ms:25ms --format json"""


def streams(
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
    """How many streams were busy at once?

    Per rank and device: time with 0, 1, 2 … busy streams, each stream alone, and which streams overlap.
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
    from traceviz.output.views import streams as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.streams(run, options.narrowing)
    emit(result, output, view.blocks, contract.streams)
