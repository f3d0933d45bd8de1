"""A predicted timeline beneath the captured one, on one time axis, each from the begin of the same instance."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.replay.answer import what_if
from analyzers.replay.change import Change
from analyzers.replay.predict import Replayed
from analyzers.replay.predicted import predicted_trace
from analyzers.syncs.report import order_report
from analyzers.trace.narrow import only_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from traceviz.timelines.picture import Picture, picture
from traceviz.timelines.shown import Shown
from traceviz.timelines.stack import stacked

CAPTURED, PREDICTED = "captured", "PREDICTED, not measured"


def with_predicted(
    trace: Trace,
    captured: Picture,
    result: OverlapResult,
    changes: Sequence[Change],
    window: tuple[int, int] | None = None,
) -> Picture:
    """A picture of a run with that of the changed run beneath.

    Parameters
    ----------
    captured, result : of this trace. window : what it opens on, ns, where that is not an instance.

    Raises
    ------
    TracevizError : the replay can't predict this capture, or the changes have nothing to change in it.
    """
    found = what_if(trace, changes, result.a, result.b)
    if not found.changes:
        raise TracevizError(f"Nothing can be predicted: {found.reason}.", exit_code=found.exit_code)
    whole = predicted_trace(Replayed(trace, result.a, result.b), changes)
    part = whole if trace.rows is None else only_ops(whole, trace.rows)
    checked = check_overlap(part, result.a, result.b, min_overlap=result.bar)
    opened = window or _same_instance(captured.shown, checked)
    drawn = picture(part, checked, order_report(part), window=opened)
    drawn = replace(drawn, shown=replace(drawn.shown, text=f"{captured.shown.label or 'the same'}, as predicted"))
    both = stacked([captured, replace(drawn, warnings=())], [CAPTURED, PREDICTED], f"What if? {found.sentence}")
    return replace(both, warnings=captured.warnings)


def _same_instance(wanted: Shown, result: OverlapResult) -> tuple[int, int] | None:
    """When the instance that the captured picture opens on is now, on all ranks."""
    spans = [(one.start_ns, one.end_ns) for rank in result.ranks for one in rank.instances if one.label == wanted.label]
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
