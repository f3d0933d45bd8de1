"""`traceviz info`."""

from __future__ import annotations

from dataclasses import replace

from analyzers.readers.captures import READING, Reading
from traceviz.answered import Said, answers, said
from traceviz.arguments import Format, Nsys, OutputFormat, Traces
from traceviz.opened import looked_at
from traceviz.reading_options import reads_by_parts

EPILOG = """\b
Examples:
  traceviz info report.nsys-rep
  traceviz info rank*.json.gz --format json"""


@answers
@reads_by_parts
def info(traces: Traces, nsys: Nsys = None, reading: Reading = READING, output: OutputFormat = Format.text) -> Said:
    """What is in these captures?

    Ranks, ranges to select by, steps, and what the captures can't answer.
    """
    from analyzers import info as look
    from analyzers.scale import answers as parts_answers
    from traceviz import contract
    from traceviz.views import info as view

    reading = replace(reading, nsys=nsys)
    result = looked_at(traces, reading, lambda run, _: parts_answers.info(run), look.info)
    return said(result, view.blocks, contract.info)
