"""Two selections that share no op: an op never overlaps itself."""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np

from analyzers.errors import TracevizError, TraceWarning
from analyzers.selection import Selection
from analyzers.trace import Ints, Mask, Trace, ints


def without_shared(trace: Trace, a: Selection, b: Selection) -> tuple[Selection, Selection, list[TraceWarning]]:
    """Give every op that both pick to the inner side: the smaller set inside the larger, or the innermost range.

    Raises
    ------
    TracevizError : both pick the same ops, or some that neither side's ranges claim as the inner one.
    """
    shared = a.picked & b.picked
    if not shared.any():
        return a, b, []
    count = int(np.count_nonzero(shared))
    if np.array_equal(a.picked, b.picked):
        raise TracevizError(
            f"'{a.selector}' and '{b.selector}' pick the same {count} ops.", hint="Give two sides that differ."
        )
    if np.array_equal(shared, a.picked):
        return a, _without(b, shared), [_note(count, a, b)]
    if np.array_equal(shared, b.picked):
        return _without(a, shared), b, [_note(count, b, a)]
    inner_a = _inside(trace, a.occurrence, b.occurrence) & shared
    inner_b = _inside(trace, b.occurrence, a.occurrence) & shared
    if np.any(shared & ~(inner_a ^ inner_b)):
        raise TracevizError(
            f"'{a.selector}' and '{b.selector}' share {count} ops, and neither lies inside the other.",
            hint=f"Exclude them from one side, for example: -b {shlex.quote(_excluding(b, a))}",
        )
    notes = [_note(int(np.count_nonzero(inner)), one, other)
             for inner, one, other in ((inner_a, a, b), (inner_b, b, a)) if inner.any()]  # fmt: skip
    return _without(a, inner_b), _without(b, inner_a), notes


def _inside(trace: Trace, inner: Ints, outer: Ints) -> Mask:
    """Ops whose range on one side lies strictly inside the other side's."""
    if not len(trace.ranges):
        return np.zeros(inner.size, dtype=bool)
    starts, ends = ints(trace.ranges, "start_ns"), ints(trace.ranges, "end_ns")
    contained = (starts[inner] >= starts[outer]) & (ends[inner] <= ends[outer])
    return (inner >= 0) & (outer >= 0) & (inner != outer) & contained


def _without(side: Selection, ops: Mask) -> Selection:
    picked = side.picked & ~ops
    reason = side.reason if picked.any() else "all its ops belong to the other side, which lies inside it"
    return replace(side, picked=picked, occurrence=np.where(picked, side.occurrence, -1), reason=reason)


def _note(count: int, inner: Selection, outer: Selection) -> TraceWarning:
    return TraceWarning(
        "shared-ops",
        f"{count} ops that both sides pick count for '{inner.selector}' only, which lies inside '{outer.selector}'.",
    )


def _excluding(side: Selection, other: Selection) -> str:
    return f"({side.selector})+!({other.selector})"
