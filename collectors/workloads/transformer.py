"""Training steps of a transformer, data-parallel (ddp) or fully sharded (fsdp)."""

from __future__ import annotations

import torch

from collectors.workloads.rank import Rank, region


class Run:
    """`variant` is the kind of parallelism, ddp or fsdp."""

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.shape = rank, (sizes["batch"], sizes["tokens"], sizes["width"])
        self.kind = torch.bfloat16 if rank.on_gpu else torch.float32
        width = sizes["width"]
        layer = torch.nn.TransformerEncoderLayer(width, sizes["heads"], 4 * width, batch_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, sizes["layers"], enable_nested_tensor=False)
        model = model.to(rank.device, self.kind)
        self.model = _sharded(model) if variant == "fsdp" else _replicated(model, rank)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)

    def step(self) -> None:
        """Forward, backward, optimizer."""
        with region("inputs"):
            inputs = torch.randn(self.shape, device=self.rank.device, dtype=self.kind)
        with region("forward"):
            loss = self.model(inputs).float().square().mean()
        with region("backward"):
            loss.backward()
        with region("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


def _replicated(model: torch.nn.Module, rank: Rank) -> torch.nn.Module:
    devices = [rank.device] if rank.on_gpu else None
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=devices, bucket_cap_mb=50)


def _sharded(model: torch.nn.TransformerEncoder) -> torch.nn.Module:
    """Shard each layer, then the rest: with `fully_shard`, or the class before it (torch before 2.6)."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        policy = ModuleWrapPolicy({torch.nn.TransformerEncoderLayer})
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model
