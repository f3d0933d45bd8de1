"""Answers for assistants and scripts: JSON of at most 2,000 tokens, with ids to expand and what to run next.

All times are whole ns, keys have the names of the full answers. Lists hold the worst first; `left_out` counts, by list,
what is not in them. What is too long for its place ends with "…".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from analyzers.causes.free_to_run import PEER_WAIT
from analyzers.causes.not_launched import HOST_SYNC
from analyzers.common.ids import collective_id
from analyzers.syncs.groups import SyncGroup, sync_groups
from analyzers.syncs.rests import in_sentences
from traceviz.options.again import CommandLine
from traceviz.output import contract
from traceviz.output.contract import IDLE_UNKNOWN
from traceviz.output.document import Block, Headline, Paragraph
from traceviz.output.fitting import MOST_NEXT, cut, fitted
from traceviz.output.records import Json, picked
from traceviz.output.views.caveats import MAY_CHANGE_IT

if TYPE_CHECKING:
    from analyzers.collectives.report import Collectives
    from analyzers.common.errors import TraceWarning
    from analyzers.compare.results import ComparedRun, Comparison
    from analyzers.info import TraceInfo
    from analyzers.replay.result import Prediction, WhatIf
    from analyzers.show.result import Shown
    from analyzers.syncs.report import OrderReport
    from analyzers.trace.devices import DeviceKey
    from analyzers.trace.step_table import StepsUsed
    from analyzers.verdict.result import OverlapResult

LONGEST_NAME = 80  # letters
MOST_CAVEATS = 5


def overlap(result: OverlapResult, line: CommandLine) -> Json:
    """`traceviz.overlap-brief/1`: verdict, first lines, the rank that decides, the worst ranks, what to run next.

    `claim` is what was `--claimed`, None where nothing was or that can't be told, as `claim_reason` then says.
    `causes` and `worst_instances` are of the rank that decides (`job`); `causes_of_all_ranks_ns` adds up all ranks'.
    """
    full = rounded(contract.overlap(result))
    worst = sorted(full["ranks"], key=lambda one: _how_bad(one, result.job.deciding))
    deciding: Json = worst[0] if worst else {"missed": [], "instances": []}
    every_rank: Counter[str] = Counter()
    for one in full["ranks"]:
        every_rank.update({cause["cause"]: cause["ns"] for cause in one["missed"]})
    for instance in deciding["instances"]:
        instance["missed_ns"] = instance["achievable_ns"] - instance["real_overlap_ns"]
    instances = sorted(deciding["instances"], key=lambda one: (-one["missed_ns"], one["start_ns"]))
    gaps = [cause["id"] for cause in deciding["missed"] if cause["id"]]
    about_steps = [result.steps.sentence] if result.steps is not None and result.steps.sentence else []
    answer = {
        "schema": "traceviz.overlap-brief/1",
        **picked(full, "verdict passed reason"),
        "lines": [*(one["text"] for one in full["lines"]), *about_steps],
        **picked(full, "pair bar"),
        "steps": _steps(result.steps),
        "job": {
            **{name: value for name, value in full["job"].items() if name not in ("rule", "window")},
            **picked(full, "ranks_met ranks_given ranks_known"),
        },
        "stake": full["stake"],
        "bound": full["bound"] and picked(full["bound"], _BOUND),
        "profiler": full["profiler"],
        "worst_ranks": [
            {**picked(one, "rank device"), "a_busy_ns": one["a"]["busy_ns"], "b_busy_ns": one["b"]["busy_ns"]}
            | picked(one, "overlap_ns real_overlap_ns achievable_ns real_overlap_ratio missed_ns")
            for one in worst
        ],
        "causes": [{**picked(cause, _CAUSE), "rank": deciding["rank"]} for cause in deciding["missed"]],
        "causes_of_all_ranks_ns": dict(every_rank.most_common()),
        "worst_instances": [
            {**picked(one, "id missed_ns"), "label": _name(one["label"])} for one in instances if one["missed_ns"] > 0
        ],
        "counters": _counters(result),
        "fix": full["fix"],
        "against": full["against"] and picked(full["against"], "word before_ns after_ns steps could_ns reason"),
        "claim": _claim(full["claim"]),
        "claim_reason": full["claim_reason"],
        "caveats": caveats(result.warnings),
        "next": _after_overlap(result, line, gaps) if full["ranks"] else [line.again("info")],
    }
    return fitted(answer, {"worst_ranks": 3, "causes": 5, "worst_instances": 3, "caveats": MOST_CAVEATS})


_BOUND = "kind rank device step_ns compute_ns exposed_transfer_ns exposed_wait_ns idle_ns idle_host_ns ceiling_ns"
_CAUSE = "id cause ns sooner_ns next_cause recoverable_ns evidence"


def rounded(value: Any) -> Any:
    """A full answer with ratios of four digits: more are noise to who reads it in brief."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _how_bad(rank: Json, deciding: DeviceKey | None) -> tuple[bool, bool, float, int]:
    """The rank that decides first, then the others by how little of what could overlap did."""
    ratio = rank["real_overlap_ratio"]
    return (rank["rank"], rank["device"]) != deciding, ratio is None, ratio or 0.0, rank["rank"]


def _counters(result: OverlapResult) -> Json | None:
    """What the sides likely contend for; null where no GPU counters were captured."""
    found = result.contended
    return None if found is None else {"sentence": found.sentence, "likely": [one.contention for one in found.likely]}


def _claim(claim: Json | None) -> Json | None:
    """A stated speedup; None where none was, or it could not be checked."""
    if claim is None:
        return None
    return {**picked(claim, "word about claimed bound measured shown"), "possible": claim["word"] != "IMPOSSIBLE"}


def _after_overlap(result: OverlapResult, line: CommandLine, gaps: Sequence[str]) -> list[str]:
    """What to run: the largest gap; what a fix is worth, where none was predicted; what the capture lacks."""
    if result.passed is None and not gaps:
        return [line.again("info")]
    following = [line.again("show", gaps[0])] if gaps else []
    causes = {one.cause for rank in result.ranks for one in rank.missed[:1]}
    if not result.passed and gaps:
        following.append(line.again("what-if"))
    if HOST_SYNC.name in causes:
        following.append(line.again("syncs"))
    elif PEER_WAIT.name in causes or any(rank.a.wait_ns or rank.b.wait_ns for rank in result.ranks):
        following.append(line.again("collectives"))
    if result.passed is None:
        following.append(line.again("info"))
    if result.contended is not None and not result.contended.unknown:
        following.append(line.again("counters"))
    return following


def syncs(result: OrderReport, line: CommandLine) -> Json:
    """`traceviz.syncs-brief/1`: host syncs, those from one place together, and what else the order of work tells."""
    from traceviz.output.views import syncs as view

    table, unknown = result.syncs.table, IDLE_UNKNOWN if result.idle_unknown else {}
    groups = [{**_sync_group(one), **unknown} for one in sync_groups(result.syncs)]
    following = [*(line.again("show", one["id"]) for one in groups[:1]), line.again("check-overlap")]
    answer = {
        "schema": "traceviz.syncs-brief/1",
        "reason": result.reason,
        "lines": lines(view.brief(result)),
        "count": len(table),
        "hidden": int(table["hidden"].sum()),
        **({name: int(table[name].sum()) for name in IDLE_UNKNOWN} | unknown),
        "syncs": groups,
        "missing_waits": [picked(one, "rank at_ns message") for one in result.crossings.missing],
        "resting_on_host_syncs": in_sentences(result.resting),
        "unwaited_copies": len(result.copies),
        "caveats": caveats(result.warnings),
        "next": [] if result.without_work else following,
    }
    return fitted(answer, {"syncs": 6, "missing_waits": 4, "resting_on_host_syncs": 4, "caveats": MOST_CAVEATS})


def _sync_group(one: SyncGroup) -> Json:
    return {
        **picked(one, "id api kind hidden"),
        "op": _name(one.origin),
        "range": _name(one.range),
        "ranks": _ranks(one.ranks),
        **picked(one, "count duration_ns gpu_idle_ns after_ns"),
        **({"unrecorded_ns": one.unrecorded_ns} if one.unrecorded_ns else {}),
    }


def collectives(result: Collectives, line: CommandLine) -> Json:
    """`traceviz.collectives-brief/1`: kinds of collectives, and those in which ranks waited longest."""
    from traceviz.output.views import collectives as view

    slowest = _longest_waits(result)
    answer = {
        "schema": "traceviz.collectives-brief/1",
        "reason": result.reason,
        "lines": lines(view.brief(result)),
        "count": len(result),
        "summary": [
            {
                **rounded(picked(one, "operation bytes count median_ns p90_ns wait_share")),
                "last_mostly": max(one.last_by_rank, key=lambda rank: one.last_by_rank[rank], default=None),
                **rounded(picked(one, "bus_gb_s=median_bus_gb_s unsure")),
            }
            for one in result.summary
        ],
        "longest_waits": slowest,
        "clocks": None if result.clocks is None else picked(result.clocks, "method residual_ns"),
        "caveats": caveats(result.warnings),
        "next": [*(line.again("show", one["id"]) for one in slowest[:1]), line.again("check-overlap")],
    }
    return fitted(answer, {"summary": 6, "longest_waits": 5, "caveats": MOST_CAVEATS})


def _longest_waits(result: Collectives) -> list[Json]:
    """The collectives that most was waited in, over all ranks."""
    waits = result.calls.groupby("collective")["wait_ns"].agg(["sum", "max"])
    worst = waits[waits["sum"] > 0].sort_values(["sum"], ascending=False, kind="stable").head(8)
    rows = result.table.set_index("index").loc[worst.index]
    return [
        {
            "id": collective_id(index),
            "operation": str(row["operation"]),
            "bytes": None if row["bytes"] < 0 else int(row["bytes"]),
            "fastest_ns": int(row["fastest_ns"]),
            "last_arrival_rank": None if row["last_arrival_rank"] < 0 else int(row["last_arrival_rank"]),
            "longest_wait_ns": int(longest),
            "sure": bool(row["sure"]),
        }
        for index, (_, row), longest in zip(worst.index.tolist(), rows.iterrows(), worst["max"], strict=True)
    ]


def _steps(used: StepsUsed | None) -> Json | None:
    """The run's steps in short; `numbers` are those that figures are of, null for everything."""
    if used is None:
        return None
    full = contract.steps(used)
    numbers = None if used.numbers is None else _ranks(used.numbers)
    left_out = [one.step for one in used.left_out][:8]
    return {**picked(full, "count whole first last source by"), "left_out": left_out, "numbers": numbers}


def info(result: TraceInfo, line: CommandLine) -> Json:
    """`traceviz.info-brief/1`: ranks, ranges to select by, steps, and what the captures can't answer."""
    from traceviz.output.views import info as view

    captures, ranks = result.captures, result.ranks
    answer = {
        "schema": "traceviz.info-brief/1",
        "lines": lines(view.brief(result)),
        "captures": len(captures),
        "formats": sorted({one.format for one in captures}),
        "producers": sorted({_name(one.producer) for one in captures})[:3],
        "world_size": max((one.world_size or 0 for one in captures), default=0) or None,
        "ranks": _ranks([one.rank for one in ranks]),
        "ranks_known_by": sorted({one.rule for one in ranks}),
        "gpus": sorted({one.gpu for one in ranks if one.gpu})[:3],
        **{name: sum(getattr(one, name) for one in ranks) for name in ("kernels", "communication", "copies")},
        "first_ns": min(one.first_ns for one in captures),
        "last_ns": max(one.last_ns for one in captures),
        "steps": _steps(result.steps),
        "ranges": [picked(one, "name occurrences launches") for one in result.ranges],
        "cannot": list(result.cannot),
        "caveats": caveats(result.warnings),
        "next": [line.again("check-overlap"), line.again("syncs"), line.again("collectives")],
    }
    more = {"ranges": result.more_ranges} if result.more_ranges else {}
    return fitted(answer, {"ranges": 16, "cannot": 8, "caveats": MOST_CAVEATS}, more)


def compare(result: Comparison, line: CommandLine) -> Json:
    """`traceviz.compare-brief/1`: each run against the first: step time, overlap, gain, and regions that changed."""
    from traceviz.output.views import compare as view

    paths = {run.label: path for run, path in zip(result.runs, line.given["traces"], strict=True)}
    full = rounded(contract.comparison(result))
    answer = {
        "schema": "traceviz.compare-brief/1",
        "reason": result.reason,
        "lines": lines(view.brief(result)),
        "pair": full["pair"],
        "steps": _ranks(result.steps),
        "ranks": _ranks(result.ranks),
        "runs": [_compared(run, each) for run, each in zip(result.runs, full["runs"], strict=True)],
        "claim": _claim(full["claim"]),
        "claim_reason": result.claim_reason,
        "caveats": caveats(result.warnings),
        "next": [line.again("check-overlap", traces=[path]) for path in list(paths.values())[::-1][:MOST_NEXT]],
    }
    return fitted(answer, {"runs": 6, "caveats": MOST_CAVEATS})


def _compared(run: ComparedRun, full: Json) -> Json:
    gain, step = full["gain"] or {}, full["figures"].get("step_ns") or {}
    regions = run.regions_that_differ[:3] if run.changes else []
    return {
        "label": _name(run.label),
        **picked(full, "verdict speedup real_overlap_ratio apparent"),
        "step_ns": step.get("median_ns"),
        "changes": {
            name: picked(one, "before_ns after_ns low_ns high_ns call") for name, one in full["changes"].items()
        },
        "effective_gain": gain.get("effective_gain"),
        "pair_speedup": gain.get("speedup"),
        "pair_speedup_bound": gain.get("speedup_bound"),
        "regions": [{"name": _name(one.name), **picked(one, "rank delta_ns")} for one in regions],
    }


def what_if(result: WhatIf, line: CommandLine) -> Json:
    """`traceviz.what-if-brief/1`: what changes are worth, in the order to try them; how well the replay does."""
    from traceviz.output.views import what_if as view

    full = rounded(contract.what_if(result))
    answer = {
        "schema": "traceviz.what-if-brief/1",
        "reason": full["reason"],
        "lines": lines(view.brief(result)),
        **picked(full, "pair fix"),
        "replay": full["replay"] and picked(full["replay"], "step_ns measured_step_ns error unexplained"),
        "changes": [_predicted(one) for one in result.to_try],
        "caveats": caveats(result.warnings),
        "next": [line.again("check-overlap")],
    }
    return fitted(answer, {"changes": 6, "caveats": MOST_CAVEATS})


def _predicted(one: Prediction) -> Json:
    worst_now, worst = one.worst_now, one.worst
    return {
        **picked(one, "change class=safety gain_ns step_ns step_low_ns step_high_ns tells suggested"),
        "real_overlap_ratio_now": rounded(worst_now.now_ratio) if worst_now else None,
        "real_overlap_ratio": rounded(worst.ratio) if worst else None,
        "next_cause": one.next_cause,
        "assumes": "; ".join(one.assumptions),
    }


def show(result: Shown, line: CommandLine) -> Json:
    """`traceviz.show/1`, which is brief as it is."""
    answer = contract.show(result, _after_show(result, line))
    return fitted(answer, {name: len(answer[name]) for name in ("pieces", "evidence", "related")})


def _after_show(result: Shown, line: CommandLine) -> list[str]:
    """What to run after one finding: the first related one, and a picture of its time."""
    pair = {"a": line.given.get("a"), "b": line.given.get("b")}
    following = [line.again("show", one.id, **pair) for one in result.related[:1]]
    around = max((result.end_ns - result.start_ns) // 2, 1_000)
    window = f"{result.start_ns - around}ns:{result.end_ns + around}ns"
    return [*following, f"{line.again('timeline', window=window, **pair)} -o timeline.html"]


def caveats(warnings: Iterable[TraceWarning]) -> list[Json]:
    """What to know beside the figures: what could change a verdict first, each code once."""
    found: dict[str, Json] = {}
    times: Counter[str] = Counter()
    for one in warnings:
        found.setdefault(one.code, {"code": one.code, "message": one.message})
        times[one.code] += 1
    for code, count in times.items():
        if count > 1:
            found[code]["times"] = count
    return sorted(found.values(), key=lambda one: one["code"] not in MAY_CHANGE_IT)


def lines(blocks: Sequence[Block]) -> list[str]:
    """Headlines and paragraphs as plain lines."""
    shown = [one for one in blocks if isinstance(one, Headline | Paragraph)]
    return [f"{one.word}: {one.text}" if isinstance(one, Headline) else one.text for one in shown]


def _ranks(numbers: Iterable[int]) -> str:
    """Numbers as `--ranks` and people write them.

    >>> _ranks([0, 1, 2, 5])
    '0-2,5'
    """
    runs: list[list[int]] = []
    for one in sorted(set(numbers)):
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _name(text: str) -> str:
    return cut(str(text), LONGEST_NAME)
