"""Real overlap of each step on one device, and that of the median step, for which the device speaks.

A step's ratio is how much of its shorter side's busy time, waits left out, lies beside the other side of whatever
step: GPUs run behind their hosts, and work launched in one step meets that of the next. Steps in which a side is empty
have none. The median is one of the steps: of four the second lowest. Clocks, and waits that are not seen, leave
each step's ratio a range; the median lies between the median of the lows and that of the highs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import astuple

from analyzers.arrays.groups import distinct
from analyzers.arrays.intervals import coverage, union, unions_by_group
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.records import Record
from analyzers.trace.columns import ints_at
from analyzers.trace.schemas import WAIT_RANGE
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.tables import Trace

LEAST_APART = 0.01  # of a ratio: nearer is not far


class PerStep(Record, frozen=True, eq=False):
    """Steps of one device in which both sides are busy, ascending, as columns.

    numbers : the steps'. could_ns : the shorter side's busy time without waits; real_ns, overlap_ns : what of it lies
        beside the other side, and the same with waits; ns.
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
    whole = (a, b)
    sides = [rows[number[rows] >= 0] for rows in whole]
    if not all(rows.size for rows in sides):
        return None

    def measured(side: int, own: str, other: str) -> tuple[Ints, Ints]:
        """Each step's busy time of one side (0, 1), and what of it lies beside the other, with these waits; ns."""
        beside = union(*_running(trace, whole[1 - side], other, absent))
        group = np.searchsorted(numbers, number[sides[side]])
        starts, ends, step = unions_by_group((*_running(trace, sides[side], own, absent), group), numbers.size)
        busy, met = np.zeros((2, numbers.size), np.int64)
        np.add.at(busy, step, ends - starts)
        np.add.at(met, step, coverage(starts, ends, beside))
        return busy, met

    (busy_a, met_a), (busy_b, met_b) = (measured(side, "wait_ns", "wait_ns") for side in (0, 1))
    could = np.minimum(busy_a, busy_b)
    kept = np.flatnonzero(could > 0)
    if not kept.size:
        return None
    real = np.where(busy_a <= busy_b, met_a, met_b)
    plain = np.where(busy_a <= busy_b, measured(0, "", "")[1], measured(1, "", "")[1])
    ratio, rows = real[kept] / could[kept], np.concatenate(whole)
    wait, least, most = (ints_at(trace.ops, column, rows) for column in ("wait_ns", *WAIT_RANGE))
    apparent: tuple[Floats, Floats] = (ratio, ratio)
    if not (np.array_equal(least, wait) and np.array_equal(most, wait)):
        apparent = _ratios(measured, "wait_low_ns", "wait_high_ns", kept)
    seen = _ratios(measured, "wait_low_ns", "absent", kept) if absent[rows].any() else apparent
    within, apparently = ((np.minimum(low, ratio), np.maximum(high, ratio)) for low, high in (seen, apparent))
    return PerStep(numbers[kept], plain[kept], real[kept], could[kept], *within, *apparently)


def _running(trace: Trace, rows: Ints, wait: str, absent: Mask) -> tuple[Ints, Ints]:
    """When some ops run, with waits as a column has them.

    Without a column they count as running; "absent" is the longest that they may be.
    """
    starts, ends = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns"))
    if not wait:
        return starts, ends
    waits = ints_at(trace.ops, "wait_high_ns" if wait == "absent" else wait, rows)
    if wait == "absent":
        waits = np.where(absent[rows], ends - starts, waits)
    return starts + waits, ends


def _ratios(
    measured: Callable[[int, str, str], tuple[Ints, Ints]], least: str, most: str, kept: Ints
) -> tuple[Floats, Floats]:
    """The least and most that the ratio of some steps can be, as the one or the other side may be the shorter.

    What lies beside the other side is least, and what is alone most, at the waits that make it so, each for itself; as
    `analyzers.overlap.certainty` bounds them.
    """
    lows, highs, shortest, longest = [], [], [], []
    for side in (0, 1):
        met = {(own, other): measured(side, own, other) for own in (least, most) for other in (least, most)}
        alone = {waits: busy - beside for waits, (busy, beside) in met.items()}
        lows.append(_part(met[most, most][1], alone[least, most]))
        highs.append(_part(met[least, least][1], alone[most, least]))
        shortest.append(met[most, most][0])
        longest.append(met[least, least][0])
    may_be = [shortest[side] <= longest[1 - side] for side in (0, 1)]
    low = np.min([np.where(may, one, np.inf) for may, one in zip(may_be, lows, strict=True)], axis=0)
    high = np.max([np.where(may, one, -np.inf) for may, one in zip(may_be, highs, strict=True)], axis=0)
    return np.asarray(low[kept]), np.asarray(high[kept])


def _part(overlap: Ints, alone: Ints) -> Floats:
    return np.where(overlap > 0, overlap / np.maximum(overlap + alone, 1), 0.0)
