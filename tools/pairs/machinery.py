"""What pairs of programs are timed and captured with: ranges, warm rounds in turns, a trace a rank."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

STEPS = 20
ROUNDS = 5
WIDTH = 8192
HALF = torch.bfloat16
Make = Callable[[], Any]


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)
    try:
        with record_function(name):
            yield
    finally:
        torch.cuda.nvtx.range_pop()


def work_on_host(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=HALF) / columns**0.5


def flat_gradients(model: nn.Module) -> torch.Tensor:
    """Gradients of all parameters in one tensor, of which each parameter's is a view from now on."""
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    flat = torch.zeros(sum(sizes), dtype=parameters[0].dtype)
    for parameter, part in zip(parameters, flat.split(sizes), strict=True):
        parameter.grad = part.as_strided(parameter.size(), parameter.stride(), part.storage_offset())
    return flat


def join_ranks() -> torch.device:
    """The device of this rank, once the ranks know each other."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=timedelta(seconds=90))
    return device


def settle() -> None:
    dist.barrier()
    torch.cuda.synchronize()


def warmed(make: Make, device: torch.device) -> Any:
    torch.manual_seed(dist.get_rank())
    with device:
        workload = make()
    run(workload, seconds=0.3)
    return workload


def run(workload: Any, seconds: float) -> None:
    """Run to reach the clocks and temperature of a longer run; every rank the same number of steps."""
    for _ in range(6):
        workload.step()
    settle()
    begin = time.perf_counter()
    workload.step()
    settle()
    steps = torch.tensor(seconds / (time.perf_counter() - begin), device="cuda")
    dist.all_reduce(steps, dist.ReduceOp.MIN)
    for _ in range(int(steps)):
        workload.step()
    settle()


def step_time_ms(workload: Any) -> float:
    """Time of a step without a profiler, of the slower rank."""
    run(workload, seconds=0.3)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(STEPS):
        workload.step()
    end.record()
    settle()
    times = [0.0] * dist.get_world_size()
    dist.all_gather_object(times, begin.elapsed_time(end) / STEPS)
    return max(times)


def captured_steps(workload: Any, steps: int) -> None:
    settle()
    for step in range(steps):
        with region(f"ProfilerStep#{step}"):
            workload.step()
    settle()


def capture_torch(name: str, workload: Any, folder: Path, steps: int) -> None:
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], experimental_config=config) as profiler:
        captured_steps(workload, steps)
    profiler.export_chrome_trace(str(folder / f"{name}.rank{dist.get_rank()}.json.gz"))
    settle()


def capture_pair(name: str, pair: tuple[Make, Make], device: torch.device, folder: Path, steps: int = STEPS) -> None:
    """Time both variants of a pair in turns, without a profiler; then capture some steps of each."""
    variants = {f"{name}_{which}": warmed(make, device) for which, make in zip(("before", "after"), pair, strict=True)}
    rounds: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(ROUNDS):
        for variant, workload in variants.items():
            rounds[variant].append(step_time_ms(workload))
    if dist.get_rank() == 0:
        truth = folder / "step_time_ms.json"
        known = json.loads(truth.read_text()) if truth.exists() else {}
        known |= {variant: round(statistics.median(times), 4) for variant, times in rounds.items()}
        truth.write_text(json.dumps(known, indent=1) + "\n")
        print({variant: [round(time, 3) for time in sorted(times)] for variant, times in rounds.items()}, flush=True)
    for variant, workload in variants.items():
        run(workload, seconds=0.3)
        capture_torch(variant, workload, folder, steps)
