"""The first lines of check-overlap's answer: what a reviewer reads in thirty seconds."""

from __future__ import annotations

from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.verdict.remedy import Remedy
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.stake import BOTH, LATE_RANKS, TRANSFER, Stake
from traceviz.output.quantities import count_of, duration, part_of, percent, span

DIFFER = 0.01  # of what could overlap: apparent and real times that differ by less are told as one
LITTLE = 0.05  # of what is possible: where the bar is met, why less than this was missed is not told
_HOLDERS = {  # what would hold an op next, by its cause
    "host-sync": "a host sync",
    "late-launch": "a late launch",
    "same-stream": "the shared stream",
    "dependent-launch": "a dependent launch",
    "event-dependency": "an event wait",
    "stream-busy": "other work on its stream",
    "gpu-full": "a full GPU",
    "shared-queue": "the shared hardware queue",
    "peer-wait": "a late rank",
    "unknown": "what the capture does not show",
}

_MOST = {
    TRANSFER: "transfer dominates",
    LATE_RANKS: "late ranks dominate",
    BOTH: "transfer and late ranks both count",
}


def first_lines(result: OverlapResult) -> list[str]:
    """Up to five lines of plain text; what is not known is left out.

    Verdict, pair, figure, bar and rank; apparent beside real, where they differ; the largest cause; the remedy and what
    it is worth; what a step has at stake, and whether transfer or late ranks are most of it.
    """
    return [f"{result.verdict.upper()}: {result.first_sentence}", *after_the_verdict(result)]


def after_the_verdict(result: OverlapResult) -> list[str]:
    """The lines behind the first."""
    rank = result.deciding_rank
    if rank is None:
        return []
    lines = [
        _apparent(result, result.deciding_window or rank),
        _cause(result, rank),
        _remedy(result, rank),
        _at_stake(result),
    ]
    return [line for line in lines if line]


def _apparent(result: OverlapResult, rank: RankOverlap) -> str:
    """Apparent overlap beside real, and for whom a side waits."""
    if rank.is_apparent:
        return _only_apparent(result, rank)
    one = rank.typical
    if one.overlap_ns - one.real_overlap_ns < DIFFER * one.could_overlap_ns:
        return ""
    side, name = max(zip((rank.a, rank.b), result.names, strict=True), key=lambda one: one[0].wait_ns)
    waiting = percent(side.wait_ns / side.busy_ns)
    both = f"{part_of(one.real_overlap_ns, one.overlap_ns, 'of the')} overlapped is real"
    return f"{both}: {name} spends {waiting} of its time waiting for {_late(result)}."


def _late(result: OverlapResult) -> str:
    return result.device_labels.late(result.waited_for)


def _only_apparent(result: OverlapResult, rank: RankOverlap) -> str:
    """That waits are not seen, and about how much of the communication they are."""
    waiting = rank.unseen.waiting if rank.unseen else None
    about = f"; probably about {percent(waiting)} of its communication is waiting" if waiting is not None else ""
    where = result.device_labels.name(rank.rank, rank.device)
    if result.ranks_given > 1 and result.ranks_given >= (result.ranks_known or 0):
        return (
            f"Apparent only: some communication of {where} matches no other rank's, so its waits are not seen{about}."
        )
    return f"Apparent only: the ranks that {where} may have waited for were not captured{about}."


def _cause(result: OverlapResult, rank: RankOverlap) -> str:
    """The largest cause, and how much of what was missed it holds."""
    found = result.findings
    if not found or (result.passed and rank.missed_ns < LITTLE * rank.could_overlap_ns):
        return ""
    steps = result.stake.steps if result.stake else 0
    held = f"{_held(*(round(ns / max(steps, 1)) for ns in (found[0].ns, rank.missed_ns)))} missed"
    held = f"{held}{' a step on average' if steps > 1 else ''})."
    text = found[0].text
    text = f"{text[:-1]}; {held}" if text.endswith(")") else f"{text} ({held}"
    return f"Still missed, {text}" if result.passed else f"{text[0].upper()}{text[1:]}"


def _held(part: int, whole: int) -> str:
    """How much of what was missed: what reads as all of it is said to be all, or nearly.

    >>> _held(1_808_000, 1_812_000), _held(161_600, 1_012_000), _held(500, 500)
    ('nearly all 1.81 ms', '0.16 of the 1.01 ms', 'all 500 ns')
    """
    if part == whole:
        return f"all {duration(whole)}"
    return f"nearly all {duration(whole)}" if duration(part) == duration(whole) else part_of(part, whole, "of the")


def _remedy(result: OverlapResult, rank: RankOverlap) -> str:
    """The change worth most, as the replay has it; else what removing the largest cause gains at its longest gap."""
    one, found = result.remedy, result.findings
    if one is not None:
        return f"Fix: {one.advice} – predicted: {_gained(result, one)}."
    if result.passed or not found or found[0].cause.sooner_ns is None:
        return ""
    cause = found[0].cause
    if not cause.sooner_ns:
        return f"Fixing only this gains nothing: {_holder(cause)} would hold it as long."
    missed = rank.missed_ns  # a start that comes sooner by more than that gains no more
    gains = f"Fixing only this gains at most {duration(cause.sooner_ns)} in its longest gap"
    if cause.sooner_ns >= missed:
        steps = result.stake.steps if result.stake else 0
        return (
            f"Fixing only this may gain all {duration(round(missed / max(steps, 1)))}{' a step' if steps > 1 else ''}."
        )
    return f"{gains}; then {_holder(cause)} holds it." if cause.next_cause else f"{gains}; nothing else held it there."


def _holder(cause: Missed) -> str:
    return _HOLDERS.get(cause.next_cause or "", "something else")


def _gained(result: OverlapResult, one: Remedy) -> str:
    """Overlap gained, a step where steps are marked; and the ratio, unless an inconclusive answer leaves that open."""
    steps = result.stake.steps if result.stake else 0
    likely, low, high = (
        round(ns / max(steps, 1)) for ns in (one.recoverable_ns, one.recoverable_low_ns, one.recoverable_high_ns)
    )
    text = f"{duration(likely)} more overlap{' a step' if steps else ''} ({span(low, high)})"
    return text if result.passed is None else f"{text}, {percent(one.now_ratio)} → {percent(one.ratio)}"


def _at_stake(result: OverlapResult) -> str:
    """Missed overlap a step, and what most of the exposed communication is."""
    one = result.stake
    if one is None or not (one.missed_ns or one.exposed_wait_ns):
        return ""
    if one.steps:
        average = " on average" if one.steps > 1 else ""
        text = f"{duration(round(one.missed_ns / one.steps))} a step{average} ({count_of(one.steps, 'step')})"
    else:
        text = f"{duration(one.missed_ns)} in all"
    return f"At stake: {text}{_dominates(result, one)}."


def _dominates(result: OverlapResult, one: Stake) -> str:
    """What most of a side's exposed time is; "" where neither side communicates."""
    if not one.side:
        return ""
    name = result.names["ab".index(one.side)]
    if one.exposed_transfer_ns is None or one.exposed_wait_ns is None:
        return f"; how much of {name} is waiting for late ranks is not known"
    if not one.dominates:
        return ""
    steps = max(one.steps, 1)
    transfer, wait = round(one.exposed_transfer_ns / steps), round(one.exposed_wait_ns / steps)
    waiting = f"{duration(wait)} waiting for {_late(result)}"
    if one.is_communication and not wait:
        return f". Exposed {name}: {duration(transfer)}, all transfer"
    if one.is_communication:
        return f". Exposed {name}: {duration(transfer)} transfer, {waiting}: {_most(one)}"
    return f". Besides, {name} has {waiting}: {_most(one)}" if one.dominates != TRANSFER else ""


def _most(one: Stake) -> str:
    return _MOST[one.dominates] if one.is_communication else _MOST[one.dominates].replace("transfer", "its own work")
