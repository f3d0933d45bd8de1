"""TorchRec's own modules: a sharded EmbeddingBagCollection and dense layers, stepped by one of its train pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.train_pipeline import TrainPipelineBase, TrainPipelineSparseDist
from torchrec.streamable import Pipelineable

from collectors.workloads.rank import Rank


@dataclass
class Batch(Pipelineable):
    """What a rank trains on in a step."""

    dense: torch.Tensor
    sparse: KeyedJaggedTensor

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """The batch on another device."""
        return Batch(
            self.dense.to(device, non_blocking=non_blocking), self.sparse.to(device, non_blocking=non_blocking)
        )

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep its memory until a stream is done with it."""
        self.dense.record_stream(stream)
        self.sparse.record_stream(stream)

    def pin_memory(self) -> Batch:
        """The batch in host memory that a GPU copies from by itself."""
        return Batch(self.dense.pin_memory(), self.sparse.pin_memory())


class Model(torch.nn.Module):
    """Pooled rows of all tables and dense features, through dense layers."""

    def __init__(self, sizes: dict[str, int], device: torch.device) -> None:
        super().__init__()
        names = [f"table{index}" for index in range(sizes["tables"])]
        tables = [
            EmbeddingBagConfig(
                name=name, embedding_dim=sizes["dim"], num_embeddings=sizes["rows"], feature_names=[f"{name}_rows"]
            )
            for name in names
        ]
        self.bags = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
        width = (sizes["tables"] + 1) * sizes["dim"]
        layers = [torch.nn.Linear(width, width, device=device) for _ in range(sizes["layers"])]
        self.dense = torch.nn.Sequential(*layers)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss, and what it was made of."""
        pooled = self.bags(batch.sparse).values()
        out = self.dense(torch.cat([batch.dense, pooled], 1))
        return out.square().mean(), out.detach()


class Run:
    """base: each batch's input all-to-all, lookup and dense work in order (TrainPipelineBase). sparse-dist: the next
    batch is copied and sent round beside this one's work (TrainPipelineSparseDist).
    """

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.sizes = rank, sizes
        model = DistributedModelParallel(Model(sizes, rank.device), device=rank.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        pipeline = TrainPipelineBase if variant == "base" else TrainPipelineSparseDist
        self.pipeline = pipeline(model, optimizer, rank.device)
        self.batches = self.fresh()

    def step(self) -> None:
        """One training step."""
        self.pipeline.progress(self.batches)

    def fresh(self) -> Iterator[Batch]:
        """Random batches in host memory, without end."""
        sizes = self.sizes
        keys = [f"table{index}_rows" for index in range(sizes["tables"])]
        lengths = torch.full((sizes["tables"] * sizes["batch"],), sizes["bag"])
        while True:
            rows = torch.randint(0, sizes["rows"], (sizes["tables"] * sizes["batch"] * sizes["bag"],))
            batch = Batch(torch.randn(sizes["batch"], sizes["dim"]), KeyedJaggedTensor(keys, rows, lengths=lengths))
            yield batch.pin_memory() if self.rank.on_gpu else batch
