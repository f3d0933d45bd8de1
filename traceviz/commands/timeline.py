"""`traceviz timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import progress

EPILOG = """\b
Examples:
  traceviz timeline report.nsys-rep
  traceviz timeline rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o overlap.html
  traceviz timeline captures/ --steps 10:12 --ranks 0-1 -o steps.svg
  traceviz timeline captures/ --what-if "drop-sync nvtx:MP lookup" -o what-if.html
  traceviz timeline report.sqlite --window 10ms:25ms --dark -o window.png

\b
An .html opens anywhere, offline. .png and .svg show what it opens on; they need kaleido
  (pip install 'traceviz-gpu[png]') and Chrome or Chromium.

\b
Exit code: 0, 2 bad input or usage, 3 what --what-if asks can't be predicted, and nothing is drawn."""


@without("dask")
def timeline(
    context: typer.Context,
    *,
    a: option.A = "comm",
    b: option.B = "compute",
    min_overlap: option.MinOverlap = "60%",
    accept_apparent: option.AcceptApparent = False,
    options: RunOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write: .html, .png or .svg.")
    ] = Path("timeline.html"),
    dark: Annotated[bool, typer.Option("--dark", help="Draw .png and .svg on dark ground; .html has both.")] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help="Draw what a change would make of it beneath, predicted (see: traceviz what-if); repeatable.",
            show_default=False,
        ),
    ] = None,
    counters: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="GPU counters to show: sm, issue, tensor, dram, nvlink, pcie, nic, warps, clock.",
            show_default="tensor,dram,nvlink,nic, where captured",
        ),
    ] = None,
) -> None:
    """Draw an aligned timeline of all ranks.

    Marks A, B and their overlap, waits of collectives, host sync points, and what was missed with its cause.
    """
    from traceviz.timelines import files

    files.kind_of(output)
    from traceviz.timelines.areas import DEFAULT, read_counters

    wanted = read_counters(counters) if counters is not None else DEFAULT
    if counters is not None:
        options = replace(options, reading=replace(options.reading, counters=True))
    bar = option.read_ratio(min_overlap)
    from analyzers.trace.narrow import counted
    from analyzers.verdict.with_order import check_with_order
    from traceviz.timelines.picture import picture

    changes = []
    if what_if:
        from analyzers.load import refuse_parts
        from analyzers.replay.answer import parse_change

        changes = [parse_change(text) for text in what_if]
        refuse_parts(options.reading)
    narrowing = options.narrowing
    with progress() as on_progress, options.opened(on_progress, lists=True) as run:
        how: dict[str, Any] = {"min_overlap": bar, "accept_apparent": options.accept_apparent, "narrowing": narrowing}
        result, order = check_with_order(run, a, b, **how)
        drawn = picture(run, result, order, window=options.window, counters=wanted, narrowing=narrowing)
        if changes:
            from traceviz.timelines.stack import with_predicted

            drawn = with_predicted(counted(run.trace, narrowing).of(run.trace), drawn, result, changes, options.window)
        files.write(output, drawn, dark=dark)
    typer.echo(f"{output}: opens on {drawn.shown.text}.")
