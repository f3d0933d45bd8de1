"""The rows that a step touched, copied to the host: in the training stream, or beside it."""

from __future__ import annotations

import queue
import threading

import torch
import torch.distributed as dist

from collectors.workloads.rank import Event, Rank, products, region


class Run:
    """sync: a blocking copy to the host. async: a copy on the device into a buffer that is used again, then one to
    pinned memory on a side stream, taken over by a thread of the host.
    """

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.variant, self.sizes = rank, variant, sizes
        kind = torch.bfloat16 if rank.on_gpu else torch.float32
        self.weights = torch.randn(sizes["rows"], sizes["dim"], device=rank.device)
        self.buffer = torch.empty(sizes["touched"], sizes["dim"], device=rank.device)
        self.host = rank.pinned(sizes["touched"], sizes["dim"])
        self.x = torch.randn(sizes["width"], sizes["width"], device=rank.device, dtype=kind)
        self.side = rank.stream()
        self.copied: queue.Queue[Event] = queue.Queue()
        self.taken = threading.Semaphore(1)  # the host buffer is free
        threading.Thread(target=self.take, daemon=True).start()

    def step(self) -> None:
        """Track what is touched, and train."""
        with region("inputs"):
            touched = torch.randint(0, self.sizes["rows"], (self.sizes["touched"],), device=self.rank.device)
        with region("track delta"):
            if self.variant == "sync":
                self.weights.index_select(0, touched).cpu()
            else:
                self.stream_out(touched)
        with region("train compute"):
            y = products(self.x, self.sizes["products"])
        with region("gradients"):
            dist.all_reduce(y)

    def stream_out(self, touched: torch.Tensor) -> None:
        """Copy on the device; to the host beside what follows."""
        main = self.rank.main()
        main.wait_stream(self.side)  # the last copy has left the buffer
        torch.index_select(self.weights, 0, touched, out=self.buffer)
        self.side.wait_stream(main)
        self.taken.acquire()
        with self.rank.on(self.side), region("stream out"):
            self.host.copy_(self.buffer, non_blocking=True)
            self.copied.put(self.rank.event())

    def take(self) -> None:
        """Take over what has been copied, in a thread of its own."""
        while True:
            self.copied.get().synchronize()
            self.taken.release()
