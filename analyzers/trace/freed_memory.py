"""Memory for columns of millions of rows, kept for the next column instead of given back and cleared anew.

glibc returns blocks above 32 MB to the system as each is freed, and the end of its heap whenever twice as much is free
there; the system then clears every page of the next one. Where columns come and go by the hundred that takes as long as
the work itself.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from analyzers.trace.tables import Trace

MANY = 200_000  # rows from which on a few dozen columns come near that
LARGE = 1_000_000  # rows from which on what a step leaves in pieces too small for the next one counts at the peak
# glibc's malloc.h and mallopt(3)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_LARGEST_THRESHOLD = 32 << 20  # as far as glibc raises it by itself
_MMAP_BLOCKS = 65536

_kept = False  # whether a block is open; the allocator is the whole process's

P = ParamSpec("P")
R = TypeVar("R")


def give_back_freed_memory(rows: int, least: int = MANY) -> None:
    """Give back to the system what was freed so far, where columns have `least` rows.

    The next step has its pages cleared anew, which takes as long as much of the step: within an analysis that is worth
    it from `LARGE` on.
    """
    libc = _glibc() if rows >= least else None
    if libc is not None:
        libc.malloc_trim(0)


@contextmanager
def freed_memory_kept(rows: int) -> Iterator[None]:
    """Keep what is freed inside for what comes next, if columns have `MANY` rows; at the end give it back.

    Within another such block nothing changes: the outer one keeps it.
    """
    global _kept
    libc = _glibc() if rows >= MANY and not _kept else None
    if libc is None:
        yield
        return
    _kept = True
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        _kept = False
        libc.mallopt(_MMAP_MAX, _MMAP_BLOCKS)
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
        libc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD)
        libc.malloc_trim(0)


def keeping_freed_memory(function: Callable[Concatenate[Trace, P], R]) -> Callable[Concatenate[Trace, P], R]:
    """Decorate a function of a trace, whose columns are as long as the trace's ops."""

    @functools.wraps(function)
    def wrapper(trace: Trace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with freed_memory_kept(len((trace.whole or trace).ops)):
            return function(trace, *args, **kwargs)

    return wrapper


@functools.cache
def _glibc() -> Any:
    """The C library, where it is glibc; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if all(hasattr(libc, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")) else None
