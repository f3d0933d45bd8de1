"""Results as JSON: a contract. Keys stay, new ones may come; the schema's number changes when a meaning does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from analyzers.cache.folder import Entry, State
    from analyzers.collectives.report import Collectives
    from analyzers.common.errors import TraceWarning
    from analyzers.compare.gain import PairGain
    from analyzers.compare.noise import Change
    from analyzers.compare.results import ComparedRun, Comparison, LaneFigures, Region
    from analyzers.info import TraceInfo
    from analyzers.overlap.measure import RankOverlap, Side
    from analyzers.streams import StreamsResult
    from analyzers.syncs.report import OrderReport
    from analyzers.trace.alignment import Clocks
    from analyzers.verdict.check import OverlapResult
    from analyzers.verdict.gain import Gain
    from traceviz.history.trends import PairTrend

Json = dict[str, Any]
_GAP = ("instance", "start_ns", "end_ns")
_MISSED = ("cause", "ns", "after_sync_ns", "evidence", "next_behind", "sooner_ns", "next_cause", *_GAP)
_INSTANCE = ("label", "start_ns", "end_ns", "a_busy_ns", "b_busy_ns", "real_overlap_ns", "achievable_ns")


def overlap(result: OverlapResult) -> Json:
    """`traceviz.overlap/1`: times are whole ns, ratios floats or null."""
    return {
        "schema": "traceviz.overlap/1",
        **_fields(result, "verdict", "passed", "reason"),
        "pair": {"a": result.a, "b": result.b, "paired_by": result.paired_by},
        "bar": result.bar,
        "ranks": [_rank(rank) for rank in result.ranks],
        "job": {
            **_fields(result.job, "critical_rank", "critical_device", "real_overlap_ns", "achievable_ns"),
            "real_overlap_ratio": result.job.real_overlap_ratio,
            "real_overlap_ratio_low": result.job.ratio_low,
            "real_overlap_ratio_high": result.job.ratio_high,
            "rule": result.job.rule,
        },
        "gain": _gain(result.gain),
        "clocks": _clocks(result.clocks),
        "warnings": _warnings(result.warnings),
    }


def _gain(gain: Gain | None) -> Json | None:
    """Against a baseline; null without one."""
    if gain is None:
        return None
    ratios = {name: getattr(gain, name) for name in ("effective_gain", "speedup", "speedup_bound")}
    return {**vars(gain), **ratios}


def _clocks(clocks: Clocks | None) -> Json | None:
    """How far each device's clock runs ahead of the reference's; `residual_ns` is null where nothing tells."""
    if clocks is None:
        return None
    return {
        "method": clocks.method,
        "offsets": [
            _fields(one, "rank", "device", "offset_ns", "residual_ns", "drift", "collectives") for one in clocks.clocks
        ],
    }


def _fields(one: object, *names: str) -> Json:
    """Some of a result's fields under their own names."""
    return {name: getattr(one, name) for name in names}


def _rank(rank: RankOverlap) -> Json:
    return {
        **_fields(rank, "rank", "device"),
        "a": _side(rank.a),
        "b": _side(rank.b),
        **_fields(
            rank, "overlap_ns", "overlap_ratio", "real_overlap_ns", "real_overlap_ratio", "real_overlap_error_ns"
        ),
        "real_overlap_bounds_ns": list(rank.real_overlap_bounds_ns),
        **_fields(rank, "achievable_ns", "missed_ns"),
        "missed": [_fields(one, *_MISSED) for one in rank.missed],
        "instances": [_fields(one, *_INSTANCE) for one in rank.instances],
    }


def _side(side: Side) -> Json:
    return {"busy_ns": side.busy_ns, "wait_ns": side.wait_ns, "ops": side.ops, "streams": list(side.streams)}


def collectives(result: Collectives) -> Json:
    """`traceviz.collectives/1`: times are whole ns, sizes bytes, bandwidths GB/s (10⁹ bytes) or null."""
    return {
        "schema": "traceviz.collectives/1",
        "collectives": [
            {
                **{name: value for name, value in vars(one).items() if name != "ranks"},
                "ranks": [vars(call) for call in one.ranks],
            }
            for one in result
        ],
        "summary": [{**vars(kind), "last_by_rank": dict(kind.last_by_rank)} for kind in result.summary],
        "clocks": _clocks(result.clocks),
        "warnings": _warnings(result.warnings),
    }


def syncs(result: OrderReport) -> Json:
    """`traceviz.syncs/1`: host sync points, costliest first, and what else the order of the work tells; whole ns."""
    return {
        "schema": "traceviz.syncs/1",
        "syncs": _records(result.syncs.table, "process", "device", "waited_op", "call"),
        "unwaited_copies": _records(result.copies.table, "process", "op"),
        "missing_waits": [
            {
                **{name: value for name, value in vars(one).items() if name not in ("process", "op", "behind")},
                "message": one.message,
            }
            for one in result.crossings.missing
        ],
        "stream_plan": _records(result.plan.table, "process"),
        "warnings": _warnings(result.warnings),
    }


def _records(table: pd.DataFrame, *without: str) -> list[Json]:
    names = [str(name) for name in table.columns if name not in without]
    return [dict(zip(names, row, strict=True)) for row in zip(*(table[name].tolist() for name in names), strict=True)]


def streams(result: StreamsResult) -> Json:
    """`traceviz.streams/1`: per rank and device, whole ns."""
    return {
        "schema": "traceviz.streams/1",
        "ranks": [
            {
                **_fields(rank, "rank", "device", "span_ns", "busy_ns", "concurrent_ns"),
                "busy_streams_ns": list(rank.busy_streams_ns),
                "streams": [vars(use) for use in rank.streams],
                "overlap_ns": rank.overlap_ns.tolist(),
            }
            for rank in result.ranks
        ],
        "warnings": _warnings(result.warnings),
    }


def _warnings(warnings: Sequence[TraceWarning]) -> list[Json]:
    return [vars(warning) for warning in warnings]


def info(result: TraceInfo) -> Json:
    """`traceviz.info/1`: what is in the trace; times are whole ns."""
    return {
        "schema": "traceviz.info/1",
        "captures": [
            {
                "path": one.path,
                "format": one.format,
                "producer": one.producer,
                "schema_version": one.schema,
                "host": one.host,
                "start_utc_ns": one.start_utc_ns,
                "first_ns": one.first_ns,
                "last_ns": one.last_ns,
                "world_size": one.world_size,
                "metadata": dict(one.metadata),
            }
            for one in result.captures
        ],
        "ranks": [{**vars(rank), "devices": list(rank.devices)} for rank in result.ranks],
        "ranges": [vars(one) for one in result.ranges],
        "more_ranges": result.more_ranges,
        "steps": list(result.steps),
        "cannot": list(result.cannot),
        "warnings": _warnings(result.warnings),
    }


def cache(state: State) -> Json:
    """`traceviz.cache/1`: what the cache holds, least recently used first; sizes in bytes, `used` in s since 1970."""

    def plain(entries: Sequence[Entry]) -> list[Json]:
        return [{"path": str(one.path), "kind": one.kind, "bytes": one.size, "used": one.used} for one in entries]

    return {
        "schema": "traceviz.cache/1",
        "folder": str(state.root),
        "limit_bytes": state.limit,
        "unusable": state.unusable,
        "entries": plain(state.entries),
        "removed": plain(state.removed),
    }


def report(command: str, shown: Json, answers: Mapping[str, Json]) -> Json:
    """`traceviz.report/1`: all of a report.

    Parameters
    ----------
    shown : the instance that its timeline opens on: rank, instance, start_ns, end_ns.
    answers : what `overlap`, `collectives`, `syncs`, `streams` and `info` make of its results, by these names.
    """
    return {"schema": "traceviz.report/1", "command": command, "shown": shown, **answers}


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
        "warnings": _warnings(result.warnings),
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
        **_fields(lane, "rank", "device"),
        "figures": {name: vars(one) for name, one in lane.figures.items()},
        "changes": {name: _change(one) for name, one in lane.changes.items()},
    }


def _region(one: Region) -> Json:
    return {
        **_fields(one, "name", "rank", "device"),
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
                **_fields(one, "a", "b", "gpus", "call"),
                "real_overlap_ratio": vars(one.overlap) if one.overlap else None,
                "step_ns": vars(one.step) if one.step else None,
                "runs": [vars(run) for run in one.runs],
            }
            for one in found
        ],
    }
