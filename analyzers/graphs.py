"""CUDA graphs that a capture shows as one row each: what ran inside is unknown, and no figure may pretend otherwise."""

from __future__ import annotations

import numpy as np

from analyzers import selectors
from analyzers.selection import Selection
from analyzers.selectors import Selector
from analyzers.trace import Trace, is_one_of

ADVICE = "capture with --cuda-graph-trace=node to see inside"
INSIDE = ("comm", "compute", "kernel", "collective")  # what picks kernels, and would have picked some inside a graph


def unclaimed(trace: Trace, *sides: Selection) -> int:
    """How many graphs are ops of no side; a side that takes graphs as ops says what they are."""
    graphs = is_one_of(trace.ops, "kind", ("graph",))
    return int(np.count_nonzero(graphs & ~np.logical_or.reduce([side.picked for side in sides])))


def claimed(trace: Trace, side: Selection) -> int:
    """How many graphs are ops of a side (`graph`, or a range that launched them)."""
    return int(np.count_nonzero(is_one_of(trace.ops, "kind", ("graph",)) & side.picked))


def hidden_work(count: int, *sides: Selector) -> str:
    """Why a pair can't be judged: kernels a side means may have run inside unclaimed graphs; "" where that can't be."""
    for side in sides if count else ():
        for atom in selectors.atoms(side):
            if atom.kind in INSIDE:
                return (
                    f"{count} CUDA graph launches are one row each, and '{atom}' may have run inside them: {ADVICE}, "
                    "or take each graph as one op of a side, as in 'compute,graph'"
                )
    return ""


def about_graphs(count: int, side: Selector) -> list[str]:
    """What to say of so many one-row graphs that count as ops of a side."""
    if not count:
        return []
    return [
        f"{count} of the ops of '{side}' are CUDA graphs traced as one row: each counts as busy from its start to its "
        f"end, whatever ran inside; {ADVICE}."
    ]
