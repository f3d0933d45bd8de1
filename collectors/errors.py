"""What can go wrong for a user who collects."""

from __future__ import annotations

import sys


class CollectError(Exception):
    """A collection can't start, or left nothing usable.

    Parameters
    ----------
    message : what was wrong, in one line.
    hint : what to do next.
    exit_code : what a command ends with; 2 is bad usage, 3 is a run that left no usable capture.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


def need_linux() -> None:
    """Say so where this is not Linux, whose /proc and signals tell a command's processes apart.

    Raises
    ------
    CollectError : this is another system.
    """
    if sys.platform != "linux":
        raise CollectError("collecting needs Linux.", hint="Collect there; captures can be looked at here.")
