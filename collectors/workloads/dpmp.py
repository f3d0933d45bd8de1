"""Sharded (MP) embedding bags, whose pooled rows go through an all-to-all, beside data-parallel (DP) ones."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collectors.workloads.rank import Rank, Tables, region


class Run:
    """serial: DP after MP. overlapped: DP on a side stream, beside the all-to-all. hidden-sync: as that, but a number
    read back inside MP's forward. race: as overlapped, without the side stream's wait for the inputs.
    """

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.variant = rank, variant
        self.mp, self.dp = Tables(rank, sizes["mp_tables"], sizes), Tables(rank, sizes["dp_tables"], sizes)
        self.side = rank.stream()

    @torch.no_grad()
    def step(self) -> None:
        """One forward pass."""
        main = self.rank.main()
        with region("inputs"):
            mp_rows, dp_rows = self.mp.fresh(), self.dp.fresh()
        with region("MP Embedding"):
            pooled = self.mp(mp_rows)
            received = torch.empty_like(pooled)
            work = dist.all_to_all_single(received, pooled, async_op=True)
            if self.variant != "serial" and self.variant != "race":
                self.side.wait_stream(main)  # the inputs are there; the all-to-all need not be
            if self.variant == "hidden-sync":
                work.wait()
                received[0, 0].isfinite().item()
        if self.variant == "serial":
            work.wait()
            dense = self.dp_forward(dp_rows)
        else:
            with self.rank.on(self.side):
                dense = self.dp_forward(dp_rows)
            work.wait()
            main.wait_stream(self.side)
        with region("merge"):
            torch.cat([received, dense], 1)

    def dp_forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The data-parallel lookups."""
        with region("DP Embedding"):
            return self.dp(rows)
