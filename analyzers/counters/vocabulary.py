"""What the counters of `Trace.counters` are called, and in which unit they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counter:
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
}
