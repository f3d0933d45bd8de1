"""`traceviz counters`."""

from __future__ import annotations

import typer
from msgspec.structs import replace

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz counters report.sqlite
  traceviz counters report.sqlite -a comm -b "kernel:~nvjet"
  traceviz counters report.sqlite --memory 4GB
  traceviz counters report.sqlite --ranks 0-1 --format json"""


def counters(
    context: typer.Context,
    *,
    a: option.A = "comm",
    b: option.B = "compute",
    options: RunOptions,
    output: option.OutputFormat = "text",
) -> None:
    """What did the hardware do while A, B, both or neither ran?

    From GPU counters that nsys sampled: means and P90 by state, and what A and B likely contend for.
    """
    from analyzers.counters import by_state
    from traceviz.output.views import counters as view

    options = replace(options, reading=replace(options.reading, counters=True))
    with progress() as on_progress, options.opened(on_progress) as run:
        result = by_state.counters(run, a, b, options.narrowing)
    emit(context.params, result, view.blocks, view.document)
