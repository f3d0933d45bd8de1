"""CUDA graphs that a capture shows as one row each: what ran inside is unknown, and no figure may pretend otherwise."""

from __future__ import annotations

import numpy as np

from analyzers import selectors
from analyzers.selection import Selection
from analyzers.trace import Trace, is_one_of

ADVICE = "capture with --cuda-graph-trace=node to see inside"
INSIDE = ("comm", "compute", "kernel", "collective")  # what picks kernels, and would have picked some inside a graph


def hidden_work(trace: Trace, *sides: Selection) -> str:
    """Why a pair can't be judged: kernels a side means may have run inside one-row graphs; "" where that can't be.

    A side that takes graphs as ops (`graph`, or a range that launched them) says what they are.
    """
    graphs = is_one_of(trace.ops, "kind", ("graph",))
    unclaimed = graphs & ~np.logical_or.reduce([side.picked for side in sides])
    count = int(np.count_nonzero(unclaimed))
    if not count:
        return ""
    for side in sides:
        for atom in selectors.atoms(side.selector):
            if atom.kind in INSIDE:
                return (
                    f"{count} CUDA graph launches are one row each, and '{atom}' may have run inside them: {ADVICE}, "
                    "or take each graph as one op of a side, as in 'compute,graph'"
                )
    return ""


def about_graphs(trace: Trace, *sides: Selection) -> list[str]:
    """What to say of one-row graphs that count as ops of a side."""
    graphs = is_one_of(trace.ops, "kind", ("graph",))
    said = []
    for side in sides:
        count = int(np.count_nonzero(graphs & side.picked))
        if count:
            said.append(
                f"{count} of the ops of '{side.selector}' are CUDA graphs traced as one row: each counts as busy from "
                f"its start to its end, whatever ran inside; {ADVICE}."
            )
    return said
