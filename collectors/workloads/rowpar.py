"""A row-parallel linear layer in s chunks: each a matrix product and an all-reduce, on a stream of its own."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collectors.workloads.rank import Rank, region


class Run:
    """s1, s2, s4: the number of chunks."""

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.chunks = rank, int(variant[1:])
        kind = torch.bfloat16 if rank.on_gpu else torch.float32
        self.inner, hidden = 4 * sizes["hidden"] // rank.world, sizes["hidden"]
        self.each = sizes["tokens"] // self.chunks
        self.kind = kind
        self.weight = torch.randn(hidden, self.inner, device=rank.device, dtype=kind) * 0.01
        self.outputs = torch.empty(self.chunks, self.each, hidden, device=rank.device, dtype=kind)
        self.streams = [rank.stream() for _ in range(self.chunks)]

    @torch.no_grad()
    def step(self) -> None:
        """One forward pass of the layer."""
        main = self.rank.main()
        with region("inputs"):
            inputs = torch.randn(self.chunks, self.each, self.inner, device=self.rank.device, dtype=self.kind)
        with region("row parallel linear"):
            for index, stream in enumerate(self.streams):
                stream.wait_stream(main)
                with self.rank.on(stream), region(f"chunk {index}"):
                    torch.mm(inputs[index], self.weight.t(), out=self.outputs[index])
                    dist.all_reduce(self.outputs[index], async_op=True).wait()
            for stream in self.streams:
                main.wait_stream(stream)
