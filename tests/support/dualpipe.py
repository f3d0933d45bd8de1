"""Writes tests/data/dualpipe: a made-up profile of DualPipe, in the layout of the one that DeepSeek published.

`python -m tests.support.dualpipe`. It follows that profile (deepseek-ai/profile-data, train.json) in its header, in
whole microseconds since 1970, in streams (7 computes, 27 communicates, 23 has weight gradients), in the kernels' names
and order within a pair of chunks, and in its ranges; the times are made up, and no line is taken from it.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "data" / "dualpipe" / "dualpipe.rank0.json.gz"
MAIN, WEIGHTS, COMM = 7, 23, 27
EP = "void dpsk::ep::internode::"
NOTIFY = f"{EP}notify_dispatch<false, 8>(int const*, long*, int, int const*)"
LAYOUT = "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, int*, bool*, int)"
CACHED = f"{EP}cached_notify<false>(int, int, int, int, int*, int, int, int const*)"
DISPATCH = f"{EP}dispatch<false, 8, true, 8>(int4*, float*, long*, float*, dpsk::ep::internode::SourceMeta*)"
COMBINE = f"{EP}combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*, bool const*, int4 const*)"
GEMM = "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(x)"
ATTENTION = "void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128, 12, 2, false, 1>>(x)"
CAST = "void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128, false, 128, false>(__nv_bfloat16*, int)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<direct_copy>>(int, x)"
# One pair of a forward and a backward chunk: what runs beside what. (range, kernels on COMM, then on MAIN, on WEIGHTS)
PHASES = [
    ("dispatch(F)", [LAYOUT, NOTIFY, DISPATCH], [ATTENTION, GEMM, CAST, GEMM], []),
    ("combine(F)", [CACHED, COMBINE], [GEMM, GEMM, COPY, GEMM], [GEMM]),
    ("dispatch(B)", [CACHED, DISPATCH], [ATTENTION, GEMM, CAST], [GEMM]),
    ("combine(B)", [CACHED, COMBINE], [GEMM, CAST, GEMM], []),
]
TOOK = {LAYOUT: (90, 110), NOTIFY: (150, 400), CACHED: (150, 400), DISPATCH: (2500, 3500), COMBINE: (5000, 6500)}
PAIRS = 4


def profile() -> dict[str, Any]:
    """The trace, the same each time."""
    chance = random.Random(96)
    zero = 1_740_000_000_000_000
    events: list[dict[str, Any]] = []
    at, correlation, host = 1000, 1000, 0

    def kernel(name: str, stream: int, start: int, took: int) -> None:
        nonlocal correlation, host
        correlation += 1
        host = max(host + 6, start - 900)
        ids = {"External id": correlation, "correlation": correlation}
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1166, "tid": 1166,
             "ts": zero + host, "dur": 4, "args": {**ids, "cbid": 211}}
        )  # fmt: skip
        events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": zero + start, "dur": took,
             "args": {**ids, "device": 0, "context": 1, "stream": stream, "registers per thread": 90,
                      "shared memory": 0, "grid": [20 if stream == COMM else 132, 1, 1], "block": [512, 1, 1]}}
        )  # fmt: skip

    first = at
    for _ in range(PAIRS):
        for name, comm, main, weights in PHASES:
            began = host + 1
            took = [chance.randint(*TOOK[each]) for each in comm]
            start = at
            for each, length in zip(comm, took, strict=True):
                kernel(each, COMM, start, length)
                start += length + 2
            beside = int(sum(took) * chance.uniform(0.87, 1.08))  # compute beside it, now shorter, now longer
            start = at
            for each in main:
                kernel(each, MAIN, start, beside // len(main))
                start += beside // len(main) + 1
            for each in weights:
                kernel(each, WEIGHTS, at + 50, beside // 5)
            events.append(
                {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1166, "tid": 1166, "ts": zero + began,
                 "dur": host + 5 - began, "args": {"External id": correlation + 100_000}}
            )  # fmt: skip
            at = max(at + sum(took) + 2 * len(took), start) + chance.randint(1, 20)
    events.append(
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1166, "tid": 1166,
         "ts": zero + min(first - 900, 0), "dur": at - min(first - 900, 0), "args": {"External id": 1}}
    )  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H800", "totalGlobalMem": 85_028_896_768, "numSms": 132,
                              "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
                              "sharedMemPerMultiprocessor": 233_472, "maxThreadsPerBlock": 1024, "warpSize": 32}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 64},
        "traceEvents": events,
        "traceName": "traces/prof_ep64_tp1.json",
    }  # fmt: skip


def write(path: Path = TARGET) -> None:
    """Write the fixture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(profile(), indent=1).encode(), mtime=0))


if __name__ == "__main__":
    write()
