"""Texts of a picture, each kept once, and made harmless: names come from other people's traces."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.trace.kernels import function
from traceviz.output.document import plain

_UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s)\b)")

MAX_NAME_LETTERS = 160  # letters of a name in a hover text
SHORT = 40  # letters of a name on a mark
MIN_NAME_LETTERS = 5  # a name cut to fewer letters than these says nothing


class Texts:
    """Numbers texts; `lines` holds each, in order of its number."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    @property
    def lines(self) -> list[str]:
        """All texts."""
        return list(self._number)

    def number(self, text: str) -> int:
        """The number of a text."""
        return self._number.setdefault(text, len(self._number))

    def numbers(self, codes: np.ndarray[Any, Any], texts: Sequence[str]) -> Ints:
        """The number of each row's text, of a categorical column's codes; -1 where it has none."""
        used = np.unique(codes)
        table = np.full(len(texts) + 1, -1, np.int64)
        for code in used[used >= 0].tolist():
            table[code] = self.number(texts[code])
        found: Ints = table[codes]
        return found


def safe(text: str) -> str:
    """A text that plotly shows as it is: it takes some HTML for markup.

    >>> safe("<b>a</b> & b")
    '&lt;b&gt;a&lt;/b&gt; &amp; b'
    """
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def long(name: str) -> str:
    """A name for a hover text."""
    return name if len(name) <= MAX_NAME_LETTERS else name[: MAX_NAME_LETTERS - 1] + "…"


def short(name: str) -> str:
    """The part of a kernel's or call's name that tells most, for a mark.

    >>> short("void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float>(float*)")
    'EmbeddingBag_updateOutputKernel_sum_mean'
    >>> short("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    'SendRecv'
    """
    last = (function(name).rpartition("::")[2] or name).removeprefix("ncclDevKernel_").removeprefix("ncclKernel_")
    return last if len(last) <= SHORT else last[: SHORT - 1] + "…"


def full(name: str) -> str:
    """A kernel's or call's name for a hover text: its function, not its C++ signature.

    >>> full("void at::native::(anonymous namespace)::copy<float, 4>(float*, int)")
    'at::native::copy'
    """
    return long(function(name) or name)


class Unit(Record, frozen=True):
    """The unit of an axis, its hover texts and lengths on its marks: how many ns it is, and the decimals of 1 ns."""

    name: str
    ns: int
    decimals: int


MS, US = Unit("ms", 1_000_000, 6), Unit("µs", 1_000, 3)


def unit_of(span_ns: int) -> Unit:
    """The unit in which so long a part of an axis is told.

    >>> unit_of(15_000_000).name, unit_of(999_999).name
    ('ms', 'µs')
    """
    return MS if span_ns >= MS.ns else US


def amount(ns: int, unit: Unit) -> str:
    """A length with three digits at least.

    >>> amount(162_879, US), amount(4_210, US), amount(15_271_400, MS), amount(84_260, MS), amount(0, MS)
    ('163 µs', '4.21 µs', '15.3 ms', '0.0843 ms', '0 ms')
    """
    decimals, value = 0, abs(ns) / unit.ns
    while ns and decimals < unit.decimals and value * 10**decimals < 99.95:
        decimals += 1
    return f"{ns / unit.ns:,.{decimals}f} {unit.name}"


def instant(ns: int, unit: Unit) -> str:
    """A time, to the nanosecond.

    >>> instant(128_203_412, MS), instant(-4_100, US)
    ('128.203412 ms', '-4.100 µs')
    """
    return f"{ns / unit.ns:,.{unit.decimals}f} {unit.name}"


def ticks(low: int, high: int, most: int) -> list[tuple[int, str]]:
    """Where an axis has its ticks, ns, and what they say: all in one unit and with as many digits as they need.

    >>> ticks(0, 15_000_000, 4)
    [(0, '0 ms'), (5000000, '5 ms'), (10000000, '10 ms'), (15000000, '15 ms')]
    >>> ticks(1_999_950, 2_000_120, 4)
    [(1999950, '1,999.95 µs'), (2000000, '2,000.00 µs'), (2000050, '2,000.05 µs'), (2000100, '2,000.10 µs')]
    """
    unit, step = unit_of(high - low), 1
    for step in (first * 10**zeros for zeros in range(18) for first in (1, 2, 5)):
        if (high - low) // step <= most:
            break
    decimals = next(digits for digits in range(unit.decimals + 1) if step * 10**digits % unit.ns == 0)
    first = -(-low // step) * step
    return [(at, f"{at / unit.ns:,.{decimals}f} {unit.name}") for at in range(first, high + 1, step)]


def side_name(selector: str) -> str:
    """A selector as one says it: ranges by their name.

    >>> side_name("nvtx:DP Embedding"), side_name("comm"), side_name("nvtx:a+comm")
    ('DP Embedding', 'comm', 'nvtx:a+comm')
    """
    name = selector.removeprefix("nvtx:")
    return selector if set(name) & set(",+!:~") else name


def fixed_name(role: str, *, apparent: bool) -> str:
    """What marks of a role are called that have no name of their own; "" for the others.

    Parameters
    ----------
    apparent : whether overlap may be waiting for ranks that were not captured.
    """
    overlap = "A and B overlap, apparently" if apparent else "A and B really overlap"
    known = {"overlap": overlap, "overlap-wait": "A and B overlap, but one of them is only waiting"}
    return known.get(role, "")


def wrapped(text: str, width: int = 100) -> list[str]:
    """A text in lines that a hover text can hold; none breaks between a number and its unit.

    >>> wrapped("ran for 16 %, bar 60 %", 20)
    ['ran for 16 %, bar', '60 %']
    """
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(_UNIT.sub("\u00a0", text), width)] if text else []
