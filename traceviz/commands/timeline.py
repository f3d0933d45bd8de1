"""`traceviz timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceviz.options.arguments import (
    A,
    B,
    MinOverlap,
    NoAlign,
    NoCache,
    Nsys,
    Ranks,
    SkipBad,
    StepRange,
    Traces,
    Window,
    WorkersForAll,
    read_ratio,
)
from traceviz.options.run import RunOptions
from traceviz.output.terminal import progress

EPILOG = """\b
Examples:
  traceviz timeline report.nsys-rep
  traceviz timeline rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o overlap.html
  traceviz timeline captures/ --steps 10:12 --ranks 0-3 -o steps.svg
  traceviz timeline report.sqlite --window 10ms:25ms --dark -o window.png

\b
An .html opens anywhere, offline: zoom, pan, point at an op. .png and .svg show what it opens on; they need kaleido
  (pip install 'traceviz-gpu[png]') and Chrome or Chromium."""


def timeline(
    traces: Traces,
    a: A = "comm",
    b: B = "compute",
    min_overlap: MinOverlap = "60%",
    ranks: Ranks = None,
    steps: StepRange = None,
    window: Window = None,
    no_align: NoAlign = False,
    nsys: Nsys = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write: .html, .png or .svg.")
    ] = Path("timeline.html"),
    dark: Annotated[bool, typer.Option("--dark", help="Draw .png and .svg on dark ground; .html has both.")] = False,
    workers: WorkersForAll = None,
    skip_bad: SkipBad = False,
    no_cache: NoCache = False,
) -> None:
    """Draw an aligned timeline of all ranks.

    Marks A, B and their overlap, waits of collectives, host sync points, and what was missed with its cause. It opens
    on the typical instance: the median by real overlap.
    """
    from traceviz.timelines import files

    files.kind_of(output)
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
    )
    bar = read_ratio(min_overlap)
    from analyzers.syncs.report import order_report
    from analyzers.verdict.check import check_overlap
    from traceviz.timelines.picture import picture

    with progress() as on_progress:
        trace = options.loaded(on_progress)
        result = check_overlap(trace, a, b, min_overlap=bar)
        drawn = picture(trace, result, order_report(trace), window=options.window)
        files.write(output, drawn, dark=dark)
    typer.echo(f"{output}: opens on {drawn.shown.text}.")
