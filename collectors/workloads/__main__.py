"""Run a workload as one of its ranks: `torchrun --nproc-per-node 2 -m collectors.workloads dpmp --variant serial`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from collectors.workloads.catalog import WORKLOADS, find, read_sizes
from collectors.workloads.rank import Rank, region


def main() -> None:
    """Run the workload that the command line names."""
    parser = argparse.ArgumentParser(prog="collectors.workloads")
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--variant")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--results", type=Path, help="write the times here, as JSON")
    parser.add_argument("--turn", type=Path, help="wait for a lock on this file: runs that share GPUs take turns")
    arguments = parser.parse_args()
    rank = start(arguments.device)
    workload, variant = find(arguments.name, arguments.variant)
    sizes = read_sizes(workload, arguments.size, small=not rank.on_gpu)
    torch.manual_seed(rank.number)
    with turn(arguments.turn, rank):
        run = workload.load()(rank, sizes, variant)
        result = measure(run, rank, arguments.warmup, arguments.steps)
    if rank.number == 0:
        show({"workload": arguments.name, "variant": variant, "world_size": rank.world, "sizes": sizes, **result}, run)
        if arguments.results:
            arguments.results.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def start(kind: str) -> Rank:
    """Join the other ranks."""
    if kind == "cpu":
        dist.init_process_group("gloo")
        return Rank(torch.device("cpu"), dist.get_rank(), dist.get_world_size())
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return Rank(device, dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def turn(file: Path | None, rank: Rank) -> Iterator[None]:
    """Hold a lock on a file; ranks wait for each other on the host, where waiting costs no other run anything."""
    if file is None:
        yield
        return
    waiting = dist.new_group(backend="gloo")
    with file.open("w") as lock:
        if rank.number == 0:
            fcntl.flock(lock, fcntl.LOCK_EX)
        dist.barrier(waiting)
        yield
        rank.finish()
        dist.barrier(waiting)


def measure(run: Any, rank: Rank, warmup: int, steps: int) -> dict[str, Any]:
    """Run the steps; returns median and P90 of the slowest rank's step, ms, and the most memory that was in use."""
    for index in range(warmup):
        with region(f"step {index}"):
            run.step()
    rank.finish()
    dist.barrier()
    rank.finish()
    if rank.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    ticks = [rank.tick()]
    for index in range(warmup, warmup + steps):
        with region(f"step {index}"):
            run.step()
        ticks.append(rank.tick())
    rank.finish()
    steps_ms = [rank.elapsed_ms(*pair) for pair in itertools.pairwise(ticks)]
    times = torch.tensor(steps_ms, dtype=torch.float64, device=rank.device)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    memory = torch.tensor([torch.cuda.max_memory_allocated() if rank.on_gpu else 0], device=rank.device)
    dist.all_reduce(memory, dist.ReduceOp.MAX)
    sorted_ms = sorted(times.tolist())
    return {
        "steps": steps,
        "median_ms": statistics.median(sorted_ms),
        "p90_ms": sorted_ms[max(0, -(-len(sorted_ms) * 9 // 10) - 1)],
        "min_ms": sorted_ms[0],
        "peak_memory_bytes": int(memory.item()),
    }


def show(result: dict[str, Any], run: Any) -> None:
    """Print a run's result."""
    watched = bool(os.environ.get("TRACEVIZ_HOOK"))
    lines = [f"{result['workload']} {result['variant']}: {result['world_size']} ranks, {result['steps']} steps"]
    times = f"step time: median {result['median_ms']:.3f} ms, P90 {result['p90_ms']:.3f} ms (slowest rank)"
    lines.append(times + (", slowed by the profiler" if watched else ""))
    if result["peak_memory_bytes"]:
        lines.append(f"peak memory: {result['peak_memory_bytes'] / 2**30:.2f} GiB")
    if hasattr(run, "report"):
        lines.append(run.report())
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
