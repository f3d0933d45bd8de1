"""Changes that the causes of missed overlap suggest."""

from __future__ import annotations

from collections import Counter

import numpy as np

from analyzers.replay.changes import (
    Change,
    DropSync,
    DropWait,
    Graph,
    MoreRoom,
    MoveWait,
    OnTime,
    OwnStream,
    Split,
)
from analyzers.select.language import Atom, parse
from analyzers.select.picking import RANGE_ATOMS
from analyzers.syncs.points import host_syncs
from analyzers.trace.columns import ints
from analyzers.trace.steps import STEP
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult

MOST_SYNCS = 3  # ranges whose host syncs are tried
PIECES = 4


def suggested(trace: Trace, a: str, b: str) -> list[Change]:
    """What to try: by the causes of what a pair missed, the host syncs that cost most, and the rank that comes last."""
    result = check_overlap(trace, a, b, min_overlap=0.0)
    causes = {one.cause for rank in result.ranks for one in rank.missed}
    found: list[Change] = [DropSync(where) for where in _syncing(trace)]
    pairs = [(a, b), (b, a)]
    if "event-dependency" in causes:
        found += [DropWait(*pair) for pair in pairs]
        found += [Split(side, PIECES) for side in (a, b) if _is_communication(side)]
    if causes & {"event-dependency", "late-launch", "host-sync"}:
        found += [MoveWait(*pair) for pair in pairs if all(map(_is_range, pair))]
    if "same-stream" in causes:
        found += [OwnStream(side) for side in (a, b)]
    if "late-launch" in causes:
        found += [Graph(side) for side in (a, b) if _is_range(side)]
    if "gpu-full" in causes:
        found += [MoreRoom(side) for side in (a, b)]
    late = _last(trace)
    if late is not None and ("peer-wait" in causes or _waits(result)):
        found += [OnTime(late), OnTime()]
    return list(dict.fromkeys(found))


def _syncing(trace: Trace) -> list[str]:
    """Ranges in which host syncs kept the GPU idle longest, as selectors."""
    table = trace.once(host_syncs).table
    cost: Counter[str] = Counter()
    for name, idle in zip(table["range"].astype(str), table["gpu_idle_ns"].to_numpy(np.int64), strict=True):
        if name:
            cost[_of_any_step(name)] += int(idle)
    return [str(Atom("nvtx", name)) for name, idle in cost.most_common(MOST_SYNCS) if idle > 0]


def _of_any_step(name: str) -> str:
    """The name of a range; of a step's mark that of all steps' marks.

    >>> _of_any_step("ProfilerStep#12"), _of_any_step("lookup 12")
    ('ProfilerStep#*', 'lookup 12')
    """
    mark = STEP.match(name)
    return f"{name[: mark.start(1)]}*" if mark else name


def _last(trace: Trace) -> int | None:
    """The rank that the others wait for longest."""
    wait, last = ints(trace.ops, "wait_ns"), ints(trace.ops, "last_rank")
    rows = np.flatnonzero((wait > 0) & (last >= 0))
    if not rows.size:
        return None
    ranks, number = np.unique(last[rows], return_inverse=True)
    return int(ranks[np.argmax(np.bincount(number, weights=wait[rows]))])


def _waits(result: OverlapResult) -> bool:
    return any(side.wait_ns > 0 for rank in result.ranks for side in (rank.a, rank.b))


def _is_range(selector: str) -> bool:
    parsed = parse(selector)
    return isinstance(parsed, Atom) and parsed.kind in RANGE_ATOMS


def _is_communication(selector: str) -> bool:
    parsed = parse(selector)
    return isinstance(parsed, Atom) and parsed.kind in ("comm", "collective")
