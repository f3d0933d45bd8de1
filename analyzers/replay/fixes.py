"""Which change is worth most: each that a capture suggests is run, the likeliest way first, the best in every way.

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

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress, silent
from analyzers.replay.change import Change
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.model import Tasks
from analyzers.replay.predict import Replayed
from analyzers.replay.result import LITTLE_MORE, Prediction, is_enough, is_fix, weighed
from analyzers.replay.safety import Safety
from analyzers.replay.scenarios import Outcome
from analyzers.replay.stream_changes import DropWait, OwnStream, Split
from analyzers.replay.suggest import Suggestion
from analyzers.verdict import fix

MOST_UNITS = 8_000  # that are run again: of a larger run fewer steps, in a row
ALIKE = 0.1  # of what the first is worth: by so much a replay does not tell changes apart
LEAST_ASSUMED_FIRST = (Level, Pin, Graph, Split, DropSync, MoveWait, DropWait, OwnStream)
MANY_UNITS = 4_000  # from here on only the best are run in every way
RUN_IN_FULL = 4


class Explored(msgspec.Struct, frozen=True):
    """Predictions of suggested changes, in the order to try; how many more were run in the likeliest way alone."""

    predictions: tuple[Prediction, ...]
    more: int = 0


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
    error: float,
    progress: Progress = silent,
    *,
    few: bool = False,
    wanted: Collection[Change] = (),
) -> Explored:
    """What suggested changes are worth, the one to try first first; of two that gain the most, also both together.

    Parameters
    ----------
    error : of the unchanged replay's steps. few : whether the best alone are asked for. wanted : those that are run in
        every way however little they gain.
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
        for found in _predicted(replayed, one, error):
            alone.append((replace(found, suggested=len(alone) + 1), one.suggestion.change))
    together = [] if few else _both(replayed, alone, error)
    return Explored((*(found for found, _ in alone), *together), len(screened) - len(chosen))


def in_order(found: Sequence[Tried]) -> list[Tried]:
    """The order to try: by worth, of what is alike by how much it takes for granted; what may not be named last."""

    def assumed(one: Tried) -> int:
        kinds = [at for at, kind in enumerate(LEAST_ASSUMED_FIRST) if isinstance(one.suggestion.change, kind)]
        return kinds[0] if kinds else len(LEAST_ASSUMED_FIRST)

    left = sorted(found, key=lambda one: (one.suggestion.safety.last, not one.is_enough, -one.worth))
    ordered = []
    while left:
        most, enough = left[0].worth, left[0].is_enough
        alike = [one for one in left if one.worth >= most * (1 - ALIKE) and one.is_enough == enough]
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


def _predicted(replayed: Replayed, one: Tried, error: float) -> Iterator[Prediction]:
    change, safety, where = one.suggestion.change, one.suggestion.safety, one.suggestion.where
    try:
        found = replayed.predict([change], error, replayed.runs(one.tasks, one.likely))
    except TracevizError:  # with more or less slowdown it would wait for itself
        return
    advice = change.advice_at(where) if where else change.advice
    advice += f", {change.asks}" if safety is not Safety.SAFE and change.asks else ""
    classed = replace(found, safety=safety.named, likely=safety.weight, least_gain=safety.least_gain)
    yield replace(classed, where=where, advice=advice)


def _both(replayed: Replayed, found: list[tuple[Prediction, Change]], error: float) -> list[Prediction]:
    """The first two that gain and may be made, together, where that is more than the better of them brings."""
    gaining = [each for each in found if each[0].tells and each[0].worth_ns > 0][:2]
    if len(gaining) < 2:
        return []
    try:
        both = replayed.predict([change for _, change in gaining], error)
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


def first_fix(predictions: Sequence[Prediction]) -> Prediction | None:
    """The one to name: the first to try, if it gains enough of a step and may be made; None where there is none."""
    first = min((one for one in predictions if one.suggested), key=lambda one: one.suggested or 0, default=None)
    return first if first is not None and is_fix(first) else None
