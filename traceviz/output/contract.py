"""Results as JSON: a contract. Keys stay, new ones may come; the schema's number changes when a meaning does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from analyzers.common.ids import collective_id, gap_id, instance_id, sync_id
from analyzers.common.records import values

if TYPE_CHECKING:
    import pandas as pd

    from analyzers.cache.folder import Entry
    from analyzers.cache.folder import State as CacheState
    from analyzers.collectives.report import Collectives
    from analyzers.common.errors import TraceWarning
    from analyzers.compare.gain import PairGain
    from analyzers.compare.noise import FigureChange
    from analyzers.compare.results import ComparedRun, Comparison, LaneFigures, Region
    from analyzers.contention.cost import Contention
    from analyzers.contention.neighbours import StreamContention
    from analyzers.contracts.result import ContractResult
    from analyzers.counters.limits import Contended
    from analyzers.counters.report import CountersResult
    from analyzers.counters.states import State
    from analyzers.info import TraceInfo
    from analyzers.overlap.job import LastArrival
    from analyzers.overlap.measure import Missed, RankOverlap, Side
    from analyzers.overlap.peers import DeviceTime
    from analyzers.replay.result import Prediction, WhatIf
    from analyzers.show.result import Shown
    from analyzers.streams import StreamsResult
    from analyzers.syncs.of_steps import StepSync
    from analyzers.syncs.report import OrderReport
    from analyzers.trace.alignment import Clocks
    from analyzers.trace.step_table import StepsUsed
    from analyzers.verdict.against import StepsAgainst
    from analyzers.verdict.bound import Bound
    from analyzers.verdict.check import OverlapResult
    from analyzers.verdict.claim import Claim
    from analyzers.verdict.fix import Fix
    from analyzers.verdict.gain import Gain
    from analyzers.verdict.profiler import ProfilerWeight
    from traceviz.history.trends import PairTrend

Json = dict[str, Any]
_GAP = ("instance", "start_ns", "end_ns")
_RECOVERABLE = ("recoverable_ns", "recoverable_low_ns", "recoverable_high_ns")
_TOLD = ("cause", "ns", "after_sync_ns", "finding", "evidence", "next_behind")
_MISSED = (*_TOLD, "sooner_ns", "next_cause", *_RECOVERABLE, *_GAP)
_INSTANCE = ("label", "start_ns", "end_ns", "a_busy_ns", "b_busy_ns", "real_overlap_ns", "achievable_ns")


def overlap(result: OverlapResult) -> Json:
    """`traceviz.overlap/3`: times are whole ns, ratios floats or null.

    Since `/2`, figures are of the whole steps that count (`steps`), where there are any and `--all` is not given, and
    `job` is the median step's: `job.step`, of `job.steps`; null and 0 where figures are of all that was looked at. So
    is `median_step` of each rank, whose other figures are sums over those steps.
    `remedy` is null where no change is worth naming, `recoverable_ns` where nothing is predicted: `worth_unknown` says
    why, "" where something is. `id` is what `traceviz show` expands, null where no gap tells a cause.
    """
    job = result.job
    return {
        "schema": "traceviz.overlap/3",
        **_fields(result, "verdict", "passed", "reason"),
        "pair": {"a": result.a, "b": result.b, "paired_by": result.paired_by},
        "bar": result.bar,
        "steps": _steps(result.steps),
        "bound": _bound(result.bound),
        "profiler": _profiler(result.profiler),
        "host_syncs": [_host_sync(one) for one in result.host_syncs],
        "own_work": [{**values(one), "change": one.change, "words": one.words} for one in result.own_work],
        "ranks": [_rank(rank) for rank in result.ranks],
        "device_times": [_device_time(one) for one in result.times],
        **_fields(result, "ranks_given", "ranks_known"),
        "ranks_met": job.ranks_met,
        "job": {
            **_fields(job, "rule", "rank", "device", "real_overlap_ns", "achievable_ns", "real_overlap_ratio"),
            **_fields(job, "step", "steps", "window", "apparent"),
            "real_overlap_ratio_low": job.ratio_low,
            "real_overlap_ratio_high": job.ratio_high,
        },
        "last_arrival": _last_arrival(result.last_arrival),
        "lines": [values(one) for one in result.lines],
        "fix": fix(result.fix),
        "cause_fix": fix(result.cause_fix),
        "remedy": _remedy(result.fix),
        "worth_unknown": result.worth_unknown,
        "communication": [values(one) for one in result.communication],
        "stake": {**values(result.stake), "dominates": result.stake.dominates} if result.stake else None,
        "against": _against(result.against),
        "gain": _gain(result.gain),
        "claim": _claim(result.claim, result.claim_reason),
        "claim_reason": result.claim_reason,
        "contention": _contention(result.cost),
        "counters": _contended(result.contended),
        "clocks": _clocks(result.clocks),
        "warnings": _warnings(result.warnings),
    }


def fix(one: Fix | None) -> Json | None:
    """The change named first, and what a step takes with it; null where none gains enough and may be made."""
    if one is None:
        return None
    steps = _fields(one, "now_step_ns", "step_ns", "step_low_ns", "step_high_ns")
    return {"change": one.change, "class": one.safety, **steps, **_fields(one, "assumes", "where", "advice", "tells")}


def _remedy(one: Fix | None) -> Json | None:
    """The same with what it brings of overlap on the rank that decides; null where that is not predicted."""
    if one is None or one.recoverable_ns is None:
        return None
    names = (*_RECOVERABLE, "now_ratio", "ratio", "now_step_ns", "step_ns", "step_low_ns", "step_high_ns")
    return _fields(one, "change", "rank", "device", *names, "assumes", "advice")


def _bound(one: Bound | None) -> Json | None:
    """Where the median step's time goes on the rank that waits least, and on all: parts that add up to `step_ns`.

    `idle_host_ns`, `idle_wait_ns` and `idle_profiler_ns` are parts of `idle_ns`; the first two null where launches are
    not on record. `step` is null where all that is looked at is one. `ceiling_ns` is the step time that perfect overlap
    of the pair saves at most, null where that can't be told. Null where causes were not asked for.
    """
    if one is None:
        return None
    ranks = [{"kind": each.kind, **values(each)} for each in one.ranks]
    return {"kind": one.kind, **values(one), "ranks": ranks}


def _profiler(one: ProfilerWeight | None) -> Json | None:
    """Captured step over real step, `from` "manifest" or "overhead-events"; null where nothing tells."""
    if one is None:
        return None
    return {"weight": one.weight, "from": one.source, **_fields(one, "captured_step_ns", "real_step_ns")}


def _host_sync(one: StepSync) -> Json:
    """Host syncs alike in the steps that count; `bytes` is null where no copy, or not the same one, was waited for."""
    return {**values(one), "bytes": None if one.bytes < 0 else one.bytes, "words": one.words}


def _steps(steps: StepsUsed | None) -> Json | None:
    """The run's steps: `count` seen, `whole` complete on all ranks, of which `first` and `last` are the ends.

    `source` is "marked", "inferred", "given", or null where there are none, as `unknown` then says why. `numbers` are
    those that the figures are of; null where they are of everything, or of a window of time.
    """
    if steps is None:
        return None
    return {
        **_fields(steps, "count", "whole"),
        "source": steps.source or None,
        "by": steps.by or None,
        **_fields(steps, "first", "last"),
        "left_out": [values(one) for one in steps.left_out],
        "unknown": steps.unknown,
        "numbers": None if steps.numbers is None else list(steps.numbers),
    }


def _last_arrival(one: LastArrival | None) -> Json | None:
    """Collectives on the rank that arrived last; null where no side is communication that is nearly all matched."""
    if one is None:
        return None
    return {
        **_fields(one, "rank", "device", "real_overlap_ns", "achievable_ns", "real_overlap_ratio"),
        "real_overlap_ratio_low": one.ratio_low,
        "real_overlap_ratio_high": one.ratio_high,
    }


def _contended(found: Contended | None) -> Json | None:
    """What the sides likely contend for; null where no GPU counters were captured."""
    if found is None:
        return None
    return {**_fields(found, "sentence", "unknown"), "likely": [values(one) for one in found.likely]}


def _contention(cost: Contention | None) -> Json | None:
    """What overlap cost on the rank that decides; null where the sides never met."""
    if cost is None:
        return None
    return {
        **_fields(cost, "rank", "device"),
        "a": values(cost.a),
        "b": values(cost.b),
        **_fields(cost, "real_overlap_ns", "net_overlap_ns", "low_ns", "high_ns"),
        "of_ideal": cost.ideal,
    }


def _gain(gain: Gain | None) -> Json | None:
    """Against a baseline; null without one."""
    if gain is None:
        return None
    ratios = {name: getattr(gain, name) for name in ("effective_gain", "speedup", "speedup_bound")}
    return {**values(gain), **ratios}


def _against(step: StepsAgainst | None) -> Json | None:
    """Step time against the baseline's; null without one. Times are null where nothing could be compared."""
    if step is None:
        return None
    names = ("before_ns", "after_ns", "low_ns", "high_ns")
    known = {name: getattr(step, name) if step.moved else None for name in names}
    more = _fields(step, "ratio", "speedup", "steps", "ranks", "disjoint", "could_ns", "reason", "different_profilers")
    return {"word": step.word, **known, **more, "is_required": step.is_required, "sentence": step.sentence}


def _claim(claim: Claim | None, reason: str = "") -> Json | None:
    """A stated speedup, and whether it can be and was reached; null where none is held against anything."""
    from analyzers.verdict.claim import word_of

    if claim is None:
        return None
    return {**values(claim), "word": word_of(claim, reason), "shown": claim.shown, "words": claim.words}


def _clocks(clocks: Clocks | None) -> Json | None:
    """How far each device's clock runs ahead of the reference's; `residual_ns` is null where nothing tells.

    `hosts_agree_ns`: within what host clocks of captures of one host are taken to agree, 0 where nothing rests on it.
    """
    if clocks is None:
        return None
    return {
        "method": clocks.method,
        "hosts_agree_ns": clocks.hosts_agree_ns,
        "offsets": [
            _fields(one, "rank", "device", "offset_ns", "residual_ns", "drift", "collectives") for one in clocks.clocks
        ],
    }


def _fields(one: object, *names: str) -> Json:
    """Some of a result's fields under their own names."""
    return {name: getattr(one, name) for name in names}


def _window(one: RankOverlap) -> Json:
    """One capture of a rank that has several, by itself; `achievable_ns` is the ratio's denominator."""
    return {
        **_fields(one, "window", "capture"),
        "a": _side(one.a),
        "b": _side(one.b),
        **_fields(one, "overlap_ns", "real_overlap_ns", "real_overlap_ratio"),
        "achievable_ns": one.could_overlap_ns,
        "median_step": None if one.typical.step is None else values(one.typical),
    }


def _rank(rank: RankOverlap) -> Json:
    known, typical = rank.real_overlap_ratio is not None, rank.typical
    return {
        **_fields(rank, "rank", "device"),
        "a": _side(rank.a),
        "b": _side(rank.b),
        **_fields(
            rank, "overlap_ns", "overlap_ratio", "real_overlap_ns", "real_overlap_ratio", "real_overlap_error_ns"
        ),
        "real_overlap_bounds_ns": list(rank.real_overlap_bounds_ns),
        "real_overlap_ratio_low": rank.ratio_range[0] if known else None,
        "real_overlap_ratio_high": rank.ratio_range[1] if known else None,
        **_fields(rank, "apparent_ns", "achievable_ns", "missed_ns"),
        "unaccounted_ns": rank.unaccounted_ns,
        "launched_before": values(rank.launched_before),
        "lost": _fields(rank.lost, "ops", "most_ns"),
        "spoiled": rank.spoiled,
        "median_step": None if typical.step is None else values(typical),
        "windows": [_window(one) for one in rank.windows],
        "waiting_share_estimate": rank.unseen.waiting if rank.unseen else None,
        "missed": [
            {
                "id": gap_of(rank, one),
                **_fields(one, *_MISSED),
                "inferred": values(one.inferred) if one.inferred else None,
            }
            for one in rank.missed
        ],
        "instances": [
            {"id": instance_id(rank.rank, rank.device, one.start_ns), **_fields(one, *_INSTANCE)}
            for one in rank.instances
        ],
    }


def _device_time(one: DeviceTime) -> Json:
    """Where a device's time goes, and the figures of other tools by their own names."""
    return {
        **_fields(
            one, "rank", "device", "span_ns", "a_only_ns", "b_only_ns", "both_ns", "other_ns", "idle_ns", "steps"
        ),
        "hta": {**values(one.hta), "comm_comp_overlap": one.hta.comm_comp_overlap},
        "tracelens": values(one.tracelens),
    }


def gap_of(rank: RankOverlap, one: Missed) -> str | None:
    """The id of the gap that a cause is told by; None where no gap tells it."""
    return gap_id(rank.rank, rank.device, one.start_ns) if one.op >= 0 else None


def _side(side: Side) -> Json:
    return {"busy_ns": side.busy_ns, "wait_ns": side.wait_ns, "ops": side.ops, "streams": list(side.streams)}


def collectives(result: Collectives) -> Json:
    """`traceviz.collectives/1`: times are whole ns, sizes bytes, bandwidths GB/s (10⁹ bytes) or null.

    `reason` says why not all collectives may be on record, "" where they are.
    """
    return {
        "schema": "traceviz.collectives/1",
        "reason": result.reason,
        "steps": _steps(result.steps),
        "collectives": [
            {
                "id": collective_id(one.index),
                **{name: value for name, value in values(one).items() if name != "ranks"},
                "ranks": [values(call) for call in one.ranks],
            }
            for one in result
        ],
        "summary": [{**values(kind), "last_by_rank": dict(kind.last_by_rank)} for kind in result.summary],
        "copies": _records(result.copies.table, unknown=("bytes",)),
        "copies_by_rank": _records(result.copies.calls, unknown=("bytes", "barrier_ns", "barrier_wait_ns")),
        "groups": [{**values(one), "group": values(one.group)} for one in result.groups],
        "clocks": _clocks(result.clocks),
        "warnings": _warnings(result.warnings),
    }


def syncs(result: OrderReport) -> Json:
    """`traceviz.syncs/2`: host sync points, costliest first, and what else the order of the work tells; whole ns.

    `groups` are sync points alike, in sums. `gpu_idle_ns` is from the drain to the call's return, `after_ns` from there
    to the next launch (`/1` had both in `gpu_idle_ns`). Where `unrecorded_ns` is more than 0, a CUDA graph ran what was
    not recorded for so long, and `gpu_idle_ns` is 0 and says nothing. `reason` says where no CUDA calls, or launches
    alone, were recorded, or calls lost their names, so that no sync point could be found. Where GPU work was lost, or
    none recorded, how long GPUs were idle is null.
    """
    from analyzers.syncs.groups import sync_groups

    unknown = IDLE_UNKNOWN if result.idle_unknown else {}

    return {
        "schema": "traceviz.syncs/2",
        "reason": result.reason,
        "syncs": [
            {"id": sync_id(one["rank"], one["start_ns"]), **one, **unknown}
            for one in _records(
                result.syncs.table,
                *("process", "device", "waited_op", "call"),
                unknown=("bytes", "waited_stream", "waited_event"),
            )
        ],
        "groups": [
            {**asdict(one), "ranks": list(one.ranks), "bytes": _known(one.bytes), **unknown}
            for one in sync_groups(result.syncs)
        ],
        "unwaited_copies": _records(result.copies.table, "process", "op"),
        "missing_waits": [
            {
                **{name: value for name, value in values(one).items() if name not in ("process", "op", "behind")},
                "message": one.message,
            }
            for one in result.crossings.missing
        ],
        "resting_on_host_syncs": _records(result.resting.table, "process", "op", "behind", "call"),
        "stream_plan": _records(result.plan.table, "process", unknown=("communication",)),
        "warnings": _warnings(result.warnings),
    }


IDLE_UNKNOWN: Json = {"gpu_idle_ns": None, "after_ns": None}  # of syncs, where no GPU work is on record


def _known(value: int) -> int | None:
    return None if value == -1 else value


def _records(table: pd.DataFrame, *without: str, unknown: Collection[str] = ()) -> list[Json]:
    """Rows as they are, but for -1 in columns where that stands for what is not known: null."""
    names = [str(name) for name in table.columns if name not in without]
    columns = [table[name].tolist() for name in names]
    columns = [
        [*map(_known, column)] if name in unknown else column for name, column in zip(names, columns, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def streams(result: StreamsResult, costs: StreamContention | None = None) -> Json:
    """`traceviz.streams/1`: per rank and device, whole ns."""
    return {
        "schema": "traceviz.streams/1",
        "steps": _steps(result.steps),
        "ranks": [
            {
                **_fields(rank, "rank", "device", "span_ns", "busy_ns", "concurrent_ns"),
                "busy_streams_ns": list(rank.busy_streams_ns),
                "streams": [values(use) for use in rank.streams],
                "overlap_ns": rank.overlap_ns.tolist(),
            }
            for rank in result.ranks
        ],
        "contention": _stream_contention(costs),
        "warnings": _warnings(result.warnings),
    }


def _stream_contention(costs: StreamContention | None) -> Json | None:
    """Kernels that ran slower beside other streams, and beside which; null unless that was asked for."""
    if costs is None:
        return None
    return {"kernels": [values(one) for one in costs.kernels], "pairs": [values(one) for one in costs.pairs]}


def _warnings(warnings: Sequence[TraceWarning]) -> list[Json]:
    return [values(warning) for warning in warnings]


def counters(result: CountersResult) -> Json:
    """`traceviz.counters/1`: per rank, device and state; times are whole ns, counters % or MHz.

    `likely` is told of all ranks together; `unknown` says why nothing can be, "" where it can.
    """
    return {
        "schema": "traceviz.counters/1",
        "steps": _steps(result.steps),
        "pair": {"a": result.a, "b": result.b},
        **(_contended(result.contended) or {}),
        "ranks": [
            {
                **_fields(one, "rank", "device", "period_ns", "samples"),
                "states": {name: _state(state) for name, state in one.states.items()},
            }
            for one in result.ranks
        ],
        "warnings": _warnings(result.warnings),
    }


def _state(state: State) -> Json:
    figures = {name: {"mean": state.mean(name), "p90": state.p90(name)} for name in state.weights}
    return {**_fields(state, "time_ns", "sampled_ns", "whole_ns"), "counters": figures}


def info(result: TraceInfo) -> Json:
    """`traceviz.info/2`: what is in the trace; times are whole ns.

    Since `/1`, `steps` says how they were found, and `step_numbers` lists them.
    """
    return {
        "schema": "traceviz.info/2",
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
                "unused": dict(one.unused),
            }
            for one in result.captures
        ],
        "ranks": [
            {**values(rank), "pid": _known(rank.pid), "devices": list(rank.devices), "counters": list(rank.counters)}
            for rank in result.ranks
        ],
        "ranges": [values(one) for one in result.ranges],
        "more_ranges": result.more_ranges,
        "steps": _steps(result.steps),
        "step_numbers": list(result.step_numbers),
        "cannot": list(result.cannot),
        "communication": [values(one) for one in result.communication],
        "suggested": [
            {**values(one), "streams": list(one.streams), "selector": one.selector} for one in result.suggested
        ],
        "warnings": _warnings(result.warnings),
    }


def cache(state: CacheState) -> Json:
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
    answers : what `overlap`, `collectives`, `syncs`, `streams`, `info` and `what_if` make of its results, by these
        names.
    """
    return {"schema": "traceviz.report/1", "command": command, "shown": shown, **answers}


def comparison(result: Comparison) -> Json:
    """`traceviz.compare/3`: figures per step in whole ns; changes are against the first run.

    Since `/2`, `verdict` is the step's word alone ("same" for what was "no-difference"), as in `against`;
    `effective_gain` and `speedup` count what overlaps in the first run already; `work_ns` of `growth` holds no work
    that only came in another order; a claim without a pair is `about` the step.
    """
    return {
        "schema": "traceviz.compare/3",
        "reason": result.reason,
        "pair": {"a": result.a, "b": result.b},
        "steps": list(result.steps),
        "ranks": list(result.ranks),
        "runs": [_run(run) for run in result.runs],
        "claim": _claim(result.claim, result.claim_reason),
        "claim_reason": result.claim_reason,
        "warnings": _warnings(result.warnings),
    }


def _run(run: ComparedRun) -> Json:
    from analyzers.counters.states import pooled

    job = run.overlap.job if run.overlap else None
    return {
        "label": run.label,
        "captures": list(run.captures),
        "verdict": run.verdict if run.changes else None,
        "against": _against(run.against),
        "speedup": run.speedup,
        "counters": {name: _state(state) for name, state in pooled(run.counters).items()} if run.counters else None,
        "contended": _contended(run.contended),
        "figures": {name: values(one) for name, one in run.figures.items()},
        "changes": {name: _change(one) for name, one in run.changes.items()},
        "real_overlap_ratio": job.real_overlap_ratio if job else None,
        "apparent": job.apparent if job else False,
        "calls_recorded": run.calls_recorded,
        "late_start": values(run.late_start) if run.late_start else None,
        "steps": _steps(run.steps),
        "memory": "recorded" if run.memory_peaks else "not recorded",
        "memory_peaks": [values(one) for one in run.memory_peaks],
        "ranks": [_lane(lane) for lane in run.lanes],
        "regions": [_region(one) for one in run.regions],
        "growth": dict(zip("ab", map(values, run.growth), strict=True)) if run.growth else None,
        "gain": _pair_gain(run.gain),
    }


def _change(one: FigureChange) -> Json:
    return {**values(one), "delta_ns": one.delta_ns, "ratio": one.ratio}


def _lane(lane: LaneFigures) -> Json:
    return {
        **_fields(lane, "rank", "device"),
        "figures": {name: values(one) for name, one in lane.figures.items()},
        "changes": {name: _change(one) for name, one in lane.changes.items()},
    }


def _region(one: Region) -> Json:
    return {
        **_fields(one, "name", "rank", "device"),
        "before": values(one.before) if one.before else None,
        "after": values(one.after) if one.after else None,
        "change": _change(one.change) if one.change else None,
    }


def _pair_gain(gain: PairGain | None) -> Json | None:
    if gain is None:
        return None
    ratios = {name: getattr(gain, name) for name in ("effective_gain", "speedup", "speedup_bound", "lost_ns")}
    changes = {name: _change(getattr(gain, name)) for name in ("a", "b", "together")}
    return {**values(gain), **changes, **ratios}


def history(found: Sequence[PairTrend]) -> Json:
    """`traceviz.history/2`: a pair's runs, oldest first, and how the newest stands against those before.

    Since `/1`, a verdict that flips decides `call`, too, and runs by another `rule` than the newest's are left out, as
    are apparent figures where the newest's is real, and real ones where it is apparent.
    """
    return {
        "schema": "traceviz.history/2",
        "pairs": [
            {
                **_fields(one, "a", "b", "gpus", "rule", "apparent", "call", "verdict_before"),
                **_fields(one, "other_rules", "others_apparent"),
                "real_overlap_ratio": values(one.overlap) if one.overlap else None,
                "step_ns": values(one.step) if one.step else None,
                "runs": [values(run) for run in one.runs],
            }
            for one in found
        ],
    }


def what_if(result: WhatIf) -> Json:
    """`traceviz.what-if/1`: what changes are worth, the largest gain first; whole ns.

    `replay` is null where there was nothing to replay, `changes` is empty where nothing is predicted: `reason` says
    why. `tells` is false where the range is too wide to say anything. `suggested` is which change to try first, second,
    …, by the gain times `likely`; null for several together, and for changes that were asked for. `fix` is the first of
    them, null where it gains too little, or changes were asked for; `class` as in a fix. `critical_path` and
    `communication` are null unless asked for: of the steps as captured, segments in order of time, of which
    communication `blocks`, and per device what of communication is exposed, and what of that is on the path.
    """
    path = result.path
    return {
        "schema": "traceviz.what-if/1",
        "steps": _steps(result.steps),
        "reason": result.reason,
        "pair": {"a": result.a, "b": result.b},
        "replay": values(result.replay) if result.replay else None,
        "fix": fix(result.fix),
        "changes": [predicted(one) for one in result.changes],
        "more": result.more,
        "critical_path": None if path is None else [{**values(one), "blocks": one.blocks} for one in path.segments],
        "communication": None if path is None else [values(one) for one in path.communication],
        "warnings": _warnings(result.warnings),
    }


def predicted(one: Prediction) -> Json:
    """What one change, or several together, is worth; `class` as in `fix`, "" of several that were asked for."""
    times = _fields(one, "now_ns", "step_ns", "step_low_ns", "step_high_ns", "gain_ns", "tells", "suggested", "likely")
    return {
        "change": one.change,
        "together": list(one.changes),
        "class": one.safety,
        **times,
        "where": one.where,
        "ranks": [values(rank) for rank in one.ranks],
        **_fields(one, "next_cause", "next_share"),
        "assumptions": list(one.assumptions),
    }


def show(result: Shown, following: Sequence[str]) -> Json:
    """`traceviz.show/1`: one finding; times are whole ns from the capture's start.

    `pair`, `rank` and `device` are null where they play no part. Of a gap and an instance `pieces` are causes, `ns` the
    time alone that each held in all, from `start_ns` to `end_ns` in the longest gap; of a collective they are ranks,
    the last to arrive first, of which `more_pieces` are left out. `next` are the commands to run next.
    """
    return {
        "schema": "traceviz.show/1",
        **_fields(result, "id", "kind"),
        "pair": {"a": result.a, "b": result.b} if result.a else None,
        **_fields(result, "rank", "device", "start_ns", "end_ns"),
        "steps": list(result.steps),
        "sentence": result.sentence,
        "figures": dict(result.figures),
        "pieces": [values(one) for one in result.pieces],
        "more_pieces": result.more_pieces,
        "evidence": list(result.evidence),
        "related": [values(one) for one in result.related],
        "next": list(following),
    }


def contract(result: ContractResult) -> Json:
    """`traceviz.contract/1`: what became of each rule of a contract, in its order; instants are whole ns.

    `outcome` is "held", "broken" or "inconclusive", of a rule and of all of them. `checked` and `failed` count what
    `counted` says, over all ranks. A finding's `path` leads from what comes first to what has to wait for it; `exact`
    is false where a step of it is inferred.
    """
    return {
        "schema": "traceviz.contract/1",
        **_fields(result, "outcome", "sentence"),
        "contract": result.contract.path,
        "ranks": list(result.ranks),
        "rules": [
            {
                **_fields(one, "name", "outcome", "sentence"),
                **_fields(one.rule, "asked", "needs", "counted"),
                "kind": one.rule.key,
                **_fields(one, "checked", "failed", "cut_off", "reason", "remedy"),
                "findings": [{**values(found), "path": list(found.path)} for found in one.findings],
            }
            for one in result.rules
        ],
        "warnings": _warnings(result.warnings),
    }
