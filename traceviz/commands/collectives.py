"""`traceviz collectives`."""

from __future__ import annotations

from dataclasses import replace

from analyzers.readers.captures import READING, Reading
from traceviz.answered import Said, answers, said
from traceviz.arguments import Format, NoAlign, Nsys, OutputFormat, Ranks, StepRange, Traces, Window
from traceviz.opened import looked_at
from traceviz.reading_options import reads_by_parts

EPILOG = """\b
Examples:
  traceviz collectives report.nsys-rep
  traceviz collectives rank*.json.gz --steps 10:13
  traceviz collectives pasted-cuda_gpu_trace.txt --format md"""


@answers
@reads_by_parts
def collectives(
    traces: Traces,
    ranks: Ranks = None,
    steps: StepRange = None,
    window: Window = None,
    no_align: NoAlign = False,
    nsys: Nsys = None,
    reading: Reading = READING,
    output: OutputFormat = Format.text,
) -> Said:
    """What did each collective really cost?

    Fastest rank, last arrival, wait and transfer on every rank, end skew and bus bandwidth; how clocks were aligned.
    """
    from analyzers.collectives import report as analysis
    from analyzers.scale import answers as parts_answers
    from traceviz import contract
    from traceviz.views import collectives as view

    reading = replace(reading, nsys=nsys)
    result = looked_at(
        traces,
        reading,
        parts_answers.collectives,
        analysis.collectives_of,
        ranks=ranks,
        steps=steps,
        window=window,
        align=not no_align,
    )
    return said(result, view.blocks, contract.collectives)
