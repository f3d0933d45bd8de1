"""What the counters of `Trace.counters` are called, in which unit they are, and their course over time."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import ordered
from analyzers.arrays.types import Ints
from analyzers.trace.columns import ints
from analyzers.trace.schemas import Counters


class Counter(msgspec.Struct, frozen=True):
    """A counter's name in words and the unit of its values."""

    label: str
    unit: str = "%"


COUNTERS = {
    "sm_active": Counter("SM active"),
    "sm_issue": Counter("SM issue"),
    "tensor_active": Counter("tensor active"),
    "dram_read": Counter("DRAM read"),
    "dram_write": Counter("DRAM write"),
    "nvlink_in": Counter("NVLink in"),
    "nvlink_out": Counter("NVLink out"),
    "pcie_in": Counter("PCIe in"),
    "pcie_out": Counter("PCIe out"),
    "warps": Counter("warps in flight"),
    "unallocated_warps": Counter("unallocated warps"),
    "gpc_clock": Counter("GPC clock", "MHz"),
    "sys_clock": Counter("SYS clock", "MHz"),
    "nic_in": Counter("NIC in (host)", "Gbit/s"),
    "nic_out": Counter("NIC out (host)", "Gbit/s"),
}


def steps_of(samples: Counters, rows: Ints, *counters: str) -> tuple[Ints, Ints]:
    """Instants and the value that holds from each on: the counters' sum, 0 where samples are missing.

    Parameters
    ----------
    rows : one device's samples; those that lack one of the counters are left out.
    """
    values = np.stack([ints(samples, counter)[rows] for counter in counters])
    known = rows[(values >= 0).all(axis=0)]
    known = known[ordered(samples.start_ns[known])]
    if not known.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = samples.start_ns[known], samples.end_ns[known]
    value = np.sum([ints(samples, counter)[known] for counter in counters], axis=0)
    missing = np.flatnonzero(np.append(end[:-1] < start[1:], True))
    at = np.concatenate([start, end[missing]])
    order = np.argsort(at, kind="stable")
    return at[order], np.concatenate([value, np.zeros(missing.size, np.int64)])[order]
