"""The timeline of a comparison: its runs below each other, each checked and drawn as by itself."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.compare.results import Comparison
from analyzers.syncs.report import order_report
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from traceviz.output.views.compare import headline
from traceviz.timelines.picture import Picture, picture
from traceviz.timelines.stack import stacked


def compared(result: Comparison, traces: Sequence[Trace]) -> Picture:
    """The compared runs on one axis that starts with each run's typical instance."""
    drawn = [picture(trace, check_overlap(trace, result.a, result.b), order_report(trace)) for trace in traces]
    return stacked(drawn, [run.label for run in result.runs], headline(result))
