"""What comes before what on a rank, and which of that its data need: worked out from its actions alone.

An op comes behind what its stream has been given before, behind the events that its stream was told to wait for, and
behind all that its thread knew to be done when it launched it. A node of a graph comes behind the node before it on its
stream and those that it names, else behind what was on the stream that the graph was launched on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.simulator.machine import Op
from tests.simulator.program import (
    Action,
    Busy,
    Copy,
    Enter,
    Graph,
    Launch,
    Leave,
    Post,
    Program,
    Rank,
    Record,
    Synchronize,
    Take,
    Wait,
)

STEPS = ("step ", "ProfilerStep#")


@dataclass(frozen=True)
class Item:
    """An action with its number on its rank, the ranges around it (their names and where each began), and its place.

    number : of a graph that of its first node; the others follow. where : thread and position in the thread.
    """

    number: int
    action: Action
    ranges: tuple[tuple[str, int], ...] = ()
    where: tuple[int, int] = (0, -1)

    @property
    def step(self) -> int:
        """Where the step began that it is in, -1 outside of steps."""
        return next((began for name, began in self.ranges if name.startswith(STEPS)), -1)

    @property
    def parts(self) -> Iterator[tuple[int, Action]]:
        """Itself, or of a graph its nodes, with their numbers."""
        nodes = [node.op for node in self.action.nodes] if isinstance(self.action, Graph) else [self.action]
        return enumerate(nodes, self.number)


Pair = tuple[int, int]  # numbers of two actions, the one that comes first in the program first


def items_of(rank: Rank) -> list[Item]:
    """All but the ranges themselves, in an order they may come in: a thread goes on until it waits for another."""
    found: list[Item] = []
    left = [list(enumerate(thread)) for thread in rank]
    opened: list[list[tuple[str, int]]] = [[] for _ in rank]
    posted: set[str] = set()
    number = 0
    while any(left):
        before = number
        for thread, actions in enumerate(left):
            while actions and not (isinstance(actions[0][1], Take) and actions[0][1].flag not in posted):
                position, action = actions.pop(0)
                if isinstance(action, Enter):
                    opened[thread].append((action.name, number))
                elif isinstance(action, Leave):
                    opened[thread].pop()
                else:
                    found.append(Item(number, action, tuple(opened[thread]), (thread, position)))
                if isinstance(action, Post):
                    posted.add(action.flag)
                number += len(action.nodes) if isinstance(action, Graph) else 1
        assert number > before, "deadlock"
    return found


def is_op(action: Action) -> bool:
    return isinstance(action, Launch | Copy)


def needed(items: Iterable[Item]) -> list[Pair]:
    """Read after write, write after read and write after write, each with the access right before it.

    Orders are transitive: who keeps these keeps all.
    """
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    found: dict[Pair, None] = {}
    for number, action in (part for item in items for part in item.parts):
        if not isinstance(action, Launch | Copy | Busy):
            continue
        for name in action.reads:
            if name in writer:
                found[writer[name], number] = None
        for name in action.writes:
            before = [*readers.get(name, ()), *([writer[name]] if name in writer else [])]
            found.update(dict.fromkeys((one, number) for one in before if one != number))
        for name in action.reads:
            readers.setdefault(name, []).append(number)
        for name in action.writes:
            writer[name], readers[name] = number, []
    return list(found)


@dataclass
class _Known:
    """What is surely done, a bit for each number: `before` an op or a piece of host work, and `behind` what there was.

    That is ("stream", its number), ("event", its name), ("thread", its number) and ("flag", its name).
    """

    before: dict[int, int] = field(default_factory=dict)
    behind: defaultdict[tuple[str, int | str], int] = field(default_factory=lambda: defaultdict(int))

    def follow(self, item: Item, more: int) -> None:
        """Add an action that waits for `more` besides."""
        action, thread, behind = item.action, ("thread", item.where[0]), self.behind
        if isinstance(action, Launch | Copy | Graph):
            behind["stream", action.stream] = self._launched(
                item, behind["stream", action.stream] | behind[thread] | more
            )
            if isinstance(action, Copy) and action.blocking:
                behind[thread] |= behind["stream", action.stream]
        elif isinstance(action, Busy):
            self.before[item.number] = behind[thread] | more
            behind[thread] |= more | 1 << item.number
        elif isinstance(action, Record):
            behind["event", action.event] = behind["stream", action.stream]
        elif isinstance(action, Wait):
            behind["stream", action.stream] |= behind["event", action.event]
        elif isinstance(action, Post):
            behind["flag", action.flag] = behind[thread]
        elif isinstance(action, Take):
            behind[thread] |= behind["flag", action.flag]
        elif isinstance(action, Synchronize):
            behind[thread] |= self._synchronized(action)
        else:
            raise TypeError(action)

    def _launched(self, item: Item, first: int) -> int:
        """Number an op, or the nodes of a graph; what is done behind all of it."""
        nodes = item.action.nodes if isinstance(item.action, Graph) else ()
        last: dict[int, int] = {}
        for number, node in enumerate(nodes, item.number):
            waits = [
                *([last[node.op.stream]] if node.op.stream in last else []),
                *(item.number + k for k in node.after),
            ]
            self.before[number] = 0 if waits else first
            for one in waits:
                self.before[number] |= self.before[one] | 1 << one
            last[node.op.stream] = number
        if not nodes:
            self.before[item.number] = first
        return first | sum(1 << number for number, _ in item.parts)

    def _synchronized(self, action: Synchronize) -> int:
        """What the host knows to be done behind a call that blocks."""
        if isinstance(action.what, str):
            return self.behind["event", action.what]
        done = 0
        for (kind, stream), bits in self.behind.items():
            done |= bits if kind == "stream" and action.what in (None, stream) else 0
        return done


def orders(items: Iterable[Item], also: Mapping[int, Iterable[int]] | None = None) -> dict[int, int]:
    """Of each op and each piece of host work a bit for every action that is surely done before it begins.

    also : actions that each of some waits for besides: right before it the stream, or the host, is told to.
    """
    known = _Known()
    for item in items:
        more = 0
        for one in (also or {}).get(item.number, ()):
            more |= known.before[one] | 1 << one
        known.follow(item, more)
    return known.before


def comes_before(before: Mapping[int, int], pair: Pair) -> bool:
    return bool(before[pair[1]] >> pair[0] & 1)


def lost(pairs: Iterable[Pair], before: Mapping[int, int]) -> list[Pair]:
    """Those that nothing orders."""
    return [pair for pair in pairs if not comes_before(before, pair)]


class Ordered:
    """Which ops of a program come before which."""

    def __init__(self, program: Program) -> None:
        items = [items_of(rank) for rank in program.ranks]
        self.before = [orders(of_rank) for of_rank in items]
        self.first = [{item.where: item.number for item in of_rank} for of_rank in items]

    def is_before(self, one: Op, other: Op) -> bool:
        """Whether one op of a rank comes before another."""
        pair = self._number(one), self._number(other)
        return comes_before(self.before[one.where[0]], pair)

    def are_free(self, one: Op, other: Op) -> bool:
        """Whether neither of two ops comes before the other."""
        return not (self.is_before(one, other) or self.is_before(other, one))

    def _number(self, op: Op) -> int:
        rank, thread, position, *node = op.where
        return self.first[rank][thread, position] + sum(node)


# Races


def races(program: Program, rank: int = 0) -> bool:
    """Whether a conflict of a rank's data is unordered."""
    items = items_of(program.ranks[rank])
    return bool(lost(needed(items), orders(items)))


def without_action(program: Program, rank: int, thread: int, position: int) -> Program:
    """The program less one action of one rank."""
    ranks = [list(map(list, each)) for each in program.ranks]
    del ranks[rank][thread][position]
    return replace(program, ranks=tuple(tuple(tuple(one) for one in each) for each in ranks))


def needed_waits(program: Program, rank: int = 0) -> list[tuple[int, int]]:
    """Waits (thread, position) without which a conflict is unordered."""
    found = []
    for thread, actions in enumerate(program.ranks[rank]):
        for position, action in enumerate(actions):
            seen = isinstance(action, Wait) and not action.signal
            if seen and races(without_action(program, rank, thread, position), rank):
                found.append((thread, position))
    return found
