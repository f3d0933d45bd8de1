"""Memory that a step of the work no longer needs."""

from __future__ import annotations

import contextlib
import ctypes


def give_back_freed() -> None:
    """Give the system what was freed: glibc keeps what was freed in pieces, and the next peak would add to it."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library, or another system
        ctypes.CDLL(None).malloc_trim(0)
