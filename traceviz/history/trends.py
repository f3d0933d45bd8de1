"""The trend of each pair in a history: comparable runs, and what the newest is against those before."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from analyzers.common.records import Record
from analyzers.compare.noise import Trend, trend

if TYPE_CHECKING:
    from traceviz.history.database import SavedRun

VERDICTS = ("serialized", "partial", "overlapped")  # each better than the one before; "inconclusive" is none of them


class PairTrend(Record, frozen=True):
    """One pair on one set of GPUs: runs on other GPUs measure something else. Runs are oldest first.

    rule : how the job's figure was made of its ranks' in these runs.
    apparent : 1 where waits for ranks that were not captured count in these runs' figures, 0 where all are seen.
    other_rules, others_apparent : how many runs were judged by another rule, and how many by the same are apparent
        where these are real, or real where these are apparent; they are left out: their figures mean something else.
    verdict_before : of the last run before the newest that had the same bar and was not inconclusive; "" for none.
    """

    a: str
    b: str
    gpus: str
    rule: str
    apparent: int
    runs: tuple[SavedRun, ...]
    overlap: Trend | None
    step: Trend | None
    verdict_before: str = ""
    other_rules: int = 0
    others_apparent: int = 0

    @property
    def overlap_name(self) -> str:
        """What the overlap of these runs is called."""
        return "apparent overlap" if self.apparent else "real overlap"

    @property
    def flip(self) -> str:
        """What the newest run's verdict is against the one before: "regression", "improvement", or "" for the same."""
        newest = self.runs[-1].verdict
        if newest not in VERDICTS or self.verdict_before not in VERDICTS or newest == self.verdict_before:
            return ""
        better = VERDICTS.index(newest) > VERDICTS.index(self.verdict_before)
        return "improvement" if better else "regression"

    @property
    def call(self) -> str:
        """Regression where a figure or the verdict is one; else improvement, steady, or too-few to tell anything."""
        calls = [self.flip, *(one.call for one in (self.overlap, self.step) if one is not None)]
        return next((call for call in ("regression", "improvement", "steady") if call in calls), "too-few")


def trends(runs: Sequence[SavedRun], a: str | None = None, b: str | None = None) -> list[PairTrend]:
    """Group runs by pair and GPUs, and judge the newest of each; `a` and `b` pick pairs by their selectors."""
    grouped: dict[tuple[str, str, str], list[SavedRun]] = {}
    for run in runs:
        if a in (None, run.a) and b in (None, run.b):
            grouped.setdefault((run.a, run.b, run.gpus), []).append(run)
    return [_of_pair(*key, of_pair) for key, of_pair in grouped.items()]


def _of_pair(a: str, b: str, gpus: str, of_pair: Sequence[SavedRun]) -> PairTrend:
    *_, newest = of_pair
    by_rule = [run for run in of_pair if run.rule == newest.rule]
    runs = [run for run in by_rule if run.apparent == newest.apparent]
    comparable = [run.verdict for run in runs[:-1] if run.bar == newest.bar and run.verdict in VERDICTS]
    return PairTrend(
        a,
        b,
        gpus,
        newest.rule,
        newest.apparent,
        tuple(runs),
        _trend(runs, "real_overlap_ratio", more_is_better=True, most=1.0),
        _trend(runs, "step_ns", more_is_better=False),
        comparable[-1] if comparable else "",
        len(of_pair) - len(by_rule),
        len(by_rule) - len(runs),
    )


def _trend(runs: Sequence[SavedRun], name: str, *, more_is_better: bool, most: float = inf) -> Trend | None:
    """None where the newest run lacks the figure: an older one's is not the newest."""
    values = [getattr(run, name) for run in runs]
    if values[-1] is None:
        return None
    return trend([value for value in values if value is not None], more_is_better=more_is_better, most=most)
