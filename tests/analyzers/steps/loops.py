"""Training loops as programs mark them, or not: a line a launch, written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank

OPTIMIZER = "Optimizer.step#Adam.step"
Launches = Sequence[str]  # names of kernels, launched one after the other, each 10 ns


class Loop:
    """One rank's host: time goes on with each launch."""

    def __init__(self, rank: Rank, at: int = 0) -> None:
        self.rank, self.now = rank, at

    def launch(self, names: Iterable[str], thread: int | None = None) -> Loop:
        """Launch kernels, one each 10 ns; each runs right after its call."""
        for name in names:
            at = self.now
            self.rank.kernel(name, 7, at + 2, at + 9, launch=(at, at + 1), thread=thread)
            self.now += 10
        return self

    def range(self, name: str, names: Iterable[str], thread: int | None = None) -> Loop:
        """Launch kernels within a range."""
        begin = self.now
        self.launch(names, thread)
        self.rank.range(name, begin, self.now - 5, kind="annotation", thread=thread)
        return self


def one_loop(at: int = 0) -> tuple[Builder, Loop]:
    """A run of one rank."""
    run = Builder()
    return run, Loop(run.rank(0), at)


def trained(steps: int, *, at: int = 0, head: Launches = (), tail: Launches = ()) -> Trace:
    """One rank that trains for some steps, each a forward, a backward and an optimizer's step; 50 ns each."""
    run, loop = one_loop(at)
    loop.launch(head)
    for _ in range(steps):
        loop.launch(["forward", "loss", "backward"]).range(OPTIMIZER, ["adam", "norm"])
    loop.launch(tail)
    return run.trace()
