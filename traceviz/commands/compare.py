"""`traceviz compare`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, emit_brief, progress

EPILOG = """\b
Examples:
  traceviz compare "serial.rank*.json.gz" "overlap.rank*.json.gz" -a "nvtx:DP Embedding" -b "nvtx:MP Embedding"
  traceviz compare before/ after/ -a nvtx:optimizer -b nvtx:emb_lookup --claimed 14.7x
  traceviz compare serial.sqlite overlapped.sqlite --timeline before-after.html
  traceviz compare base/ prefetch/ staged/ --label base --label prefetch --label staged --format md

\b
Exit code: 0 fine, 1 a claim that can't be or was not reached, 2 bad input or usage, 3 nothing to compare, too few
steps, or no way to tell."""

_RANK = re.compile(r"[._-]?rank[_-]?[\d*?\[\]!-]*$")


def compare(
    context: typer.Context,
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="BEFORE AFTER...",
            help="Runs, the first to be held against: each a file, a quoted glob, a folder or a manifest.",
            show_default=False,
        ),
    ],
    a: Annotated[
        str | None, typer.Option("-a", metavar="SEL", help="One side of the pair.", show_default="comm")
    ] = None,
    b: Annotated[str | None, typer.Option("-b", metavar="SEL", help="The other side.", show_default="compute")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name of a run; once for each, in order.", show_default="from the path"),
    ] = None,
    claimed: option.Claimed = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the runs below each other, their typical instances aligned: .html, .png or .svg.",
            show_default=False,
        ),
    ] = None,
    accept_apparent: option.AcceptApparent = False,
    ranks: option.Ranks = None,
    steps: option.StepRange = None,
    step_by: option.StepBy = None,
    everything: option.Everything = False,
    window: option.Window = None,
    no_align: option.NoAlign = False,
    nsys: option.Nsys = None,
    comm: option.Comm = None,
    workers: option.Workers = None,
    skip_bad: option.SkipBad = False,
    no_cache: option.NoCache = False,
    memory: option.Memory = None,
    brief: option.Brief = False,
    output: option.OutputFormat = "text",
) -> None:
    """What changed from one run to another, and can a claimed speedup be?

    Step time, overlap, exposed communication and syncs per step, per rank and per region, on the steps that all have.
    """
    options = RunOptions.of(context.params)
    from analyzers.verdict.claim import read_speedup

    if claimed is not None:
        read_speedup(claimed)
    if timeline is not None:
        from traceviz.timelines import files
        from traceviz.timelines.stack import compared

        files.kind_of(timeline)
    from analyzers.compare import compare as analysis
    from traceviz.options.again import CommandLine
    from traceviz.output import brief as briefs
    from traceviz.output import contract
    from traceviz.output.views import compare as view

    with (
        progress() as on_progress,
        options.opened_together([[one] for one in options.paths], on_progress, lists=timeline is not None) as runs,
    ):
        result = analysis.compare(
            runs,
            a,
            b,
            labels=label or labels_of(traces),
            claimed=claimed,
            accept_apparent=options.accept_apparent,
            narrowing=options.narrowing,
        )
        if timeline is not None:
            files.write(timeline, compared(result, runs, options.narrowing))
    if brief:
        emit_brief(result, output, briefs.compare_headlines, briefs.compare, CommandLine(context.params))
    else:
        emit(result, output, view.blocks, contract.comparison)
    raise typer.Exit(result.exit_code)


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Short names of runs by their paths, told apart by a number where they are the same.

    >>> labels_of([Path("a/serial.rank*.json.gz"), Path("b/serial/"), Path("x.sqlite")])
    ['serial', 'serial (2)', 'x']
    """
    from analyzers.readers.formats import SUFFIXES

    suffix = re.compile(rf"(\.pt\.trace)?({'|'.join(map(re.escape, SUFFIXES))})$")
    found: list[str] = []
    for path in paths:
        stem = suffix.sub("", path.name)
        name = _RANK.sub("", stem) or path.parent.name or stem or "run"
        same = sum(known == name or known.startswith(f"{name} (") for known in found)
        found.append(f"{name} ({same + 1})" if same else name)
    return found
