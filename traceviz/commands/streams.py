"""`traceviz streams`."""

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
    from analyzers import concurrency, load
    from traceviz import contract
    from traceviz.views import streams as view

    reading = replace(reading, nsys=nsys)
    with progress() as tell:
        if reading.by_parts:
            from analyzers import parts_answers

            with run_of(traces, reading, align=not no_align, progress=tell) as run:
                result = parts_answers.streams(run, narrowing_of(ranks, steps, window))
        else:
            trace = load.load(shown(traces), align=not no_align, reading=reading, progress=tell)
            result = concurrency.streams(narrowed(trace, ranks, steps, window))
    return said(result, view.blocks, contract.streams)
