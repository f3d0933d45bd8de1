"""Programs of which one rank does more on the host than the others, and the same without that."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, matrix, region

WORD = re.compile(r"\w+|[^\w\s]")
VOCABULARY = {f"word{number}": number for number in range(5000)}
STAGING = 4


class Tokenizer:
    """A language model whose second rank tokenizes its text as it goes; the first has it cached, or both have."""

    def __init__(self, *, cached: bool) -> None:
        self.cached = cached or dist.get_rank() == 0
        length, width = 3 * WIDTH, WIDTH // 8
        self.text = " ".join(random.Random(0).choices(list(VOCABULARY), k=length))
        ids = torch.tensor(self.tokenize(), device="cpu")
        self.staging = [ids.pin_memory() for _ in range(STAGING)]
        self.ids = torch.zeros(length, dtype=torch.int64)
        self.table = matrix(len(VOCABULARY), width)
        self.up, self.down = matrix(width, 4 * width), matrix(4 * width, width)
        self.number = 0

    def tokenize(self) -> list[int]:
        return [VOCABULARY.get(word, 0) for word in WORD.findall(self.text)]

    def step(self) -> None:
        staged = self.staging[self.number % STAGING]
        self.number += 1
        with region("tokenize"):
            if not self.cached:
                staged.copy_(torch.tensor(self.tokenize(), device="cpu"))
        with region("copy ids"):
            self.ids.copy_(staged, non_blocking=True)
        with region("embed"):
            x = self.table[self.ids]
        with region("transformer"):
            for _ in range(3):
                x = x + nn.functional.gelu(x @ self.up) @ self.down
        with region("reduce activations"):
            dist.all_reduce(x)


class MetricsWriter:
    """Layers of sharded weights; between backward and update, rank 0 writes histograms as JSON, or none does."""

    def __init__(self, *, write: bool) -> None:
        self.write = write and dist.get_rank() == 0
        width = WIDTH // 2
        self.shard, self.weight = matrix(width, width), torch.empty(2 * width, width, dtype=HALF)
        self.gradient = matrix(2 * width, width)
        self.x = matrix(WIDTH // 2, width)
        numbers = random.Random(0)
        self.histograms = {f"layer.{layer}": [numbers.random() for _ in range(256)] for layer in range(24)}
        self.number = 0

    def step(self) -> None:
        width = len(self.shard)
        with region("unshard"):
            dist.all_gather_into_tensor(self.weight, self.shard)
        with region("forward backward"):
            y = self.x
            for half in (0, 1, 0, 1):
                y = torch.relu(y @ self.weight[half * width : (half + 1) * width])
            torch.mm(torch.cat((y, y), 1).T, self.x, out=self.gradient)
        if self.write:
            with region("write metrics"):
                with Path(os.devnull).open("a") as file:
                    file.write(json.dumps({"step": self.number, "histograms": self.histograms}) + "\n")
                self.number += 1
        with region("reduce-scatter"):
            mine = torch.empty_like(self.shard)
            dist.reduce_scatter_tensor(mine, self.gradient)
        with region("update"):
            self.shard.add_(mine, alpha=-1e-6)
