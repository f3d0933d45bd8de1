"""The answer of `what-if` as a document."""

from __future__ import annotations

from analyzers.replay.path import KINDS
from analyzers.replay.result import LITTLE_MORE, CriticalPath, Prediction, WhatIf, change_in_words
from analyzers.select.language import names_of
from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table
from traceviz.output.quantities import duration, percent, span, unshown
from traceviz.output.views.caveats import caveats
from traceviz.output.views.steps import steps

MOST_RANKS = 32
FIRST = 3  # suggestions that are shown whatever they bring
MOST_SEGMENTS = 12


def blocks(result: WhatIf) -> list[Block]:
    """The best change, how well the replay does, all of them, the best one's ranks, assumptions, critical path."""
    shown: list[Block] = [Headline(result.word.upper(), result.sentence, result.mood), *steps(result.steps)]
    if result.replay is not None:
        shown.append(Paragraph(f"{result.replay.sentence}.", "Replay"))
    best, named = result.best, result.given or result.fix is not None
    if best is not None and named:
        shown.append(Paragraph(_next(best), "Next bottleneck"))
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


def _next(best: Prediction) -> str:
    return f"{best.next_cause}, {percent(best.next_share)} of the critical path that the steps then have."


def _changes(result: WhatIf) -> Table:
    headers = ["change", "step", "range", "gain", "real overlap", "next bottleneck"]
    shown = [one for one in result.to_try if not _is_idle(one)]
    now = result.changes[0]
    rows = [
        ["as captured", duration(now.now_ns), "", "", percent(now.worst_now.now_ratio if now.worst_now else None), ""]
    ]
    rows += [
        [
            one.change,
            duration(one.step_ns),
            span(one.step_low_ns, one.step_high_ns),
            change_in_words(one) if one.tells else "can't tell",
            percent(one.worst.ratio if one.worst else None),
            f"{one.next_cause} ({percent(one.next_share)})",
        ]
        for one in shown
    ]
    note = (
        "Real overlap: of what is achievable, on the worst rank. Next bottleneck: most of the predicted critical path,"
    )
    note += " computation aside."
    if not result.given:
        headers.append("class")
        for row, text in zip(rows, ["", *(one.safety for one in shown)], strict=True):
            row.append(text)
        note += "\nRanked by predicted gain of step time; what is unsafe, or no change of the program, comes last."
        note += f"\n{unshown(len(result.changes) - len(shown), 'more, each of which changes less than 1 % of a step')}"
        note += f"\n{unshown(result.more, 'more, predicted to gain less: name one with --change')}"
    title = "Predicted, all changes together" if result.given else "Predicted, in the order to try"
    return Table(headers, rows, title, frozenset({"step", "range", "gain", "real overlap"}), note)


def _is_idle(one: Prediction) -> bool:
    """Whether a suggestion that is not among the first changes next to nothing."""
    return (one.suggested or 0) > FIRST and abs(one.gain_ns) <= LITTLE_MORE * one.now_ns


def _ranks(result: WhatIf, best: Prediction) -> Table:
    headers = (
        "rank",
        "now",
        "achievable",
        "now / achievable",
        "predicted",
        "range",
        "achievable then",
        "predicted / achievable",
    )
    named = result.device_labels
    rows = [
        (
            named.short(one.rank, one.device),
            duration(one.now_ns),
            duration(one.now_achievable_ns),
            percent(one.now_ratio),
            duration(one.real_overlap_ns),
            duration(one.low_ns) if one.low_ns == one.high_ns else span(one.low_ns, one.high_ns),
            duration(one.achievable_ns),
            percent(one.ratio),
        )
        for one in best.ranks[:MOST_RANKS]
    ]
    title = f"Real overlap of {' and '.join(names_of(result.a, result.b))} with {best.change}"
    return Table(headers, rows, title, frozenset(headers), unshown(len(best.ranks) - MOST_RANKS, "more ranks"))


def _assumed(result: WhatIf, best: Prediction) -> list[Block]:
    """What the other changes assume beyond what the best one does."""
    alone = [one for one in result.to_try if len(one.changes) == 1 and one is not best and not _is_idle(one)]
    found = [f"{one.change}: {text}" for one in alone for text in one.assumptions if text not in best.assumptions]
    found = [text for text in found if text not in best.assumptions]
    return [Bullets("Assumed by the others", found)] if found else []


def _path(result: WhatIf, path: CriticalPath) -> list[Block]:
    """Kinds by rank, what has most of it, and which communication blocks."""
    by_rank, length = path.by_rank(), max(path.length_ns, 1)
    kinds = [kind for kind in KINDS if any(kind in found for found in by_rank.values())]
    rows = [
        (
            str(rank),
            *(duration(found[kind]) if kind in found else "–" for kind in kinds),
            percent(sum(found.values()) / length),
        )
        for rank, found in by_rank.items()
    ]
    longest = path.longest()
    shown: list[Block] = [
        Table(
            ("rank", *kinds, "of the path"),
            rows[:MOST_RANKS],
            f"Critical path of the steps as captured: {duration(path.length_ns)} in {len(path.segments):,} segments",
            frozenset(("rank", *kinds, "of the path")),
            unshown(len(rows) - MOST_RANKS, "more ranks"),
        ),
        Table(
            ("rank", "kind", "what", "segments", "time", "of the path"),
            [
                (str(rank), kind, name or "–", f"{count:,}", duration(ns), percent(ns / length))
                for rank, kind, name, count, ns in longest[:MOST_SEGMENTS]
            ],
            "What has most of it",
            frozenset({"rank", "segments", "time", "of the path"}),
            "Host work: the range in which it leads to the next call. Launch: from a call, or what an op waited for, "
            f"to the op's start.\n{unshown(len(longest) - MOST_SEGMENTS)}",
        ),
    ]
    if path.communication:
        named = result.device_labels
        shown.append(
            Table(
                ("rank", "communication", "exposed", "blocks", "merely exposed"),
                [
                    (
                        named.short(one.rank, one.device),
                        *map(
                            duration, (one.busy_ns, one.exposed_ns, one.blocking_ns, one.exposed_ns - one.blocking_ns)
                        ),
                    )
                    for one in path.communication[:MOST_RANKS]
                ],
                "Communication, without waits",
                frozenset({"rank", "communication", "exposed", "blocks", "merely exposed"}),
                "Exposed: not overlapped with computation. Blocks: exposed while communication is on the critical "
                "path; the rest delays nothing.",
            )
        )
    return shown
