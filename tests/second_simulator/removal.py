"""Which obstacle matters: the run without each of them, and the real overlap that comes back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.second_simulator.machine import Machine, Node, Removal, Run
from tests.second_simulator.program import Call, Program

Spans = list[tuple[int, int]]
CAUSES = ("same-stream", "event-dependency", "host-sync", "late-launch", "gpu-full", "peer-wait", "stream-busy")


@dataclass(frozen=True)
class Truth:
    """Of one rank, by cause.

    `recovered` is the most real overlap that comes back where the cause is taken away everywhere or at one site, in two
    counts: beside the other side of the same step, and of any step. `everywhere` is the latter, taken away everywhere.
    """

    rank: int
    real_ns: int
    achievable_ns: int
    recovered: dict[str, tuple[int, int]]
    everywhere: dict[str, int]

    @property
    def missed_ns(self) -> int:
        return self.achievable_ns - self.real_ns

    @property
    def cause(self) -> str:
        """The cause whose removal brings back most; "" where little is missed or none stands out, by either count."""
        if self.missed_ns < self.achievable_ns // 20:
            return ""
        found = {self._largest(count) for count in (0, 1)}
        return found.pop() if len(found) == 1 else ""

    def _largest(self, count: int) -> str:
        (most, cause), (next_most, _), *_ = sorted(
            ((ns[count], cause) for cause, ns in self.recovered.items()), reverse=True
        )
        return cause if most >= 2 * max(0, next_most) and most >= max(1, self.missed_ns // 10) else ""


def truths(program: Program) -> tuple[Run, list[Truth]]:
    """The run as it is, and what each cause is worth on each rank."""
    run = Machine(program).run()
    shared = {cause: _runs(program, _removals(program, cause)) for cause in CAUSES}
    everywhere_runs = {cause: Machine(program, _everywhere(program, cause)).run() for cause in CAUSES}
    found = []
    for rank in range(len(program.ranks)):
        step, every, achievable = overlap(run, rank, range(program.steps))
        recovered, everywhere = {}, {}
        for cause, runs in shared.items():
            runs = [*_runs(program, _removals_seen(program, cause, rank)), *runs]
            after = [overlap(one, rank, range(program.steps)) for one in runs] or [(step, every, 0)]
            recovered[cause] = (max(one[0] for one in after) - step, max(one[1] for one in after) - every)
            everywhere[cause] = overlap(everywhere_runs[cause], rank, range(program.steps))[1] - every
        found.append(Truth(rank, every, achievable, recovered, everywhere))
    return run, found


def _runs(program: Program, removals: list[Removal]) -> list[Run]:
    return [Machine(program, removal).run() for removal in removals]


def _everywhere(program: Program, cause: str) -> Removal:
    return Removal(cause, frozenset(_sites(program, cause)) if cause == "event-dependency" else None)


def _removals(program: Program, cause: str) -> list[Removal]:
    """The same from every rank's view: everywhere, and at each site alone."""
    if cause == "late-launch":
        return []
    if cause in ("same-stream", "gpu-full", "peer-wait"):
        return [_everywhere(program, cause)]
    alone = [Removal(cause, frozenset({site})) for site in sorted(_sites(program, cause))]
    return [_everywhere(program, cause), *alone]


def _removals_seen(program: Program, cause: str, rank: int) -> list[Removal]:
    if cause == "late-launch":
        sites = {call.site for call in program.ranks[rank] if call.does == "work"}
        return [Removal(cause, None, rank), *(Removal(cause, frozenset({site}), rank) for site in sorted(sites))]
    if cause == "peer-wait":
        return [Removal(cause, frozenset({"late rank"}), rank)]
    return []


def _sites(program: Program, cause: str) -> set[str]:
    """Lines of the program where this cause can be taken away."""
    calls = [call for rank in program.ranks for call in rank]
    if cause == "host-sync":
        return {call.site for call in calls if call.does.startswith("sync") or call.blocks}
    if cause == "stream-busy":
        return {call.site for call in calls if call.op and not call.side}
    return {site for rank in program.ranks for site in _waits_between_sides(rank)}


def _waits_between_sides(calls: tuple[Call, ...]) -> set[str]:
    """Sites of waits that one side's ops stand behind, for an event behind ops of the other side of the same step."""
    behind: dict[int, set[tuple[str, int]]] = defaultdict(set)  # what a stream has behind it: sides and steps
    at: dict[int, set[tuple[str, int]]] = {}  # of an event
    open_waits: dict[int, list[tuple[str, set[tuple[str, int]]]]] = defaultdict(list)  # a stream's waits so far
    sites = set()
    for call in calls:
        if call.does == "record":
            at[call.event] = set(behind[call.stream])
        elif call.does == "wait" and call.event in at:
            open_waits[call.stream].append((call.site, at[call.event]))
            behind[call.stream] |= at[call.event]
        elif call.op and call.side:
            other = ("B" if call.side == "A" else "A", call.step)
            sites |= {site for site, before in open_waits[call.stream] if other in before}
            behind[call.stream].add((call.side, call.step))
    return sites


def overlap(run: Run, rank: int, steps: Iterable[int]) -> tuple[int, int, int]:
    """Real overlap within steps, across all, and the achievable: nanoseconds."""
    mine = [node for node in run.ops if node.rank == rank and node.call.side]
    within = achievable = 0
    for step in steps:
        a, b = (_real([node for node in mine if node.call.step == step and node.call.side == side]) for side in "AB")
        within += _both(a, b)
        achievable += min(_length(a), _length(b))
    a, b = (_real([node for node in mine if node.call.side == side]) for side in "AB")
    return within, _both(a, b), achievable


def _real(nodes: list[Node]) -> Spans:
    """The union of these ops' times, without waiting for late ranks."""
    spans: Spans = []
    for start, end in sorted((max(node.start, node.last_arrival), node.end) for node in nodes):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def _length(spans: Spans) -> int:
    return sum(end - start for start, end in spans)


def _both(a: Spans, b: Spans) -> int:
    return sum(max(0, min(a_end, b_end) - max(a_start, b_start)) for a_start, a_end in a for b_start, b_end in b)
