"""Which changes are named for programs whose data flow is known, and whether their data allow them.

Of each program a capture is made, and the first change that `check-overlap` names and the first of `what-if` are judged
by what the program's actions read and write (`flow_changes`). A change is *unsafe* where an order is lost that is
needed at once. One named as a question is no less unsafe: it is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.verdict.fix import SAFE
from tests.simulator import kineto, nsys
from tests.simulator.flow_changes import UNSAFE, judge
from tests.simulator.flow_orders import items_of
from tests.simulator.flow_selectors import selector
from tests.simulator.flows import Flow, flow
from tests.simulator.machine import simulate
from tests.simulator.recorded import Clocks, Places

BY = ("check-overlap", "what-if")
HALF = 0.5  # of what waits without need, that a change has to set free to be the one for it


@dataclass(frozen=True)
class Named:
    """A change that is named first: as the command line writes it, several joined; and how sure it is said to be.

    said : its class, as in `Fix`.
    """

    change: str
    said: str

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(self.change.split(" + "))


@dataclass(frozen=True)
class Answer:
    """What was named of a program by one command, None for nothing, and what its data say of that.

    word, shown, lost : as in `flow_changes.Verdict`. mends : whether it is a change for what is planted.
    why : nothing is predicted.
    """

    seed: int
    by: str
    flow: Flow
    named: Named | None
    word: str = ""
    shown: bool = False
    lost: tuple[str, ...] = ()
    mends: bool = False
    why: str = ""

    @property
    def is_said_to_be_safe(self) -> bool:
        return self.named is not None and self.named.said == SAFE

    def __str__(self) -> str:
        lost = f": {self.lost[0]} (and {len(self.lost) - 1} more)" if self.lost else ""
        said = f"{self.named.change} ({self.named.said})" if self.named else f"nothing {self.why}"
        mends = ", mends it" if self.mends else ""
        what = self.flow.planted or f"nothing needless; {', '.join(self.flow.needed)}"
        return f"{self.seed} {self.flow.form} {self.by}: {said}: {self.word}{mends} [{what}]{lost}"


def captured(one: Flow, folder: Path) -> tv.Trace:
    """The capture of a program, on one host with good clocks."""
    run, ranks = simulate(one.program), len(one.program.ranks)
    if one.form == "nsys":
        paths = nsys.write_each(run, folder, Clocks(), ["node"] * ranks)
    else:
        paths = kineto.write(run, folder, places=Places(tuple(range(ranks)), ranks, ("node",) * ranks))
    return tv.load([str(path) for path in paths], cache=False)


def fix_of(result: tv.OverlapResult | tv.WhatIf) -> Named | None:
    """The change that an answer names, and its class."""
    return Named(result.fix.change, result.fix.safety) if result.fix is not None else None


def asked(trace: tv.Trace) -> Iterator[tuple[str, Named | None, str]]:
    """Who names what, and why nothing is predicted."""
    result = tv.check_overlap(trace)
    yield BY[0], fix_of(result), result.worth_unknown
    try:
        found = tv.what_if(trace)
        yield BY[1], fix_of(found), found.reason
    except TracevizError as error:
        yield BY[1], None, str(error)


def answers(seed: int, folder: Path) -> list[Answer]:
    """What both commands name of one program."""
    one = flow(seed)
    return [judged(seed, by, one, named, why) for by, named, why in asked(captured(one, folder))]


def judged(seed: int, by: str, one: Flow, named: Named | None, why: str = "") -> Answer:
    if named is None:
        return Answer(seed, by, one, None, why=why)
    verdict = judge(one.program, named.changes, one.whole)
    mends = verdict.word != UNSAFE and any(mended_by(one, change) for change in named.changes)
    return Answer(seed, by, one, named, verdict.word, verdict.shown, verdict.lost, mends)


def mended_by(one: Flow, change: str) -> bool:
    """Whether a change is one for what is planted: it sets free what waits without need, or names the place."""
    verb, _, rest = change.partition(" ")
    if one.planted == "small kernels":
        return verb == "graph" and covers(one, rest)
    if one.planted == "late rank":
        return (verb == "level" and covers(one, rest)) or (verb == "on-time" and rest in ("all", str(one.late)))
    verdict = judge(one.program, [change], one.whole)
    freed = [verdict.frees(rank, pair) for rank, pairs in enumerate(one.pairs) for pair in pairs]
    return bool(freed) and sum(freed) >= HALF * len(freed)


def covers(one: Flow, where: str) -> bool:
    """Whether a selector picks all that is done in the range that a change has to name."""
    picks = selector(where)
    inside = [item for (actions,) in one.program.ranks for item in items_of(actions) if one.where in dict(item.ranges)]
    return bool(inside) and all(picks(item) for item in inside)
