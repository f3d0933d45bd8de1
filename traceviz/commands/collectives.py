"""`traceviz collectives`."""

from __future__ import annotations

from dataclasses import replace

from analyzers.reading import READING, Reading
from traceviz.answered import Said, answers, said
from traceviz.arguments import Format, NoAlign, Nsys, OutputFormat, Ranks, StepRange, Traces, Window, narrowed, shown
from traceviz.opened import narrowing_of, run_of
from traceviz.reading_options import reads_by_parts
from traceviz.terminal import progress

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
    from analyzers import collectives as analysis
    from analyzers import load
    from traceviz import contract
    from traceviz.views import collectives as view

    reading = replace(reading, nsys=nsys)
    with progress() as tell:
        if reading.by_parts:
            from analyzers import parts_answers

            with run_of(traces, reading, align=not no_align, progress=tell) as run:
                result = parts_answers.collectives(run, narrowing_of(ranks, steps, window))
        else:
            trace = load.load(shown(traces), align=not no_align, reading=reading, progress=tell)
            result = analysis.collectives_of(narrowed(trace, ranks, steps, window))
    return said(result, view.blocks, contract.collectives)
