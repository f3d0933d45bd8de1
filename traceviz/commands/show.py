"""`traceviz show`."""

from __future__ import annotations

from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz show "tests/data/torch/item_before.rank*.json.gz" coll:3
  traceviz show report.nsys-rep sync:r1:6861383 --format json
  traceviz show rank*.json.gz gap:r0.d0:2874848 -a "nvtx:DP Embedding" -b "nvtx:MP Embedding"

\b
Ids: gap:rRANK.dDEVICE:NS, inst:rRANK.dDEVICE:NS, sync:rRANK:NS, coll:NUMBER; NS is when it begins, on the trace's
clock. check-overlap, syncs and collectives list them with --format json. A gap and an instance are of a pair: give the
-a and -b that they were named with.

\b
Exit code: 0, 2 bad input or usage, or no such id."""


@without("memory dask")
def show(
    context: typer.Context,
    *,
    finding: Annotated[
        str, typer.Argument(metavar="ID", help="A gap, an instance, a sync or a collective.", show_default=False)
    ],
    a: option.A = "comm",
    b: option.B = "compute",
    options: RunOptions,
    output: option.OutputFormat = "text",
) -> None:
    """What is this gap, instance, sync or collective?

    Tells one finding by its id: when, in which step, the evidence in words, what it is related to.
    """
    from analyzers.common.ids import read_id
    from analyzers.show.show import show as look_up
    from traceviz.output.views import show as view

    read_id(finding)  # before captures are read
    with progress() as on_progress:
        result = look_up(options.loaded(on_progress), finding, a, b, narrowing=options.narrowing)
    emit({**context.params, "brief": True}, result, view.blocks, short_document=view.brief_document)
