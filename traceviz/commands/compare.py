"""`traceviz compare`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import emit, progress

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


@without("dask")
def compare(
    context: typer.Context,
    *,
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
    options: RunOptions,
    brief: option.Brief = False,
    output: option.OutputFormat = "text",
) -> None:
    """Compare two runs; check a claimed speedup.

    Step time, overlap, exposed communication and syncs per step, per rank and per region, on the steps that all have.
    """
    from analyzers.verdict.claim import read_speedup

    if claimed is not None:
        read_speedup(claimed)
    if timeline is not None:
        from traceviz.timelines import files
        from traceviz.timelines.stack import compared

        files.kind_of(timeline)
    from analyzers.compare import compare as analysis
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
    emit(context.params, result, view.blocks, view.document, view.brief, view.brief_document)
    raise typer.Exit(result.exit_code)


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Short names of runs: their files', with as many folders as it takes to tell them apart.

    >>> labels_of([Path("a/serial.rank*.json.gz"), Path("b/serial/"), Path("x.sqlite"), Path("before/*")])
    ['a/serial', 'b/serial', 'x', 'before']
    """
    parts = [_parts(path) for path in paths]
    found = [one[-1] for one in parts]
    for i, own in enumerate(parts):
        alike = [other for k, other in enumerate(parts) if k != i and other[-1] == own[-1] and other != own]
        most = max((_common_end(own, other) for other in alike), default=0)
        found[i] = "/".join(own[-most - 1 :])
    names = [path.name for path in paths]
    is_clear = [names.count(name) == 1 and found.count(label) > 1 for name, label in zip(names, found, strict=True)]
    found = [name if clear else label for name, label, clear in zip(names, found, is_clear, strict=True)]
    return [f"{label} ({found[:i].count(label) + 1})" if label in found[:i] else label for i, label in enumerate(found)]


def _parts(path: Path) -> tuple[str, ...]:
    """The folders of a run and its name, which is the last folder's where files are named by rank or by * alone."""
    from analyzers.readers.formats import SUFFIXES

    suffix = re.compile(rf"(\.pt\.trace)?({'|'.join(map(re.escape, SUFFIXES))})$")
    stem = suffix.sub("", path.name)
    name = _RANK.sub("", stem).strip("*?._-")
    folders = tuple(one for one in path.parent.parts if one not in ("/", "."))
    return (*folders, name) if name else folders or (stem or "run",)


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """How many parts from the end on two paths have in common."""
    count = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        count += 1
    return count
