"""Durations, ratios and sizes in sentences; figures keep whole nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable

_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))


def duration(ns: int) -> str:
    """A duration with three or four significant digits.

    >>> duration(162_879), duration(0), duration(999), duration(-1_500_000), duration(61_500_000_000)
    ('162.9 µs', '0 ns', '999 ns', '-1.500 ms', '61.50 s')
    """
    if abs(ns) < 1000:
        return f"{ns} ns"
    # The unit and the digits of the number as it will be rounded: 999,999 ns are 1.000 ms, not 1000.0 µs.
    size, unit = next((size, unit) for size, unit in _UNITS if abs(ns) >= size * 0.99995 or size == 10**3)
    value = ns / size
    decimals = 3 if abs(value) < 9.9995 else 2 if abs(value) < 99.995 else 1
    return f"{value:.{decimals}f} {unit}"


def percent(ratio: float | None, *, apparent: bool = False) -> str:
    """A ratio as a percentage with one decimal; a dash where there is none. A part is never shown as all or nothing.

    >>> percent(0.1608), percent(None), percent(0.99999), percent(1.0), percent(0.0001)
    ('16.1%', '–', '99.9%', '100.0%', '<0.1%')
    >>> percent(0.652, apparent=True), percent(None, apparent=True)
    ('65.2% apparent', '–')
    """
    if ratio is None:
        return "–"
    if apparent:
        return f"{percent(ratio)} apparent"
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


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Ranks, those in a row as a span.

    >>> ranks_in_words([2, 0, 1, 5, 1]), ranks_in_words([3])
    ('ranks 0–2, 5', 'rank 3')
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in spans)
    return f"rank {text}" if text.isdigit() else f"ranks {text}"
