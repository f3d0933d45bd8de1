"""Capture an all-reduce and an all-gather beside matmuls, with what people try against contention.

    torchrun --nproc-per-node 2 tools/capture-contention.py FOLDER

Prints the time of a step without a profiler, ms.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

STEPS = 20
ELEMENTS = 1 << 29


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)
    with record_function(name):
        yield
    torch.cuda.nvtx.range_pop()


def group(max_ctas: int | None = None, *, high: bool = False) -> Any:
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=high)
    if max_ctas:
        options.config.max_ctas = max_ctas
    return dist.new_group(list(range(dist.get_world_size())), backend="nccl", pg_options=options)


class Compute:
    def __init__(self, pieces: int = 1) -> None:
        self.pieces = pieces
        self.x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.v = torch.randn(1 << 28, device="cuda")

    def matmuls(self) -> None:
        with region("compute"):
            for _ in range(4):
                for part in self.x.chunk(self.pieces):
                    part @ self.x

    def vectors(self) -> None:
        with region("compute"):
            for _ in range(6):
                self.v.mul_(1.0001)


class Reduce(Compute):
    """An all-reduce before, beside all of, or beside the end of the computation."""

    def __init__(self, *, where: str = "beside", in_group: Any = None, pieces: int = 1) -> None:
        super().__init__(pieces)
        self.where, self.in_group = where, in_group
        self.gradients = torch.randn(ELEMENTS, device="cuda", dtype=torch.bfloat16)

    def reduce(self) -> Any:
        with region("reduce"):
            return dist.all_reduce(self.gradients, async_op=True, group=self.in_group)

    def step(self) -> None:
        if self.where == "end":
            self.matmuls()
        work = self.reduce()
        if self.where == "before":
            work.wait()
        if self.where != "end":
            self.matmuls()
        self.vectors()
        work.wait()


class Gather(Compute):
    """An all-gather before or beside the computation, by NCCL or by copy engines."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, world = how, dist.get_world_size()
        self.all = torch.empty(world * ELEMENTS, device="cuda", dtype=torch.bfloat16)
        if how == "copy":
            import torch.distributed._symmetric_memory as symmetric

            self.mine = symmetric.empty(ELEMENTS, device=torch.device("cuda"), dtype=torch.bfloat16)
            self.handle = symmetric.rendezvous(self.mine, dist.group.WORLD)
            self.parts = [self.handle.get_buffer(rank, (ELEMENTS,), torch.bfloat16) for rank in range(world)]
            self.side = torch.cuda.Stream()
        else:
            self.mine = torch.empty(ELEMENTS, device="cuda", dtype=torch.bfloat16)
        self.mine.normal_()

    def copy(self) -> None:
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side), region("gather"):
            self.handle.barrier()
            for step in range(len(self.parts)):
                rank = (dist.get_rank() + step) % len(self.parts)
                self.all[rank * ELEMENTS : (rank + 1) * ELEMENTS].copy_(self.parts[rank])
            self.handle.barrier()

    def step(self) -> None:
        work = None
        if self.how == "copy":
            self.copy()
        else:
            with region("gather"):
                work = dist.all_gather_into_tensor(self.all, self.mine, async_op=True)
            if self.how == "before":
                work.wait()
        self.matmuls()
        self.vectors()
        if work is None:
            torch.cuda.current_stream().wait_stream(self.side)
        else:
            work.wait()


WORKLOADS: dict[str, Callable[[], Any]] = {
    "reduce_before": lambda: Reduce(where="before"),
    "reduce_after": Reduce,
    "reduce_ctas16": lambda: Reduce(in_group=group(16)),
    "reduce_ctas8": lambda: Reduce(in_group=group(8)),
    "reduce_ctas4": lambda: Reduce(in_group=group(4)),
    "reduce_priority": lambda: Reduce(in_group=group(high=True)),
    "reduce_tiles": lambda: Reduce(pieces=8),
    "reduce_place": lambda: Reduce(where="end"),
    "gather_before": lambda: Gather("before"),
    "gather_nccl": lambda: Gather("nccl"),
    "gather_copy": lambda: Gather("copy"),
}


def settle() -> None:
    dist.barrier()
    torch.cuda.synchronize()


def capture(name: str, folder: Path) -> None:
    workload = WORKLOADS[name]()
    for _ in range(6):
        workload.step()
    settle()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(STEPS):
        workload.step()
    end.record()
    settle()
    if dist.get_rank() == 0:
        print(f"{name}: {begin.elapsed_time(end) / STEPS:.2f} ms", flush=True)
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], experimental_config=config) as profiler:
        settle()
        for step in range(STEPS):
            with region(f"ProfilerStep#{step}"):
                workload.step()
        settle()
    profiler.export_chrome_trace(str(folder / f"{name}.rank{dist.get_rank()}.json.gz"))
    settle()


def main() -> None:
    local = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=local)
    for name in WORKLOADS:
        capture(name, Path(sys.argv[1]))
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
