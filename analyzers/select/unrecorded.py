"""Which launches, whose work a capture lacks, a selector may stand for.

A call says which ranges it lies in, and whether it launches a kernel, a copy or a memset. Which kernel it was, and on
which stream, nobody knows: it may be any.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints, Mask
from analyzers.select.language import And, Not, Or, Selector
from analyzers.select.picking import RANGE_ATOMS, evaluate
from analyzers.trace.columns import codes, ints_at, is_one_of, table
from analyzers.trace.tables import Trace


def may_pick(trace: Trace, selector: Selector, calls: Ints) -> Mask:
    """Of some calls (rows of `Trace.api`) without an op, those whose work the selector may have picked."""
    if not calls.size:
        return np.zeros(0, dtype=bool)
    return _picks(_as_ops(trace, calls), selector, surely=False)


def _picks(work: Trace, selector: Selector, *, surely: bool) -> Mask:
    """What a selector picks of some work, at least (`surely`) or at most."""
    if isinstance(selector, Not):
        return ~_picks(work, selector.part, surely=not surely)
    if isinstance(selector, And):
        return np.logical_and.reduce([_picks(work, part, surely=surely) for part in selector.parts])
    if isinstance(selector, Or):
        return np.logical_or.reduce([_picks(work, part, surely=surely) for part in selector.parts])
    if selector.kind in RANGE_ATOMS:
        return evaluate(work, selector)
    nothing = np.zeros(len(work.ops), dtype=bool)
    if selector.meaning in ("memcpy", "memset"):
        is_sure = not (surely and selector.text)
        return is_one_of(work.ops, "kind", (selector.meaning,)) if is_sure else nothing
    if surely or selector.meaning == "graph":
        return nothing
    return ~nothing if selector.meaning == "stream" else is_one_of(work.ops, "kind", ("kernel",))


def _as_ops(trace: Trace, calls: Ints) -> Trace:
    """A trace whose ops are what some calls launched, as far as these say."""
    code, names = codes(trace.api, "name")
    kinds = np.array([_kind(name) for name in names] or [""])
    start = ints_at(trace.api, "start_ns", calls)
    columns = {
        "process": ints_at(trace.api, "process", calls),
        "kind": kinds[code[calls]],
        "start_ns": start,
        "end_ns": start,
        "launch": calls,
    }
    return replace(trace, ops=table("ops", columns), whole=None, rows=None)


def _kind(call: str) -> str:
    return "memcpy" if "Memcpy" in call else "memset" if "Memset" in call else "kernel"
