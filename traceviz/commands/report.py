"""`traceviz report`."""

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
  traceviz report report.nsys-rep
  traceviz report rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o overlap-report
  traceviz report captures/ --steps 10:20 --min-overlap 80% -o out

\b
Exit code, once all is written: 0 the bar is met, 1 it is not, 3 inconclusive; 2 bad input or usage, nothing written."""


@reads_captures
def report(
    traces: Traces,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into; made where needed.")
    ] = Path("traceviz-report"),
    a: Annotated[str, typer.Option("-a", metavar="SEL", help="One side.")] = "comm",
    b: Annotated[str, typer.Option("-b", metavar="SEL", help="The other side.")] = "compute",
    min_overlap: Annotated[str, typer.Option(metavar="SHARE", help="The bar, as check-overlap takes it.")] = "60%",
    ranks: Ranks = None,
    steps: StepRange = None,
    window: Window = None,
    no_align: NoAlign = False,
    nsys: Nsys = None,
    reading: Reading = READING,
) -> None:
    """Write what a pull request needs: the verdict with its proof.

    summary.md to paste, timeline.png to attach, report.html with every section and the zoomable timeline, and
    results.json.
    """
    bar = read_ratio(min_overlap)
    opening = None if window is None else read_window(window)
    from analyzers import load
    from traceviz import report as reports

    given = (("--ranks", ranks), ("--steps", steps), ("--window", window))
    more = [word for option, value in given if value is not None for word in (option, value)]
    more += ["--no-align"] if no_align else []
    command = reports.command_of(shown(traces), a, b, bar, *more)
    with progress() as tell:
        trace = load.load(shown(traces), nsys_command=nsys, align=not no_align, reading=reading, progress=tell)
        trace = narrowed(trace, ranks, steps, window)
        made = reports.make(trace, a, b, min_overlap=bar, window=opening, command=command)
        written = reports.write(made, output)
    typer.echo(made.picture.headline)
    typer.echo(f"Written to {output}: {', '.join(path.name for path in written)}.")
    if not any(path.suffix == ".png" for path in written):
        typer.echo("There is no timeline.png: it needs Chromium, Chrome or kaleido.", err=True)
    raise typer.Exit(made.overlap.exit_code)
