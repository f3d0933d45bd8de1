"""Waits of a collective whose peers were not captured, by its device's NVLink traffic.

A ring trickles as soon as its neighbour is there, and sends at full speed what its buffers hold before the last rank
has come; then it waits. So not the first byte counts, but the last stretch at the plateau:

    traffic, % of a sample      1  77  78  76   2   1   1   1  60  78  78  77  78  70
                                   what buffers hold           transfer

A lull of up to `LULL_NS` does not end a stretch: transfers have some. What buffers hold can hide a wait of as long as
they take to fill, and a lull one of its own length, so the transfer begins at the stretch's begin at the earliest, but
for `EARLY` samples, and at the latest `BUFFERED_NS + LULL_NS` and a sample after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.trace.columns import ints
from analyzers.trace.kernels import is_communication
from analyzers.trace.tables import Trace

LULL_NS = 200_000
BUFFERED_NS = 350_000  # six samples of 50 µs on four H100s: 6 MB for each of 16 channels
FEWEST = 10  # samples of a collective
PLATEAU = 20  # % (P90) from which on it is at a plateau: copies between GPUs reach 70 and more
_FILLED = ("wait_ns", "wait_low_ns", "wait_high_ns", "wait_seen")
EARLY = 3  # samples: one is shared with the wait, and traffic takes one or two to rise


def waits_by_traffic(trace: Trace) -> Trace:
    """The trace with waits of communication whose peers are absent, and their range, where NVLink traffic tells them.

    Such an op counts as one whose waits are seen. Left as they are: ops beside other communication on their device,
    of few samples, or without a plateau.
    """
    lone = np.flatnonzero(is_communication(trace) & (ints(trace.ops, "wait_seen") == 0))
    if not lone.size or not len(trace.counters):
        return trace
    found = {column: ints(trace.ops, column).copy() for column in _FILLED}
    start, end = (ints(trace.ops, column) for column in ("start_ns", "end_ns"))
    told = 0
    for op, samples in _of_calls(trace, lone):
        begin = transfer_begin(*samples)
        if begin is None:
            continue
        period = int(np.median(samples[1] - samples[0]))
        limits = (begin, begin - EARLY * period, begin + BUFFERED_NS + LULL_NS + period)
        for column, at in zip(_FILLED, limits, strict=False):
            found[column][op] = min(max(at - start[op], 0), end[op] - start[op])
        found["wait_seen"][op] = 1
        told += 1
    if not told:
        return trace
    text = (
        f"Waits of {told:,} of {lone.size:,} calls of communication, whose peers were not captured, are told by NVLink "
        f"traffic: to {(BUFFERED_NS + LULL_NS) / 1e6:.2f} ms and a sample, which what buffers hold leaves open."
    )
    columns: dict[str, Any] = {**found, "wait_seen": found["wait_seen"].astype(np.int8)}
    warning = TraceWarning("waits-by-traffic", text)
    return replace(trace, ops=trace.ops.assign(**columns), warnings=(*trace.warnings, warning))


def told_by_traffic(trace: Trace) -> Mask:
    """Ops whose waits traffic told: they have some, and no other rank came to them."""
    return (ints(trace.ops, "wait_high_ns") > 0) & (ints(trace.ops, "last_rank") < 0)


def _of_calls(trace: Trace, lone: Ints) -> Iterator[tuple[int, tuple[Ints, Ints, Ints]]]:
    """Each call that runs by itself on a device with samples, and those of its time: start, end, traffic."""
    keys = [ints(trace.ops, column) for column in ("process", "device")]
    starts, ends = (ints(trace.ops, column) for column in ("start_ns", "end_ns"))
    by_device = rows_by_key(*(ints(trace.counters, column) for column in ("process", "device")))
    communication = np.flatnonzero(is_communication(trace))
    of_device = rows_by_key(*(key[communication] for key in keys))
    for device, rows in rows_by_key(*(key[lone] for key in keys)).items():
        if device not in by_device:
            continue
        own = by_device[device][np.argsort(ints(trace.counters, "start_ns")[by_device[device]], kind="stable")]
        start, end = (ints(trace.counters, column)[own] for column in ("start_ns", "end_ns"))
        traffic = np.maximum(*(ints(trace.counters, column)[own] for column in ("nvlink_in", "nvlink_out")))
        for op in _by_themselves(trace, lone[rows], communication[of_device[device]]).tolist():
            inside = slice(np.searchsorted(end, starts[op], side="right"), np.searchsorted(start, ends[op]))
            yield op, (start[inside], end[inside], traffic[inside])


def transfer_begin(start: Ints, end: Ints, traffic: Ints) -> int | None:
    """When the last stretch at the plateau begins; None where there is no such thing.

    Parameters
    ----------
    start, end, traffic : the samples of one collective, by time; traffic in %.
    """
    if traffic.size < FEWEST or (traffic < 0).any():
        return None
    plateau = float(np.percentile(traffic, 90))
    if plateau < PLATEAU:
        return None
    high = np.flatnonzero(traffic >= plateau / 2)
    lulls = start[high[1:]] - end[high[:-1]]
    begins = np.append(0, np.flatnonzero(lulls > LULL_NS) + 1)
    first = int(high[begins[-1]])
    before = high[: begins[-1]]
    if int((end[before] - start[before]).sum()) > BUFFERED_NS:  # more than buffers hold: it was no wait that ended it
        return None
    return int(start[first])


def _by_themselves(trace: Trace, ops: Ints, communication: Ints) -> Ints:
    """Those of some ops that run beside no other communication of their device."""
    start, end = (ints(trace.ops, column) for column in ("start_ns", "end_ns"))
    order = communication[np.argsort(start[communication], kind="stable")]
    ends_before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end[order][:-1]))
    starts_after = np.append(start[order][1:], np.iinfo(np.int64).max)
    alone = order[(ends_before <= start[order]) & (starts_after >= end[order])]
    return ops[np.isin(ops, alone)]
