"""The first lines of check-overlap's answer: what a reviewer reads in thirty seconds."""

from __future__ import annotations

from analyzers.overlap.measure import RankOverlap
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.stake import BOTH, LATE_RANKS, TRANSFER, Stake
from traceviz.output.quantities import duration, percent

DIFFER = 0.01  # apparent and real ratios that differ by less are told as one


def first_lines(result: OverlapResult) -> list[str]:
    """Up to five lines of plain text; what is not known is left out.

    Verdict, pair, figure, bar and rank; apparent beside real, where they differ; the largest cause; the remedy and what
    it is worth; what a step has at stake, and whether transfer or late ranks are most of it.
    """
    lines = [f"{result.verdict.upper()}: {result.sentence}", *_after_the_verdict(result)]
    return [line for line in lines if line]


def _after_the_verdict(result: OverlapResult) -> list[str]:
    rank = result.deciding_rank
    return [] if rank is None else [_apparent(result, rank), _cause(result, rank), _remedy(result), _at_stake(result)]


def _apparent(result: OverlapResult, rank: RankOverlap) -> str:
    """Apparent overlap beside real, and for whom a side waits."""
    if rank.is_apparent:
        return _only_apparent(result, rank)
    plain, real = rank.overlap_ratio, rank.real_overlap_ratio
    if plain is None or real is None or abs(plain - real) < DIFFER:
        return ""
    text = f"{percent(plain)} apparent, {percent(real)} real"
    side, name = max(zip((rank.a, rank.b), result.names, strict=True), key=lambda one: one[0].wait_ns)
    late = result.device_labels.name(*result.late_rank) if result.late_rank else "late ranks"
    return f"{text}: {name} spends {percent(side.wait_ns / side.busy_ns)} of its time waiting for {late}."


def _only_apparent(result: OverlapResult, rank: RankOverlap) -> str:
    """That waits are not seen, and about how much of the communication they are."""
    waiting = rank.unseen.waiting if rank.unseen else None
    about = f"; probably about {percent(waiting)} of its communication is waiting" if waiting is not None else ""
    where = result.device_labels.name(rank.rank, rank.device)
    return f"Apparent only: the ranks that {where} may have waited for were not captured{about}."


def _cause(result: OverlapResult, rank: RankOverlap) -> str:
    """The largest cause, and how much of what was missed it holds."""
    found = result.findings
    if not found:
        return ""
    text, held = found[0].text, f"{duration(found[0].ns)} of the {duration(rank.missed_ns)} missed"
    return f"Still missed, {text} ({held})." if result.passed else f"{text[0].upper()}{text[1:]} ({held})."


def _remedy(result: OverlapResult) -> str:
    """The change worth most, as the replay has it; else what removing the largest cause gains at its longest gap."""
    one, found = result.remedy, result.findings
    if one is not None:
        assumed = f", if {one.assumes}" if one.assumes else ""
        return (
            f"Fix: {one.advice}{assumed}: {duration(one.recoverable_ns)} more overlap (range "
            f"{duration(one.recoverable_low_ns)} to {duration(one.recoverable_high_ns)}), {percent(one.now_ratio)} → "
            f"{percent(one.ratio)}, predicted by replay."
        )
    if result.passed or not found or not found[0].cause.next_behind:
        return ""
    text = found[0].cause.next_behind
    return f"Fix: {text}."


def _at_stake(result: OverlapResult) -> str:
    """Missed overlap a step, and what most of the exposed communication is."""
    one = result.stake
    if one is None or not (one.missed_ns or one.exposed_wait_ns):
        return ""
    each = f"{duration(round(one.missed_ns / one.steps))} a step" if one.steps else duration(one.missed_ns)
    over = f" ({one.steps} step{'s' * (one.steps != 1)})" if one.steps else " in all (no steps are marked)"
    return f"At stake: {each}{over}{_dominates(result, one)}."


def _dominates(result: OverlapResult, one: Stake) -> str:
    if not one.side:
        return ""
    name = result.names["ab".index(one.side)]
    if one.exposed_transfer_ns is None or one.exposed_wait_ns is None:
        return f"; how much of {name} is waiting for late ranks is not known"
    if not one.dominates:
        return ""
    steps = max(one.steps, 1)
    transfer, wait = (duration(round(ns / steps)) for ns in (one.exposed_transfer_ns, one.exposed_wait_ns))
    if not one.is_communication:
        text = {TRANSFER: "late ranks add little", LATE_RANKS: "late ranks dominate", BOTH: "late ranks count, too"}
        late = result.device_labels.name(*result.late_rank) if result.late_rank else "late ranks"
        return f"; {text[one.dominates]}: {name} waits {wait} for {late}" if one.exposed_wait_ns else ""
    most = {
        TRANSFER: "transfer dominates",
        LATE_RANKS: "late ranks dominate",
        BOTH: "transfer and late ranks both count",
    }
    return f"; {most[one.dominates]}: {name} is exposed for {transfer} of transfer and {wait} of waiting"
