"""`traceviz check-overlap`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from analyzers.common.errors import TracevizError
from analyzers.readers.captures import READING, Reading
from traceviz.answered import Said, answers, said
from traceviz.arguments import Format, OutputFormat, shown
from traceviz.asked import Asked, asks
from traceviz.opened import narrowing_of, run_of
from traceviz.reading_options import reads_by_parts
from traceviz.terminal import progress

EPILOG = """\b
Examples:
  traceviz check-overlap report.nsys-rep
  traceviz check-overlap rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding"
  traceviz check-overlap captures/ -a collective:all_reduce -b compute --min-overlap 80% --steps 10:13
  traceviz check-overlap report.sqlite -a "nvtx:backward+!comm" -b comm --format md
  traceviz check-overlap overlapped/ --baseline serial/ -a "nvtx:DP Embedding" -b "nvtx:MP Embedding"
  traceviz check-overlap captures/ --save results.db --commit 1a2b3c
  traceviz check-overlap captures/ --memory 8GB --skip-bad

\b
Selectors: nvtx:NAME, op:NAME, kernel:PART, stream:N, collective:NAME, memcpy:DtoH, comm, compute, memcpy, memset.
  NAME may hold *, ~ in front makes it a regular expression; + is and, "," is or, ! is not, ( ) group.

\b
Exit code: 0 the bar is met, 1 it is not, 2 bad input or usage, 3 inconclusive."""


@answers
@reads_by_parts
@asks
def check_overlap(
    asked: Asked,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACE", help="A run without the overlap, to say what it gained; repeatable.", show_default=False
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DB", help="Append this run to a history (see: traceviz history).", show_default=False),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The commit to save the run under.", show_default="from CI, else git"),
    ] = None,
    reading: Reading = READING,
    output: OutputFormat = Format.text,
) -> Said:
    """Did A and B really overlap? Verdict and exit code.

    Gives the figures per rank and device, waits of collectives taken out, and ends with an exit code for CI.
    """
    bar = asked.bar
    from analyzers.verdict import check
    from traceviz import contract
    from traceviz.views import overlap

    if reading.by_parts and save is not None:
        raise TracevizError(
            "A run whose ranks are looked at one by one can't be saved.", hint="Leave out --memory or --dask."
        )
    with progress() as tell, ExitStack() as stack:
        if reading.by_parts:
            from analyzers.scale import answers as parts_answers

            reading = replace(reading, nsys=asked.nsys)
            runs = [
                stack.enter_context(run_of(paths, reading, align=not asked.no_align, progress=tell))
                for paths in (asked.traces, baseline)
                if paths
            ]
            result = parts_answers.check_overlap(
                runs[0],
                asked.a,
                asked.b,
                min_overlap=bar,
                baseline=runs[1] if baseline else None,
                narrowing=narrowing_of(asked.ranks, asked.steps, asked.window),
            )
        else:
            trace = asked.load(tell, reading)
            alone = asked.whole(shown(baseline), tell, reading) if baseline else None
            result = check.check_overlap(trace, asked.a, asked.b, min_overlap=bar, baseline=alone)
    if save is None:
        return said(result, overlap.blocks, contract.overlap)
    from traceviz import history

    return said(result, overlap.blocks, contract.overlap, lambda: history.save(save, result, trace, commit=commit))
