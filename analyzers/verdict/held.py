"""When, and by what, each side was held while the other ran alone, on every rank: for pictures and exports."""

from __future__ import annotations

import numpy as np

from analyzers.causes.pieces import GapPieces, gap_pieces
from analyzers.trace.devices import DeviceKey
from analyzers.trace.narrow import these_steps
from analyzers.trace.ranks import devices_of
from analyzers.trace.tables import Trace
from analyzers.verdict.part import explaining
from analyzers.verdict.result import OverlapResult

MOST_IN_WORDS, LEAST_IN_WORDS = 800, 10  # pieces, of all devices and of each; their words take some 1 to 3 ms each


def held_by_device(trace: Trace, result: OverlapResult) -> dict[DeviceKey, GapPieces]:
    """By (rank, device), where overlap was missed; `result` is what `check_overlap` found in this trace, or its run.

    Of a whole trace that is in the steps which the result is of.
    """
    if trace.whole is None and result.steps is not None and result.steps.numbers is not None:
        trace = these_steps(trace, result.steps.numbers)
    missed = {(rank.rank, rank.device): np.flatnonzero(rank.instances.missed_ns > 0) for rank in result.ranks}
    here = [key for key in devices_of(trace) if key in missed and missed[key].size]
    if not here:
        return {}
    writer = explaining(trace, result.a, result.b, result.agreed)
    in_words = max(MOST_IN_WORDS // len(missed), LEAST_IN_WORDS)
    found = {key: gap_pieces(writer, *key, missed[key], in_words) for key in here}
    return {key: one for key, one in found.items() if one is not None}
