"""What a contract's rules have to say of random programs: by reachability over the program's own edges.

A node a completed op, a recorded event, and the begin and end of what a host does; edges are what the machine enforced:
an op waits for its call, for what is before it on its stream and for its events (or values in memory), a host for its
thread's action before, for what it synchronizes with, and for what another thread posts. X is ordered before Y where a
path leads from X completed to Y. Found by a plain search from each node; nothing of the package is used.

    python -m tests.simulator.contracts 600
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from analyzers.contracts.checks import check_contract
from analyzers.contracts.rules import read_contract
from tests.simulator.generate import generate
from tests.simulator.machine import EventRecord, Op, Run, simulate
from tests.simulator.measure import FORMATS, A, B, loaded
from tests.simulator.program import Copy, Enter, Leave, Post, Synchronize, Take

RULES: dict[str, dict[str, Any]] = {
    "all": {"may_run_beside": [A, B]},
    "some": {"may_run_beside": [A, B], "pairs": "some"},
    "early": {"wait_on": A, "before_last_of": B},
    "syncs": {"no_host_sync_in": "ProfilerStep#*"},
}


class Reach:
    """What is ordered before what in a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.edges: dict[Hashable, list[Hashable]] = defaultdict(list)
        self._device()
        for rank, threads in enumerate(run.program.ranks):
            for thread, actions in enumerate(threads):
                self._host(rank, thread, actions)

    def _edge(self, before: Hashable, after: Hashable) -> None:
        self.edges[before].append(after)

    def _device(self) -> None:
        records: dict[int, EventRecord] = {}
        for op in self.run.ops:
            self._edge(("begin", *op.where[:3]), op.where)
            for before in (*op.before, *op.edges):
                self._edge(before.where, op.where)
            for record in op.waits:
                records[id(record)] = record
                self._edge(("event", id(record)), op.where)
        every = [*records.values(), *self.run.records]
        for record in every:
            for before in record.before:
                self._edge(before.where, ("event", id(record)))
            for behind in record.waits:
                self._edge(("event", id(behind)), ("event", id(record)))
                if id(behind) not in records:
                    records[id(behind)] = behind
                    every.append(behind)

    def _host(self, rank: int, thread: int, actions: Iterable[Any]) -> None:
        last: Hashable = None
        for position, action in enumerate(actions):
            begin, end = ("begin", rank, thread, position), ("end", rank, thread, position)
            self._edge(begin, end)
            if last is not None:
                self._edge(last, begin)
            last = end
            if isinstance(action, Post):
                self._edge(end, ("flag", rank, action.flag))
            elif isinstance(action, Take):
                self._edge(("flag", rank, action.flag), end)
            elif isinstance(action, Copy) and action.blocking:
                self._edge((rank, thread, position), end)
            elif isinstance(action, Synchronize):
                self._synchronize(rank, (rank, thread, position), action, end)

    def _synchronize(self, rank: int, where: tuple[int, int, int], action: Synchronize, end: Hashable) -> None:
        call, record = next((c, r) for c, a, r in self.run.syncs if c.where == where)
        if record is not None:
            self._edge(("event", id(record)), end)
            return
        for op in self.run.of_rank(rank):
            if op.submitted <= call.start and action.what in (None, op.stream):
                self._edge(op.where, end)
        for wait, stream, behind in self.run.waits:
            if wait.where[0] == rank and wait.end <= call.start and action.what in (None, stream):
                self._edge(("event", id(behind)), end)

    def after(self, op: Op) -> set[Hashable]:
        """All that is ordered behind an op."""
        found: set[Hashable] = set()
        left: list[Hashable] = [op.where]
        while left:
            for each in self.edges.get(left.pop(), ()):
                if each not in found:
                    found.add(each)
                    left.append(each)
        return found


@dataclass
class Truth:
    """What is true of the marked steps of a run, rank by rank."""

    run: Run

    @cached_property
    def steps(self) -> list[tuple[int, int, list[Op]]]:
        """Rank, step and the ops launched in it: by the time of the call, on whichever thread."""
        found = []
        for rank, _, name, low, high in self.run.ranges:
            if name.startswith("ProfilerStep#"):
                ops = [op for op in self.run.of_rank(rank) if low <= op.call.start < high]
                found.append((rank, int(name[13:]), ops))
        return found

    def sides(self) -> Iterator[tuple[list[Op], list[Op]]]:
        for _, _, ops in self.steps:
            a, b = ([op for op in ops if op.side == side] for side in "ab")
            if a and b:
                yield a, b

    def outcomes(self) -> dict[str, bool]:
        """Whether each of RULES holds."""
        reach = Reach(self.run)
        behind = {op.where: reach.after(op) for op in self.run.ops}
        every, some, early = True, True, True
        for a, b in self.sides():
            free = [x.where not in behind[y.where] and y.where not in behind[x.where] for x in a for y in b]
            every, some = every and all(free), some and any(free)
            last = max(b, key=lambda op: (op.call.start, op.where))
            early = early and all(last.where in behind[x.where] for x in a)
        return {"all": every, "some": some, "early": early, "syncs": not self.blocks()}

    def blocks(self) -> bool:
        """Whether a thread is blocked within a step that is open on it."""
        for threads in self.run.program.ranks:
            for actions in threads:
                inside = 0
                for action in actions:
                    inside += isinstance(action, Enter) - isinstance(action, Leave)
                    blocking = isinstance(action, Synchronize) or (isinstance(action, Copy) and action.blocking)
                    if inside and blocking:
                        return True
        return False


@dataclass
class Tally:
    """How often each rule was right, open and wrong; `wrong` names programs."""

    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def marked_programs(seeds: Iterable[int]) -> Iterator[tuple[int, Run]]:
    """Runs of programs whose steps are marked and have work of both sides."""
    for seed in seeds:
        run = simulate(generate(seed, ranks=1 if seed % 5 else 2))
        if run.ranges and any(Truth(run).sides()):
            yield seed, run


def hold(tally: Tally, run: Run, fmt: str, folder: Path, about: str) -> None:
    """Hold RULES against what a profiler makes of a run."""
    truth = Truth(run).outcomes()
    result = check_contract(loaded(run, fmt, folder), read_contract(RULES))
    for one in result.rules:
        right = one.outcome == ("held" if truth[one.name] else "broken")
        said = "right" if right else "open" if one.outcome == "inconclusive" else "wrong"
        tally.counted[one.name, said] += 1
        if said == "wrong":
            tally.wrong.append(f"{about} {fmt}: {one.name} is {one.outcome}: {one.sentence}")


def races_between_sides(run: Run) -> bool:
    """Whether in a marked step an op of A and one of B touch a buffer, one of them writing, and nothing orders them."""
    reach = Reach(run)
    behind = {op.where: reach.after(op) for op in run.ops}
    for a, b in Truth(run).sides():
        for x in a:
            for y in b:
                touched = [({*op.action.reads}, {*op.action.writes}) for op in (x, y)]
                (reads, writes), (others_reads, others_writes) = touched
                conflict = writes & (others_reads | others_writes) or others_writes & reads
                if conflict and x.where not in behind[y.where] and y.where not in behind[x.where]:
                    return True
    return False


def main(programs: int) -> None:
    """Print how often each rule is right, open and wrong of so many programs, by format."""
    print("| format | rule | right | open | wrong |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for fmt in FORMATS:
            tally = Tally()
            for seed, run in marked_programs(range(programs)):
                hold(tally, run, fmt, Path(folder), str(seed))
            for name in RULES:
                print(f"| {fmt} | {name} |", *(f"{tally.counted[name, said]} |" for said in ("right", "open", "wrong")))


if __name__ == "__main__":
    main(int(sys.argv[1]))
