"""Two selections that share no op: an op never overlaps itself."""

from __future__ import annotations

import shlex
from enum import Enum

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Mask
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.records import Addable
from analyzers.select.select import Selection
from analyzers.trace.tables import Trace

ALL_SHARED = "all its ops belong to the other side, which lies inside it"


class SharedOps(Enum):
    """Which side the ops that both sides pick are given to."""

    NONE = "there are none"
    TO_A = "A, which lies inside B"
    TO_B = "B, which lies inside A"
    BY_RANGES = "op by op, the side whose range lies inside the other's"
    SAME = "nobody can tell: both sides pick the same ops"
    DISAGREEING = "nobody can tell: neither side lies inside the other"


class Shared(Addable, frozen=True):
    """How many ops both sides pick, and each; parts of a run add up.

    disagreeing : shared ops that neither side's ranges claim as the inner one, or both do; inner_a, inner_b : those of
    which the range on that side lies inside the other's.
    """

    both: int = 0
    a: int = 0
    b: int = 0
    disagreeing: int = 0
    inner_a: int = 0
    inner_b: int = 0

    @property
    def given_to(self) -> SharedOps:
        """Which side gets them."""
        if not self.both:
            return SharedOps.NONE
        if self.both == self.a == self.b:
            return SharedOps.SAME
        if self.both in (self.a, self.b):
            return SharedOps.TO_A if self.both == self.a else SharedOps.TO_B
        return SharedOps.DISAGREEING if self.disagreeing else SharedOps.BY_RANGES


def without_shared(trace: Trace, a: Selection, b: Selection) -> tuple[Selection, Selection, list[TraceWarning]]:
    """Give every op that both pick to the inner side: the smaller set inside the larger, or the innermost range.

    Raises
    ------
    TracevizError : both pick the same ops, or some that neither side's ranges claim as the inner one.
    """
    shared = count_shared(trace, a, b)
    notes = about_shared(shared, str(a.selector), str(b.selector))
    return *share_out(trace, a, b, shared.given_to), notes


def count_shared(trace: Trace, a: Selection, b: Selection) -> Shared:
    """Count what both sides pick."""
    shared = a.picked & b.picked
    inner_a, inner_b = (shared & one for one in (_inside(trace, a, b), _inside(trace, b, a)))
    masks = (shared, a.picked, b.picked, shared & ~(inner_a ^ inner_b), inner_a, inner_b)
    return Shared(*(int(np.count_nonzero(mask)) for mask in masks))


def share_out(trace: Trace, a: Selection, b: Selection, given_to: SharedOps) -> tuple[Selection, Selection]:
    """Take the ops that both pick from the side that does not get them; from neither where nobody can tell."""
    shared = a.picked & b.picked
    if given_to == SharedOps.TO_A:
        return a, _without(b, shared)
    if given_to == SharedOps.TO_B:
        return _without(a, shared), b
    if given_to == SharedOps.BY_RANGES:
        inner_a = shared & _inside(trace, a, b)
        return _without(a, shared & ~inner_a), _without(b, inner_a)
    return a, b


def about_shared(shared: Shared, a: str, b: str) -> list[TraceWarning]:
    """Warnings that say which side shared ops count for.

    Raises
    ------
    TracevizError : nobody can tell whose they are.
    """
    if shared.given_to == SharedOps.SAME:
        raise TracevizError(f"'{a}' and '{b}' pick the same {shared.both} ops.", hint="Give two sides that differ.")
    if shared.given_to == SharedOps.DISAGREEING:
        raise TracevizError(
            f"'{a}' and '{b}' share {shared.both} ops, and neither lies inside the other.",
            hint=f"Exclude them from one side, for example: -b {shlex.quote(f'({b})+!({a})')}",
        )
    if not shared.both:
        return []
    inner_a, inner_b = shared.inner_a, shared.inner_b
    if shared.given_to in (SharedOps.TO_A, SharedOps.TO_B):
        inner_a, inner_b = (shared.both, 0) if shared.given_to == SharedOps.TO_A else (0, shared.both)
    return [
        TraceWarning(
            "shared-ops", f"{count} ops that both sides pick count for '{inner}' only, which lies inside '{outer}'."
        )
        for count, inner, outer in ((inner_a, a, b), (inner_b, b, a))
        if count
    ]


def _inside(trace: Trace, one: Selection, other: Selection) -> Mask:
    """Ops whose range on one side lies strictly inside the other side's."""
    inner, outer, ranges = one.occurrence, other.occurrence, trace.ranges
    if not len(ranges):
        return np.zeros(inner.size, dtype=bool)
    contained = (ranges.start_ns[inner] >= ranges.start_ns[outer]) & (ranges.end_ns[inner] <= ranges.end_ns[outer])
    return (inner >= 0) & (outer >= 0) & (inner != outer) & contained


def _without(side: Selection, ops: Mask) -> Selection:
    picked = side.picked & ~ops
    reason = side.reason if picked.any() else ALL_SHARED
    return replace(side, picked=picked, occurrence=np.where(picked, side.occurrence, -1), reason=reason)
