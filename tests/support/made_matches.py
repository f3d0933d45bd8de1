"""Collectives as if matched already, made by hand: each is what clocks recorded of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analyzers.clocks.hosts import HostBounds
from analyzers.clocks.solve import solve as solution
from analyzers.trace.alignment import Clocks, MatchedCalls, MatchedCollectives, Matches, Members

Span = tuple[int, int]
Spans = Mapping[int, Span]  # start and end, on each clock that has the collective


def matched(
    spans: Sequence[Spans],
    members: int = 2,
    operation: str | Sequence[str] = "all_reduce",
    unsure: Sequence[int] = (),
    captures: Sequence[int] | None = None,
) -> Matches:
    """Collectives in order; clock k is process 20 + k's device 30 + k, and rank 10 + k."""
    named = [operation] * len(spans) if isinstance(operation, str) else operation
    rows = [(number, member, *span) for number, one in enumerate(spans) for member, span in sorted(one.items())]
    number = np.arange(members)
    clocks = {"process": 20 + number, "device": 30 + number, "rank": 10 + number}
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    sure = np.array([one not in unsure for one in range(len(spans))], bool)
    return Matches(
        Members.of(clocks | {"capture": number if captures is None else np.array(captures)}),
        MatchedCalls.of(dict(zip(("collective", "member", "start_ns", "end_ns"), columns, strict=True))),
        MatchedCollectives.of({"operation": named, "sure": sure, "confidence": sure.astype(float)}),
    )


def matches_of(calls: Sequence[Mapping[str, int]], ranks: Sequence[int]) -> Matches:
    """Sure collectives of these calls, a mapping each, of ranks with a device 0 each."""
    names = ("collective", "op", "member", "rank", "start_ns", "end_ns")
    columns = {name: np.array([one[name] for one in calls], np.int64) for name in names}
    collectives = MatchedCollectives.of({"sure": True}, length=int(columns["collective"].max(initial=-1)) + 1)
    return Matches(Members.of({"rank": np.array(ranks), "device": 0}), MatchedCalls.of(columns), collectives)


def together(members: Sequence[int], end: int, true: Mapping[int, int] | None = None, length: int = 300_000) -> Spans:
    """All start and end together, each on a clock that is so far ahead."""
    ahead = true or {}
    return {one: (end - length + ahead.get(one, 0), end + ahead.get(one, 0)) for one in members}


def solve(matches: Matches, hosts: HostBounds | None = None) -> Clocks:
    """Clocks of one host, of which nothing else is known, where not given."""
    if hosts is None:
        nothing, captures = np.empty(0, np.int64), np.zeros(int(matches.members.capture.max()) + 1, np.int64)
        hosts = HostBounds(*[nothing] * 4, nothing > 0, nothing, nothing, captures, captures)
    return solution(matches, hosts).clocks


def offsets(clocks: Clocks) -> list[int]:
    return [clock.offset_ns for clock in clocks.clocks]


def counts(clocks: Clocks) -> list[int]:
    return [clock.collectives for clock in clocks.clocks]


def bounds(clocks: Clocks) -> list[tuple[int | None, int | None]]:
    return [(clock.lower_ns, clock.upper_ns) for clock in clocks.clocks]


def residuals(clocks: Clocks) -> list[int | None]:
    return [clock.residual_ns for clock in clocks.clocks]
