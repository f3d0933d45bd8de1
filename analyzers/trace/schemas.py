"""The columns of a Trace's tables, with their types and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OP_KINDS = ("kernel", "memcpy", "memset", "graph", "migration")  # of pages of unified memory
COPY_KINDS = ("", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "unknown")
MEMORY_KINDS = ("", "pageable", "pinned", "device", "array", "managed", "unknown")
RANGE_KINDS = ("nvtx", "annotation", "op", "python", "hlo")
MEMORY_SOURCES = ("allocator", "driver", "driver-change")
SYNC_KINDS = ("stream", "event", "device", "stream_wait")

# Column -> type and default. "text" is a categorical of strings, a tuple a categorical of those values. "key" fits 32
# bits; "id" takes 32 where all of a column fit, as they nearly always do: such columns are half of a large capture.
# So do waits, and what they may be at least and at most.
# `analyzers.trace.columns.ints` gives them all as int64. Times are ns; -1 (or "") means the capture does not say.
Schema = Mapping[str, tuple[str | tuple[str, ...], Any]]

OPS: Schema = {
    "process": ("key", 0),
    "rank": ("key", -1),  # set by analyzers.trace.ranks once all captures are there
    "device": ("key", -1),
    "context": ("key", -1),
    "stream": ("id", -1),
    "kind": (OP_KINDS, "kernel"),
    "name": ("text", ""),
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "wait_ns": ("id", 0),  # head of a matched collective spent waiting for the last rank
    "correlation": ("id", -1),
    "launch": ("id", -1),  # row in `api` of the call that launched it
    "bytes": ("int64", -1),
    "copy": (COPY_KINDS, ""),
    "source_memory": (MEMORY_KINDS, ""),
    "target_memory": (MEMORY_KINDS, ""),
    "grid": ("int64", -1),  # blocks in the grid
    "block": ("int32", -1),  # threads in a block
    "registers": ("int32", -1),  # per thread
    "shared_bytes": ("int64", -1),  # per block, static + dynamic
    "hlo": ("id", -1),  # id of the range of kind "hlo" that it ran for
    "graph": ("id", -1),  # id of the CUDA graph it ran in, 0 where that has no number
    "cut_ns": ("id", 0),  # by how much it was said to run past the next op of its stream; `end_ns` is without
    "declared": ("text", ""),  # the rule by which the user calls it communication; no reader knows it
    # What its collective says of it, `wait_ns` too: filled in by `analyzers.clocks.align` once all captures are there.
    "collective": ("id", -1),  # number in `Trace.matches`
    "collective_calls": ("id", 0),  # how many calls of that one the run has
    "last_rank": ("key", -1),  # who came last, where several ranks came
    "last_device": ("key", -1),
    "wait_low_ns": ("id", 0),  # least that `wait_ns` may be: all other clocks as early as bounds allow
    "wait_high_ns": ("id", 0),  # most: all as late
    "wait_seen": ("int8", 1),  # 0 where a peer that it may have waited for was not captured
}
WAIT_RANGE = ("wait_low_ns", "wait_high_ns")
# Columns that no reader makes. But for `WAIT_RANGE` they are not exported: who reads an export back fills them in.
OF_COLLECTIVES = ("collective", "collective_calls", "last_rank", "last_device", *WAIT_RANGE, "wait_seen")
NOT_READ = ("cut_ns", "declared", *OF_COLLECTIVES)
API: Schema = {
    "process": ("key", 0),
    "thread": ("id", -1),
    "name": ("text", ""),  # without version suffix: cudaStreamSynchronize, not cudaStreamSynchronize_v3020
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "correlation": ("id", -1),
}
RANGES: Schema = {
    "process": ("key", 0),
    "thread": ("id", -1),
    "kind": (RANGE_KINDS, "nvtx"),
    "name": ("text", ""),
    "domain": ("text", ""),  # NVTX domain, "" the default one
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "id": ("id", -1),  # Kineto's External id; of "hlo" its own, within the process
    "sequence": ("id", -1),  # autograd's sequence number; of an HLO op the id of its module's range
    "sizes": ("id", -1),  # of an operator's inputs, as a number of `analyzers.trace.sizes`
    "forward_thread": ("id", -1),  # thread of the forward op a backward op is linked to
}
SYNCS: Schema = {
    "process": ("key", 0),
    "context": ("key", -1),
    "stream": ("id", -1),  # synchronized stream, or the stream made to wait
    "kind": (SYNC_KINDS, "stream"),
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "correlation": ("id", -1),
    "event": ("id", -1),  # event id, reused over time
    "event_sync": ("id", -1),  # nsys eventSyncId, unique per process: links to `records`
    "record_correlation": ("id", -1),  # Kineto's claim of which record it waits for
    "record_stream": ("id", -1),
}
RECORDS: Schema = {
    "process": ("key", 0),
    "context": ("key", -1),
    "stream": ("id", -1),
    "correlation": ("id", -1),
    "event": ("id", -1),
    "event_sync": ("id", -1),
}
COMMS: Schema = {  # what the trace says about a communication call, joined to ops by (process, correlation)
    "process": ("key", 0),
    "correlation": ("id", -1),
    "thread": ("id", -1),
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "operation": ("text", ""),  # as the trace spells it: all_to_allv, ncclAllReduce
    "bytes": ("int64", -1),  # message size as NCCL states it, where it does
    "in_elements": ("int64", -1),
    "out_elements": ("int64", -1),
    "dtype": ("text", ""),
    "group": ("text", ""),  # process group name
    "group_description": ("text", ""),  # what the program calls it: tp, dp_shard, default_pg
    "group_ranks": ("text", ""),  # as printed, "[0, 1]"
    "group_size": ("int32", -1),
    "sequence": ("int64", -1),
    "communicator": ("int64", -1),  # NCCL communicator id from its NVTX payload
    "peer": ("int32", -1),  # of a send or receive
}
DEVICES: Schema = {
    "process": ("key", 0),
    "device": ("key", -1),  # as ops name it
    "gpu": ("int32", -1),  # physical index on the host
    "name": ("text", ""),
    "sms": ("int32", -1),
    "threads_per_sm": ("int32", -1),
    "blocks_per_sm": ("int32", -1),
    "warp": ("int32", -1),  # threads that run as one
    "registers_per_sm": ("int64", -1),
    "shared_bytes_per_sm": ("int64", -1),
    "memory_bytes": ("int64", -1),
}
STREAMS: Schema = {
    "process": ("key", 0),
    "context": ("key", -1),
    "stream": ("id", -1),
    "priority": ("int64", 0),
    "blocking": ("int8", -1),  # 1 = synchronizes with the legacy default stream, 0 = does not, -1 = unknown
    "default": ("int8", -1),  # 1 = the context's default stream
    "queue": ("int64", -1),  # hardware queue, where the capture numbers these beside streams
}
MEMORY: Schema = {  # GPU memory in use from an instant on, where the profiler recorded it
    "process": ("key", 0),
    "device": ("key", -1),
    "start_ns": ("int64", 0),
    # "allocator": what the framework's allocator has handed out, in all; "driver": what has been taken from the driver,
    # in all; "driver-change": the same since the capture began, which may be less than nothing.
    "source": (MEMORY_SOURCES, "allocator"),
    "bytes": ("int64", 0),
    "reserved": ("int64", -1),  # what the allocator holds of the driver's; of "allocator" only
}
OVERHEAD: Schema = {  # spans in which the profiler's own work held a process up; those of one process apart, ascending
    "process": ("key", 0),
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
}
COUNTERS: Schema = {  # what the hardware did, a row a sample of a GPU; -1 where a counter was not sampled
    "process": ("key", 0),
    "device": ("key", -1),
    "start_ns": ("int64", 0),  # the sample covers [start_ns, end_ns) on the clock of the device's ops
    "end_ns": ("int64", 0),
    "sm_active": ("int16", -1),  # % of the time, averaged over SMs, in which one held a warp; and so on in %
    "sm_issue": ("int16", -1),
    "tensor_active": ("int16", -1),
    "dram_read": ("int16", -1),
    "dram_write": ("int16", -1),
    "nvlink_in": ("int16", -1),
    "nvlink_out": ("int16", -1),
    "pcie_in": ("int16", -1),
    "pcie_out": ("int16", -1),
    "warps": ("int16", -1),  # places of warps in use, % of all
    "unallocated_warps": ("int16", -1),  # places of warps free on SMs that hold one, % of all
    "gpc_clock": ("int32", -1),  # MHz
    "sys_clock": ("int32", -1),
    "nic_in": ("int16", -1),  # Gbit/s of all network cards of the host, in rows of their own, which its GPUs share
    "nic_out": ("int16", -1),
}
TABLES: Mapping[str, Schema] = {
    "ops": OPS,
    "api": API,
    "ranges": RANGES,
    "syncs": SYNCS,
    "records": RECORDS,
    "comms": COMMS,
    "devices": DEVICES,
    "streams": STREAMS,
    "memory": MEMORY,
    "overhead": OVERHEAD,
    "counters": COUNTERS,
}
