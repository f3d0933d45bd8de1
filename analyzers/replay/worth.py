"""What each cause of missed overlap is worth, and which change is worth most: the program run again without it.

A cause is worth the real overlap that a rank gains where the cause is gone everywhere (`removals`). Ops that slow each
other overlap for longer, which is no gain: overlap counts as long as the shorter side's ops took in the capture.

Now 60 µs of a side's 100 µs overlap; without the cause 114 µs of 120 µs, for its ops are slower then. That is 95 of
100, so the cause is worth 35 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Mask
from analyzers.common.errors import TracevizError
from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.replay.changes import Change
from analyzers.replay.model import Tasks
from analyzers.replay.outcomes import Outcome, Runs, share
from analyzers.replay.predict import CantReplayError, Replayed, cant_be_run_again
from analyzers.replay.removals import without
from analyzers.replay.result import Fidelity
from analyzers.replay.suggest import LIKELY, PERHAPS, SELDOM, Suggestion, suggested
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceKey
from analyzers.trace.narrow import Narrowing, counted, speaks_by_step
from analyzers.trace.run import ALL, PartitionedRun, as_run
from analyzers.trace.tables import Trace
from analyzers.verdict.remedy import Remedy
from analyzers.verdict.result import OverlapResult

MOST_OPS = 1_500  # of the whole run: their replays take some 2 s in plain Python
UNSURE = 0.02  # of what is possible: the replay of a program is never surer
ALIKE = 0.01  # of what is possible: of changes that recover as much, the one with the shortest step is named
LIKELIEST_FIRST = LIKELY, PERHAPS, SELDOM
_DEFAULT = "comm", "compute"

Measure = Callable[[Sequence[Outcome], Outcome, DeviceKey], float]  # of runs, with the one before the change


def with_worth(
    result: OverlapResult, run: Trace | PartitionedRun, narrowing: Narrowing = ALL, *, everywhere: bool = True
) -> OverlapResult:
    """The same with what each cause is worth and the change worth most, or why that is not known.

    Parameters
    ----------
    run : what `result` was found in; nothing is run again of more than `MOST_OPS` ops, nor of what is in parts.
    everywhere : all causes of every rank; else the findings of the rank that decides, where one does: a text tells of
    no others.
    """
    if not any(rank.missed for rank in result.ranks):
        return result
    run = as_run(run)
    if run.size > MOST_OPS:
        reason = f"more than {MOST_OPS:,} ops ({run.size:,}) are not replayed here"
        return replace(result, worth_unknown=f"{reason}; {_command(result)}")
    if not run.is_one_part:
        reason = "captures that are looked at one by one are not replayed"
        return replace(result, worth_unknown=f"{reason}; {_command(result)}")
    if reason := cant_be_run_again(run, narrowing):
        return replace(result, worth_unknown=reason)
    trace = counted(run.trace, narrowing).of(run.trace)
    try:
        replayed = Replayed(trace, result.a, result.b, by_step=speaks_by_step(run.trace, narrowing))
    except CantReplayError as error:
        return replace(result, worth_unknown=error.message)
    fidelity = replayed.fidelity()
    if reason := fidelity.reason:
        return replace(result, worth_unknown=reason)
    if everywhere or not result.deciding_rank:
        causes = {one.cause for rank in result.ranks for one in rank.missed}
    else:
        causes = {one.cause.cause for one in result.findings}
    found = _Worth(replayed, fidelity, result, causes)
    return replace(result, ranks=tuple(map(found.of_rank, result.ranks)), remedy=found.remedy(trace))


def _command(result: OverlapResult) -> str:
    """What to run instead."""
    pair = result.a, result.b
    sides = "" if pair == _DEFAULT else "".join(f' -{side} "{text}"' for side, text in zip("ab", pair, strict=True))
    return f"traceviz what-if TRACE...{sides} says what changes bring"


class _Worth:
    """Replays of one run without this or that, each run once for all ranks."""

    def __init__(self, replayed: Replayed, fidelity: Fidelity, result: OverlapResult, causes: Iterable[str]) -> None:
        self.replayed, self.fidelity, self.result = replayed, fidelity, result
        self.possible_ns = {(rank.rank, rank.device): rank.could_overlap_ns for rank in result.ranks}
        ops = replayed.trace.ops
        self.shorter: dict[DeviceKey, Mask] = {}  # ops of the side that is busy for less
        for rank in result.ranks:
            here = (ints(ops, "rank") == rank.rank) & (ints(ops, "device") == rank.device)
            side = replayed.sides[rank.a.real_busy_ns > rank.b.real_busy_ns]
            self.shorter[rank.rank, rank.device] = side & here
        self.runs: dict[str, Runs | None] = {}
        for cause in causes:
            tasks = without(cause, replayed.trace, replayed.tasks, *replayed.picked)
            try:
                self.runs[cause] = None if tasks is None else replayed.runs(tasks)
            except CantReplayError:  # without it the program would wait for itself
                self.runs[cause] = None

    def of_rank(self, rank: RankOverlap) -> RankOverlap:
        """A rank with what its causes are worth, those first that are worth most."""
        device = rank.rank, rank.device
        found = [self._of_cause(one, device) for one in rank.missed]
        return replace(rank, missed=tuple(sorted(found, key=lambda one: -one.weight_ns)))

    def _of_cause(self, one: Missed, device: DeviceKey) -> Missed:
        runs = self.runs.get(one.cause)
        if runs is None or device not in self.replayed.now.first.overlap:
            return one
        likely, low, high = self._recovered(runs, device, self._overlap)
        return replace(one, recoverable_ns=likely, recoverable_low_ns=low, recoverable_high_ns=high)

    def _recovered(self, runs: Runs, device: DeviceKey, measure: Measure) -> tuple[int, int, int]:
        """More real overlap on a device, ns: most likely, and its range; no more can be lost than there is."""
        now = self.replayed.now.first
        likely = self._gained(runs.likely, now, device, measure)
        gained = [self._gained([one], before, device, measure) for one, before in runs.beside(self.replayed.now)]
        unsure = self._unsure(likely, device)
        low = max(min(gained) - unsure, -measure([now], now, device))
        return round(likely), round(low), round(max(gained) + unsure)

    def _gained(self, runs: Sequence[Outcome], before: Outcome, device: DeviceKey, measure: Measure) -> float:
        return measure(runs, before, device) - measure([before], before, device)

    def _unsure(self, likely: float, device: DeviceKey) -> float:
        """How far off a replay may be that gains so much, ns."""
        return self.fidelity.overlap_error * abs(likely) + UNSURE * self.possible_ns[device]

    def _overlap(self, runs: Sequence[Outcome], before: Outcome, device: DeviceKey) -> float:
        """Real overlap on a device, counted for as long as the shorter side's ops took before, ns."""
        took, takes = self._took(before, device), [self._took(run, device) for run in runs]
        each = [run.overlap[device][0] * took / one if one else 0.0 for run, one in zip(runs, takes, strict=True)]
        return float(np.mean(each))

    def _share(self, runs: Sequence[Outcome], _: Outcome, device: DeviceKey) -> float:
        """The same by its ratio, as `what_if` has it: a change may cut ops into pieces, with time between them."""
        return share(runs, device) * self.possible_ns[device]

    def _took(self, run: Outcome, device: DeviceKey) -> float:
        """How long the ops of a device's shorter side take in all, ns."""
        which = self.shorter[device][run.tasks.units.op]
        return float((run.times.unit_end - run.times.unit_began)[which].sum())

    def remedy(self, trace: Trace) -> Remedy | None:
        """Of the changes that the causes suggest the one that recovers most on the rank that decides.

        What a change recovers counts for as much as it is likely that it may be made. None where the bar is met, where
        nothing surely recovers any overlap, or only what surely makes steps longer.
        """
        device = self.result.job.deciding
        if self.result.passed or device is None or device not in self.replayed.now.first.overlap:
            return None
        to_gain = 1 - share([self.replayed.now.first], device)
        found = suggested(trace, self.replayed.tasks, self.result.a, self.result.b, self.result)
        tried: list[_Tried] = []
        for likely, then in zip(LIKELIEST_FIRST, (*LIKELIEST_FIRST[1:], 0.0), strict=True):
            tried += self._tried([one for one in enumerate(found) if one[1].likely == likely], device)
            tried.sort(key=lambda one: (-one.points, one.step_ns, one.place))
            while tried and (not then or tried[0].points > _points(to_gain, then)):  # what comes has no more points
                if remedy := self._told(tried.pop(0), device):
                    return remedy
        return None

    def _tried(self, suggestions: Sequence[tuple[int, Suggestion]], device: DeviceKey) -> Iterator[_Tried]:
        """Runs with suggested changes, of those that recover anything."""
        for place, one in suggestions:
            try:
                tasks, at_best = self.replayed.changed([one.change])
                known = self._known(tasks)
                likely = known.likely if known else self.replayed.likely(tasks, at_best)
            except TracevizError:  # the capture has nothing to change in this way
                continue
            gained = share(likely, device) - share([self.replayed.now.first], device)
            if gained > UNSURE:
                step_ns = float(np.mean([np.median(run.steps) for run in likely]))
                yield _Tried(one.change, place, _points(gained, one.likely), step_ns, tasks, likely, known)

    def _known(self, tasks: Tasks) -> Runs | None:
        """Runs of the same tasks: to drop the only host syncs is what it takes to be without that cause."""
        return next((runs for runs in self.runs.values() if runs and runs.tasks.same_as(tasks)), None)

    def _told(self, tried: _Tried, device: DeviceKey) -> Remedy | None:
        """A change in figures; None where it surely makes steps longer, or may recover nothing.

        That it recovers nothing where others begin first does not count: for some of the pieces they do.
        """
        change = tried.change
        try:
            runs = tried.known or self.replayed.runs(tried.tasks, tried.likely)
        except CantReplayError:  # with more or less slowdown it would wait for itself
            return None
        likely, low, high = self._recovered(runs, device, self._share)
        now = self.replayed.now
        in_order = (
            self._gained([one], before, device, self._share)
            for one, before in ((runs.most, now.most), (runs.least, now.least))
        )
        prediction = self.replayed.predict([change], self.fidelity.error, runs)
        if min(likely, *in_order) <= self._unsure(likely, device) or prediction.step_low_ns > prediction.now_ns:
            return None
        (rank,) = (one for one in prediction.ranks if (one.rank, one.device) == device)
        return Remedy(
            change=str(change),
            rank=device[0],
            device=device[1],
            recoverable_ns=likely,
            recoverable_low_ns=low,
            recoverable_high_ns=high,
            now_ratio=rank.now_ratio or 0.0,
            ratio=rank.ratio or 0.0,
            now_step_ns=prediction.now_ns,
            step_ns=prediction.step_ns,
            step_low_ns=prediction.step_low_ns,
            step_high_ns=prediction.step_high_ns,
            assumes=change.assumes,
            advice="; ".join(filter(None, (change.advice, change.unsafe(self.replayed.trace, self.replayed.tasks)))),
        )


class _Tried(msgspec.Struct, frozen=True):
    """A change, which of the suggested it is, what it recovers by how likely that is, a step, its tasks, likely runs,
    and all that may be of them, if that is known.
    """

    change: Change
    place: int
    points: int
    step_ns: float
    tasks: Tasks
    likely: tuple[Outcome, ...]
    known: Runs | None


def _points(gained: float, likely: float) -> int:
    return round(gained * likely / ALIKE)
