"""`traceviz report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.options.again import flag_of
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import progress

EPILOG = """\b
Examples:
  traceviz report report.nsys-rep
  traceviz report rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o overlap-report
  traceviz report captures/ --steps 10:20 --min-overlap 80% -o out
  traceviz report overlapped/ --baseline serial/ -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" --claimed 1.3x

\b
Exit code, once all is written: 0 the threshold is met, 1 it is not, 3 inconclusive; 2 bad input or usage, nothing
written. With --claimed also 1 for a claim that can't be or was not reached, 3 where that can't be told; with
--require-faster 1 where the step is not FASTER than the baseline's, 3 where that can't be told."""


@without("dask")
def report(
    context: typer.Context,
    *,
    a: option.A = "comm",
    b: option.B = "compute",
    min_overlap: option.MinOverlap = "60%",
    accept_apparent: option.AcceptApparent = False,
    options: RunOptions,
    baseline: option.Baseline = None,
    claimed: option.Claimed = None,
    require_faster: option.RequireFaster = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into; made where needed.")
    ] = Path("traceviz-report"),
) -> None:
    """Write what a pull request needs: the verdict with its proof.

    summary.md to paste, timeline.png to attach, report.html with every section and the zoomable timeline, and
    results.json.
    """
    bar = option.read_ratio(min_overlap)
    from analyzers.verdict.check import check_against
    from traceviz.output.views import claim
    from traceviz.reports import files
    from traceviz.reports.report import command_of, make

    check_against(claimed, require_faster=require_faster, has_baseline=bool(baseline))
    of_pair = option.is_pair_given(context)
    given = context.params
    named = [(flag_of(name), given[name]) for name in ("ranks", "steps", "step_by", "window")]
    more = [word for flag, value in named if value is not None for word in (flag, value)]
    more += ["--all"] * options.everything + ["--no-align"] * (not options.align)
    more += ["--accept-apparent"] * accept_apparent + ["--require-faster"] * require_faster
    command = command_of(options.paths, a, b, bar, *more, baseline=baseline or (), claimed=claimed, of_pair=of_pair)
    runs = [options.paths, *([baseline] if baseline else [])]
    with progress() as on_progress, options.opened_together(runs, on_progress, lists=True) as (run, *alone):
        made = make(
            run,
            a,
            b,
            min_overlap=bar,
            baseline=alone[0] if alone else None,
            claimed=claimed,
            of_pair=of_pair,
            require_faster=require_faster,
            narrowing=options.narrowing,
            accept_apparent=options.accept_apparent,
            command=command,
        )
        written = files.write(made, output)
    typer.echo(made.picture.headline)
    for one in claim.blocks(made.overlap.claim, made.overlap.claim_reason):
        typer.echo(f"{one.word}: {one.text}")
    typer.echo(f"Written to {output}: {', '.join(path.name for path in written)}.")
    if not any(path.suffix == ".png" for path in written):
        typer.echo(
            "There is no timeline.png: it needs kaleido (pip install 'traceviz-gpu[png]') and Chrome or Chromium.",
            err=True,
        )
    raise typer.Exit(made.overlap.exit_code)
