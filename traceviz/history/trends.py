"""The trend of each pair in a history: comparable runs, and what the newest is against those before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzers.compare.noise import Trend, trend

if TYPE_CHECKING:
    from traceviz.history.database import SavedRun


@dataclass(frozen=True)
class PairTrend:
    """One pair on one set of GPUs: runs on other GPUs measure something else. Runs are oldest first."""

    a: str
    b: str
    gpus: str
    runs: tuple[SavedRun, ...]
    overlap: Trend | None
    step: Trend | None

    @property
    def call(self) -> str:
        """Regression where either figure is one; else improvement, steady, or too-few where nothing can be told."""
        calls = [one.call for one in (self.overlap, self.step) if one is not None]
        return next((call for call in ("regression", "improvement", "steady") if call in calls), "too-few")


def trends(runs: Sequence[SavedRun], a: str | None = None, b: str | None = None) -> list[PairTrend]:
    """Group runs by pair and GPUs, and judge the newest of each; `a` and `b` pick pairs by their selectors."""
    grouped: dict[tuple[str, str, str], list[SavedRun]] = {}
    for run in runs:
        if a in (None, run.a) and b in (None, run.b):
            grouped.setdefault((run.a, run.b, run.gpus), []).append(run)
    return [
        PairTrend(*key, tuple(of_pair), _trend(of_pair, "real_overlap_ratio", True), _trend(of_pair, "step_ns", False))
        for key, of_pair in grouped.items()
    ]


def _trend(runs: Sequence[SavedRun], name: str, more_is_better: bool) -> Trend | None:
    """None where the newest run lacks the figure: an older one's is not the newest."""
    values = [getattr(run, name) for run in runs]
    if values[-1] is None:
        return None
    return trend([value for value in values if value is not None], more_is_better=more_is_better)
