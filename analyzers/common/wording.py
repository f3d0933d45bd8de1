"""Durations, ratios and sizes in sentences; figures keep whole nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))
MIN_MEDIAN_IN_UNITS = 0.1  # of a unit, that the median of a table's times has to reach


class Times(str):
    """A text with times in it, which a table can say in the unit of its other times (`in_one_unit`).

    form : the text, with {} for each time, and {unit}.
    """

    ns: tuple[int, ...]
    form: str

    def __new__(cls, form: str, *ns: int) -> Times:
        """Say it in the unit of the longest time, with three significant digits."""
        longest = max(map(abs, ns))
        size, unit = _unit_of(longest)
        found = super().__new__(cls, form.format(*(_digits(one, size, longest) for one in ns), unit=unit))
        found.ns, found.form = ns, form
        return found


def duration(ns: int) -> Times:
    """A duration with three significant digits.

    >>> print(duration(162_879), duration(0), duration(999), duration(-1_500_000), duration(61_540_000_000))
    163 µs 0 ns 999 ns -1.50 ms 61.5 s
    """
    return Times("{} {unit}", ns)


def error(ns: int) -> Times:
    """How far a time may be off, either way.

    >>> print(error(49_000))
    ± 49.0 µs
    """
    return Times("± {} {unit}", ns)


def part_of(part: int, whole: int, between: str = "of") -> Times:
    """A time and what it is part of, in one unit.

    >>> print(part_of(161_600, 1_012_000), part_of(0, 986_600), part_of(498, 851_000, "of the"), sep="; ")
    0.16 of 1.01 ms; 0 of 987 µs; <1 of the 851 µs
    """
    return Times(f"{{}} {between} {{}} {{unit}}", part, whole)


def in_unit_of(ns: int, longer: int) -> str:
    """A time in the unit of a longer one that stands near it.

    >>> in_unit_of(18_200, 12_400_000), in_unit_of(3_400_000, 12_400_000), in_unit_of(400, 12_400_000)
    ('0.02 ms', '3.40 ms', '<0.01 ms')
    """
    size, unit = _unit_of(longer)
    return f"{_digits(ns, size, max(ns, size))} {unit}"


def span(low: int, high: int) -> Times:
    """From one time to another, in one unit.

    >>> print(span(170_200, 1_439_300), span(-20_000, 40_000), span(5, 5), sep="; ")
    0.17–1.44 ms; -20.0 to 40.0 µs; 5 ns
    """
    if low == high:
        return duration(low)
    return Times("{} to {} {unit}" if low < 0 else "{}–{} {unit}", low, high)


def from_to(before: int, after: int) -> Times:
    """A time and what it became, in one unit.

    >>> print(from_to(1_000_000, 877_000), from_to(4_780_000, 4_000_000), sep="; ")
    1.00 → 0.88 ms; 4.78 → 4.00 ms
    """
    return Times("{} → {} {unit}", before, after)


def instant(ns: int) -> str:
    """When, to the microsecond, so that it can be found in a timeline.

    >>> instant(2_875_123), instant(12_345_678_901)
    ('2.875 ms', '12,345.679 ms')
    """
    return f"{ns / 10**6:,.3f} ms"


def in_one_unit(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows of a table with its times in one unit: that of the longest, if half of them reach a tenth of it.

    All have the decimals that give the median three significant digits.

    >>> in_one_unit([["a", duration(1_012_000)], ["b", duration(161_600)], ["c", span(0, 6_352)]])
    [['a', '1.012 ms'], ['b', '0.162 ms'], ['c', '0–0.006 ms']]
    """
    found = sorted(abs(ns) for row in rows for cell in row if isinstance(cell, Times) for ns in cell.ns if ns)
    if not found:
        return [[*row] for row in rows]
    median, longest = found[(len(found) - 1) // 2], found[-1]
    most, _ = _unit_of(longest)
    size, unit = next(
        (each for each in _UNITS if each[0] <= most and median >= each[0] * MIN_MEDIAN_IN_UNITS), _UNITS[-1]
    )
    decimals = _below(median / size, (1, 10, 100)) if size > 1 else 0

    def text(cell: str) -> str:
        if not isinstance(cell, Times):
            return cell
        return cell.form.format(*(_with_decimals(ns / size, decimals) for ns in cell.ns), unit=unit)

    return [[text(cell) for cell in row] for row in rows]


def _unit_of(longest: int) -> tuple[int, str]:
    """The unit of a number as it will be rounded: 999,900 ns are 1.00 ms, not 1000 µs."""
    return next((each for each in _UNITS if longest >= each[0] * 0.9995), _UNITS[-1])


def _digits(ns: int, size: int, like: int) -> str:
    """A time in a unit, with the decimals that give another one three significant digits."""
    return _with_decimals(ns / size, _below(like / size, (9.995, 99.95)) if size > 1 else 0)


def _with_decimals(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    if not value:
        return "0"
    return text if float(text.replace(",", "")) else f"<{10**-decimals:.{decimals}f}"


def _below(value: float, steps: Sequence[float]) -> int:
    return sum(value < step for step in steps)


def percent(ratio: float | None, *, apparent: bool = False, signed: bool = False) -> str:
    """A ratio as a percentage with three significant digits at most; a dash where there is none.

    A part is never shown as all or nothing.

    >>> percent(0.1608), percent(0.16), percent(None), percent(0.99999), percent(1.0), percent(0.0001)
    ('16.1 %', '16 %', '–', '99.9 %', '100 %', '<0.1 %')
    >>> percent(0.652, apparent=True), percent(None, apparent=True), percent(0.05, signed=True), percent(-0.2)
    ('65.2 % apparent', '–', '+5 %', '-20 %')
    """
    if ratio is None:
        return "–"
    if apparent:
        return f"{percent(ratio)} apparent"
    if 0 < abs(ratio) < 0.0005:
        return "±0 %" if signed else "<0.1 %"
    shown = f"{100 * ratio:{'+' if signed else ''}.1f}".removesuffix(".0")
    return "99.9 %" if shown == "100" and ratio < 1 else f"{shown} %"


def percent_span(low: float | None, high: float | None) -> str:
    """From one ratio to another.

    >>> percent_span(0.224, 1.0), percent_span(0.0, 0.4), percent_span(0.4, 0.40001)
    ('22.4–100 %', '0–40 %', '40 %')
    """
    if low is None or high is None or percent(low) == percent(high):
        return percent(low)
    return f"{percent(low).removesuffix(' %')}–{percent(high)}"


def count_of(count: int, noun: str) -> str:
    """So many of something.

    >>> count_of(1, "step"), count_of(1_200, "copy"), count_of(0, "rank")
    ('1 step', '1,200 copies', '0 ranks')
    """
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def shortened(text: str, most: int) -> str:
    """A text of so many letters at most.

    >>> shortened("a long name", 6)
    'a lon…'
    """
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


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


def stream_word(runtime: str) -> str:
    """What people of a runtime call a stream of work on a device.

    >>> stream_word("CUDA"), stream_word("HIP"), stream_word("SYCL")
    ('stream', 'stream', 'queue')
    """
    return "queue" if runtime == "SYCL" else "stream"


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Ranks, those in a row as a span.

    >>> ranks_in_words([2, 0, 1, 5, 1]), ranks_in_words([3])
    ('ranks 0–2, 5', 'rank 3')
    """
    return numbers_in_words(ranks, "rank")


def numbers_in_words(numbers: Iterable[int], noun: str) -> str:
    """Numbers of something, those in a row as a span.

    >>> numbers_in_words([2042, 2064], "Process"), numbers_in_words([3], "step")
    ('Processes 2042, 2064', 'step 3')
    """
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in spans)
    return f"{noun} {text}" if text.isdigit() else f"{_plural(noun)} {text}"


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
