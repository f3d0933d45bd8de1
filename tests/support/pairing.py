"""Pair two selections of a trace that is one part, as `analyzers.verdict.part` pairs those of several."""

from __future__ import annotations

from analyzers.overlap.pairing import Pairing, best_shift, moves, pair_by, pairing_method, possible_pairing, shifted
from analyzers.select.select import Selection
from analyzers.trace.tables import Trace


def pair(trace: Trace, a: Selection, b: Selection) -> Pairing:
    pairing = pair_by(trace, a, b, pairing_method([possible_pairing(trace, a, b)]))
    return shifted(pairing, best_shift([moves(trace, pairing)]))
