"""What each cause of missed overlap is worth, and which change is worth most: the program run again without it.

A cause is worth the real overlap that a rank gains where the cause is gone everywhere (`removals`). Ops that slow each
other overlap for longer, which is no gain: overlap counts as long as the shorter side's ops took in the capture.

Now 60 µs of a side's 100 µs overlap; without the cause 114 µs of 120 µs, for its ops are slower then. That is 95 of
100, so the cause is worth 35 µs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Mask
from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.replay.answer import MANY_UNITS, MOST_UNITS, explored
from analyzers.replay.predict import CantReplayError, Replayed, cant_be_run_again
from analyzers.replay.removals import without
from analyzers.replay.result import Prediction, as_fix, first_fix
from analyzers.replay.scenarios import Outcome, Runs
from analyzers.replay.suggest import removing, suggested
from analyzers.trace.devices import DeviceKey
from analyzers.trace.narrow import Narrowing, counted, speaks_by_step
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict.findings import most_alike_first
from analyzers.verdict.fix import Fix
from analyzers.verdict.result import OverlapResult

MOST_OPS = 200_000  # of the whole run: to lay out more takes longer than all else of an answer
UNSURE = 0.02  # of what is possible: the replay of a program is never surer
CAUSES_OF_LARGE_RUN = 2  # causes of a large run, whose worth is found
_DEFAULT = "comm", "compute"


def with_worth(
    result: OverlapResult, run: Trace | Run, narrowing: Narrowing = ALL, *, everywhere: bool = True
) -> OverlapResult:
    """The same with what each cause is worth and the change worth most, or why that is not known.

    Parameters
    ----------
    run : what `result` was found in; nothing is run again of more than `MOST_OPS` ops, nor of what is in parts.
    everywhere : all causes of every rank; else the findings of the rank that decides, where one does: a text tells of
    no others.
    """
    run = Run.of(run)
    reason = ""
    if run.size > MOST_OPS or not run.merged:
        sides = "" if (result.a, result.b) == _DEFAULT else f' -a "{result.a}" -b "{result.b}"'
        reason = "captures that are looked at one by one are not replayed"
        if run.size > MOST_OPS:
            reason = f"more than {MOST_OPS:,} ops ({run.size:,}) are not replayed here"
        reason += f"; traceviz what-if TRACE...{sides} says what changes bring"
    reason = reason or cant_be_run_again(run, narrowing)
    if reason:
        return replace(result, worth_unknown=reason)
    trace = counted(run.trace, narrowing).of(run.trace)
    try:
        by_step = speaks_by_step(run.trace, narrowing)
        replayed = Replayed(trace, result.a, result.b, by_step=by_step, most_units=MOST_UNITS)
    except CantReplayError as error:
        return replace(result, worth_unknown=error.message)
    if reason := replayed.fidelity.reason:
        return replace(result, worth_unknown=reason)
    suggestions = suggested(trace, replayed.tasks, result.a, result.b, result)
    removed = None
    if result.findings:  # the change that takes out the first cause of the rank that decides
        first = result.findings[0].cause
        removed = removing(first.cause, first.finding, 2 * first.after_sync_ns > first.ns, suggestions)
    wanted = () if removed is None else (removed,)
    predictions, _ = explored(replayed, suggestions, few=True, wanted=wanted)
    found = _Worth(replayed, result, _causes(result, replayed, everywhere=everywhere))
    return replace(
        result,
        ranks=tuple(map(found.of_rank, result.ranks)),
        fix=found.fix(first_fix(predictions)),
        cause_fix=found.fix(next((one for one in predictions if one.change == str(removed)), None)),
        worth_unknown=replayed.fidelity.overlap_reason,
        was_replayed=True,
    )


def _causes(result: OverlapResult, replayed: Replayed, *, everywhere: bool) -> list[str]:
    """The causes whose worth is to be found, of a large run the first few of the rank that decides."""
    if replayed.fidelity.overlap_reason:
        return []
    large = replayed.tasks.units.op.size >= MANY_UNITS
    if result.deciding_rank is None or (everywhere and not large):
        return list(dict.fromkeys(one.cause for rank in result.ranks for one in rank.missed))
    causes = [one.cause.cause for one in result.findings]
    return causes[:CAUSES_OF_LARGE_RUN] if large else causes


class _Worth:
    """Replays of one run without this or that, each run once for all ranks."""

    def __init__(self, replayed: Replayed, result: OverlapResult, causes: Iterable[str]) -> None:
        self.replayed, self.fidelity, self.result = replayed, replayed.fidelity, result
        self.possible_ns = {(rank.rank, rank.device): rank.could_overlap_ns for rank in result.ranks}
        ops = replayed.trace.ops
        self.shorter: dict[DeviceKey, Mask] = {}  # ops of the side that is busy for less
        for rank in result.ranks:
            here = (ops.rank == rank.rank) & (ops.device == rank.device)
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
        return replace(rank, missed=tuple(most_alike_first(found, lambda one: one.weight_ns, lambda one: one.ns)))

    def _of_cause(self, one: Missed, device: DeviceKey) -> Missed:
        """A cause with what it is worth, and its range: no more can be lost than there is."""
        runs, now = self.runs.get(one.cause), self.replayed.now.first
        if runs is None or device not in now.overlap:
            return one
        pairs = runs.beside(self.replayed.now)
        gained = [self._overlap(run, before, device) - self._overlap(before, before, device) for run, before in pairs]
        likely = float(np.mean(gained[: len(runs.likely)]))
        unsure = self.fidelity.overlap_error * abs(likely) + UNSURE * self.possible_ns[device]
        low = max(min(gained) - unsure, -self._overlap(now, now, device))
        return replace(
            one,
            recoverable_ns=round(likely),
            recoverable_low_ns=round(low),
            recoverable_high_ns=round(max(gained) + unsure),
        )

    def _overlap(self, run: Outcome, before: Outcome, device: DeviceKey) -> float:
        """Real overlap on a device, counted for as long as the shorter side's ops took before, ns."""
        took, takes = self._took(before, device), self._took(run, device)
        return run.overlap[device][0] * took / takes if takes else 0.0

    def _took(self, run: Outcome, device: DeviceKey) -> float:
        """How long the ops of a device's shorter side take in all, ns."""
        which = self.shorter[device][run.tasks.units.op]
        return float((run.times.unit_end - run.times.unit_began)[which].sum())

    def fix(self, one: Prediction | None) -> Fix | None:
        """The fix with what it brings of overlap on the rank that decides, where that is predicted.

        By what it then is of what could overlap, counted as in the capture: to be slowed down is no gain.
        """
        if one is None:
            return None
        device = self.result.job.deciding
        of_rank = next((rank for rank in one.ranks if (rank.rank, rank.device) == device), None)
        if device is None or of_rank is None:
            return as_fix(one)
        now, *others = (getattr(of_rank, name) or 0.0 for name in ("now_ratio", "ratio", "low_ratio", "high_ratio"))
        likely_ns, low_ns, high_ns = (round((ratio - now) * self.possible_ns[device]) for ratio in others)
        return replace(
            as_fix(one),
            rank=device[0],
            device=device[1],
            recoverable_ns=likely_ns,
            recoverable_low_ns=low_ns,
            recoverable_high_ns=high_ns,
            now_ratio=now,
            ratio=others[0],
        )
