"""What `what_if` answers: how well the replay does, and what each change is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from analyzers.common.errors import TraceWarning
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import duration, from_to, percent, span
from analyzers.overlap.job import DECIDES_FROM
from analyzers.replay.path import KERNEL as COMPUTATION
from analyzers.replay.path import Segment, by_kind
from analyzers.select.language import names_of
from analyzers.trace.devices import DeviceLabels
from analyzers.trace.step_table import StepsUsed
from analyzers.verdict.bound import Bound
from analyzers.verdict.fix import GAINS, Fix

if TYPE_CHECKING:
    import pandas as pd

LITTLE_ELSE = 0.1  # of the critical path, beside computation
LITTLE_MORE = 0.01  # of the step: no gain to speak of, of one change, or of a second one beyond the first
LEAST_SHARE = 0.0005  # of the step: less is no change
MOST_UNSURE = 0.6  # of the step: a wider range says nothing
LITTLE_AGAINST = 0.5  # of the gain: a range that reaches no further the other way tells which way it goes
TOO_WIDE = 0.2  # of the step: a range that reaches so far and to both sides of the present step time says nothing


class Fidelity(Record, frozen=True):
    """How well the replay of the unchanged program gives the capture.

    step_ns, measured_step_ns : median step time, replayed and captured. error : of the steps, mean of how far each is
    off, over the captured one. overlap_error : the same of the ratio of real overlap, of the worst rank. unexplained :
    part of the time that streams stood idle before an op, for which no rule gives a reason. reason : why nothing is
    predicted, "" where something is. overlap_reason : why no overlap is, "" where it is.
    """

    step_ns: int
    measured_step_ns: int
    error: float
    overlap_error: float
    unexplained: float
    reason: str
    overlap_reason: str = ""

    @property
    def sentence(self) -> str:
        """How well it does, in a sentence."""
        return (
            f"step {duration(self.step_ns)}, captured {duration(self.measured_step_ns)} (error {percent(self.error)}); "
            + (f"{percent(self.unexplained)} of the idle time" if self.unexplained else "all idle time")
            + f" on streams is {'un' if self.unexplained else ''}explained"
        )


class RankPrediction(Record, frozen=True):
    """Real overlap of a rank's device, ns: as captured, and predicted, with the range; and the most it could be.

    Of the median step, where `check_overlap` has that; else of all that is looked at. low_ratio, high_ratio : the range
    of what overlap is of the most it could be: in each run, for what slows each other overlaps for longer.
    """

    rank: int
    device: int
    now_ns: int
    now_achievable_ns: int
    real_overlap_ns: int
    low_ns: int
    high_ns: int
    achievable_ns: int
    low_ratio: float | None = None
    high_ratio: float | None = None

    @property
    def now_ratio(self) -> float | None:
        """Of what could overlap, as captured."""
        return self.now_ns / self.now_achievable_ns if self.now_achievable_ns else None

    @property
    def ratio(self) -> float | None:
        """Of what could overlap, predicted."""
        return self.real_overlap_ns / self.achievable_ns if self.achievable_ns else None


class Prediction(Record, frozen=True):
    """What one change, or several together, is worth; step times in ns.

    changes : as the command line writes them. now_ns : the step time as captured. next_cause : the kind of task that,
    computation aside, has most of the critical path of the predicted run, or computation, where all else has less than
    a tenth of it; next_share : how much of the path it has. ranks : real overlap, empty where the replay misses that of
    the capture. likely : how much of the gain counts in the order to try them, by safety. suggested : which one to try
    first, second, …; None for several together, and those that were asked for. safety : the class, as in `Fix`, where
    and advice, too. least_gain : of the step, from which on it may be named: twice as much of what takes an order
    between GPU work away as of what is safe, or takes a value from the host.
    """

    changes: tuple[str, ...]
    now_ns: int
    step_ns: int
    step_low_ns: int
    step_high_ns: int
    ranks: tuple[RankPrediction, ...]
    assumptions: tuple[str, ...]
    next_cause: str
    next_share: float
    likely: float = 1.0
    suggested: int | None = None
    safety: str = ""
    where: str = ""
    advice: str = ""
    least_gain: float = GAINS

    @property
    def change(self) -> str:
        """The changes in one text."""
        return " + ".join(self.changes)

    @property
    def gain_ns(self) -> int:
        """How much shorter a step gets; less than zero where it gets longer."""
        return self.now_ns - self.step_ns

    @property
    def worth_ns(self) -> float:
        """The gain, weighed by whether the change may be made."""
        return weighed(self.gain_ns, self.likely)

    @property
    def tells(self) -> bool:
        """Whether the range says more than that a step may become much shorter or much longer."""
        wide = self.step_high_ns - self.step_low_ns
        if wide > MOST_UNSURE * self.now_ns:
            return False
        crosses = self.step_low_ns < self.now_ns < self.step_high_ns
        otherwise = self.step_high_ns - self.now_ns if self.gain_ns > 0 else self.now_ns - self.step_low_ns
        return wide <= TOO_WIDE * self.now_ns or not crosses or otherwise <= LITTLE_AGAINST * abs(self.gain_ns)

    @property
    def worst_now(self) -> RankPrediction | None:
        """The rank whose real overlap is the smallest part of what it could be now."""
        return _worst([(one.now_ratio, one.now_achievable_ns, one) for one in self.ranks])

    @property
    def worst(self) -> RankPrediction | None:
        """The same as predicted."""
        return _worst([(one.ratio, one.achievable_ns, one) for one in self.ranks])


def _worst(ranks: list[tuple[float | None, int, RankPrediction]]) -> RankPrediction | None:
    """Of those that could overlap enough to count, as in a verdict, the one with the smallest ratio."""
    enough = DECIDES_FROM * median(could for _, could, _ in ranks) if ranks else 0
    deciding = [(ratio or 0.0, one) for ratio, could, one in ranks if could and could >= enough]
    return min(deciding, key=lambda each: each[0])[1] if deciding else None


class RankCommunication(Record, frozen=True):
    """Communication of a rank's device, without waits: all of it, what runs beside no computation, and what of that
    runs while communication is on the critical path, ns. What else is exposed holds up nothing."""

    rank: int
    device: int
    busy_ns: int
    exposed_ns: int
    blocking_ns: int


class CriticalPath(Record, frozen=True):
    """The chain of tasks that the counted steps rest on, in order of time, and what communication stands in it."""

    segments: tuple[Segment, ...]
    communication: tuple[RankCommunication, ...]

    @property
    def length_ns(self) -> int:
        """How long all segments are together."""
        return sum(one.ns for one in self.segments)

    def by_rank(self) -> dict[int, dict[str, int]]:
        """How much each kind has on each rank, ns."""
        found: dict[int, dict[str, int]] = {rank: {} for rank in sorted({one.rank for one in self.segments})}
        for one in self.segments:
            found[one.rank][one.kind] = found[one.rank].get(one.kind, 0) + one.ns
        return found

    def longest(self) -> list[tuple[int, str, str, int, int]]:
        """What has most of it: rank, kind, name, how many segments, ns."""
        ns: Counter[tuple[int, str, str]] = Counter()
        times: Counter[tuple[int, str, str]] = Counter()
        for one in self.segments:
            ns[one.rank, one.kind, one.name] += one.ns
            times[one.rank, one.kind, one.name] += 1
        return [(*key, times[key], total) for key, total in ns.most_common()]

    def to_frame(self) -> pd.DataFrame:
        """One row per segment: kind, rank, start_ns, duration_ns, name, blocks (whether it is communication)."""
        import pandas as pd

        rows = [(one.kind, one.rank, one.start_ns, one.ns, one.name, one.blocks) for one in self.segments]
        return pd.DataFrame(rows, columns=["kind", "rank", "start_ns", "duration_ns", "name", "blocks"])


def next_on(path: CriticalPath) -> tuple[str, float]:
    """What has most of a path, computation aside, and how much; computation, where all else has little of it.

    Of 90 µs of computation, 6 of launches and 4 of host work nothing but computation is left to shorten.
    """
    kinds, length = by_kind(list(path.segments)), max(path.length_ns, 1)
    computed = kinds.pop(COMPUTATION) / length
    binds, most = next(iter(kinds.items()))
    return (COMPUTATION, computed) if 1 - computed <= LITTLE_ELSE else (binds, most / length)


class WhatIf(Record, frozen=True):
    """The answer of `what_if`: how well the replay does, and predictions, the largest gain first.

    reason : why nothing is predicted, "" where something is. replay : None where there was nothing to replay. given :
    whether changes were asked for, not suggested. more : further suggestions, predicted to be worth less.
    bound : what bounds the step, where changes were suggested.
    """

    a: str
    b: str
    replay: Fidelity | None
    changes: tuple[Prediction, ...]
    reason: str = ""
    given: bool = False
    path: CriticalPath | None = None
    warnings: tuple[TraceWarning, ...] = ()
    steps: StepsUsed | None = None  # those that the figures are of
    more: int = 0
    bound: Bound | None = None

    @property
    def exit_code(self) -> int:
        """0 where something was predicted, else 3."""
        return 0 if self.changes else 3

    @property
    def best(self) -> Prediction | None:
        """What was asked for; else the change to try first, which is the fix where there is one."""
        return next(iter(self.to_try), None)

    @property
    def fix(self) -> Fix | None:
        """The change to name: the one to try first, if it gains enough of a step and is not unsafe; None where none."""
        first = None if self.given else first_fix(self.changes)
        return None if first is None else as_fix(first)

    @property
    def to_try(self) -> list[Prediction]:
        """The predictions in the order to try them: what is worth most first, several changes together last."""
        return sorted(self.changes, key=lambda one: (one.suggested is None, one.suggested or 0))

    @property
    def device_labels(self) -> DeviceLabels:
        """What the devices of the ranks are called."""
        return DeviceLabels.of((one.rank, one.device) for each in self.changes[:1] for one in each.ranks)

    @property
    def word(self) -> str:
        """The kind of answer in a word."""
        best = self.best
        if best is None:
            return "no prediction"
        if not self.given and self.fix is None:
            return "no gain"
        if not best.tells:
            return "can't tell"
        if abs(best.gain_ns) <= LITTLE_MORE * best.now_ns:
            return "no gain"
        return "predicted faster" if best.gain_ns > 0 else "predicted slower"

    @property
    def mood(self) -> str:
        """Of `word`."""
        return {"predicted faster": "good", "predicted slower": "bad"}.get(self.word, "middle")

    @property
    def sentence(self) -> str:
        """What the best change, or the given one, is worth."""
        best = self.best
        if best is None:
            return f"{self.reason}."
        if not self.given and self.fix is None:
            several = [one for one in self.changes if one.suggested is None and one.gain_ns >= GAINS * one.now_ns]
            together = [f"; {one.change} together {percent(one.gain_ns / one.now_ns)}" for one in several[:1]]
            text = f"no change that the capture suggests saves {percent(GAINS)} of the step by itself"
            bound = f" {self.bound.sentence}" if self.bound is not None else ""
            return f"{''.join([text, *together])}.{bound}"
        return f"{best.advice or best.change}: {self.step_in_words(best)}{self._overlap_in_words(best)}."

    def step_in_words(self, one: Prediction) -> str:
        """Step time now and predicted, with the range."""
        within = span(one.step_low_ns, one.step_high_ns)
        step = f"step {from_to(one.now_ns, one.step_ns)} (range {within})"
        return f"{step}, {change_in_words(one)}" if one.tells else f"{step}, too wide a range to be sure"

    def _overlap_in_words(self, one: Prediction) -> str:
        now, then, ranks = one.worst_now, one.worst, self.device_labels
        if now is None or then is None:
            return ""
        of, several = " and ".join(names_of(self.a, self.b)), len(one.ranks) > 1
        on, was, becomes = (
            (" on the worst rank", *(f" ({ranks.name(each.rank, each.device)})" for each in (now, then)))
            if several
            else ("", "", "")
        )
        return f". Real overlap of {of}{on} {percent(now.now_ratio)}{was} → {percent(then.ratio)}{becomes}"

    def to_frame(self) -> pd.DataFrame:
        """One row per prediction, the largest gain first.

        Columns: change, step_ns, step_low_ns, step_high_ns, gain_ns, tells, suggested (which one to try first, second,
        …), likely (how much of the gain counts for that), real_overlap_ratio and now_ratio (on the worst rank, then
        and now), next_cause, next_share, assumptions.
        """
        import pandas as pd

        columns = ["change", "step_ns", "step_low_ns", "step_high_ns", "gain_ns", "tells", "suggested", "likely"]
        rows = [
            (
                *(getattr(one, name) for name in columns),
                one.worst_now.now_ratio if one.worst_now else None,
                one.worst.ratio if one.worst else None,
                one.next_cause,
                one.next_share,
                "; ".join(one.assumptions),
            )
            for one in self.changes
        ]
        names = [*columns, "now_ratio", "real_overlap_ratio", "next_cause", "next_share", "assumptions"]
        return pd.DataFrame(rows, columns=names).astype({"suggested": "Int64"})

    def ranks_frame(self) -> pd.DataFrame:
        """One row per prediction, rank and device: real overlap now, predicted and its range, the most it could be."""
        import pandas as pd

        columns = [name for name in RankPrediction.__struct_fields__ if "ratio" not in name]
        rows = [(one.change, *(getattr(rank, name) for name in columns)) for one in self.changes for rank in one.ranks]
        return pd.DataFrame(rows, columns=["change", *columns])

    def _repr_html_(self) -> str:
        headers = ("change", "step", "range", "gain", "real overlap", "next bottleneck")
        rows = [
            (
                one.change,
                duration(one.step_ns),
                span(one.step_low_ns, one.step_high_ns),
                change_in_words(one) if one.tells else "can't tell",
                percent(one.worst.ratio if one.worst else None),
                f"{one.next_cause} ({percent(one.next_share)})",
            )
            for one in self.to_try
        ]
        notes = [f"replay: {self.replay.sentence}"] if self.replay else []
        notes += list(self.best.assumptions) if self.best else []
        return card(
            self.word,
            self.sentence,
            headers if rows else (),
            rows,
            mood=self.mood,
            texts=("change", "next bottleneck"),
            notes=notes,
            warnings=self.warnings,
        )

    def __repr__(self) -> str:
        replay = f"replay error {percent(self.replay.error)}; " if self.replay else ""
        return f"<what if; {replay}{self.word}; {self.sentence}>"


def weighed(gain: float, likely: float) -> float:
    """A gain by how much of it counts; a loss counts whole."""
    return gain * likely if gain > 0 else gain


def is_enough(gain: float, likely: float, least: float) -> bool:
    """Whether a change may be named: it may be made, and gains enough."""
    return weighed(gain, likely) > 0 and gain >= least


def first_fix(predictions: Sequence[Prediction]) -> Prediction | None:
    """The one to name: the first to try, if it gains enough of a step and may be made; None where there is none."""
    first = min((one for one in predictions if one.suggested), key=lambda one: one.suggested or 0, default=None)
    is_fix = first is not None and is_enough(first.gain_ns, first.likely, first.least_gain * first.now_ns)
    return first if is_fix else None


def as_fix(one: Prediction) -> Fix:
    """A prediction as a fix."""
    same = ("change", "safety", "step_ns", "step_low_ns", "step_high_ns", "advice", "where", "tells")
    assumes = one.assumptions[0] if one.assumptions else ""
    return Fix(now_step_ns=one.now_ns, assumes=assumes, **{name: getattr(one, name) for name in same})


def change_in_words(one: Prediction) -> str:
    """How much shorter or longer a step gets.

    >>> change_in_words(Prediction(("on-time all",), 5_000_000, 4_000_000, 0, 0, (), (), "", 0.0))
    '20 % less'
    >>> change_in_words(Prediction(("on-time all",), 5_000_000, 5_000_400, 0, 0, (), (), "", 0.0))
    'no change'
    """
    share = abs(one.gain_ns) / max(one.now_ns, 1)
    if share < LEAST_SHARE:
        return "no change"
    return f"{percent(share)} {'less' if one.gain_ns > 0 else 'more'}"
