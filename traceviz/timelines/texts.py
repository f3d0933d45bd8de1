"""Texts of a picture, each kept once, and made harmless: names come from other people's traces."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.trace.kernels import function
from traceviz.output.document import plain

_UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s)\b)")

LONGEST = 160  # letters of a name in a hover text
SHORT = 40  # letters of a name on a mark
LEAST = 5  # a name cut to fewer letters than these says nothing


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
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


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


def micros(ns: int) -> str:
    """A length in µs, with three digits at least.

    >>> micros(162_879), micros(15_271_400), micros(4_210), micros(84_260), micros(0)
    ('163 µs', '15,271 µs', '4.21 µs', '84.3 µs', '0 µs')
    """
    decimals = 0 if abs(ns) >= 99_950 or not ns else 1 if abs(ns) >= 9_995 else 2
    return f"{ns / 1000:,.{decimals}f} µs"


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
    known = {"overlap": overlap, "overlap-wait": "A and B overlap, but one of them only waits"}
    return known.get(role, "")


def wrapped(text: str, width: int = 100) -> list[str]:
    """A text in lines that a hover text can hold; none breaks between a number and its unit.

    >>> wrapped("ran for 16 %, bar 60 %", 20)
    ['ran for 16 %, bar', '60 %']
    """
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(_UNIT.sub("\u00a0", text), width)] if text else []
