"""A row-parallel linear layer in s chunks: each a matrix product and an all-reduce, on a stream of its own."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collectors.workloads.place import Place, region


class Run:
    """s1, s2, s4: the number of chunks."""

    def __init__(self, place: Place, sizes: dict[str, int], variant: str) -> None:
        self.place, self.chunks = place, int(variant[1:])
        kind = torch.bfloat16 if place.on_gpu else torch.float32
        self.inner, hidden = 4 * sizes["hidden"] // place.world, sizes["hidden"]
        self.each = sizes["tokens"] // self.chunks
        self.kind = kind
        self.weight = torch.randn(hidden, self.inner, device=place.device, dtype=kind) * 0.01
        self.outputs = torch.empty(self.chunks, self.each, hidden, device=place.device, dtype=kind)
        self.streams = [place.stream() for _ in range(self.chunks)]

    @torch.no_grad()
    def step(self) -> None:
        """One forward pass of the layer."""
        main = self.place.main()
        with region("inputs"):
            inputs = torch.randn(self.chunks, self.each, self.inner, device=self.place.device, dtype=self.kind)
        with region("row parallel linear"):
            for index, stream in enumerate(self.streams):
                stream.wait_stream(main)
                with stream.here(), region(f"chunk {index}"):
                    torch.mm(inputs[index], self.weight.t(), out=self.outputs[index])
                    dist.all_reduce(self.outputs[index], async_op=True).wait()
            for stream in self.streams:
                main.wait_stream(stream)
