"""CUDA graphs that a capture shows as one row each: what ran inside is unknown, and no figure may pretend otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from analyzers.common.errors import TraceWarning
from analyzers.trace.columns import is_one_of
from analyzers.trace.tables import Trace

ADVICE = "capture with --cuda-graph-trace=node to see inside"


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
