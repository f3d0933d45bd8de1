"""GPU counters as slim areas below a device's rows: which, how high, and few enough points that no peak is lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.records import Record
from analyzers.counters.vocabulary import steps_of
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.tables import Trace

# What can be shown -> its label, its unit, and counters whose sum it is; of several alternatives the greater.
SHOWN: dict[str, tuple[str, str, tuple[tuple[str, ...], ...]]] = {
    "sm": ("SM active", "%", (("sm_active",),)),
    "issue": ("SM issue", "%", (("sm_issue",),)),
    "tensor": ("tensor active", "%", (("tensor_active",),)),
    "dram": ("DRAM", "%", (("dram_read", "dram_write"),)),
    "nvlink": ("NVLink", "%", (("nvlink_in",), ("nvlink_out",))),
    "pcie": ("PCIe", "%", (("pcie_in",), ("pcie_out",))),
    "nic": ("NIC (host)", "Gbit/s", (("nic_in",), ("nic_out",))),
    "warps": ("warps", "%", (("warps",),)),
    "clock": ("GPC clock", "MHz", (("gpc_clock",),)),
}
DEFAULT = ("tensor", "dram", "nvlink", "nic")
MOST_POINTS, POINTS_OF_PAGE = 20_000, 200_000  # of an area, and of all areas of a page together
LEAST_POINTS = 1_000  # of an area
HEIGHT = 0.9  # of its row
LEAST_BUCKETS, MOST_BUCKETS, POINTS_AT_ONCE = 60, 1_000, 24_000


class Area(Record, frozen=True):
    """One counter of one device: `value` holds from `start` on, of at most `most`."""

    row: int
    label: str
    unit: str
    most: int
    start: Ints
    value: Ints


def read_counters(text: str) -> tuple[str, ...]:
    """Which counters to show.

    >>> read_counters("tensor, clock")
    ('tensor', 'clock')
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in names if name not in SHOWN]
    if unknown or not names:
        named = ", ".join(SHOWN)
        raise TracevizError(f"There is no counter {unknown[0] if unknown else text!r}.", hint=f"There are {named}.")
    return names


def present(trace: Trace, process: int, device: int, wanted: Sequence[str]) -> list[str]:
    """Those of the wanted counters that a device was sampled for."""
    rows = _rows(trace, process, device)
    return [
        name
        for name in wanted
        if any(all((ints(trace.counters, one)[rows] >= 0).any() for one in some) for some in SHOWN[name][2])
    ]


def points_for(count: int) -> int:
    """How many points each of so many areas has in a page."""
    return max(LEAST_POINTS, min(MOST_POINTS, POINTS_OF_PAGE // max(count, 1)))


def area(
    trace: Trace,
    process: int,
    device: int,
    name: str,
    row: int,
    span: tuple[int, int],
    *,
    opening: tuple[int, int] | None = None,
    points: int = MOST_POINTS,
) -> Area:
    """A counter's course over a span, ns.

    Parameters
    ----------
    opening : what the page opens on, ns: half of the points are for that and as much again on either side of it.
    points : how many there may be, about.
    """
    label, unit, alternatives = SHOWN[name]
    rows = _rows(trace, process, device)
    near = rows[(trace.counters.end_ns[rows] > span[0]) & (trace.counters.start_ns[rows] < span[1])]
    courses = [steps_of(trace.counters, near, *some) for some in alternatives]
    start, value = courses[0]
    for other_start, other in courses[1:]:
        if np.array_equal(start, other_start):
            value = np.maximum(value, other)
        elif not start.size:
            start, value = other_start, other
    most = int(value.max(initial=1)) if unit != "%" else 100
    value = np.minimum(value, most)
    low, high = opening or span
    inner = tuple(min(max(at, span[0]), span[1]) for at in (2 * low - high, 2 * high - low))
    parts = [
        thinned(start, value, low, high, buckets)
        for low, high, buckets in _pieces(span, (inner[0], inner[1]), points // 2)
    ]
    return Area(row, label, unit, most, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _pieces(span: tuple[int, int], inner: tuple[int, int], buckets: int) -> list[tuple[int, int, int]]:
    """Before, within and after the inner part: from, to, and how many parts it is thinned to."""
    outside = (inner[0] - span[0]) + (span[1] - inner[1])
    pieces = [(span[0], inner[0]), inner, (inner[1], span[1])]
    shares = [(end - start) * (buckets // 2) // max(outside, 1) for start, end in pieces]
    shares[1] = buckets // 2 if outside else buckets
    return [(*piece, max(share, 1)) for piece, share in zip(pieces, shares, strict=True) if piece[1] > piece[0]]


def thinned(start: Ints, value: Ints, low: int, high: int, buckets: int) -> tuple[Ints, Ints]:
    """The least and the greatest point of each of so many equal parts of [low, high); those outside are left out.

    What holds at `low` begins there. Three points of one part that read 3, 99 and 5 become 3 and 99.
    """
    first = max(int(np.searchsorted(start, low, side="right")) - 1, 0)
    start, value = start[first : int(np.searchsorted(start, high))], value[first : int(np.searchsorted(start, high))]
    start = np.maximum(start, low)
    if start.size <= 2 * buckets:
        return start, value
    bucket = (start - low) * buckets // max(high - low, 1)
    order = np.lexsort((value, bucket))
    heads = np.flatnonzero(np.diff(bucket[order], prepend=-1))
    tails = np.append(heads[1:], order.size) - 1
    kept = np.unique(order[np.concatenate([heads, tails])])
    return start[kept], value[kept]


def buckets_for(count: int) -> int:
    """How many parts each of so many areas is drawn in at once."""
    return max(LEAST_BUCKETS, min(MOST_BUCKETS, POINTS_AT_ONCE // (2 * max(count, 1))))


def _rows(trace: Trace, process: int, device: int) -> Ints:
    same = (as_int64(trace.counters.process) == process) & (as_int64(trace.counters.device) == device)
    return np.flatnonzero(same)
