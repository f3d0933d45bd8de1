"""When, and by what, each side was held while the other ran alone, on every rank: for pictures and exports."""

from __future__ import annotations

from analyzers.causes.held import Held, held
from analyzers.trace.devices import DeviceKey
from analyzers.trace.tables import Trace
from analyzers.verdict.part import explaining
from analyzers.verdict.result import OverlapResult


def held_by_device(trace: Trace, result: OverlapResult) -> dict[DeviceKey, Held]:
    """By (rank, device), where overlap was missed; `result` is what `check_overlap` found in this trace."""
    missed = {
        (rank.rank, rank.device): [one.index for one in rank.instances if one.missed_ns > 0] for rank in result.ranks
    }
    if not any(missed.values()):
        return {}
    writer = explaining(trace, result.a, result.b)
    found = {key: held(writer, *key, instances) for key, instances in missed.items()}
    return {key: one for key, one in found.items() if one is not None}
