"""`traceviz syncs`."""

from __future__ import annotations

from dataclasses import replace

from analyzers.readers.captures import READING, Reading
from traceviz.answered import Said, answers, said
from traceviz.arguments import Format, NoAlign, Nsys, OutputFormat, Ranks, StepRange, Traces, Window
from traceviz.opened import looked_at
from traceviz.reading_options import reads_by_parts

EPILOG = """\b
Examples:
  traceviz syncs report.nsys-rep
  traceviz syncs rank0.json.gz --steps 10
  traceviz syncs captures/ --ranks 0 --format json"""


@answers
@reads_by_parts
def syncs(
    traces: Traces,
    ranks: Ranks = None,
    steps: StepRange = None,
    window: Window = None,
    no_align: NoAlign = False,
    nsys: Nsys = None,
    reading: Reading = READING,
    output: OutputFormat = Format.text,
) -> Said:
    """Where did the host wait, and is anything unordered?

    Host sync points by the GPU idle time they cost, with the operator that brought them; copies nobody waits for;
    missing waits between streams; and the plan of stream-parallel loops.
    """
    from analyzers.scale import answers as parts_answers
    from analyzers.syncs import report as order_report
    from traceviz import contract
    from traceviz.views import syncs as view

    reading = replace(reading, nsys=nsys)
    result = looked_at(
        traces,
        reading,
        parts_answers.syncs,
        order_report.order_report,
        ranks=ranks,
        steps=steps,
        window=window,
        align=not no_align,
    )
    return said(result, view.blocks, contract.syncs)
