"""How an analysis tells whoever runs it how far it is, without printing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done, how much of it is done, and how much there is (same unit; 0 = unknown)."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report one step."""


def silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""
