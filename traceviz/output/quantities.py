"""Numbers as people read them; JSON and tables of data keep whole nanoseconds."""

from __future__ import annotations

from analyzers.common.wording import duration, percent, size

__all__ = ["duration", "listing", "percent", "size"]


def listing(items: list[str], most: int = 8) -> str:
    """Items with commas, and how many more there are.

    >>> listing(["1", "2", "3"], most=2)
    '1, 2 and 1 more'
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
