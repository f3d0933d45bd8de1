"""Results as JSON: a contract. Keys stay, new ones may come; the schema's number changes when a meaning does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analyzers.common.ids import collective_id, gap_id, instance_id, sync_id
from analyzers.common.records import values
from traceviz.output.records import Json, picked, rows, to_json

if TYPE_CHECKING:
    from analyzers.cache.folder import State as CacheState
    from analyzers.collectives.report import Collectives
    from analyzers.compare.results import ComparedRun, Comparison
    from analyzers.contention.neighbours import StreamContention
    from analyzers.contracts.result import ContractResult
    from analyzers.counters.report import CountersResult
    from analyzers.counters.states import State
    from analyzers.info import TraceInfo
    from analyzers.overlap.measure import Missed, RankOverlap, Typical
    from analyzers.replay.result import WhatIf
    from analyzers.show.result import Shown
    from analyzers.streams import StreamsResult
    from analyzers.syncs.report import OrderReport
    from analyzers.trace.step_table import StepsUsed
    from analyzers.verdict.against import StepsAgainst
    from analyzers.verdict.check import OverlapResult
    from analyzers.verdict.claim import Claim
    from analyzers.verdict.fix import Fix
    from traceviz.history.trends import PairTrend

_RECOVERABLE = "recoverable_ns recoverable_low_ns recoverable_high_ns"
_STEP = "now_step_ns step_ns step_low_ns step_high_ns"
IDLE_UNKNOWN: Json = {"gpu_idle_ns": None, "after_ns": None}  # of syncs, where no GPU work is on record


def overlap(result: OverlapResult) -> Json:
    """`traceviz.overlap/3`: times are whole ns, ratios floats or null.

    Figures are of the whole steps that count (`steps`), where there are any and `--all` is not given, and `job` is the
    median step's: `job.step`, of `job.steps`; null and 0 where figures are of all that was looked at. So is
    `median_step` of each rank, whose other figures are sums over those steps.
    `remedy` is null where no change is worth naming, `recoverable_ns` where nothing is predicted: `worth_unknown` says
    why, "" where something is. `id` is what `traceviz show` expands, null where no gap tells a cause.
    `bound` is where the median step's time goes on the rank that waits least, and on all: parts that add up to
    `step_ns`. Its `idle_host_ns`, `idle_wait_ns` and `idle_profiler_ns` are parts of `idle_ns`; the first two null
    where launches are not on record. Its `step` is null where all that is looked at is one. `ceiling_ns` is the step
    time that perfect overlap of the pair saves at most.
    `profiler` is captured step over real step, `from` "manifest" or "overhead-events". `bytes` of a host sync is null
    where no copy, or not the same one, was waited for. `hosts_agree_ns` of `clocks`: within what host clocks of
    captures of one host are taken to agree, 0 where nothing rests on it; `residual_ns` is null where nothing tells.
    Null where there is none, or it can't be told: `bound`, `profiler`, `last_arrival`, `fix`, `against` and `gain`
    (without a baseline), `contention` (the sides never met), `counters` (none were captured).
    """
    return {
        "schema": "traceviz.overlap/3",
        **picked(result, "verdict passed reason"),
        "pair": picked(result, "a b paired_by"),
        "bar": result.bar,
        "steps": steps(result.steps),
        **picked(result, "bound profiler host_syncs own_work"),
        "ranks": [_rank(rank) for rank in result.ranks],
        **picked(result, "device_times=times ranks_given ranks_known ranks_met=job.ranks_met job last_arrival lines"),
        **picked(result, "fix cause_fix"),
        "remedy": _remedy(result.fix),
        **picked(result, "worth_unknown communication stake"),
        "against": _against(result.against),
        "gain": to_json(result.gain),
        "claim": _claim(result.claim, result.claim_reason),
        **picked(result, "claim_reason contention=cost counters=contended clocks warnings"),
    }


def _remedy(fix: Fix | None) -> Json | None:
    """The fix with what it brings of overlap on the rank that decides; null where that is not predicted."""
    if fix is None or fix.recoverable_ns is None:
        return None
    return picked(fix, f"change rank device {_RECOVERABLE} now_ratio ratio {_STEP} assumes advice")


def steps(used: StepsUsed | None) -> Json | None:
    """The run's steps: `count` seen, `whole` complete on all ranks, of which `first` and `last` are the ends.

    `source` is "marked", "inferred", "given", or null where there are none, as `unknown` then says why. `numbers` are
    those that the figures are of; null where they are of everything, or of a window of time.
    """
    if used is None:
        return None
    found = picked(used, "count whole source by first last left_out unknown numbers")
    return {**found, "source": used.source or None, "by": used.by or None}


def _against(step: StepsAgainst | None) -> Json | None:
    """Step time against the baseline's; times are null where nothing could be compared."""
    if step is None:
        return None
    known = picked(step, "before_ns after_ns low_ns high_ns")
    more = picked(step, "ratio speedup steps ranks disjoint could_ns reason different_profilers is_required sentence")
    return {"word": step.word, **(known if step.moved else dict.fromkeys(known)), **more}


def _claim(claim: Claim | None, reason: str = "") -> Json | None:
    """A stated speedup, and whether it can be and was reached; null where none is held against anything."""
    from analyzers.verdict.claim import word_of

    if claim is None:
        return None
    return {**values(claim), "word": word_of(claim, reason), "shown": claim.shown, "words": claim.words}


def _window(one: RankOverlap) -> Json:
    """One capture of a rank that has several, by itself; `achievable_ns` is the ratio's denominator."""
    figures = picked(
        one, "window capture a b overlap_ns real_overlap_ns real_overlap_ratio achievable_ns=could_overlap_ns"
    )
    return {**figures, "median_step": _median_step(one.typical)}


def _median_step(one: Typical) -> Json | None:
    return None if one.step is None else picked(one, "*")


def _rank(rank: RankOverlap) -> Json:
    low, high = rank.ratio_range if rank.real_overlap_ratio is not None else (None, None)
    return {
        **picked(rank, "rank device a b overlap_ns overlap_ratio real_overlap_ns real_overlap_ratio"),
        **picked(rank, "real_overlap_error_ns real_overlap_bounds_ns"),
        "real_overlap_ratio_low": low,
        "real_overlap_ratio_high": high,
        **picked(rank, "apparent_ns achievable_ns missed_ns unaccounted_ns launched_before lost spoiled"),
        "median_step": _median_step(rank.typical),
        "windows": [_window(one) for one in rank.windows],
        "waiting_share_estimate": rank.unseen.waiting if rank.unseen else None,
        "missed": [{"id": gap_of(rank, one), **picked(one, _MISSED)} for one in rank.missed],
        "instances": [
            {"id": instance_id(rank.rank, rank.device, one.start_ns), **picked(one, _INSTANCE)}
            for one in rank.instances
        ],
    }


_MISSED = (
    "cause ns after_sync_ns finding evidence next_behind sooner_ns next_cause "
    f"{_RECOVERABLE} instance start_ns end_ns inferred"
)
_INSTANCE = "label start_ns end_ns a_busy_ns b_busy_ns real_overlap_ns achievable_ns"


def gap_of(rank: RankOverlap, one: Missed) -> str | None:
    """The id of the gap that a cause is told by; None where no gap tells it."""
    return gap_id(rank.rank, rank.device, one.start_ns) if one.op >= 0 else None


def collectives(result: Collectives) -> Json:
    """`traceviz.collectives/1`: times are whole ns, sizes bytes, bandwidths GB/s (10⁹ bytes) or null.

    `reason` says why not all collectives may be on record, "" where they are.
    """
    return {
        "schema": "traceviz.collectives/1",
        "reason": result.reason,
        "steps": steps(result.steps),
        "collectives": [{"id": collective_id(one.index), **picked(one, "*")} for one in result],
        **picked(
            result, "summary=summary.kinds copies=copies.table copies_by_rank=copies.calls groups clocks warnings"
        ),
    }


def syncs(result: OrderReport) -> Json:
    """`traceviz.syncs/2`: host sync points, costliest first, and what else the order of the work tells; whole ns.

    `groups` are sync points alike, in sums. `gpu_idle_ns` is from the drain to the call's return, `after_ns` from there
    to the next launch. Where `unrecorded_ns` is more than 0, a CUDA graph ran what was
    not recorded for so long, and `gpu_idle_ns` is 0 and says nothing. `reason` says where no CUDA calls, or launches
    alone, were recorded, or calls lost their names, so that no sync point could be found. Where GPU work was lost, or
    none recorded, how long GPUs were idle is null.
    """
    from analyzers.syncs.groups import sync_groups

    unknown = IDLE_UNKNOWN if result.idle_unknown else {}
    points = rows(result.syncs.table, "process", "device", "waited_op", "call")
    return {
        "schema": "traceviz.syncs/2",
        "reason": result.reason,
        "syncs": [{"id": sync_id(one["rank"], one["start_ns"]), **one, **unknown} for one in points],
        "groups": [{**picked(one, "*"), **unknown} for one in sync_groups(result.syncs)],
        "unwaited_copies": rows(result.copies.table, "process", "op"),
        "missing_waits": to_json(result.crossings.missing),
        "resting_on_host_syncs": rows(result.resting.table, "process", "op", "behind", "call"),
        "stream_plan": rows(result.plan.table, "process"),
        "warnings": to_json(result.warnings),
    }


def streams(result: StreamsResult, costs: StreamContention | None = None) -> Json:
    """`traceviz.streams/1`: per rank and device, whole ns.

    `contention` has the kernels that ran slower beside other streams, and beside which; null unless asked for.
    """
    rank_keys = "rank device span_ns busy_ns concurrent_ns busy_streams_ns streams overlap_ns"
    return {
        "schema": "traceviz.streams/1",
        "steps": steps(result.steps),
        "ranks": [picked(rank, rank_keys) for rank in result.ranks],
        "contention": to_json(costs),
        "warnings": to_json(result.warnings),
    }


def counters(result: CountersResult) -> Json:
    """`traceviz.counters/1`: per rank, device and state; times are whole ns, counters % or MHz.

    `likely` is told of all ranks together; `unknown` says why nothing can be, "" where it can.
    """
    return {
        "schema": "traceviz.counters/1",
        "steps": steps(result.steps),
        "pair": picked(result, "a b"),
        **(to_json(result.contended) or {}),
        "ranks": [
            {**picked(one, "rank device period_ns samples"), "states": _states(one.states)} for one in result.ranks
        ],
        "warnings": to_json(result.warnings),
    }


def _states(states: Mapping[str, State]) -> Json:
    return {
        state: {
            **picked(one, "time_ns sampled_ns whole_ns"),
            "counters": {name: {"mean": one.mean(name), "p90": one.p90(name)} for name in one.weights},
        }
        for state, one in states.items()
    }


def info(result: TraceInfo) -> Json:
    """`traceviz.info/2`: what is in the trace; times are whole ns."""
    return {
        "schema": "traceviz.info/2",
        **picked(result, "captures ranks ranges more_ranges"),
        "steps": steps(result.steps),
        **picked(result, "step_numbers cannot communication suggested warnings"),
    }


def cache(state: CacheState) -> Json:
    """`traceviz.cache/1`: what the cache holds, least recently used first; sizes in bytes, `used` in s since 1970."""
    return {
        "schema": "traceviz.cache/1",
        **picked(state, "folder=root limit_bytes=limit unusable entries removed"),
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

    `verdict` is the step's word, as in `against`. `effective_gain` and `speedup` count what overlaps in the first run
    already. A claim without a pair is `about` the step.
    """
    return {
        "schema": "traceviz.compare/3",
        "reason": result.reason,
        "pair": picked(result, "a b"),
        **picked(result, "steps ranks"),
        "runs": [_run(run) for run in result.runs],
        "claim": _claim(result.claim, result.claim_reason),
        **picked(result, "claim_reason warnings"),
    }


def _run(run: ComparedRun) -> Json:
    from analyzers.counters.states import pooled

    job = run.overlap.job if run.overlap else None
    return {
        **picked(run, "label captures"),
        "verdict": run.verdict if run.changes else None,
        "against": _against(run.against),
        "speedup": run.speedup,
        "counters": _states(pooled(run.counters)) if run.counters else None,
        **picked(run, "contended figures changes"),
        "real_overlap_ratio": job.real_overlap_ratio if job else None,
        "apparent": job.apparent if job else False,
        **picked(run, "calls_recorded late_start"),
        "steps": steps(run.steps),
        "memory": "recorded" if run.memory_peaks else "not recorded",
        **picked(run, "memory_peaks ranks=lanes regions"),
        "growth": dict(zip("ab", to_json(run.growth), strict=True)) if run.growth else None,
        "gain": to_json(run.gain),
    }


def history(found: Sequence[PairTrend]) -> Json:
    """`traceviz.history/2`: a pair's runs, oldest first, and how the newest stands against those before.

    Runs by another `rule` than the newest's are left out, as are apparent figures where the newest's is real, and real
    ones where it is apparent.
    """
    return {"schema": "traceviz.history/2", "pairs": to_json(found)}


def what_if(result: WhatIf) -> Json:
    """`traceviz.what-if/1`: what changes are worth, the largest gain first; whole ns.

    `replay` is null where there was nothing to replay, `changes` is empty where nothing is predicted: `reason` says
    why. `tells` is false where the range is too wide to say anything. `suggested` is which change to try first, second,
    …, by the gain times `likely`; null for several together, and for changes that were asked for. `fix` is the first of
    them, null where it gains too little, or changes were asked for; `class` as in a fix, "" of several that were asked
    for. `critical_path` and `communication` are null unless asked for: of the steps as captured, segments in order of
    time, of which communication `blocks`, and per device what of communication is exposed, and what of that is on the
    path.
    """
    path = result.path
    return {
        "schema": "traceviz.what-if/1",
        "steps": steps(result.steps),
        "reason": result.reason,
        "pair": picked(result, "a b"),
        **picked(result, "replay fix changes more"),
        "critical_path": None if path is None else to_json(path.segments),
        "communication": None if path is None else to_json(path.communication),
        "warnings": to_json(result.warnings),
    }


def show(result: Shown, following: Sequence[str]) -> Json:
    """`traceviz.show/1`: one finding; times are whole ns from the capture's start.

    `pair`, `rank` and `device` are null where they play no part. Of a gap and an instance `pieces` are causes, `ns` the
    time alone that each held in all, from `start_ns` to `end_ns` in the longest gap; of a collective they are ranks,
    the last to arrive first, of which `more_pieces` are left out. `next` are the commands to run next.
    """
    return {
        "schema": "traceviz.show/1",
        **picked(result, "id kind"),
        "pair": picked(result, "a b") if result.a else None,
        **picked(result, "rank device start_ns end_ns steps sentence figures pieces more_pieces evidence related"),
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
        **picked(result, "outcome sentence contract=contract.path ranks rules warnings"),
    }
