"""`traceviz export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import progress

if TYPE_CHECKING:
    from analyzers.trace.narrow import Narrowing
    from analyzers.trace.run import Run

EPILOG = """\b
Examples:
  traceviz export rank*.json.gz -a "nvtx:DP Embedding" -b "nvtx:MP Embedding" -o overlap.json.gz
  traceviz export report.nsys-rep --steps 1:3 -o steps.sqlite
  traceviz export captures/ --to parquet -o tables

\b
perfetto (.json, .json.gz): clocks aligned, findings as tracks, for ui.perfetto.dev and chrome://tracing.
sqlite (.sqlite, .db): for SQL and Datasette. parquet: a folder, which traceviz reads back."""


Kind = Literal["perfetto", "parquet", "sqlite"]
_ENDINGS: dict[str, Kind] = {".json": "perfetto", ".json.gz": "perfetto", ".sqlite": "sqlite", ".db": "sqlite"}


@without("everything skip_bad no_cache dask")
def export(
    context: typer.Context,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="The file, or for parquet the folder, to write.")
    ],
    to: Annotated[
        Kind | None, typer.Option("--to", help="What to write.", show_default="by the ending of PATH")
    ] = None,
    a: Annotated[str, typer.Option("-a", metavar="SEL", help="One side of the pair whose overlap is shown.")] = "comm",
    b: Annotated[str, typer.Option("-b", metavar="SEL", help="The other side.")] = "compute",
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier export wrote there.")] = False,
    options: RunOptions,
) -> None:
    """Write a trace for other tools: Perfetto, SQL or data frames.

    All times are whole nanoseconds on one clock. A part (--ranks, --steps, --window) is written without the rest.
    """
    kind = to or kind_of(output)
    from analyzers.common.writing import refuse_existing
    from analyzers.export import parquet as export_parquet
    from analyzers.export import perfetto
    from analyzers.export import sqlite as export_sqlite

    refuse_existing(output, overwrite=force, how="replace it with --force")
    options = replace(options, reading=replace(options.reading, counters=True))
    with progress() as on_progress, options.opened(on_progress, lists=kind != "parquet") as run:
        how: dict[str, Any] = {"narrowing": options.narrowing, "overwrite": force}
        if kind == "parquet":
            export_parquet.to_parquet(run, output, **how)
        elif kind == "sqlite":
            export_sqlite.to_sqlite(run, output, a, b, **how)
        else:
            perfetto.to_perfetto(run, output, a, b, **how)
        ops, found = _counted(run, options.narrowing)
    typer.echo(f"{output}: {ops:,} GPU ops of {found} rank(s), as {kind}.")


def _counted(run: Run, narrowing: Narrowing) -> tuple[int, int]:
    """How many ops and ranks were written."""
    if (narrowing.ranks, narrowing.steps, narrowing.window) == (None, None, None):
        return run.size, len(run.trace.rank_ids)
    parts = [(len(part.ops), part.rank_ids) for part in run.parts(narrowing)]
    return sum(ops for ops, _ in parts), len({rank for _, ranks in parts for rank in ranks})


def kind_of(path: Path) -> Kind:
    """What the ending of a name asks for.

    >>> kind_of(Path("x.json.gz")), kind_of(Path("x.db"))
    ('perfetto', 'sqlite')

    Raises
    ------
    TracevizError : the ending tells nothing.
    """
    for ending, kind in _ENDINGS.items():
        if path.name.lower().endswith(ending):
            return kind
    hint = f"End it in {', '.join(_ENDINGS)}, or say --to perfetto, parquet or sqlite."
    raise TracevizError(f"'{path.name}' does not say what to write.", hint=hint)
