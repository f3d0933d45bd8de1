"""The tables of a Trace: their columns with types, defaults and units."""

from __future__ import annotations

from collections.abc import Mapping

from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints
from analyzers.trace.table import Table, id_, key, number, one_of, text

OP_KINDS = ("kernel", "memcpy", "memset", "graph", "migration")  # of pages of unified memory
COPY_KINDS = ("", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "unknown")
MEMORY_KINDS = ("", "pageable", "pinned", "device", "array", "managed", "unknown")
RANGE_KINDS = ("nvtx", "annotation", "op", "python", "hlo")
MEMORY_SOURCES = ("allocator", "driver", "driver-change")
SYNC_KINDS = ("stream", "event", "device", "stream_wait")

# Times are ns; -1 (or "") means that the capture does not say.


class Ops(Table):
    """GPU work: kernels, copies, memsets, graphs, page migrations."""

    process: Ids = key(0)
    rank: Ids = key(-1)  # set by analyzers.trace.ranks once all captures are there
    device: Ids = key(-1)
    context: Ids = key(-1)
    stream: Ids = id_(-1)
    kind: Names = one_of(OP_KINDS)
    name: Names = text()
    start_ns: Ints = number("int64", 0)
    end_ns: Ints = number("int64", 0)
    wait_ns: Ids = id_(0)  # head of a matched collective spent waiting for the last rank
    correlation: Ids = id_(-1)
    launch: Ids = id_(-1)  # row in `api` of the call that launched it
    bytes: Ints = number("int64", -1)
    copy: Names = one_of(COPY_KINDS)
    source_memory: Names = one_of(MEMORY_KINDS)
    target_memory: Names = one_of(MEMORY_KINDS)
    grid: Ints = number("int64", -1)  # blocks in the grid
    block: Ids = number("int32", -1)  # threads in a block
    registers: Ids = number("int32", -1)  # per thread
    shared_bytes: Ints = number("int64", -1)  # per block, static + dynamic
    hlo: Ids = id_(-1)  # id of the range of kind "hlo" that it ran for
    graph: Ids = id_(-1)  # id of the CUDA graph it ran in, 0 where that has no number
    cut_ns: Ids = id_(0)  # by how much it was said to run past the next op of its stream; `end_ns` is without
    declared: Names = text()  # the rule by which the user calls it communication; no reader knows it
    # What its collective says of it, `wait_ns` too: filled in by `analyzers.clocks.align` once all captures are there.
    collective: Ids = id_(-1)  # number in `Trace.matches`
    collective_calls: Ids = id_(0)  # how many calls of that one the run has
    last_rank: Ids = key(-1)  # who came last, where several ranks came
    last_device: Ids = key(-1)
    wait_low_ns: Ids = id_(0)  # least that `wait_ns` may be: all other clocks as early as bounds allow
    wait_high_ns: Ids = id_(0)  # most: all as late
    wait_seen: Ids = number("int8", 1)  # 0 where a peer that it may have waited for was not captured


WAIT_RANGE = ("wait_low_ns", "wait_high_ns")
# Columns that no reader makes. But for `WAIT_RANGE` they are not exported: who reads an export back fills them in.
OF_COLLECTIVES = ("collective", "collective_calls", "last_rank", "last_device", *WAIT_RANGE, "wait_seen")
NOT_READ = ("cut_ns", "declared", *OF_COLLECTIVES)


class Calls(Table):
    """Host calls of the runtime: launches, synchronizations, records of events."""

    process: Ids = key(0)
    thread: Ids = id_(-1)
    name: Names = text()  # without version suffix: cudaStreamSynchronize, not cudaStreamSynchronize_v3020
    start_ns: Ints = number("int64", 0)
    end_ns: Ints = number("int64", 0)
    correlation: Ids = id_(-1)


class Ranges(Table):
    """Spans on host threads: NVTX ranges, annotations, operators, Python functions; HLO ops."""

    process: Ids = key(0)
    thread: Ids = id_(-1)
    kind: Names = one_of(RANGE_KINDS)
    name: Names = text()
    domain: Names = text()  # NVTX domain, "" the default one
    start_ns: Ints = number("int64", 0)
    end_ns: Ints = number("int64", 0)
    id: Ids = id_(-1)  # Kineto's External id; of "hlo" its own, within the process
    sequence: Ids = id_(-1)  # autograd's sequence number; of an HLO op the id of its module's range
    sizes: Ids = id_(-1)  # of an operator's inputs, as a number of `analyzers.trace.sizes`
    forward_thread: Ids = id_(-1)  # thread of the forward op a backward op is linked to


class Syncs(Table):
    """Synchronizations of the host, and of a stream with an event."""

    process: Ids = key(0)
    context: Ids = key(-1)
    stream: Ids = id_(-1)  # synchronized stream, or the stream made to wait
    kind: Names = one_of(SYNC_KINDS)
    start_ns: Ints = number("int64", 0)
    end_ns: Ints = number("int64", 0)
    correlation: Ids = id_(-1)
    event: Ids = id_(-1)  # event id, reused over time
    event_sync: Ids = id_(-1)  # nsys eventSyncId, unique per process: links to `records`
    record_correlation: Ids = id_(-1)  # Kineto's claim of which record it waits for
    record_stream: Ids = id_(-1)


class Records(Table):
    """Records of events."""

    process: Ids = key(0)
    context: Ids = key(-1)
    stream: Ids = id_(-1)
    correlation: Ids = id_(-1)
    event: Ids = id_(-1)
    event_sync: Ids = id_(-1)


class CommunicationCalls(Table):
    """What the trace says about a communication call, joined to ops by (process, correlation)."""

    process: Ids = key(0)
    correlation: Ids = id_(-1)
    thread: Ids = id_(-1)
    start_ns: Ints = number("int64", 0)
    end_ns: Ints = number("int64", 0)
    operation: Names = text()  # as the trace spells it: all_to_allv, ncclAllReduce
    bytes: Ints = number("int64", -1)  # message size as NCCL states it, where it does
    in_elements: Ints = number("int64", -1)
    out_elements: Ints = number("int64", -1)
    dtype: Names = text()
    group: Names = text()  # process group name
    group_description: Names = text()  # what the program calls it: tp, dp_shard, default_pg
    group_ranks: Names = text()  # as printed, "[0, 1]"
    group_size: Ids = number("int32", -1)
    sequence: Ints = number("int64", -1)
    communicator: Ints = number("int64", -1)  # NCCL communicator id from its NVTX payload
    peer: Ids = number("int32", -1)  # of a send or receive


class Devices(Table):
    """GPUs, as each process names them."""

    process: Ids = key(0)
    device: Ids = key(-1)  # as ops name it
    gpu: Ids = number("int32", -1)  # physical index on the host
    name: Names = text()
    sms: Ids = number("int32", -1)
    threads_per_sm: Ids = number("int32", -1)
    blocks_per_sm: Ids = number("int32", -1)
    warp: Ids = number("int32", -1)  # threads that run as one
    registers_per_sm: Ints = number("int64", -1)
    shared_bytes_per_sm: Ints = number("int64", -1)
    memory_bytes: Ints = number("int64", -1)


class Streams(Table):
    """Streams, where the capture describes them."""

    process: Ids = key(0)
    context: Ids = key(-1)
    stream: Ids = id_(-1)
    priority: Ints = number("int64", 0)
    blocking: Ids = number("int8", -1)  # 1 = synchronizes with the legacy default stream, 0 = does not, -1 = unknown
    default: Ids = number("int8", -1)  # 1 = the context's default stream
    queue: Ints = number("int64", -1)  # hardware queue, where the capture numbers these beside streams


class Memory(Table):
    """GPU memory in use from an instant on, where the profiler recorded it."""

    process: Ids = key(0)
    device: Ids = key(-1)
    start_ns: Ints = number("int64", 0)
    # "allocator": what the framework's allocator has handed out, in all; "driver": what has been taken from the driver,
    # in all; "driver-change": the same since the capture began, which may be less than nothing.
    source: Names = one_of(MEMORY_SOURCES)
    bytes: Ints = number("int64", 0)
    reserved: Ints = number("int64", -1)  # what the allocator holds of the driver's; of "allocator" only


class Overhead(Table):
    """Spans in which the profiler's own work held a process up; those of one process apart, ascending."""

    process: Ids = key(0)
    start_ns: Ints = number("int64", 0)
    end_ns: Ints = number("int64", 0)


class Counters(Table):
    """What the hardware did, a row a sample of a GPU; -1 where a counter was not sampled."""

    process: Ids = key(0)
    device: Ids = key(-1)
    start_ns: Ints = number("int64", 0)  # the sample covers [start_ns, end_ns) on the clock of the device's ops
    end_ns: Ints = number("int64", 0)
    sm_active: Ids = number("int16", -1)  # % of the time, averaged over SMs, in which one held a warp; and so on in %
    sm_issue: Ids = number("int16", -1)
    tensor_active: Ids = number("int16", -1)
    dram_read: Ids = number("int16", -1)
    dram_write: Ids = number("int16", -1)
    nvlink_in: Ids = number("int16", -1)
    nvlink_out: Ids = number("int16", -1)
    pcie_in: Ids = number("int16", -1)
    pcie_out: Ids = number("int16", -1)
    warps: Ids = number("int16", -1)  # places of warps in use, % of all
    unallocated_warps: Ids = number("int16", -1)  # places of warps free on SMs that hold one, % of all
    gpc_clock: Ids = number("int32", -1)  # MHz
    sys_clock: Ids = number("int32", -1)
    # Gbit/s of all network cards of the host, in rows of their own, which its GPUs share
    nic_in: Ids = number("int16", -1)
    nic_out: Ids = number("int16", -1)


TABLES: Mapping[str, type[Table]] = {
    "ops": Ops,
    "api": Calls,
    "ranges": Ranges,
    "syncs": Syncs,
    "records": Records,
    "comms": CommunicationCalls,
    "devices": Devices,
    "streams": Streams,
    "memory": Memory,
    "overhead": Overhead,
    "counters": Counters,
}
