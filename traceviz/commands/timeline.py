"""`traceviz timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analyzers.readers.captures import READING, Reading
from traceviz.asked import Asked, asks
from traceviz.reading_options import reads_captures
from traceviz.terminal import progress

EPILOG = """\b
Examples:
  traceviz timeline report.nsys-rep
  traceviz timeline rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o overlap.html
  traceviz timeline captures/ --steps 10:12 --ranks 0-3 -o steps.svg
  traceviz timeline report.sqlite --window 10ms:25ms --dark -o window.png

\b
An .html opens anywhere, offline: zoom, pan, point at an op. .png and .svg show what it opens on; they need kaleido
  (pip install 'traceviz-gpu[png]') and Chrome or Chromium."""


@reads_captures
@asks
def timeline(
    asked: Asked,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write: .html, .png or .svg.")
    ] = Path("timeline.html"),
    dark: Annotated[bool, typer.Option("--dark", help="Draw .png and .svg on dark ground; .html has both.")] = False,
    reading: Reading = READING,
) -> None:
    """Draw an aligned timeline of all ranks.

    Marks A, B and their overlap, waits of collectives, host sync points, and what was missed with its cause. It opens
    on the typical instance: the median by real overlap.
    """
    from traceviz.timelines import files

    files.kind_of(output)
    bar, opening = asked.bar, asked.opening
    from analyzers.syncs.report import order_report
    from analyzers.verdict import check
    from traceviz.timelines.picture import picture

    with progress() as tell:
        trace = asked.load(tell, reading)
        result = check.check_overlap(trace, asked.a, asked.b, min_overlap=bar)
        drawn = picture(trace, result, order_report(trace), window=opening)
        files.write(output, drawn, dark=dark)
    typer.echo(f"{output}: opens on {drawn.shown.text}.")
