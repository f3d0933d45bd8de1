"""`traceviz timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analyzers.reading import READING, Reading
from traceviz.arguments import (
    NoAlign,
    Nsys,
    Ranks,
    StepRange,
    Traces,
    Window,
    narrowed,
    read_ratio,
    read_window,
    shown,
)
from traceviz.reading_options import reads_captures
from traceviz.terminal import progress

EPILOG = """\b
Examples:
  traceviz timeline report.nsys-rep
  traceviz timeline rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o overlap.html
  traceviz timeline captures/ --steps 10:12 --ranks 0-3 -o steps.svg
  traceviz timeline report.sqlite --window 10ms:25ms --dark -o window.png

\b
An .html opens anywhere, offline: zoom, pan, point at an op. .png and .svg show what it opens on; they need Chromium,
  Chrome (on PATH or in $TRACEVIZ_CHROMIUM) or kaleido."""


@reads_captures
def timeline(
    traces: Traces,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write: .html, .png or .svg.")
    ] = Path("timeline.html"),
    a: Annotated[str, typer.Option("-a", metavar="SEL", help="One side.")] = "comm",
    b: Annotated[str, typer.Option("-b", metavar="SEL", help="The other side.")] = "compute",
    min_overlap: Annotated[str, typer.Option(metavar="SHARE", help="The bar, as check-overlap takes it.")] = "60%",
    dark: Annotated[bool, typer.Option("--dark", help="Draw .png and .svg on dark ground; .html has both.")] = False,
    ranks: Ranks = None,
    steps: StepRange = None,
    window: Window = None,
    no_align: NoAlign = False,
    nsys: Nsys = None,
    reading: Reading = READING,
) -> None:
    """Draw an aligned timeline of all ranks.

    Marks A, B and their overlap, waits of collectives, host sync points, and what was missed with its cause. It opens
    on the typical instance: the median by real overlap.
    """
    from traceviz.timelines import files

    files.kind_of(output)
    bar = read_ratio(min_overlap)
    opening = None if window is None else read_window(window)
    from analyzers import check, load
    from analyzers.order_report import order_report
    from traceviz.timelines.picture import picture

    with progress() as tell:
        trace = load.load(shown(traces), nsys_command=nsys, align=not no_align, reading=reading, progress=tell)
        trace = narrowed(trace, ranks, steps, window)
        result = check.check_overlap(trace, a, b, min_overlap=bar)
        drawn = picture(trace, result, order_report(trace), window=opening)
        files.write(output, drawn, dark=dark)
    typer.echo(f"{output}: opens on {drawn.shown.text}.")
