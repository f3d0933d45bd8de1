"""What a step has at stake, and what most of its exposed communication is, in words."""

from __future__ import annotations

from analyzers.verdict.result import OverlapResult
from analyzers.verdict.stake import BOTH, LATE_RANKS, TRANSFER, Stake
from traceviz.output.quantities import count_of, duration

_MOST = {
    TRANSFER: "transfer dominates",
    LATE_RANKS: "late ranks dominate",
    BOTH: "transfer and late ranks both count",
}


def at_stake(result: OverlapResult) -> str:
    """Missed overlap a step, and what most of the exposed communication is."""
    one = result.stake
    if one is None or not (one.missed_ns or one.exposed_wait_ns):
        return ""
    if one.steps:
        average = " on average" if one.steps > 1 else ""
        text = f"{duration(round(one.missed_ns / one.steps))} a step{average} ({count_of(one.steps, 'step')})"
    else:
        text = f"{duration(one.missed_ns)} in all"
    return f"{text}{_dominates(result, one)}."


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
    waiting = f"{duration(wait)} waiting for {result.device_labels.late(result.waited_for)}"
    if one.is_communication and not wait:
        return f". Exposed {name}: {duration(transfer)}, all transfer"
    if one.is_communication:
        return f". Exposed {name}: {duration(transfer)} transfer, {waiting}: {_most(one)}"
    return f". Besides, {name} has {waiting}: {_most(one)}" if one.dominates != TRANSFER else ""


def _most(one: Stake) -> str:
    return _MOST[one.dominates] if one.is_communication else _MOST[one.dominates].replace("transfer", "its own work")
