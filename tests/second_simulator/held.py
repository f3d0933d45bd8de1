"""What held the idle side, instant by instant, from what the machine knows: the definition of causes, literally."""

from __future__ import annotations

import itertools
from collections import defaultdict

from tests.second_simulator.machine import LATENCY, Node, Ran, Run
from tests.second_simulator.removal import overlap

PAUSE = 3_000  # ns from the end of an op to the start of the next, at most, where this follows at once

Parts = list[tuple[str, int, int]]  # cause, from, to


def held(run: Run, rank: int, steps: int) -> dict[str, int]:
    """What was missed, by cause: each step's in proportion to its instants at which one side ran alone and the other
    still had work to start."""
    launches = {id(ran.node): ran for ran in run.calls if ran.rank == rank and ran.node}
    calls = [ran for ran in run.calls if ran.rank == rank]
    shares: dict[str, int] = defaultdict(int)
    for step in range(steps):
        total: dict[str, int] = defaultdict(int)
        sides = {
            side: sorted((node for node in run.ops if _is(node, rank, step, side)), key=lambda node: node.start)
            for side in "AB"
        }
        for idle, runs in ("AB", "BA"):
            others = sides[runs]
            for node, begin in _gaps(sides[idle]):
                for cause, start, end in _why(node, begin, node.start, idle, launches, calls):
                    total[cause] += _alone(others, start, end)
            total["peer-wait"] += _waited_in_vain(sides[idle], others)
        both, _, achievable = overlap(run, rank, range(step, step + 1))
        waited, missed = total.pop("peer-wait", 0), achievable - both
        waited = min(waited, missed)
        total = total if any(total.values()) else {"unknown": 1}
        shares["peer-wait"] += waited
        for cause, ns in total.items():
            shares[cause] += (missed - waited) * ns // max(1, sum(total.values()))
    return {cause: ns for cause, ns in shares.items() if ns}


def _is(node: Node, rank: int, step: int, side: str) -> bool:
    return node.rank == rank and node.call.step == step and node.call.side == side


def _gaps(ops: list[Node]) -> list[tuple[Node, int]]:
    """Each op that begins while none of its side runs, and since when none did."""
    found, reach = [], -1
    for node in ops:
        if node.start > reach:
            found.append((node, max(reach, 0)))
        reach = max(reach, node.end)
    return found


def _waited_in_vain(mine: list[Node], others: list[Node]) -> int:
    """How much more a side's ops would overlap, had they not waited for late ranks: those that follow at once moved
    to where the first began, without their waits.
    """
    cost, at = 0, 0
    while at < len(mine):
        begin, reach, run = mine[at].start, mine[at].end, []
        while at < len(mine) and mine[at].start <= reach + PAUSE:
            reach = max(reach, mine[at].end)
            run.append(mine[at])
            at += 1
        moments = sorted(
            {begin, reach, *(t for node in run + others for t in (node.start, node.last_arrival, node.end))}
        )
        within = [(low, high) for low, high in itertools.pairwise(moments) if begin <= low and high <= reach]
        now = sum(high - low for low, high in within if _alone(run, low, high) and _alone(others, low, high))
        waits = sum(
            high - low
            for low, high in within
            if any(node.start <= low and high <= node.last_arrival for node in run)
            and not _alone(run, low, high)
            and _alone(others, low, high)
        )
        then = _alone(others, begin, begin + _alone(run, begin, reach))
        cost += min(max(0, then - now), waits)
    return cost


def _alone(ops: list[Node], start: int, end: int) -> int:
    """How long of this time any of these ops ran; a collective that waited did not."""
    covered, reach = 0, start
    for begin, until in sorted((max(node.start, node.last_arrival), node.end) for node in ops):
        begin, until = max(begin, reach), min(until, end)
        if until > begin:
            covered += until - begin
            reach = until
    return covered


def _why(node: Node, begin: int, end: int, side: str, launches: dict[int, Ran], calls: list[Ran]) -> Parts:
    """What held an op over a gap: of all that it waited for, what was released last; parts in time."""
    if end <= begin:
        return []
    since = max(begin, min(node.ready, end))  # free to run from then on: what was missing was room
    return [("gpu-full", since, end), *_why_not_ready(node, begin, since, side, launches, calls)]


def _why_not_ready(node: Node, begin: int, end: int, side: str, launches: dict[int, Ran], calls: list[Ran]) -> Parts:
    """The same, but for room."""
    last, by_event, free = _last_before(node)
    if node.arrival >= free or last is None:
        return _host(launches[id(node)], begin, end, calls)
    if last.call.side == side:
        return [("unknown", begin, end)]
    if last.call.side:
        return [("event-dependency" if by_event else "same-stream", begin, end)]
    since = max(begin, min(last.start, end))
    return [("stream-busy", since, end), *_why(last, begin, since, side, launches, calls)]


def _last_before(node: Node) -> tuple[Node | None, bool, int]:
    """The op that an op is behind and that let it go last, whether by way of an event, and when."""
    found: tuple[Node | None, bool, int] = (None, False, -1)
    for before, lag, by_event in node.behind:
        if before.call.op:
            one: tuple[Node | None, bool, int] = (before, by_event, before.end + lag)
        else:
            origin, event, _ = _last_before(before)
            one = (origin, by_event or event, before.end + lag)
        if one[0] is not None and one[2] > found[2]:
            found = one
    return found


def _host(ran: Ran, begin: int, end: int, calls: list[Ran]) -> Parts:
    """While it was not launched: its thread sat in a call that blocks, or was busy; then its way to the GPU."""
    parts: Parts = []
    for call in calls:
        since, until = max(begin, call.begin), min(end, call.end, ran.end)
        if until > since:
            blocked = call.end - call.begin > call.call.ns + 1_000
            parts.append(("host-sync" if blocked else "late-launch", since, until))
    parts.append(("unknown", max(begin, ran.end), min(end, ran.end + LATENCY)))
    return [part for part in parts if part[2] > part[1]]
