"""Waits of a collective whose peers were not captured, by its device's NVLink traffic, or its host's network cards'.

A ring trickles as soon as its neighbour is there, and sends at full speed what its buffers hold before the last rank
has come; then it waits. So not the first byte counts, but the last stretch at the plateau:

    traffic, % of a sample      1  77  78  76   2   1   1   1  60  78  78  77  78  70
                                   what buffers hold           transfer

A lull of up to `LULL_NS` does not end a stretch: transfers have some. What buffers hold can hide a wait of as long as
they take to fill, and a lull one of its own length, so the transfer begins at the stretch's begin at the earliest, but
for `RISING_SAMPLES` samples, and at the latest what buffers hold and a lull and a sample after.

Traffic of network cards tells where NVLink has no plateau, as between nodes with a GPU each. A card has no owner: it
tells of a host whose GPUs all worked in the capture, and of a collective beside which no other communication ran there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import ordered, rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.trace.columns import ints
from analyzers.trace.kernels import is_communication
from analyzers.trace.op_rows import of_nics
from analyzers.trace.tables import Trace

LULL_NS = 200_000  # or a sample, where that is longer
BUFFERED_NS = 350_000  # over NVLink: six samples of 50 µs on four H100s
BUFFERED_GBIT = 0.8  # what these hold: 6 MB for each of 16 channels; a network card takes longer to fill them
MIN_COLLECTIVE_SAMPLES = 10  # samples of a collective
PLATEAU = 20  # % (P90) from which on NVLink is at a plateau: copies between GPUs reach 70 and more
NIC_PLATEAU = 8  # Gbit/s (P90) from which on network cards are: less can be storage's or a log's
_FILLED = ("wait_ns", "wait_low_ns", "wait_high_ns", "wait_seen")
RISING_SAMPLES = 3  # samples: one is shared with the wait, and traffic takes one or two to rise


class Transfer(msgspec.Struct, frozen=True):
    """When a collective's transfer began, and when at the earliest and at the latest."""

    begin: int
    low: int
    high: int


def waits_by_traffic(trace: Trace) -> Trace:
    """The trace with waits of communication whose peers are absent, and their range, where NVLink traffic tells them.

    Such an op counts as one whose waits are seen. Left as they are: ops beside other communication on their device,
    of few samples, or without a plateau.
    """
    lone = np.flatnonzero(is_communication(trace) & (trace.ops.wait_seen == 0))
    if not lone.size or not len(trace.counters):
        return trace
    found = {column: ints(trace.ops, column).copy() for column in _FILLED}
    start, end = trace.ops.start_ns, trace.ops.end_ns
    told = {"NVLink": 0, "network cards'": 0}
    widest = dict.fromkeys(told, 0)
    for op, samples, whose in _of_calls(trace, lone):
        if found["wait_seen"][op]:
            continue  # NVLink has told it
        transfer = transfer_of(*samples, over_nvlink=whose == "NVLink")
        if transfer is None:
            continue
        for column, at in zip(_FILLED, (transfer.begin, transfer.low, transfer.high), strict=False):
            found[column][op] = min(max(at - start[op], 0), end[op] - start[op])
        found["wait_seen"][op] = 1
        told[whose] += 1
        widest[whose] = max(widest[whose], transfer.high - transfer.begin)
    if not any(told.values()):
        return trace
    by = " and ".join(f"{whose} traffic, to {widest[whose] / 1e6:.2f} ms" for whose, count in told.items() if count)
    text = (
        f"Waits of {sum(told.values()):,} of {lone.size:,} calls of communication, whose peers were not captured, are "
        f"told by {by}, which what buffers hold leaves open."
    )
    columns: dict[str, Any] = {**found, "wait_seen": found["wait_seen"].astype(np.int8)}
    warning = TraceWarning("waits-by-traffic", text)
    return replace(trace, ops=trace.ops.having(**columns), warnings=(*trace.warnings, warning))


def told_by_traffic(trace: Trace) -> Mask:
    """Ops whose waits traffic told: they have some, and no other rank came to them."""
    return (trace.ops.wait_high_ns > 0) & (trace.ops.last_rank < 0)


def _of_calls(trace: Trace, lone: Ints) -> Iterator[tuple[int, tuple[Ints, Ints, Ints], str]]:
    """Each call that runs by itself on a device with samples, those of its time (start, end, traffic), and whose."""
    ops, counters, nics = trace.ops, trace.counters, of_nics(trace.counters)
    by_device = rows_by_key(counters.process, counters.device)
    communication = np.flatnonzero(is_communication(trace))
    of_device = rows_by_key(ops.process[communication], ops.device[communication])
    for device, rows in rows_by_key(ops.process[lone], ops.device[lone]).items():
        if device not in by_device:
            continue
        own = by_device[device][ordered(counters.start_ns[by_device[device]])]
        alone = _by_themselves(trace, lone[rows], communication[of_device[device]])
        on_host = _alone_on_host(trace, alone, communication)
        among = (
            ("NVLink", own[~nics[own]], (counters.nvlink_in, counters.nvlink_out), alone),
            ("network cards'", own[nics[own]], (counters.nic_in, counters.nic_out), on_host),
        )
        for whose, samples, directions, calls in among:
            if not samples.size:
                continue
            start, end = counters.start_ns[samples], counters.end_ns[samples]
            traffic = np.maximum(*(each[samples] for each in directions)).astype(np.int64)
            low = np.searchsorted(end, ops.start_ns[calls], side="right")
            high = np.searchsorted(start, ops.end_ns[calls])
            for op, inside in zip(calls.tolist(), map(slice, low, high), strict=True):
                yield op, (start[inside], end[inside], traffic[inside]), whose


def transfer_of(start: Ints, end: Ints, traffic: Ints, *, over_nvlink: bool = True) -> Transfer | None:
    """When the last stretch at the plateau begins; None where there is no such thing.

    Parameters
    ----------
    start, end, traffic : the samples of one collective, by time; traffic in %, of network cards in Gbit/s.
    """
    if traffic.size < MIN_COLLECTIVE_SAMPLES or (traffic < 0).any():
        return None
    plateau = float(np.percentile(traffic, 90))
    if plateau < (PLATEAU if over_nvlink else NIC_PLATEAU):
        return None
    period = int(np.median(end - start))
    buffered, lull = BUFFERED_NS if over_nvlink else int(BUFFERED_GBIT / plateau * 1e9), max(LULL_NS, period)
    high = np.flatnonzero(traffic >= plateau / 2)
    lulls = start[high[1:]] - end[high[:-1]]
    begins = np.append(0, np.flatnonzero(lulls > lull) + 1)
    first = int(high[begins[-1]])
    before = high[: begins[-1]]
    if int((end[before] - start[before]).sum()) > max(buffered, period):
        return None  # more than buffers hold: it was no wait that ended it
    begin = int(start[first])
    return Transfer(begin, begin - RISING_SAMPLES * period, begin + buffered + lull + period)


def _alone_on_host(trace: Trace, ops: Ints, communication: Ints) -> Ints:
    """Those of a device's ops beside which no other communication used its host's network cards, for all one can know.

    All GPUs of the host worked in the same capture, and what ran beside the op there is the same collective.
    """
    if not ops.size:
        return ops
    capture_of = np.array([process.capture for process in trace.processes], np.int64)
    capture = int(capture_of[trace.ops.process[ops[0]]])
    on_host = capture_of[trace.devices.process] == capture
    if np.unique(trace.devices.gpu[on_host]).size != trace.captures[capture].host_gpus:
        return ops[:0]
    start, end, collective = trace.ops.start_ns, trace.ops.end_ns, trace.ops.collective
    process, device = trace.ops.process, trace.ops.device
    own_device = int(process[ops[0]]), int(device[ops[0]])
    kept = np.ones(ops.size, dtype=bool)
    for key, rows in rows_by_key(process[communication], device[communication]).items():
        if capture_of[key[0]] != capture or key == own_device:
            continue
        own = communication[rows][ordered(start[communication[rows]])]
        began = np.searchsorted(start[own], end[ops])
        beside = began - np.searchsorted(np.sort(end[own]), start[ops], side="right")
        latest = own[_running_argmax(end[own])][np.maximum(began - 1, 0)]  # beside the op, where only one is
        same = (collective[ops] >= 0) & (collective[latest] == collective[ops])
        kept &= (beside == 0) | ((beside == 1) & same)
    return ops[kept]


def _running_argmax(values: Ints) -> Ints:
    """For each element, which one up to it is the largest."""
    is_new = values >= np.maximum.accumulate(values)
    return np.maximum.accumulate(np.where(is_new, np.arange(values.size), 0))


def _by_themselves(trace: Trace, ops: Ints, communication: Ints) -> Ints:
    """Those of some ops that run beside no other communication of their device."""
    start, end = trace.ops.start_ns, trace.ops.end_ns
    order = communication[ordered(start[communication])]
    ends_before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end[order][:-1]))
    starts_after = np.append(start[order][1:], np.iinfo(np.int64).max)
    alone = order[(ends_before <= start[order]) & (starts_after >= end[order])]
    return ops[np.isin(ops, alone)]
