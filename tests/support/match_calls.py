"""Traces of a few communication calls, and which of them were matched."""

from __future__ import annotations

from typing import Any

from analyzers.matching.match import match
from analyzers.trace.alignment import Matches
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

MS = 1_000_000
KERNEL = "ncclDevKernel_AllReduce(x)"
SEND_RECV = "ncclDevKernel_SendRecv(x)"


def call(
    rank: int,
    end: int,
    *,
    name: str = KERNEL,
    stream: int = 20,
    grid: int = 24,
    lasts: int = MS,
    launched: bool = True,
    **stated: Any,
) -> dict[str, Any]:
    """A call of a rank that ends then, and what the trace says of it; not `launched` before the capture began."""
    return {
        "launch": (1, 2) if launched else None,
        "rank": rank,
        "name": name,
        "stream": stream,
        "grid": grid,
        "start": end - lasts,
        "end": end,
        "stated": stated,
    }


def trace(*calls: dict[str, Any]) -> Trace:
    """A Trace of these calls; each is an op, in the order given."""
    builder = Builder()
    ranks = {rank: builder.rank(rank) for rank in sorted({one["rank"] for one in calls})}
    for one in calls:
        rank = ranks[one["rank"]]
        rank.kernel(one["name"], one["stream"], one["start"], one["end"], launch=one["launch"], grid=one["grid"])
        if one["stated"]:
            builder.add("comms", process=rank.process, correlation=builder.correlation, **one["stated"])
    return builder.trace()


def matched(*calls: dict[str, Any]) -> Matches:
    return match(trace(*calls))


def together(matches: Matches) -> list[list[int]]:
    """The ops of each collective, by number."""
    found: list[list[int]] = [[] for _ in range(len(matches.collectives))]
    for collective, op in zip(matches.calls.collective.tolist(), matches.calls.op.tolist(), strict=True):
        found[collective].append(op)
    return found


def how(matches: Matches) -> list[str]:
    return [str(one) for one in matches.collectives.matched_by]
