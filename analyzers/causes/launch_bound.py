"""Whether the side that runs alone in a gap is itself bound by its launches: short ops, each launched after the last.

A thread that launches copies of 7 µs, one every 12 µs, keeps its stream busy for 58 % at best, whatever runs beside it.
That the other side's thread launches nothing meanwhile is then not what is slow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analyzers.causes.causes import DISPATCH_NS, Explainer
from analyzers.causes.gaps import Gaps
from analyzers.trace.columns import ints_at

FEW = 16  # ops in a gap, below which their intervals tell nothing
MOSTLY = 0.8  # of them are launched by one thread, and begin as they are launched
LEAST, MOST = 0.2, 0.85  # of the time that its stream is busy: below, its thread does other things; above, it keeps up
SELDOM = 0.1  # of the time its thread may be blocked: else it waits for the GPU


class LaunchBound(NamedTuple):
    """Ops of about `op_ns` each, one every `every_ns`, all launched by one `thread`."""

    thread: int
    op_ns: int
    every_ns: int


def launch_bound(explainer: Explainer, gaps: Gaps, gap: int, late: int) -> LaunchBound | None:
    """How the other side's ops in a gap are launched, if their thread, another than that of `late`, can't keep up."""
    trace, op = explainer.trace, int(gaps.op[gap])
    of_other = (explainer.b, explainer.a)[int(gaps.side[gap])]
    rows = explainer.started_beside(op, int(gaps.start_ns[gap]), int(gaps.end_ns[gap]))
    rows = np.sort(rows[of_other[rows] & (ints_at(trace.ops, "launch", rows) >= 0)])
    threads, count = np.unique(explainer.launches[0][rows], return_counts=True)
    if not rows.size or count.max() < max(FEW, MOSTLY * rows.size):
        return None
    one = int(threads[np.argmax(count)])
    if one == explainer.launches[0][late]:
        return None
    rows = rows[explainer.launches[0][rows] == one]
    _, began, returned = (column[rows] for column in explainer.launches)
    start, end = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns"))
    length, every = int(np.median(end - start)), int(np.median(np.diff(np.sort(began))))
    is_prompt = np.mean(start - returned <= DISPATCH_NS) >= MOSTLY
    busy, blocked_ns = length / max(every, 1), explainer.blocked_ns(int(rows[0]), int(began.min()), int(began.max()))
    is_bound = is_prompt and LEAST <= busy <= MOST and blocked_ns <= SELDOM * (began.max() - began.min())
    return LaunchBound(one, length, every) if is_bound else None
