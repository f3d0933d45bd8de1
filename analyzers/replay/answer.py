"""The answer of `traceviz what-if`: the changes that are asked about, or those that the capture suggests.

One order for all answers: by how much shorter a step gets, of which all counts where a change is safe, or likely so,
half where it is asked as a question, a tenth where nothing says that it may be made, and nothing where it is unsafe
(`safety`). So a conditional change is named before a safe one where it gains over twice as much. Of those worth about
as much, which no replay tells apart, the one comes first that takes least for granted (`LEAST_ASSUMED_FIRST`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress, silent
from analyzers.common.records import values
from analyzers.replay.change import Change, calls_named, host_call
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.model import Tasks
from analyzers.replay.predict import CantReplayError, Replayed, cant_be_run_again
from analyzers.replay.result import LITTLE_MORE, Prediction, WhatIf, is_enough, weighed
from analyzers.replay.safety import Safety, safety_of
from analyzers.replay.scenarios import Outcome
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Scale, Split
from analyzers.replay.suggest import Suggestion, suggested
from analyzers.select.select import select
from analyzers.trace.narrow import Narrowing, counted, speaks_by_step, steps_used
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict import fix
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
    predictions: list[Prediction] = []
    more, reason = 0, fidelity.reason
    if not reason and given:
        try:
            one = replayed.predict(changes)
            classes = [safety_of(each, replayed.trace, replayed.tasks) for each in changes]
            safety = max(classes, key=lambda each: each.place)
            predictions = [replace(one, safety=safety.named, likely=1.0)]
        except CantReplayError as error:
            reason = f"with {' + '.join(map(str, changes))}, {error.message}"
    elif not reason:
        overlap = overlap or check_overlap(run, a, b, min_overlap=0.0, narrowing=narrowing)
        predictions, more = explored(replayed, suggested(trace, replayed.tasks, a, b, overlap), progress)
    return WhatIf(
        a=a,
        b=b,
        replay=fidelity,
        changes=tuple(sorted(predictions, key=lambda one: one.step_ns)),
        more=more,
        bound=overlap.bound if overlap is not None else None,
        reason=reason or ("" if predictions else NOTHING_SUGGESTED),
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


_KINDS = DropSync, Pin, DropWait, MoveWait, OwnStream, OnTime, Level, Scale, Split, Graph, MoreRoom
BY_VERB: dict[str, type[Change]] = {kind.usage.partition(" ")[0]: kind for kind in _KINDS}


def parse_change(text: str) -> Change:
    """A change as the command line writes it, such as "scale collective:all_to_all 0.5".

    Raises
    ------
    TracevizError : it is none.

    >>> parse_change("move-wait nvtx:DP tower before nvtx:MP lookup")
    MoveWait(a='nvtx:DP tower', b='nvtx:MP lookup')
    """
    verb, _, fields = text.strip().partition(" ")
    if verb not in BY_VERB:
        raise TracevizError(
            f"{text!r} is no change.", hint=f"Changes are: {'; '.join(kind.usage for kind in BY_VERB.values())}."
        )
    kind = BY_VERB[verb]
    try:
        return kind.written(fields.strip())
    except ValueError as error:
        raise TracevizError(f"{text!r} can't be read.", hint=f"Write it as: {kind.usage}.") from error


MOST_UNITS = 8_000  # that are run again: of a larger run fewer steps, in a row
MAX_GAIN_DIFFERENCE = 0.1  # of what the first is worth: by so much a replay does not tell changes apart
LEAST_ASSUMED_FIRST = (Level, Pin, Graph, Split, DropSync, MoveWait, DropWait, OwnStream)
MANY_UNITS = 4_000  # from here on only the best are run in every way
RUN_IN_FULL = 4


class Tried(msgspec.Struct, frozen=True):
    """A suggestion with its tasks, the likeliest runs of them, and what they gain of a step."""

    suggestion: Suggestion
    tasks: Tasks
    likely: tuple[Outcome, ...]
    gain: float

    @property
    def worth(self) -> float:
        """The gain, weighed by whether the change may be made."""
        return weighed(self.gain, self.suggestion.safety.weight)

    @property
    def is_enough(self) -> bool:
        """Whether it may be named."""
        return is_enough(self.gain, self.suggestion.safety.weight, self.suggestion.safety.least_gain)


def explored(
    replayed: Replayed,
    suggestions: Sequence[Suggestion],
    progress: Progress = silent,
    *,
    few: bool = False,
    wanted: Collection[Change] = (),
) -> tuple[list[Prediction], int]:
    """What suggested changes are worth, the one to try first first; of two that gain the most, also both together.

    Parameters
    ----------
    few : whether the best alone are asked for.
    wanted : those that are run in every way however little they gain.

    Returns
    -------
    The predictions; how many more changes were run in the likeliest way alone.
    """
    screened: list[Tried] = []
    for done, suggestion in enumerate(suggestions):
        progress("Replaying with changes", done, len(suggestions) + RUN_IN_FULL)
        screened += _tried(replayed, suggestion)
    screened = in_order(without_repeated(screened))
    many = few or replayed.tasks.units.op.size >= MANY_UNITS
    rest = [one for one in screened[RUN_IN_FULL:] if not many or one.suggestion.change in wanted]
    chosen = [*screened[:RUN_IN_FULL], *rest]
    alone: list[tuple[Prediction, Change]] = []
    for done, one in enumerate(chosen):
        progress("Replaying with changes", len(suggestions) + done, len(suggestions) + len(chosen))
        for found in _predicted(replayed, one):
            alone.append((replace(found, suggested=len(alone) + 1), one.suggestion.change))
    together = [] if few else _both(replayed, alone)
    return [*(found for found, _ in alone), *together], len(screened) - len(chosen)


def in_order(found: Sequence[Tried]) -> list[Tried]:
    """The order to try: by worth, of what is alike by how much it takes for granted; what may not be named last."""

    def assumed(one: Tried) -> int:
        kinds = [at for at, kind in enumerate(LEAST_ASSUMED_FIRST) if isinstance(one.suggestion.change, kind)]
        return kinds[0] if kinds else len(LEAST_ASSUMED_FIRST)

    left = sorted(found, key=lambda one: (one.suggestion.safety.last, not one.is_enough, -one.worth))
    ordered = []
    while left:
        most, enough = left[0].worth, left[0].is_enough
        alike = [one for one in left if one.worth >= most * (1 - MAX_GAIN_DIFFERENCE) and one.is_enough == enough]
        first = min(alike, key=assumed) if most > 0 else left[0]
        ordered.append(first)
        left.remove(first)
    return ordered


def _tried(replayed: Replayed, suggestion: Suggestion) -> Iterator[Tried]:
    """A suggestion run in the likeliest way; nothing where the capture has nothing to change in this way."""
    try:
        tasks, at_best = replayed.changed([suggestion.change])
        likely = replayed.likely(tasks, at_best)
    except TracevizError:
        return
    now = max(float(np.median(replayed.now.first.steps)), 1.0)
    yield Tried(suggestion, tasks, likely, 1 - float(np.mean([np.median(run.steps) for run in likely])) / now)


def _predicted(replayed: Replayed, one: Tried) -> Iterator[Prediction]:
    change, safety, where = one.suggestion.change, one.suggestion.safety, one.suggestion.where
    try:
        found = replayed.predict([change], replayed.runs(one.tasks, one.likely))
    except TracevizError:  # with more or less slowdown it would wait for itself
        return
    advice = change.advice_at(where)
    advice += f", {change.asks}" if safety is not Safety.SAFE and change.asks else ""
    classed = replace(found, safety=safety.named, likely=safety.weight, least_gain=safety.least_gain)
    yield replace(classed, where=where, advice=advice)


def _both(replayed: Replayed, found: list[tuple[Prediction, Change]]) -> list[Prediction]:
    """The first two that gain and may be made, together, where that is more than the better of them brings."""
    gaining = [each for each in found if each[0].tells and each[0].worth_ns > 0][:2]
    if len(gaining) < 2:
        return []
    try:
        both = replayed.predict([change for _, change in gaining])
    except TracevizError:  # what one does leaves the other nothing to change
        return []
    if both.gain_ns <= max(one.gain_ns for one, _ in gaining):
        return []
    asked = [one.safety for one, _ in gaining if one.safety != fix.SAFE]
    return [replace(both, safety=asked[0] if asked else fix.SAFE, likely=min(one.likely for one, _ in gaining))]


def without_repeated(found: list[Tried]) -> list[Tried]:
    """Without all ranks on time, where one rank that is on time brings as much."""
    changes = [(one, one.suggestion.change) for one in found]
    of_one = [one.gain for one, change in changes if isinstance(change, OnTime) and change.rank is not None]
    return [one for one, change in changes if change != OnTime() or not of_one or one.gain - of_one[0] > LITTLE_MORE]
