"""What comes before what in a rank's program, and which of that its data need: worked out from its actions alone.

A rank here is one host thread and its streams. An op comes behind what its stream has been given before, behind the
events that its stream was told to wait for, and behind all that the host knew to be done when it launched it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulator.program import Action, Busy, Copy, Enter, Launch, Leave, Record, Synchronize, Wait

STEPS = ("step ", "ProfilerStep#")


@dataclass(frozen=True)
class Item:
    """An action with its number in the rank's program, and the ranges around it: their names and where each began."""

    number: int
    action: Action
    ranges: tuple[tuple[str, int], ...] = ()

    @property
    def step(self) -> int:
        """Where the step began that it is in, -1 outside of steps."""
        return next((began for name, began in self.ranges if name.startswith(STEPS)), -1)


Pair = tuple[int, int]  # numbers of two actions, the one that comes first in the program first


def items_of(actions: Sequence[Action]) -> list[Item]:
    """All but the ranges themselves."""
    found: list[Item] = []
    opened: list[tuple[str, int]] = []
    for number, action in enumerate(actions):
        if isinstance(action, Enter):
            opened.append((action.name, number))
        elif isinstance(action, Leave):
            opened.pop()
        else:
            found.append(Item(number, action, tuple(opened)))
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
    for item in items:
        action = item.action
        if not isinstance(action, Launch | Copy | Busy):
            continue
        for name in action.reads:
            if name in writer:
                found[writer[name], item.number] = None
        for name in action.writes:
            before = [*readers.get(name, ()), *([writer[name]] if name in writer else [])]
            found.update(dict.fromkeys((one, item.number) for one in before if one != item.number))
        for name in action.reads:
            readers.setdefault(name, []).append(item.number)
        for name in action.writes:
            writer[name], readers[name] = item.number, []
    return list(found)


def orders(items: Iterable[Item], also: Mapping[int, Iterable[int]] | None = None) -> dict[int, int]:
    """Of each op and each piece of host work a bit for every action that is surely done before it begins.

    also : actions that each of some waits for besides: right before it the stream, or the host, is told to.
    """
    before: dict[int, int] = {}
    streams: dict[int, int] = {}
    events: dict[str, int] = {}
    host = 0
    for item in items:
        action, more = item.action, 0
        for one in (also or {}).get(item.number, ()):
            more |= before[one] | 1 << one
        if isinstance(action, Launch | Copy):
            before[item.number] = streams.get(action.stream, 0) | host | more
            streams[action.stream] = before[item.number] | 1 << item.number
            if isinstance(action, Copy) and action.blocking:
                host |= streams[action.stream]
        elif isinstance(action, Busy):
            before[item.number] = host = host | more
            host |= 1 << item.number
        elif isinstance(action, Record):
            events[action.event] = streams.get(action.stream, 0)
        elif isinstance(action, Wait):
            streams[action.stream] = streams.get(action.stream, 0) | events.get(action.event, 0)
        elif isinstance(action, Synchronize):
            host |= synchronized(action, streams, events)
        else:
            raise TypeError(action)
    return before


def synchronized(action: Synchronize, streams: Mapping[int, int], events: Mapping[str, int]) -> int:
    """What the host knows to be done behind a call that blocks."""
    if isinstance(action.what, str):
        return events.get(action.what, 0)
    found = 0
    for stream, done in streams.items():
        found |= done if action.what in (None, stream) else 0
    return found


def comes_before(before: Mapping[int, int], pair: Pair) -> bool:
    return bool(before[pair[1]] >> pair[0] & 1)


def lost(pairs: Iterable[Pair], before: Mapping[int, int]) -> list[Pair]:
    """Those that nothing orders."""
    return [pair for pair in pairs if not comes_before(before, pair)]
