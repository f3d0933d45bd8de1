"""`traceviz what-if`."""

from __future__ import annotations

from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz what-if "tests/data/torch/item_before.rank*.json.gz" --change "drop-sync nvtx:MP lookup" --critical-path
  traceviz what-if rank*.json.gz -a "nvtx:DP tower" -b comm --change "move-wait nvtx:DP tower before nvtx:MP lookup"
  traceviz what-if captures/ --change "scale collective:all_to_all 0.5" --change "on-time all" --format md
  traceviz what-if report.nsys-rep --steps 1:3 --format json

\b
Changes, all of one command line together; SEL, A and B are selectors, as for check-overlap:
drop-sync SEL: host-blocking calls issued in SEL return at once
drop-wait A on B: A's stream no longer waits for B's unfinished work
move-wait A before B: A is submitted, with its waits, before B's host code runs
own-stream SEL [join-before SEL]: SEL's work on a stream of its own, joined there, or where the range around it ends
on-time RANK|all: that rank's host is as early at its collectives as the others' hosts
scale SEL FACTOR: SEL's kernels take FACTOR of their time alone
split SEL N: a collective in N pieces, each behind the piece of the work that feeds it
graph SEL: SEL launched as one CUDA graph
more-room SEL: SEL leaves room for others beside it, and takes no longer for it
level SEL: host code of SEL takes no rank longer than the median of the others

\b
Exit code: 0 predicted, 2 bad input or usage, 3 nothing could be predicted: the reason is said."""


@without("memory dask")
def what_if(
    context: typer.Context,
    *,
    a: option.A = "comm",
    b: option.B = "compute",
    change: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help='What to try, such as "drop-sync nvtx:lookup"; repeatable, all together.',
            show_default="each that the capture suggests, and the first two together",
        ),
    ] = None,
    critical_path: Annotated[
        bool, typer.Option("--critical-path", help="What the steps rest on now, segment by segment.")
    ] = False,
    options: RunOptions,
    brief: option.Brief = False,
    output: option.OutputFormat = "text",
) -> None:
    """What is a fix worth? Step time and overlap, predicted.

    Runs the captured program again as a graph of tasks, with something changed. Where it can't reproduce the capture
    itself, it predicts nothing and says why.
    """
    from analyzers.replay import answer
    from analyzers.replay.answer import parse_change
    from traceviz.output.views import what_if as view

    wanted = [parse_change(text) for text in change or ()]
    with progress() as on_progress:
        trace, part = options.loaded(on_progress), options.narrowing
        result = answer.what_if(trace, wanted, a, b, critical_path=critical_path, narrowing=part, progress=on_progress)
    emit(context.params, result, view.blocks, view.document, view.brief, view.brief_document)
    raise typer.Exit(result.exit_code)
