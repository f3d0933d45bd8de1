"""What CUDA graphs traced as one row mean for a pair: what they hide, and what is said of it."""

from __future__ import annotations

import numpy as np

from analyzers.common.errors import TraceWarning
from analyzers.select import language
from analyzers.select.language import Selector
from analyzers.select.select import Selection
from analyzers.trace.advice import ADVICE
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

INSIDE = ("comm", "compute", "kernel", "collective")  # what picks kernels, and would have picked some inside a graph


def unclaimed(trace: Trace, *sides: Selection) -> int:
    """How many graphs are ops of no side; a side that takes graphs as ops says what they are."""
    graphs = trace.ops.kind.is_one_of(("graph",)) & ~launched_before(trace)
    return int(np.count_nonzero(graphs & ~np.logical_or.reduce([side.picked for side in sides])))


def claimed(trace: Trace, side: Selection) -> int:
    """How many graphs are ops of a side (`graph`, or a range that launched them)."""
    return int(np.count_nonzero(trace.ops.kind.is_one_of(("graph",)) & side.picked))


def hidden_work(count: int, *sides: Selector) -> str:
    """Why a pair can't be judged: kernels a side means may have run inside unclaimed graphs; "" where that can't be."""
    for side in sides if count else ():
        for atom in language.atoms(side):
            if atom.kind in INSIDE:
                return (
                    f"{count} CUDA graph launches are one row each, and may have run '{atom}': {ADVICE}, or take "
                    "each as one op: 'compute,graph'"
                )
    return ""


def about_graphs(count: int, side: Selector) -> list[TraceWarning]:
    """What to say of so many one-row graphs that count as ops of a side."""
    if not count:
        return []
    text = (
        f"{count} of the ops of '{side}' are CUDA graphs traced as one row: each counts as busy from its start to its "
        f"end, whatever ran inside; {ADVICE}."
    )
    return [TraceWarning("graph-as-one-row", text)]
