"""Waiting for what other processes do, however busy the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

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
