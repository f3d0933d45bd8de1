"""`traceviz check-overlap`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from analyzers.common.errors import TracevizError
from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz check-overlap report.nsys-rep
  traceviz check-overlap rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding"
  traceviz check-overlap captures/ -a collective:all_reduce -b compute --min-overlap 80% --steps 10:13
  traceviz check-overlap report.sqlite -a "nvtx:backward+!comm" -b comm --format md
  traceviz check-overlap overlapped/ --baseline serial/ -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" --claimed 1.3x
  traceviz check-overlap after/ --baseline before/ --require-faster --min-overlap 0
  traceviz check-overlap captures/ --brief
  traceviz check-overlap captures/ --save results.db --commit 1a2b3c

\b
Selectors: nvtx:NAME, op:NAME, hlo:NAME, kernel:PART, stream:N, collective:NAME, group:NAME, memcpy:DtoH, comm, compute,
  memcpy, memset, graph, migration (pages of unified memory that the driver moved: no memcpy; migration:fault …).
  NAME may hold *, ~ in front makes it a regular expression; + is and, "," is or, ! is not, ( ) group.

\b
Exit code: 0 the threshold is met, 1 it is not, 2 bad input or usage, 3 inconclusive. With --claimed also 1 for a claim
that can't be or was not reached, 3 where that can't be told; with --require-faster 1 where the step is not FASTER than
the baseline's, 3 where that can't be told."""


def check_overlap(
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
    save: Annotated[
        Path | None,
        typer.Option(metavar="DB", help="Append this run to a history (see: traceviz history).", show_default=False),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The commit to save the run under.", show_default="from CI, else git"),
    ] = None,
    brief: option.Brief = False,
    verbose: option.Verbose = False,
    output: option.OutputFormat = "text",
) -> None:
    """Did A and B really overlap? Verdict and exit code.

    Gives the figures per rank and device, waits of collectives taken out, and ends with an exit code for CI.
    """
    if brief and verbose:
        raise TracevizError("--brief and --verbose exclude each other.", hint="Give one of them.")
    bar = option.read_ratio(min_overlap)
    from analyzers.compare.against import with_baseline
    from analyzers.replay.worth import with_worth
    from analyzers.verdict import check
    from traceviz.output.views import overlap as view

    check.check_against(claimed, require_faster=require_faster, has_baseline=bool(baseline))
    runs = [options.paths, *([baseline] if baseline else [])]
    with progress() as on_progress, options.opened_together(runs, on_progress) as (run, *alone):
        result = check.check_overlap(
            run,
            a,
            b,
            min_overlap=bar,
            baseline=alone[0] if alone else None,
            narrowing=options.narrowing,
            accept_apparent=options.accept_apparent,
        )
        for one in alone:
            result = with_baseline(
                result,
                run,
                one,
                narrowing=options.narrowing,
                claimed=claimed,
                of_pair=option.is_pair_given(context),
                accept_apparent=options.accept_apparent,
                require_faster=require_faster,
            )
        result = with_worth(result, run, options.narrowing, everywhere=output == "json")
        if save is not None:
            from traceviz.history import database

            kept = database.kept(result, run, narrowing=options.narrowing, commit=commit)
    blocks = partial(view.blocks, verbose=verbose)
    emit(context.params, result, blocks, view.document, view.brief, view.brief_document)
    if save is not None:
        database.append(save, kept)
    raise typer.Exit(result.exit_code)
