"""The answer of `traceviz what-if`: the changes that are asked about, or those that the capture suggests."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress, silent
from analyzers.common.records import values
from analyzers.replay.change import Change
from analyzers.replay.fixes import MOST_UNITS, Explored, explored
from analyzers.replay.named import calls_named, host_call
from analyzers.replay.predict import CantReplayError, Replayed, cant_be_run_again
from analyzers.replay.result import WhatIf
from analyzers.replay.safety import safety_of
from analyzers.replay.suggest import suggested
from analyzers.select.select import select
from analyzers.trace.narrow import Narrowing, counted, speaks_by_step, steps_used
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult

NOTHING_SUGGESTED = "no cause that was found suggests a change that this capture could show; name one with --change"


def what_if(
    trace: Trace,
    changes: Sequence[Change] = (),
    a: str = "comm",
    b: str = "compute",
    *,
    critical_path: bool = False,
    overlap: OverlapResult | None = None,
    narrowing: Narrowing = ALL,
    progress: Progress = silent,
) -> WhatIf:
    """Predict what changes are worth.

    Parameters
    ----------
    trace : all ranks of a run; of a part of one all is run again, and that part's ranks and steps count.
    narrowing : the part of it whose ranks and steps count; by default the whole steps, as for `check_overlap`.
    changes : what is tried, all together; where there are none, each that the causes found suggest is tried alone, and
        the first two together.
    a, b : selectors of the pair whose overlap is predicted.
    critical_path : whether to find that of the run as captured, too.
    overlap : what `check_overlap` found of the pair in this trace, with causes; found here where it is not given.

    Raises
    ------
    TracevizError : a selector can't be read, or the capture has nothing to change in a way that was asked for.
    """
    by_step, steps = speaks_by_step(trace, narrowing), steps_used(trace, narrowing)
    lost = cant_be_run_again(Run.of(trace), narrowing)
    run = trace
    trace = counted(trace, narrowing).of(trace)
    warnings = (*_empty_sides(trace.whole or trace, a, b), *trace.warnings)
    for change in changes:
        _refuse_misnamed(trace.whole or trace, change)
    given = bool(changes)
    if lost:
        return WhatIf(a, b, None, (), lost, given, warnings=warnings, steps=steps)
    progress("Replaying", 0, 0)
    try:
        replayed = Replayed(trace, a, b, by_step=by_step, most_units=MOST_UNITS)
    except CantReplayError as error:
        return WhatIf(a, b, None, (), error.message, given, warnings=warnings, steps=steps)
    fidelity = replayed.fidelity
    found, reason = Explored(()), fidelity.reason
    if not reason and given:
        try:
            one = replayed.predict(changes, fidelity.error)
            classes = [safety_of(each, replayed.trace, replayed.tasks) for each in changes]
            safety = max(classes, key=lambda each: each.place)
            found = Explored((replace(one, safety=safety.named, likely=1.0),))
        except CantReplayError as error:
            reason = f"with {' + '.join(map(str, changes))}, {error.message}"
    elif not reason:
        overlap = overlap or check_overlap(run, a, b, min_overlap=0.0, narrowing=narrowing)
        found = explored(replayed, suggested(trace, replayed.tasks, a, b, overlap), fidelity.error, progress)
    return WhatIf(
        a=a,
        b=b,
        replay=fidelity,
        changes=tuple(sorted(found.predictions, key=lambda one: one.step_ns)),
        more=found.more,
        bound=overlap.bound if overlap is not None else None,
        reason=reason or ("" if found.predictions else NOTHING_SUGGESTED),
        given=given,
        path=replayed.path(replayed.now.first) if critical_path and not fidelity.reason else None,
        warnings=warnings,
        steps=steps,
    )


def _empty_sides(trace: Trace, a: str, b: str) -> list[TraceWarning]:
    """Sides that pick nothing, whose overlap is then no question."""
    reasons = {text: select(trace, text).reason for text in (a, b)}
    return [
        TraceWarning("no-overlap-predicted", f"'{text}': {reason}. No overlap is predicted.".replace("?.", "?"))
        for text, reason in reasons.items()
        if reason
    ]


def _refuse_misnamed(trace: Trace, change: Change) -> None:
    """Refuse a change whose selector names neither an op nor a range, or a host call that nobody makes."""
    texts = [value for value in values(change).values() if isinstance(value, str) and value]
    for text in texts:
        if name := host_call(text):
            if not calls_named(trace, name).any():
                raise TracevizError(f"{change}: no call of '{name}' is on record.")
            continue
        selection = select(trace, text)
        if selection.reason and not selection.ranges.any() and not selection.before.any():
            raise TracevizError(f"{change}: {selection.reason}{'' if selection.reason.endswith('?') else '.'}")
