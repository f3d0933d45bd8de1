"""How processes end: whether one of traceviz answered or broke down, and waiting until others did their part."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Ended = TypeVar("Ended", bound="subprocess.CompletedProcess[Any]")

# Where a stack trace of a command begins. A stack trace of the user's own program, which a command passes on, doesn't.
_OURS = re.compile(r'File ".*\btraceviz/(__main__|cli)\.py"')


def broke_down(errors: str | bytes | None) -> bool:
    """Whether a process of traceviz ended with an exception, by what it wrote to its standard error.

    Its exit code does not tell: Python's for an exception that nobody caught is 1, and so is that of a missed bar.
    """
    text = errors.decode(errors="replace") if isinstance(errors, bytes) else errors or ""
    return _OURS.search(text) is not None


def answered(ran: Ended) -> Ended:
    """What ran, where it ended by itself and not with an exception."""
    assert not broke_down(ran.stderr), ran.stderr
    return ran


PATIENCE_SECONDS = 120


def soon(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true before patience ends."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while not (true := condition()) and time.monotonic() < limit:
        time.sleep(0.05)
    return true


def is_alive(pid: int) -> bool:
    """Whether a process runs: neither gone nor waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
