"""`traceviz collectives`."""

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
  traceviz collectives report.nsys-rep
  traceviz collectives rank*.json.gz --steps 10:13
  traceviz collectives pasted-cuda_gpu_trace.txt --format md"""


def collectives(
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
    """What did each collective really cost?

    Fastest rank, last arrival, wait and transfer on every rank, end skew and bus bandwidth; how clocks were aligned.
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
    from traceviz.output.views import collectives as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.collectives(run, options.narrowing)
    emit(result, output, view.blocks, contract.collectives)
