"""Real overlap of each step on one device, and that of the median step, for which the device speaks.

A step's ratio is its real overlap over the shorter side's busy time in it, waits left out; steps in which a side is
empty have none. The median is one of the steps: of four the second lowest. Clocks, and waits that are not seen, leave
each step's ratio a range; the median lies between the median of the lows and that of the highs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import astuple

from analyzers.arrays.groups import distinct
from analyzers.arrays.intervals import overlap_by_group
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.records import Record
from analyzers.trace.columns import ints_at
from analyzers.trace.schemas import WAIT_RANGE
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.tables import Trace

LEAST_APART = 0.01  # of a ratio: nearer is not far


class PerStep(Record, frozen=True, eq=False):
    """Steps of one device in which both sides are busy, ascending, as columns.

    numbers : the steps'. overlap_ns : plain overlap; real_ns, could_ns : real overlap, and the shorter side's busy time
        without waits, ns.
    low, high : between these the ratio lies as clocks are known and waits are seen; apparent_low, apparent_high : if
        what is not seen of waits was none.
    """

    numbers: Ints
    overlap_ns: Ints
    real_ns: Ints
    could_ns: Ints
    low: Floats
    high: Floats
    apparent_low: Floats
    apparent_high: Floats

    @property
    def ratio(self) -> Floats:
        """Real overlap / the shorter side's busy time of each step."""
        return np.asarray(self.real_ns / self.could_ns)

    @property
    def median(self) -> int:
        """The row of the step with the median ratio."""
        return median_row(self.ratio)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerStep) and all(map(np.array_equal, *(astuple(one) for one in (self, other))))

    def __hash__(self) -> int:
        return hash(self.numbers.tobytes())

    def far(self, times: float) -> dict[int, float]:
        """Ratios of steps that are farther from the median's than so many times the median distance, by number."""
        apart = np.abs(self.ratio - self.ratio[self.median])
        rows = np.flatnonzero(apart > max(times * float(np.median(apart)), LEAST_APART))
        return dict(zip(self.numbers[rows].tolist(), self.ratio[rows].tolist(), strict=True))


def median_row(values: Floats) -> int:
    """The row of the middle value; of an even number the lower of the two."""
    return int(np.argsort(values, kind="stable")[(values.size - 1) // 2])


def lower_median(values: Floats) -> float:
    """The middle of some values; of an even number the lower of the two.

    >>> lower_median(np.array([4.0, 1.0, 3.0, 2.0]))
    2.0
    """
    return float(np.sort(values)[(values.size - 1) // 2])


def per_step(trace: Trace, a: Ints, b: Ints, absent: Mask) -> PerStep | None:
    """Measure every step in which ops of both sides, rows of one device, were launched; None where there is none.

    Parameters
    ----------
    absent : ops that may have waited to their end, for peers that were not captured.
    """
    number = numbers_of_ops(trace)
    numbers = distinct(number[np.concatenate([a, b])])
    numbers = numbers[numbers >= 0].astype(np.int64)
    sides = [rows[number[rows] >= 0] for rows in (a, b)]
    if not all(rows.size for rows in sides):
        return None
    groups = [np.searchsorted(numbers, number[rows]) for rows in sides]

    def measured(wait_of_a: str, wait_of_b: str) -> tuple[Ints, Ints, Ints]:
        running = [
            _running(trace, rows, group, wait, absent)
            for rows, group, wait in zip(sides, groups, (wait_of_a, wait_of_b), strict=True)
        ]
        found = overlap_by_group(running[0], running[1], numbers.size)
        return found.a, found.b, found.both

    busy_a, busy_b, both = measured("wait_ns", "wait_ns")
    plain = measured("", "")[2]
    could = np.minimum(busy_a, busy_b)
    kept = np.flatnonzero(could > 0)
    if not kept.size:
        return None
    ratio, rows = both[kept] / could[kept], np.concatenate(sides)
    wait, least, most = (ints_at(trace.ops, column, rows) for column in ("wait_ns", *WAIT_RANGE))
    is_exact = np.array_equal(least, wait) and np.array_equal(most, wait)
    apparent = (ratio, ratio) if is_exact else _ratios(measured, "wait_low_ns", "wait_high_ns", kept)
    seen = _ratios(measured, "wait_low_ns", "absent", kept) if absent[rows].any() else apparent
    low, high, apparent_low, apparent_high = *seen, *apparent
    return PerStep(
        numbers[kept],
        plain[kept],
        both[kept],
        could[kept],
        np.minimum(low, ratio),
        np.maximum(high, ratio),
        np.minimum(apparent_low, ratio),
        np.maximum(apparent_high, ratio),
    )


def _running(trace: Trace, rows: Ints, group: Ints, wait: str, absent: Mask) -> tuple[Ints, Ints, Ints]:
    """When some ops run, by their step, with waits as a column has them.

    Without a column they count as running; "absent" is the longest that they may be.
    """
    starts, ends = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns"))
    if not wait:
        return starts, ends, group
    waits = ints_at(trace.ops, "wait_high_ns" if wait == "absent" else wait, rows)
    if wait == "absent":
        waits = np.where(absent[rows], ends - starts, waits)
    return starts + waits, ends, group


def _ratios(
    measured: Callable[[str, str], tuple[Ints, Ints, Ints]], least: str, most: str, kept: Ints
) -> tuple[Floats, Floats]:
    """The least and most that the ratio of some steps can be; as `analyzers.overlap.certainty` bounds them."""
    met = {(i, j): measured(*waits) for (i, j), waits in _combined(least, most).items()}
    least_ns, most_ns = met[1, 1][2], met[0, 0][2]
    least_alone = np.minimum(met[1, 0][0] - met[1, 0][2], met[0, 1][1] - met[0, 1][2])
    most_alone = np.minimum(met[0, 1][0] - met[0, 1][2], met[1, 0][1] - met[1, 0][2])
    return _part(least_ns, most_alone)[kept], _part(most_ns, least_alone)[kept]


def _combined(least: str, most: str) -> dict[tuple[int, int], tuple[str, str]]:
    """The waits of both sides: of each the least (0) and the most (1)."""
    waits = (least, most)
    return {(i, j): (waits[i], waits[j]) for i in (0, 1) for j in (0, 1)}


def _part(overlap: Ints, alone: Ints) -> Floats:
    return np.where(overlap > 0, overlap / np.maximum(overlap + alone, 1), 0.0)
