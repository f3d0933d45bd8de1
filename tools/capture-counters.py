"""Capture one small workload for each rule by which `traceviz counters` names a contention.

One GPU, a report a workload (all but `nvlink`), then two GPUs:

    for w in sms dram pcie power none; do
        nsys profile -t cuda,nvtx --gpu-metrics-devices=0 --gpu-metrics-frequency=20000 \\
            --capture-range=cudaProfilerApi --capture-range-end=stop --export=sqlite --force-overwrite=true -o $w \\
            python tools/capture-counters.py $w
        python tools/capture-counters.py --cut $w.sqlite FOLDER
    done
    nsys profile -t cuda,nvtx --gpu-metrics-devices=0,1 --gpu-metrics-frequency=20000 --capture-range=cudaProfilerApi \\
        --capture-range-end=stop --export=sqlite --force-overwrite=true -o nvlink \\
        torchrun --nproc-per-node 2 tools/capture-counters.py nvlink
    python tools/capture-counters.py --cut nvlink.sqlite FOLDER

A number behind FOLDER keeps so many repetitions. `--gpu-metrics-devices=all` serves as well, where no other GPU's
samples are in the way; an nsys before 2024.4 calls it `--gpu-metrics-device`. All workloads also run under torchrun, on
each GPU by itself.

Each repetition runs range A alone, range B alone, and both beside each other on two streams, some 20 ms each.

| workload | A | B | what they contend for |
|---|---|---|---|
| sms | bf16 matmuls | float32 matmuls, which use no tensor cores | SMs |
| dram | scaling a vector of 1 GiB | copying another | DRAM |
| nvlink | all-reduce of 256 MiB | copies to the other GPU | NVLink |
| pcie | copies from pinned memory | a kernel that reads pinned memory | PCIe |
| power | large bf16 matmuls of random numbers | the same | power: the clock drops (and SMs) |
| none | a kernel of one thread that spins | small matmuls | nothing |
"""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPEATS = 5
STATE_MS = 20.0
KEPT = (
    "StringIds", "GPU_METRICS", "TARGET_INFO_GPU_METRICS", "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_STREAM", "TARGET_INFO_SESSION_START_TIME", "NVTX_EVENTS",
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "META_DATA_EXPORT", "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES", "ENUM_NSYS_EVENT_TYPE",
)  # fmt: skip
WORDY = "META_DATA_CAPTURE"  # kept but for the environment, which is nobody's business

Side = Callable[[], Any]


def sms(torch: Any) -> tuple[Side, Side]:
    half, single = torch.randn(4096, 4096, device="cuda").bfloat16(), torch.randn(2048, 2048, device="cuda")
    return lambda: half @ half, lambda: single @ single


def dram(torch: Any) -> tuple[Side, Side]:
    first, second, third = (torch.ones(1 << 28, device="cuda") for _ in range(3))
    return lambda: first.mul_(1.0), lambda: torch.add(second, 1.0, out=third)


def nvlink(torch: Any) -> tuple[Side, Side]:
    import torch.distributed as dist

    rank = dist.get_rank()
    reduced = torch.ones(1 << 26, device="cuda")
    mine = torch.ones(1 << 26, device="cuda")
    other = torch.empty(1 << 26, device=f"cuda:{(rank + 1) % dist.get_world_size()}")
    return lambda: dist.all_reduce(reduced), lambda: other.copy_(mine, non_blocking=True)


def pcie(torch: Any) -> tuple[Side, Side]:
    pinned, target = torch.ones(1 << 24).pin_memory(), torch.empty(1 << 24, device="cuda")
    read = torch.ones(1 << 24).pin_memory()

    interface = {"shape": tuple(read.shape), "typestr": "<f4", "data": (read.data_ptr(), False), "version": 2}
    on_gpu = type("OnGpu", (), {"__cuda_array_interface__": interface})()  # the same memory, as a GPU addresses it
    seen = torch.as_tensor(on_gpu, device="cuda")
    taken = torch.empty(1 << 24, device="cuda")
    return lambda: target.copy_(pinned, non_blocking=True), lambda: torch.add(seen, 1.0, out=taken)


def power(torch: Any) -> tuple[Side, Side]:
    first, second = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    return lambda: first @ first, lambda: second @ second


def none(torch: Any) -> tuple[Side, Side]:
    small = torch.randn(512, 512, device="cuda")
    return lambda: torch.cuda._sleep(1_000_000), lambda: small @ small


WORKLOADS = {"sms": sms, "dram": dram, "nvlink": nvlink, "pcie": pcie, "power": power, "none": none}


def run(name: str) -> None:
    import torch

    local = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local)
    distributed = "RANK" in os.environ
    if distributed:
        import torch.distributed as dist

        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    elif name == "nvlink":
        sys.exit("nvlink needs two GPUs: torchrun --nproc-per-node 2 …")

    def settle() -> None:
        torch.cuda.synchronize()
        if distributed:
            dist.barrier()
            torch.cuda.synchronize()

    torch.backends.cuda.matmul.allow_tf32 = False
    sides = dict(zip("AB", WORKLOADS[name](torch), strict=True))
    streams = {side: torch.cuda.Stream() for side in sides}
    times = {}
    for side, work in sides.items():
        with torch.cuda.stream(streams[side]):
            for _ in range(3):
                work()
            settle()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(5):
                work()
            end.record()
            settle()
        times[side] = torch.tensor(begin.elapsed_time(end) / 5, device="cuda")
        if distributed:  # all ranks have to make the same calls
            dist.all_reduce(times[side], op=dist.ReduceOp.MAX)
    counts = {side: max(1, min(2000, round(STATE_MS / float(time)))) for side, time in times.items()}
    print({side: (round(float(times[side]), 3), counts[side]) for side in sides}, flush=True)

    def launch(side: str, first: int = 0, last: int | None = None) -> None:
        with torch.cuda.stream(streams[side]):
            torch.cuda.nvtx.range_push(side)
            for _ in range(first, counts[side] if last is None else last):
                sides[side]()
            torch.cuda.nvtx.range_pop()

    def beside(pieces: int = 8) -> None:  # in turns, so that neither queue runs dry while the other is filled
        for piece in range(pieces):
            for side in sides:
                cuts = [counts[side] * at // pieces for at in (piece, piece + 1)]
                if cuts[0] < cuts[1]:
                    launch(side, *cuts)

    beside()
    settle()
    torch.cuda.cudart().cudaProfilerStart()
    settle()
    for step in range(REPEATS):
        torch.cuda.nvtx.range_push(f"step {step}")
        for state in (lambda: launch("A"), lambda: launch("B"), beside):
            state()
            settle()
        torch.cuda.nvtx.range_pop()
    torch.cuda.cudart().cudaProfilerStop()
    settle()
    if distributed:
        dist.destroy_process_group()


def cut(export: Path, folder: Path, steps: int | None = None) -> None:
    """Keep what an analysis reads, of all or the first steps, without the environment and other processes, gzipped."""
    folder.mkdir(parents=True, exist_ok=True)
    small = folder / export.name
    shutil.copyfile(export, small)
    with sqlite3.connect(small) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name not in (*KEPT, WORDY) and not name.startswith(("ENUM_CUDA", "ENUM_CUPTI", "sqlite_")):
                database.execute(f'DROP TABLE "{name}"')
        if WORDY in names:
            database.execute(f"DELETE FROM {WORDY} WHERE name NOT LIKE '%METRICS%'")
        if steps is not None:
            spans = "SELECT min(start), max(end) FROM NVTX_EVENTS WHERE text LIKE 'step %' AND substr(text, 6) + 0 < ?"
            first, last = database.execute(spans, (steps,)).fetchone()
            for name, at in [*((name, "start") for name in KEPT if name.startswith("CUPTI")), ("NVTX_EVENTS", "start")]:
                columns = [column for _, column, *_ in database.execute(f"PRAGMA table_info({name})")]
                at = at if at in columns else "timestamp"
                if at in columns:
                    database.execute(f"DELETE FROM {name} WHERE {at} < ? OR {at} > ?", (first, last))
            database.execute("DELETE FROM GPU_METRICS WHERE timestamp < ? OR timestamp > ?", (first, last))
        if "META_DATA_EXPORT" in names:
            database.execute("DELETE FROM META_DATA_EXPORT WHERE name LIKE '%PATH%' OR name LIKE '%HOST%'")
    with sqlite3.connect(small) as database:
        database.execute("VACUUM")
    with small.open("rb") as source, gzip.open(f"{small}.gz", "wb", 9) as packed:
        shutil.copyfileobj(source, packed)
    small.unlink()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cut"]:
        cut(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)
    else:
        run(sys.argv[1])
