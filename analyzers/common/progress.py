"""How an analysis tells whoever runs it how far it is, without printing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

NOTE_SEPARATOR = " · "  # in what is being done: what follows it may change, and is still the same work


class Progress(Protocol):
    """Called with what is being done, how much of it is done, and how much there is (same unit; 0 = unknown)."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report one step."""


def silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""


class Overall:
    """One progress over several files that says how many of them are done.

    Parameters
    ----------
    sizes : of each file.
    bytes : whether sizes are bytes worth showing.
    """

    def __init__(self, progress: Progress, what: str, sizes: Sequence[int], *, bytes: bool = True) -> None:
        self.progress, self.what, self.sizes, self.bytes = progress, what, list(sizes), bytes
        self.total = sum(sizes)
        self.done = [0] * len(self.sizes)
        self.read, self.finished = 0, self.sizes.count(0)

    def update(self, i: int, done: int, total: int) -> None:
        """Say how far one file is; progress of a file that begins anew does not go back."""
        more = self.sizes[i] * min(done, total) // total - self.done[i] if total > 0 else 0
        if more > 0:
            self.done[i] += more
            self.read += more
            self.finished += self.done[i] == self.sizes[i]
        state = f"{self.finished} of {len(self.sizes)}"
        if self.bytes:
            state += f"{NOTE_SEPARATOR}{self.read / 1e9:.2f} of {self.total / 1e9:.2f} GB"
        self.progress(f"{self.what}{NOTE_SEPARATOR}{state}", self.read, self.total)
