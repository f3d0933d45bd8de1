"""Kineto's decimal microseconds to integer nanoseconds, exactly: the digits never pass through a float.

Older traces count from the epoch, where a float64 of microseconds is off by up to 253 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt

from analyzers.arrays.types import Ints

Bytes = npt.NDArray[np.uint8]
MOST_DIGITS = 18  # what any int64 holds
MOST_WHOLE, MOST_DECIMALS = 16, 3  # digits of microseconds since 1970
_WORD = 8  # letters in 64 bits
_LAST_DIGITS = np.array([0x0F0F0F0F0F0F0F0F >> 8 * n << 8 * n for n in range(_WORD + 1)][::-1], np.uint64)
BEYOND = 2**62  # ns, the year 2116: leaves room to add and subtract times
REACH = BEYOND // 1000 * 1000  # ns; times of as many microseconds or more are read one by one


def nanoseconds(texts: Sequence[bytes | bytearray | memoryview]) -> Ints:
    """Decimal microseconds as JSON spells them to ns; what is finer than a ns is rounded half up.

    Times beyond +-2^62 ns, such as durations that some profiler let wrap around, become that.

    Raises
    ------
    ValueError : a text is not a finite number.

    >>> nanoseconds([b"4305750259785.413", b"2", b'"0.5"', b"1e-1"]).tolist()  # some tools write values as strings
    [4305750259785413, 2000, 500, 100]
    """
    return np.array([_exact(bytes(each).strip(b'"')) for each in texts], np.int64)


def digits(text: Bytes, starts: Ints, lengths: Ints, decimals: int = 0) -> Ints:
    """Values of runs of at most 18 decimal digits; an empty run is 0. Of 19 digits int64 keeps the lowest 64 bits.

    They are read eight letters at a time, from the last on: what stands before a run's first digit counts as zeros.

    Parameters
    ----------
    decimals : how many stand behind each run's point, 0 for no point: 12.345 is 12345. `lengths` count the point.
    """
    if not lengths.size:
        return np.empty(0, np.int64)
    words = max(1, -(-int(lengths.max()) // _WORD))
    width, ends = words * _WORD, starts + lengths
    if int(ends.min()) < width:  # the zeros before the first run would begin before the text
        text, ends = np.append(np.zeros(width, np.uint8), text), ends + width
    windows = np.ndarray(text.size - width + 1, f"V{width}", text, strides=1)  # one at each byte
    last, *others = windows[ends - width].view("<u8").reshape(-1, words).T[::-1]
    if decimals:
        last = last & ~np.uint64(0xFF << 8 * (_WORD - 1 - decimals))
    value = _eight_digits(last, np.minimum(lengths, _WORD))
    if decimals:  # 12.345 was read as 120345
        value -= value // 10 ** (decimals + 1) * (9 * 10**decimals)
    for word, letters in enumerate(others, 1):
        count = np.clip(lengths - word * _WORD, 0, _WORD)
        value += _eight_digits(letters, count) * 10 ** (word * _WORD - bool(decimals))
    return value


def _eight_digits(letters: npt.NDArray[np.uint64], count: Ints) -> Ints:
    """Values of the last `count` of each eight letters.

    Neighbours are added up as pairs, fours and eights, all of a word at once: 1 2 3 4 5 6 7 8 (the first letter is the
    lowest byte), 12 34 56 78, 1234 5678, 12345678.
    """
    value = (letters & _LAST_DIGITS[count]) * (10 * 2**8 + 1) >> 8
    value = (value & 0x00FF00FF00FF00FF) * (100 * 2**16 + 1) >> 16
    value = (value & 0x0000FFFF0000FFFF) * (10000 * 2**32 + 1) >> 32
    return value.view(np.int64)


def _exact(text: bytes) -> int:
    whole, _, part = text.partition(b".")
    if whole.isdigit() and len(part) <= MOST_DECIMALS and part.isdigit():
        return min(BEYOND, int(whole) * 1000 + int(part.ljust(MOST_DECIMALS, b"0")))
    try:
        value = int((Decimal(text.decode()) * 1000).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40].decode(errors='replace')!r} is no number") from error
    return max(-BEYOND, min(BEYOND, value))
