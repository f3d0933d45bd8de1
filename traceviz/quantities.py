"""Numbers as people read them; JSON and tables of data keep whole nanoseconds."""

from __future__ import annotations

from analyzers.durations import duration

__all__ = ["duration", "listing", "percent", "size"]


def percent(ratio: float | None) -> str:
    """A ratio as a percentage with one decimal; a dash where there is none. A part is never shown as all or nothing.

    >>> percent(0.1608), percent(None), percent(0.99999), percent(1.0), percent(0.0001)
    ('16.1%', '–', '99.9%', '100.0%', '<0.1%')
    """
    if ratio is None:
        return "–"
    if 0 < ratio < 0.0005:
        return "<0.1%"
    shown = f"{ratio:.1%}"
    return "99.9%" if shown == "100.0%" and ratio < 1 else shown


def size(count: int) -> str:
    """A number of bytes, in powers of 1024.

    >>> size(8_388_608), size(100), size(1536)
    ('8.0 MiB', '100 B', '1.5 KiB')
    """
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def listing(items: list[str], most: int = 8) -> str:
    """Items with commas, and how many more there are.

    >>> listing(["1", "2", "3"], most=2)
    '1, 2 and 1 more'
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
