"""`traceviz info`."""

from __future__ import annotations

from analyzers.reading import READING, Reading
from traceviz.answered import Said, answers, said
from traceviz.arguments import Format, Nsys, OutputFormat, Traces, shown
from traceviz.reading_options import reads_captures
from traceviz.terminal import progress

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


@answers
@reads_captures
def info(traces: Traces, nsys: Nsys = None, reading: Reading = READING, output: OutputFormat = Format.text) -> Said:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    from analyzers import info as look
    from analyzers import load
    from traceviz import contract
    from traceviz.views import info as view

    with progress() as tell:
        result = look.info(load.load(shown(traces), nsys_command=nsys, reading=reading, progress=tell))
    return said(result, view.blocks, contract.info)
