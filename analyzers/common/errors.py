"""The errors and warnings a user can meet."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.records import Record


class TracevizError(Exception):
    """Something is wrong with what the user gave: says what, where, and what to do next.

    Parameters
    ----------
    message : what was wrong, in one line.
    path : the file it was found in.
    hint : what to do next.
    exit_code : what a command ends with; 2 is bad input or usage.
    """

    def __init__(
        self, message: str, *, path: str | Path | None = None, hint: str | None = None, exit_code: int = 2
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else str(path)
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class TraceWarning(Record, frozen=True):
    """Something the reader of a result must know; `code` is stable, `message` is for people."""

    code: str
    message: str
