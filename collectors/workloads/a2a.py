"""An all-to-all whose result is checked on the host, beside compute that has nothing to do with it."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collectors.workloads.rank import Rank, products, region


class Run:
    """sync: the check is read back at once. garbage: copied without waiting, and read at once. event: read after an
    event behind the copy, once the compute has been submitted.
    """

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.variant, self.products = rank, variant, sizes["products"]
        kind = torch.bfloat16 if rank.on_gpu else torch.float32
        self.x = torch.randn(sizes["width"], sizes["width"], device=rank.device, dtype=kind)
        self.elements = sizes["elements"] // rank.world * rank.world
        self.received = torch.empty(self.elements, device=rank.device)
        self.flag = rank.pinned(1, dtype=torch.bool)
        self.side = rank.stream()
        self.read, self.wrong = 0, 0

    def step(self) -> None:
        """Send, check, and compute."""
        with region("inputs"):
            payload = torch.rand(self.elements, device=self.rank.device)
        with region("pre compute"):
            products(self.x, 2)
        with region("comms"):
            work = dist.all_to_all_single(self.received, payload, async_op=True)
        self.flag.zero_()
        with self.rank.on(self.side):
            with region("comms validation"):
                work.wait()
                valid = (self.received.sum() > 0).reshape(1)
            if self.variant == "sync":
                with region("assert"):
                    self.count(bool(valid.item()))
            else:
                self.flag.copy_(valid, non_blocking=True)
                copied = self.rank.event()
        if self.variant == "garbage":
            with region("assert"):
                self.count(bool(self.flag[0]))
        with region("irrelevant compute"):
            products(self.x, self.products)
        if self.variant == "event":
            with region("assert"):
                copied.synchronize()
                self.count(bool(self.flag[0]))
        self.rank.main().wait_stream(self.side)

    def count(self, valid: bool) -> None:
        """Note what the host read: the data are always valid, so anything else is garbage."""
        self.read, self.wrong = self.read + 1, self.wrong + (not valid)

    def report(self) -> str:
        """How often the host read what was not there yet."""
        return f"the host read the flag {self.read} times, {self.wrong} times before it was there"
