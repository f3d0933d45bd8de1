"""CUDA graphs that a capture shows as one row each: what ran inside is unknown, and no figure may pretend otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from analyzers import selectors
from analyzers.errors import TraceWarning
from analyzers.selection import Selection
from analyzers.selectors import Selector
from analyzers.trace import Trace, is_one_of

ADVICE = "capture with --cuda-graph-trace=node to see inside"
INSIDE = ("comm", "compute", "kernel", "collective")  # what picks kernels, and would have picked some inside a graph


def about_rows(trace: Trace) -> Trace:
    """Warn of a capture's graphs that are one row each."""
    count = int(np.count_nonzero(is_one_of(trace.ops, "kind", ("graph",))))
    if not count:
        return trace
    return trace.warn(
        "graph-as-one-row",
        f"{count:,} CUDA graph launches of {trace.captures[0].path} are one row each: each counts as one op, and what "
        f"ran inside (kernels, collectives, waits) as nothing; {ADVICE}.",
    )


def but_rows(warnings: Iterable[TraceWarning]) -> tuple[TraceWarning, ...]:
    """Warnings without `about_rows`, for answers that say themselves what graphs mean for them."""
    return tuple(one for one in warnings if one.code != "graph-as-one-row")


def only_rows(warnings: Iterable[TraceWarning]) -> tuple[TraceWarning, ...]:
    """Warnings of `about_rows` alone."""
    return tuple(one for one in warnings if one.code == "graph-as-one-row")


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


def about_graphs(count: int, side: Selector) -> list[TraceWarning]:
    """What to say of so many one-row graphs that count as ops of a side."""
    if not count:
        return []
    text = (
        f"{count} of the ops of '{side}' are CUDA graphs traced as one row: each counts as busy from its start to its "
        f"end, whatever ran inside; {ADVICE}."
    )
    return [TraceWarning("graph-as-one-row", text)]
