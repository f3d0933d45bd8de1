"""`traceviz info`."""

from __future__ import annotations

from analyzers.reading import READING, Reading
from traceviz.arguments import Format, Nsys, OutputFormat, Traces, shown
from traceviz.reading_options import reads_captures
from traceviz.terminal import progress, write

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


@reads_captures
def info(traces: Traces, nsys: Nsys = None, reading: Reading = READING, output: OutputFormat = Format.text) -> None:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    from analyzers import info as look
    from analyzers import load
    from traceviz import contract
    from traceviz.views import info as view

    with progress() as tell:
        result = look.info(load.load(shown(traces), nsys_command=nsys, reading=reading, progress=tell))
    write(output, lambda: view.blocks(result), lambda: contract.info(result))
