"""`traceviz report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analyzers.readers.captures import READING, Reading
from traceviz.arguments import shown
from traceviz.asked import Asked, asks
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
@asks
def report(
    asked: Asked,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into; made where needed.")
    ] = Path("traceviz-report"),
    reading: Reading = READING,
) -> None:
    """Write what a pull request needs: the verdict with its proof.

    summary.md to paste, timeline.png to attach, report.html with every section and the zoomable timeline, and
    results.json.
    """
    bar, opening = asked.bar, asked.opening
    from traceviz.reports import files

    command = files.command_of(shown(asked.traces), asked.a, asked.b, bar, *asked.narrowing)
    with progress() as tell:
        trace = asked.load(tell, reading)
        made = files.make(trace, asked.a, asked.b, min_overlap=bar, window=opening, command=command)
        written = files.write(made, output)
    typer.echo(made.picture.headline)
    typer.echo(f"Written to {output}: {', '.join(path.name for path in written)}.")
    if not any(path.suffix == ".png" for path in written):
        typer.echo(
            "There is no timeline.png: it needs kaleido (pip install 'traceviz-gpu[png]') and Chrome or Chromium.", err=True
        )
    raise typer.Exit(made.overlap.exit_code)
