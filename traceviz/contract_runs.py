"""What is said of several runs as JSON: comparisons and histories; a contract, as in `traceviz.contract`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceviz.contract import Json

if TYPE_CHECKING:
    from analyzers.compare.gain import PairGain
    from analyzers.compare.noise import Change
    from analyzers.compare.results import ComparedRun, Comparison, LaneFigures, Region
    from traceviz.trends import PairTrend


def comparison(result: Comparison) -> Json:
    """`traceviz.compare/1`: figures per step in whole ns; changes are against the first run."""
    claim = result.claim
    return {
        "schema": "traceviz.compare/1",
        "reason": result.reason,
        "pair": {"a": result.a, "b": result.b},
        "steps": list(result.steps),
        "ranks": list(result.ranks),
        "runs": [_run(run) for run in result.runs],
        "claim": None if claim is None else {**vars(claim), "words": claim.words},
        "warnings": [vars(warning) for warning in result.warnings],
    }


def _run(run: ComparedRun) -> Json:
    job = run.overlap.job if run.overlap else None
    return {
        "label": run.label,
        "captures": list(run.captures),
        "verdict": run.verdict if run.changes else None,
        "speedup": run.speedup,
        "figures": {name: vars(one) for name, one in run.figures.items()},
        "changes": {name: _change(one) for name, one in run.changes.items()},
        "real_overlap_ratio": job.real_overlap_ratio if job else None,
        "memory": "recorded" if run.memory_peaks else "not recorded",
        "memory_peaks": [vars(one) for one in run.memory_peaks],
        "ranks": [_lane(lane) for lane in run.lanes],
        "regions": [_region(one) for one in run.regions],
        "gain": _pair_gain(run.gain),
    }


def _change(one: Change) -> Json:
    return {**vars(one), "delta_ns": one.delta_ns, "ratio": one.ratio}


def _lane(lane: LaneFigures) -> Json:
    return {
        "rank": lane.rank,
        "device": lane.device,
        "figures": {name: vars(one) for name, one in lane.figures.items()},
        "changes": {name: _change(one) for name, one in lane.changes.items()},
    }


def _region(one: Region) -> Json:
    return {
        "name": one.name,
        "rank": one.rank,
        "device": one.device,
        "before": vars(one.before) if one.before else None,
        "after": vars(one.after) if one.after else None,
        "change": _change(one.change) if one.change else None,
    }


def _pair_gain(gain: PairGain | None) -> Json | None:
    if gain is None:
        return None
    ratios = {name: getattr(gain, name) for name in ("effective_gain", "speedup", "speedup_bound", "lost_ns")}
    changes = {name: _change(getattr(gain, name)) for name in ("a", "b", "together")}
    return {**vars(gain), **changes, **ratios}


def history(found: Sequence[PairTrend]) -> Json:
    """`traceviz.history/1`: a pair's runs, oldest first, and how the newest stands against those before."""
    return {
        "schema": "traceviz.history/1",
        "pairs": [
            {
                "a": one.a,
                "b": one.b,
                "gpus": one.gpus,
                "call": one.call,
                "real_overlap_ratio": vars(one.overlap) if one.overlap else None,
                "step_ns": vars(one.step) if one.step else None,
                "runs": [vars(run) for run in one.runs],
            }
            for one in found
        ],
    }
