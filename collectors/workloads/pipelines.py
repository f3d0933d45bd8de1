"""Train pipelines: where the next batch's embedding lookup is placed beside forward, backward and optimizer."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collectors.workloads.rank import Rank, Tables, region


class Run:
    """serial: lookup after the optimizer, in its stream. overlap: beside the optimizer. prefetch: beside the forward
    pass. both: half the tables beside the forward pass, half beside the optimizer.
    """

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.variant = rank, variant
        tables = sizes["tables"]
        early = {"prefetch": tables, "both": tables // 2}.get(variant, 0)
        self.early, self.late = Tables(rank, early, sizes), Tables(rank, tables - early, sizes)
        width = tables * sizes["dim"]
        layers = [torch.nn.Linear(width, width) for _ in range(sizes["layers"])]
        self.dense = torch.nn.Sequential(*layers).to(rank.device)
        rest = torch.randn(sizes["parameters"] // 6, device=rank.device)
        self.rest = [
            rest.clone().requires_grad_() for _ in range(6)
        ]  # parameters without a forward pass worth its time
        for parameter in self.rest:
            parameter.grad = torch.randn_like(parameter)
        self.optimizer = torch.optim.Adam([*self.dense.parameters(), *self.rest], foreach=True)
        self.side = rank.stream()
        self.looked_up = self.lookup(self.early) + self.lookup(self.late)

    def step(self) -> None:
        """One training step, and the lookup for the next."""
        main = self.rank.main()
        inputs = torch.cat(self.looked_up, 1)
        early: list[torch.Tensor] = []
        if len(self.early.bags):
            self.side.wait_stream(main)
            with self.rank.on(self.side):
                early = self.lookup(self.early)
        with region("dense forward"):
            loss = self.dense(inputs).square().mean()
        with region("backward"):
            loss.backward()
        with region("gradients"):
            for parameter in self.dense.parameters():
                dist.all_reduce(parameter.grad)
        beside = self.variant in ("overlap", "both")
        late: list[torch.Tensor] = []
        if beside:
            self.side.wait_stream(main)
            with self.rank.on(self.side):
                late = self.lookup(self.late)
        with region("optimizer"):
            self.optimizer.step()
            self.dense.zero_grad(set_to_none=False)
        if not beside and len(self.late.bags):
            late = self.lookup(self.late)
        main.wait_stream(self.side)
        self.looked_up = early + late

    @torch.no_grad()
    def lookup(self, tables: Tables) -> list[torch.Tensor]:
        """Pooled rows of some tables for fresh inputs; none for no table."""
        if not len(tables.bags):
            return []
        with region("inputs"):
            rows = tables.fresh()
        with region("emb_lookup"):
            return [tables(rows)]
