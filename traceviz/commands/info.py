"""`traceviz info`."""

from __future__ import annotations

from traceviz.options.arguments import Dask, Format, Memory, NoCache, Nsys, OutputFormat, SkipBad, Traces, Workers
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


def info(
    traces: Traces,
    nsys: Nsys = None,
    workers: Workers = None,
    skip_bad: SkipBad = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    dask: Dask = None,
    output: OutputFormat = Format.text,
) -> None:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    options = RunOptions.of(
        traces, nsys=nsys, workers=workers, skip_bad=skip_bad, no_cache=no_cache, memory=memory, dask=dask
    )
    from analyzers.scale import answers
    from traceviz.output import contract
    from traceviz.output.views import info as view

    with progress() as on_progress, options.opened(on_progress) as run:
        result = answers.info(run)
    emit(result, output, view.blocks, contract.info)
