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
from analyzers.replay.host_changes import DropSync, Graph, Level, OnTime, Pin
from analyzers.replay.model import Tasks
from analyzers.replay.order_changes import MoveWait
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


class _Screened(msgspec.Struct, frozen=True):
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
        safety = self.suggestion.safety
        return is_enough(self.gain, safety.weight, safety.least_gain)


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
    screened: list[_Screened] = []
    for done, one in enumerate(suggestions):
        progress("Replaying with changes", done, len(suggestions) + RUN_IN_FULL)
        screened += _screened(replayed, one)
    screened = in_order(_without_repeated(screened))
    many = few or replayed.tasks.units.op.size >= MANY_UNITS
    chosen = [
        *screened[:RUN_IN_FULL],
        *(one for one in screened[RUN_IN_FULL:] if not many or one.suggestion.change in wanted),
    ]
    alone: list[Prediction] = []
    for done, each in enumerate(chosen):
        progress("Replaying with changes", len(suggestions) + done, len(suggestions) + len(chosen))
        alone += _predicted(replayed, each, error)
    alone = [replace(one, suggested=number) for number, one in enumerate(alone, 1)]
    changes = {str(each.suggestion.change): each.suggestion.change for each in chosen}
    together = [] if few else _both(replayed, [(one, changes[one.change]) for one in alone], error)
    return Explored((*alone, *together), len(screened) - len(chosen))


def in_order(found: Sequence[_Screened]) -> list[_Screened]:
    """The order to try: by worth, of what is alike by how much it takes for granted; what may not be named last."""
    left = sorted(found, key=lambda one: (one.suggestion.safety.last, not one.is_enough, -one.worth))
    ordered = []
    while left:
        most, enough = left[0].worth, left[0].is_enough
        alike = [one for one in left if one.worth >= most * (1 - ALIKE) and one.is_enough == enough]
        alike = alike if most > 0 else left[:1]
        first = min(alike, key=lambda one: _assumed(one.suggestion.change))
        ordered.append(first)
        left.remove(first)
    return ordered


def _assumed(change: Change) -> int:
    kinds = [at for at, kind in enumerate(LEAST_ASSUMED_FIRST) if isinstance(change, kind)]
    return kinds[0] if kinds else len(LEAST_ASSUMED_FIRST)


def _screened(replayed: Replayed, one: Suggestion) -> Iterator[_Screened]:
    """A suggestion run in the likeliest way; nothing where the capture has nothing to change in this way."""
    try:
        tasks, at_best = replayed.changed([one.change])
        likely = replayed.likely(tasks, at_best)
    except TracevizError:
        return
    now = max(float(np.median(replayed.now.first.steps)), 1.0)
    gain = 1 - float(np.mean([np.median(run.steps) for run in likely])) / now
    yield _Screened(one, tasks, likely, gain)


def _predicted(replayed: Replayed, one: _Screened, error: float) -> Iterator[Prediction]:
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


def _without_repeated(found: list[_Screened]) -> list[_Screened]:
    """Without all ranks on time, where one rank that is on time brings as much."""
    of_all = OnTime()
    on_time = [one for one in found if isinstance(one.suggestion.change, OnTime)]
    of_one = [one.gain for one in on_time if one.suggestion.change != of_all]
    return [one for one in found if one.suggestion.change != of_all or not of_one or one.gain - of_one[0] > LITTLE_MORE]


def first_fix(predictions: Sequence[Prediction]) -> Prediction | None:
    """The one to name: the first to try, if it gains enough of a step and may be made; None where there is none."""
    first = min((one for one in predictions if one.suggested), key=lambda one: one.suggested or 0, default=None)
    return first if first is not None and is_fix(first) else None
