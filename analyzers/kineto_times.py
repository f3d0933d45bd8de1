"""Kineto's decimal microseconds to integer nanoseconds, exactly: the digits never pass through a float.

Older traces count from the epoch, where a float64 of microseconds is off by up to 253 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt

from analyzers.trace import Ints, Mask

Bytes = npt.NDArray[np.uint8]
_COMMA, _DOT, _ZERO = b",.0"
MOST_DIGITS = 18  # what any int64 holds
MOST_WHOLE = 16  # digits of microseconds since 1970
BEYOND = 2**62  # ns, the year 2116: leaves room to add and subtract times


def nanoseconds(texts: Sequence[bytes | bytearray | memoryview]) -> Ints:
    """Decimal microseconds as JSON spells them to ns; what is finer than a ns is rounded half up.

    Times beyond +-2^62 ns, such as durations that some profiler let wrap around, become that.

    Raises
    ------
    ValueError : a text is not a finite number.

    >>> nanoseconds([b"4305750259785.413", b"2", b"0.5", b"1e-1"])
    array([4305750259785413,             2000,              500,
                        100])
    """
    if not texts:
        return np.empty(0, np.int64)
    text = np.frombuffer(b",".join(texts) + b",", np.uint8)
    commas = np.flatnonzero(text == _COMMA)
    dots = np.flatnonzero(text == _DOT)
    starts = np.append(0, commas[:-1] + 1)
    whole_end = commas.copy()
    at = np.searchsorted(commas, dots)
    whole_end[at] = dots
    decimals = np.maximum(commas - whole_end - 1, 0)
    plain = not np.any((text < _ZERO) & (text != _COMMA) & (text != _DOT)) and not np.any(text > _ZERO + 9)
    plain = plain and at.size == np.unique(at).size and int(decimals.max()) <= 3
    plain = plain and int((whole_end - starts).min()) > 0 and int((whole_end - starts).max()) <= MOST_WHOLE
    whole = digits(text, starts, whole_end - starts) if plain and commas.size == len(texts) else None
    if whole is None or not in_reach(whole).all():
        return np.array([_exact(bytes(each)) for each in texts], np.int64)
    return whole * 1000 + digits(text, whole_end + 1, decimals) * 10 ** (3 - decimals)


def in_reach(microseconds: Ints) -> Mask:
    """Which counts of whole microseconds are below 2^62 ns."""
    return microseconds < BEYOND // 1000


def digits(text: Bytes, starts: Ints, lengths: Ints) -> Ints:
    """Values of runs of at most 18 decimal digits; an empty run is 0."""
    value = np.zeros(starts.size, np.int64)
    last = text.size - 1
    for place in range(int(lengths.max()) if lengths.size else 0):
        digit = text[np.minimum(starts + place, last)].astype(np.int64) - _ZERO
        value = np.where(place < lengths, value * 10 + digit, value)
    return value


def _exact(text: bytes) -> int:
    try:
        value = int((Decimal(text.decode()) * 1000).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40].decode(errors='replace')!r} is no number") from error
    return max(-BEYOND, min(BEYOND, value))
