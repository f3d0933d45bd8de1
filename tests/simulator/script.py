"""Writes what a rank's threads do, action by action."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulator.program import Action, Enter, Leave, Post, Rank, Record, Take, Wait


def within(name: str, *actions: Action) -> list[Action]:
    """Actions in a range."""
    return [Enter(name), *actions, Leave()]


def ordered(before: int, after: int, event: str = "") -> list[Action]:
    """A stream waits for another, as torch's `wait_stream` does."""
    event = event or f"{before}"
    return [Record(event, before), Wait(event, after)]


@dataclass
class Script:
    """One rank's threads; they may take turns, each handing over to the next."""

    threads: list[list[Action]] = field(default_factory=lambda: [[]])
    at: int = 0
    events: int = 0
    flags: int = 0

    @property
    def rank(self) -> Rank:
        """All threads that do something."""
        return tuple(tuple(thread) for thread in self.threads if thread)

    def do(self, *actions: Action) -> None:
        self.threads[self.at] += actions

    @contextmanager
    def range(self, name: str, *, marked: bool = True) -> Iterator[None]:
        """What is done here is in a range, where it is marked at all."""
        if marked:
            self.do(Enter(name))
        yield
        if marked:
            self.do(Leave())

    def hand_over(self, thread: int) -> None:
        """Go on in another thread, which waits for this one."""
        self.flags += 1
        self.do(Post(f"{self.flags}"))
        while len(self.threads) <= thread:
            self.threads.append([])
        self.at = thread
        self.do(Take(f"{self.flags}"))

    def wait_stream(self, after: int, before: int) -> None:
        """As torch does: an event is recorded when it is needed."""
        self.events += 1
        self.do(*ordered(before, after, f"{self.events}"))
