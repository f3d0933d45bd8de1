"""`traceviz streams`."""

from __future__ import annotations

from dataclasses import replace

from analyzers.readers.captures import READING, Reading
from traceviz.answered import Said, answers, said
from traceviz.arguments import Format, NoAlign, Nsys, OutputFormat, Ranks, StepRange, Traces, Window
from traceviz.opened import looked_at
from traceviz.reading_options import reads_by_parts

EPILOG = """\b
Examples:
  traceviz streams report.nsys-rep
  traceviz streams rank0.json.gz rank1.json.gz --steps 1
  traceviz streams captures/ --ranks 0 --window 10ms:25ms --format json"""


@answers
@reads_by_parts
def streams(
    traces: Traces,
    ranks: Ranks = None,
    steps: StepRange = None,
    window: Window = None,
    no_align: NoAlign = False,
    nsys: Nsys = None,
    reading: Reading = READING,
    output: OutputFormat = Format.text,
) -> Said:
    """How many streams were busy at once?

    Per rank and device: time with 0, 1, 2 … busy streams, each stream alone, and which streams overlap.
    """
    from analyzers import streams as concurrency
    from analyzers.scale import answers as parts_answers
    from traceviz import contract
    from traceviz.views import streams as view

    reading = replace(reading, nsys=nsys)
    result = looked_at(
        traces,
        reading,
        parts_answers.streams,
        concurrency.streams,
        ranks=ranks,
        steps=steps,
        window=window,
        align=not no_align,
    )
    return said(result, view.blocks, contract.streams)
