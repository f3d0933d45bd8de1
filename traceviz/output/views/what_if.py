"""The answer of `what-if`: as a document and as JSON, whole and in brief."""

from __future__ import annotations

from analyzers.replay.path import PATH_KINDS
from analyzers.replay.result import LITTLE_MORE, CriticalPath, Prediction, WhatIf, change_in_words
from analyzers.select.language import names_of
from traceviz.options.again import CommandLine
from traceviz.output import brief as short
from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table
from traceviz.output.quantities import duration, percent, span, unshown
from traceviz.output.records import Json, picked, to_json
from traceviz.output.tables import Column, rank_column, table
from traceviz.output.views.caveats import caveats, steps

MOST_RANKS = 32
FIRST_SUGGESTIONS = 3  # shown whatever they bring
MOST_SEGMENTS = 12


def document(result: WhatIf) -> Json:
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
        **picked(result, "steps reason pair=a+b replay fix changes more"),
        "critical_path": None if path is None else to_json(path.segments),
        "communication": None if path is None else to_json(path.communication),
        **picked(result, "warnings"),
    }


def brief_document(result: WhatIf, line: CommandLine) -> Json:
    """`traceviz.what-if-brief/1`: what changes are worth, in the order to try them; how well the replay does."""
    full = short.rounded(document(result))
    answer = {
        "reason": full["reason"],
        "lines": short.lines(brief(result)),
        **picked(full, "pair fix"),
        "replay": full["replay"] and picked(full["replay"], "step_ns measured_step_ns error unexplained"),
        "changes": [
            {
                **picked(one, "change class=safety gain_ns step_ns step_low_ns step_high_ns tells suggested"),
                "real_overlap_ratio_now": short.rounded(one.worst_now and one.worst_now.now_ratio),
                "real_overlap_ratio": short.rounded(one.worst and one.worst.ratio),
                "next_cause": one.next_cause,
                "assumes": "; ".join(one.assumptions),
            }
            for one in result.to_try
        ],
    }
    following = [line.again("check-overlap")]
    return short.brief("traceviz.what-if-brief/1", answer, result.warnings, following, {"changes": 6})


def blocks(result: WhatIf) -> list[Block]:
    """The best change, how well the replay does, all of them, the best one's ranks, assumptions, critical path."""
    shown = brief(result)
    if result.replay is not None:
        shown.append(Paragraph(f"{result.replay.sentence}.", "Replay"))
    best, named = result.best, result.given or result.fix is not None
    if best is not None and named:
        text = f"{best.next_cause}, {percent(best.next_share)} of the critical path that the steps then have."
        shown.append(Paragraph(text, "Next bottleneck"))
        if best.assumptions:
            shown.append(Paragraph(f"{'; '.join(best.assumptions)}.", "Assumed"))
    if best is not None:
        shown.append(_changes(result))
    if best is not None and named:
        shown += [_ranks(result, best)] if any(one.now_achievable_ns for one in best.ranks) else []
        shown += _assumed(result, best)
    if result.path is not None:
        shown += _path(result, result.path)
    return shown + caveats(result.warnings)


def brief(result: WhatIf) -> list[Block]:
    """The best change in a line, and of which steps that is."""
    return [Headline(result.word.upper(), result.sentence, result.mood), *steps(result.steps)]


def _changes(result: WhatIf) -> Table:
    """All predictions in the order to try them, beneath the step as it was captured."""
    now, shown = result.changes[0], [one for one in result.to_try if not _is_idle(one)]
    as_captured = [
        "as captured",
        duration(now.now_ns),
        "",
        "",
        percent(now.worst_now.now_ratio if now.worst_now else None),
    ]
    columns: dict[str, Column] = {
        "change": "change",
        "step": "step_ns",
        "range": lambda one: span(one.step_low_ns, one.step_high_ns),
        "gain": lambda one: change_in_words(one) if one.tells else "can't tell",
        "real overlap": lambda one: percent(one.worst.ratio if one.worst else None),
        "next bottleneck": lambda one: f"{one.next_cause} ({percent(one.next_share)})",
    }
    notes = [
        "Real overlap: of what is achievable, on the worst rank. Next bottleneck: most of the predicted critical path,"
        " computation aside."
    ]
    if not result.given:
        columns["class"] = lambda one: one.safety
        notes += [
            "Ranked by predicted gain of step time; what is unsafe, or no change of the program, comes last.",
            unshown(len(result.changes) - len(shown), "more, each of which changes less than 1 % of a step"),
            unshown(result.more, "more, predicted to gain less: name one with --change"),
        ]
    title = "Predicted, all changes together" if result.given else "Predicted, in the order to try"
    words = ["change", "next bottleneck", "class"]
    return table(title, shown, columns, first=as_captured, words=words, note="\n".join(notes))


def _is_idle(one: Prediction) -> bool:
    """Whether a suggestion that is not among the first changes next to nothing."""
    return (one.suggested or 0) > FIRST_SUGGESTIONS and abs(one.gain_ns) <= LITTLE_MORE * one.now_ns


def _ranks(result: WhatIf, best: Prediction) -> Table:
    columns: dict[str, Column] = {
        "rank": rank_column(result.device_labels),
        "now": "now_ns",
        "achievable": "now_achievable_ns",
        "now / achievable": "now_ratio",
        "predicted": "real_overlap_ns",
        "range": lambda one: span(one.low_ns, one.high_ns),
        "achievable then": "achievable_ns",
        "predicted / achievable": "ratio",
    }
    title = f"Real overlap of {' and '.join(names_of(result.a, result.b))} with {best.change}"
    return table(title, best.ranks, columns, most=MOST_RANKS, more="more ranks")


def _assumed(result: WhatIf, best: Prediction) -> list[Block]:
    """What the other changes assume beyond what the best one does."""
    alone = [one for one in result.to_try if len(one.changes) == 1 and one is not best and not _is_idle(one)]
    found = [f"{one.change}: {text}" for one in alone for text in one.assumptions if text not in best.assumptions]
    found = [text for text in found if text not in best.assumptions]
    return [Bullets("Assumed by the others", found)] if found else []


def _path(result: WhatIf, path: CriticalPath) -> list[Block]:
    """Kinds by rank, what has most of it, and which communication blocks."""
    by_rank, length = path.by_rank(), max(path.length_ns, 1)
    kinds = [kind for kind in PATH_KINDS if any(kind in found for found in by_rank.values())]
    whole = f"Critical path of the steps as captured: {duration(path.length_ns)} in {len(path.segments):,} segments"

    def of_kind(kind: str) -> Column:
        return lambda rank: duration(rank[1][kind]) if kind in rank[1] else "–"

    ranks: dict[str, Column] = {"rank": lambda rank: str(rank[0])}
    ranks |= {kind: of_kind(kind) for kind in kinds}
    ranks["of the path"] = lambda rank: percent(sum(rank[1].values()) / length)
    shown: list[Block] = [
        table(whole, [*by_rank.items()], ranks, most=MOST_RANKS, more="more ranks"),
        _longest(path, length),
    ]
    communication: dict[str, Column] = {
        "rank": rank_column(result.device_labels),
        "communication": "busy_ns",
        "exposed": "exposed_ns",
        "blocks": "blocking_ns",
        "merely exposed": lambda one: duration(one.exposed_ns - one.blocking_ns),
    }
    note = "Exposed: not overlapped with computation. Blocks: exposed while communication is on the critical "
    note += "path; the rest delays nothing."
    if path.communication:
        shown.append(table("Communication, without waits", path.communication[:MOST_RANKS], communication, note=note))
    return shown


def _longest(path: CriticalPath, length: int) -> Table:
    longest = path.longest()
    rows = [
        (str(rank), kind, name or "–", f"{count:,}", duration(ns), percent(ns / length))
        for rank, kind, name, count, ns in longest[:MOST_SEGMENTS]
    ]
    note = "Host work: the range in which it leads to the next call. Launch: from a call, or what an op waited for, "
    note += f"to the op's start.\n{unshown(len(longest) - MOST_SEGMENTS)}"
    headers = ("rank", "kind", "what", "segments", "time", "of the path")
    return Table(headers, rows, "What has most of it", frozenset(headers) - {"kind", "what"}, note)
