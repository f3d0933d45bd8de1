"""What a contract's rules have to say of random programs: by the order that the program's own actions make.

python -m tests.simulator.contracts 600
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from analyzers.contracts.checks import check_contract
from analyzers.contracts.rules import read_contract
from tests.simulator.generate import generate
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.measure import FORMATS, A, B, loaded
from tests.simulator.order import Ordered
from tests.simulator.program import Copy, Enter, Leave, Synchronize

RULES: dict[str, dict[str, Any]] = {
    "all": {"may_run_beside": [A, B]},
    "some": {"may_run_beside": [A, B], "pairs": "some"},
    "early": {"wait_on": A, "before_last_of": B},
    "syncs": {"no_host_sync_in": "ProfilerStep#*"},
}


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
        order = Ordered(self.run.program)
        every, some, early = True, True, True
        for a, b in self.sides():
            free = [order.are_free(x, y) for x in a for y in b]
            every, some = every and all(free), some and any(free)
            last = max(b, key=lambda op: (op.call.start, op.where))
            early = early and all(order.is_before(x, last) for x in a)
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
    order = Ordered(run.program)
    for a, b in Truth(run).sides():
        for x in a:
            for y in b:
                touched = [({*op.action.reads}, {*op.action.writes}) for op in (x, y)]
                (reads, writes), (others_reads, others_writes) = touched
                conflict = writes & (others_reads | others_writes) or others_writes & reads
                if conflict and order.are_free(x, y):
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
