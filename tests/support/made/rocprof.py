"""rocprofv3's JSON of a HIP program."""

from __future__ import annotations

import json
from random import Random
from typing import Any

GPUS = (5001, 5002)  # handles of agents
KERNELS = (
    "Cijk_Ailk_Bljk_BBS",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "__amd_rocclr_copyBufferAligned",
)
HIP = ("hipApiNone", "hipLaunchKernel", "hipMemcpyAsync", "hipStreamSynchronize")
COPIES = ("MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_DEVICE")
RCCL = ("ncclAllGather", "ncclAllReduce")
THREAD, MAIN, SIDE = 4711, 1, 2
FIRST_NS = 3_456_789_012_345  # since the machine's start


def capture(seed: int = 0, *, layers: int = 8) -> str:
    """A process on one GPU, with copies to another."""
    random, now, free = Random(seed), FIRST_NS, {MAIN: 0, SIDE: 0}
    records: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("kernel_dispatch", "hip_api", "marker_api", "memory_copy", "rccl_api")
    }
    names, number = [], 100

    def op(kind: int, operation: int, stream: int, call: int, **more: Any) -> dict[str, Any]:
        nonlocal now, number
        number += 1
        began = now = now + random.randrange(500, 4_000)
        now += random.randrange(1_000, 6_000)
        said = {"size": 64, "thread_id": THREAD, "correlation_id": {"internal": number, "external": 0}}
        records["hip_api"].append(
            {**said, "kind": 1, "operation": call, "start_timestamp": began, "end_timestamp": now}
        )
        start = max(free[stream], began + 2_000) + random.randrange(0, 2_000)
        free[stream] = start + random.randrange(1, 200_000)
        times = {"start_timestamp": start, "end_timestamp": free[stream]}
        return {**said, "kind": kind, "operation": operation, **times, "stream_id": {"handle": stream}, **more}

    def kernel(which: int, stream: int) -> None:
        block = random.choice((64, 256, 1024))
        info = {"agent_id": {"handle": GPUS[0]}, "queue_id": {"handle": stream}, "kernel_id": which + 10}
        info |= {"workgroup_size": {"x": block, "y": 1, "z": 1}, "group_segment_size": random.randrange(0, 65536)}
        info |= {"grid_size": {"x": random.randrange(1, 100_000), "y": random.randrange(1, 4), "z": 1}}
        records["kernel_dispatch"].append(op(0, 0, stream, 2 if which == 2 else 1, dispatch_info=info))

    for layer in range(layers):
        began = now
        kernel(0, MAIN)
        called = now
        kernel(1, SIDE)
        said = {"size": 64, "thread_id": THREAD, "correlation_id": {"internal": 9_000 + layer, "external": 0}}
        times = {"start_timestamp": called, "end_timestamp": now}
        records["rccl_api"].append({**said, "kind": 3, "operation": 1, **times})
        kernel(2, MAIN)
        for operation, target in ((1, GPUS[0]), (2, GPUS[1])):
            ends = {"src_agent_id": {"handle": 4000 if operation == 1 else GPUS[0]}, "dst_agent_id": {"handle": target}}
            size = random.randrange(1, 1 << 24)
            records["memory_copy"].append(op(2, operation, SIDE, 2, bytes=size, **ends))
        names.append({"key": 8_000 + layer, "value": f"layer {layer % 2}"})
        said = {"size": 64, "thread_id": THREAD, "correlation_id": {"internal": 8_000 + layer, "external": 0}}
        records["marker_api"].append(
            {**said, "kind": 4, "operation": 2, "start_timestamp": began, "end_timestamp": now}
        )
    cpu = {"id": {"handle": 4000}, "type": 1, "name": "AMD EPYC 9654", "logical_node_type_id": 0}
    agents: list[dict[str, Any]] = [cpu]
    for at, handle in enumerate(GPUS):
        sizes = {"cu_count": 304, "simd_per_cu": 4, "max_waves_per_simd": 8, "wave_front_size": 64}
        name = {"name": "gfx942", "product_name": "AMD Instinct MI300X"}
        agents.append({"id": {"handle": handle}, "type": 2, "logical_node_type_id": at, **name, **sizes})
    kinds = [
        {"kind": kind, "operations": operations}
        for kind, operations in (
            ("KERNEL_DISPATCH", ["KERNEL_DISPATCH_NONE"]),
            ("HIP_RUNTIME_API", HIP),
            ("MEMORY_COPY", COPIES),
            ("RCCL_API", RCCL),
            ("MARKER_CORE_API", ["a", "b", "roctxThreadRangeA"]),
        )
    ]
    symbols = [
        {"kernel_id": at + 10, "kernel_name": name + ".kd", "formatted_kernel_name": name}
        for at, name in enumerate(KERNELS)
    ]
    tool = {
        "metadata": {
            "pid": 4711,
            "init_time": FIRST_NS - 10**9,
            "fini_time": now + 10**9,
            "node": {"hostname": "mi300"},
        },
        "agents": agents,
        "strings": {"buffer_records": kinds, "marker_api": names},
        "kernel_symbols": symbols,
        "buffer_records": records,
    }
    return json.dumps({"rocprofiler-sdk-tool": [tool]})
