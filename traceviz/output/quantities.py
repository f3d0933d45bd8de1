"""Numbers as people read them; JSON and tables of data keep whole nanoseconds."""

from __future__ import annotations

from analyzers.common.wording import (
    count_of,
    duration,
    error,
    from_to,
    instant,
    part_of,
    percent,
    percent_span,
    size,
    span,
)

__all__ = [
    "count_of",
    "duration",
    "error",
    "from_to",
    "gained_share",
    "instant",
    "listing",
    "part_of",
    "percent",
    "percent_span",
    "size",
    "span",
    "unshown",
]


def gained_share(ratio: float | None) -> str:
    """What was gained of what could be, as a percentage; a loss is nothing gained, however large.

    >>> gained_share(0.404), gained_share(-4.81), gained_share(0.0), gained_share(None), gained_share(18.1)
    ('40.4 %', 'nothing gained', 'nothing gained', '–', '>100 %')
    """
    if ratio is not None and ratio > 1:
        return ">100 %"
    return "nothing gained" if ratio is not None and ratio <= 0 else percent(ratio)


def listing(items: list[str], most: int = 8) -> str:
    """Items with commas, and how many more there are.

    >>> listing(["1", "2", "3"], most=2)
    '1, 2 and 1 more'
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def unshown(count: int, what: str = "more") -> str:
    """A note on how many rows a table leaves out; "" where it has all."""
    return f"… and {count:,} {what} (--format json has all)" if count > 0 else ""
