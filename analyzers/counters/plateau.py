"""Waits of a collective whose peers were not captured, by its device's NVLink traffic, or its host's network cards'.

A ring trickles as soon as its neighbour is there, and sends at full speed what its buffers hold before the last rank
has come; then it waits. So not the first byte counts, but the last stretch at the plateau:

    traffic, % of a sample      1  77  78  76   2   1   1   1  60  78  78  77  78  70
                                   what buffers hold           transfer

A lull of up to `LULL_NS` does not end a stretch: transfers have some. What buffers hold can hide a wait of as long as
they take to fill, and a lull one of its own length, so the transfer begins at the stretch's begin at the earliest, but
for `EARLY` samples, and at the latest what buffers hold and a lull and a sample after.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.kernels import is_communication
from analyzers.trace.op_rows import of_nics
from analyzers.trace.tables import Trace

LULL_NS = 200_000  # or a sample, where that is longer
BUFFERED_NS = 350_000  # six samples of 50 µs on four H100s
FEWEST = 10  # samples of a collective
PLATEAU = 20  # % (P90) from which on traffic is at a plateau: copies between GPUs reach 70 and more
EARLY = 3  # samples: one is shared with the wait, and traffic takes one or two to rise


def waits_by_traffic(trace: Trace) -> Trace:
    """The trace with waits of communication whose peers are absent, and their range, where NVLink traffic tells them.

    Such an op counts as one whose waits are seen. Left as they are: ops beside other communication on their device,
    of few samples, or without a plateau.
    """
    communicates = is_communication(trace)
    lone = communicates & (as_int64(trace.ops.wait_seen) == 0)
    if not lone.any() or not len(trace.counters):
        return trace
    names = ("wait_ns", "wait_low_ns", "wait_high_ns", "wait_seen")
    found: dict[str, Any] = {column: ints(trace.ops, column).copy() for column in names}
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    samples = trace.counters.take(~of_nics(trace.counters))
    samples = samples.take(np.argsort(samples.start_ns, kind="stable"))
    of_device = rows_by_key(samples.process, samples.device)
    told = widest = 0
    for device, ops in rows_by_key(trace.ops.process, trace.ops.device).items():
        if device not in of_device:
            continue
        start, end, received, sent = (
            ints(samples, column)[of_device[device]] for column in ("start_ns", "end_ns", "nvlink_in", "nvlink_out")
        )
        traffic = np.maximum(received, sent)
        for op in _by_themselves(trace, ops[communicates[ops]]).tolist():
            inside = slice(np.searchsorted(end, starts[op], side="right"), np.searchsorted(start, ends[op]))
            transfer = transfer_of(start[inside], end[inside], traffic[inside]) if lone[op] else None
            if transfer is not None:
                for column, at in zip(names, transfer, strict=False):
                    found[column][op] = min(max(at - starts[op], 0), ends[op] - starts[op])
                found["wait_seen"][op] = 1
                told += 1
                widest = max(widest, transfer[2] - transfer[0])
    if not told:
        return trace
    text = (
        f"Waits of {told:,} of {np.count_nonzero(lone):,} calls of communication, whose peers were not captured, are "
        f"told by NVLink traffic, to {widest / 1e6:.2f} ms, which what buffers hold leaves open."
    )
    found["wait_seen"] = found["wait_seen"].astype(np.int8)
    warning = TraceWarning("waits-by-traffic", text)
    return replace(trace, ops=trace.ops.having(**found), warnings=(*trace.warnings, warning))


def told_by_traffic(trace: Trace) -> Mask:
    """Ops whose waits traffic told: they have some, and no other rank came to them."""
    return (as_int64(trace.ops.wait_high_ns) > 0) & (as_int64(trace.ops.last_rank) < 0)


def transfer_of(start: Ints, end: Ints, traffic: Ints) -> tuple[int, int, int] | None:
    """When a collective's transfer began, and when at the earliest and at the latest; None where nothing tells.

    Parameters
    ----------
    start, end, traffic : the samples of one collective, by time; traffic in %.
    """
    if traffic.size < FEWEST or (traffic < 0).any():
        return None
    plateau = float(np.percentile(traffic, 90))
    if plateau < PLATEAU:
        return None
    period = int(np.median(end - start))
    lull, high = max(LULL_NS, period), np.flatnonzero(traffic >= plateau / 2)
    begins = np.append(0, np.flatnonzero(start[high[1:]] - end[high[:-1]] > lull) + 1)
    before = high[: begins[-1]]
    if int((end[before] - start[before]).sum()) > max(BUFFERED_NS, period):
        return None  # more than buffers hold: it was no wait that ended it
    begin = int(start[high[begins[-1]]])
    return begin, begin - EARLY * period, begin + BUFFERED_NS + lull + period


def _by_themselves(trace: Trace, communication: Ints) -> Ints:
    """Those of a device's communication beside which no other of it runs."""
    order = communication[np.argsort(trace.ops.start_ns[communication], kind="stable")]
    start, end = trace.ops.start_ns[order], trace.ops.end_ns[order]
    ends_before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end[:-1]))
    starts_after = np.append(start[1:], np.iinfo(np.int64).max)
    return order[(ends_before <= start) & (starts_after >= end)]
