"""Programs whose collective is waited for at once though what follows does not need it, and the same with async_op."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, flat_gradients, matrix, region


class MaskedLanguageModel:
    """The output head's gradient, the first that is ready, is reduced before or beside backward of the layers below."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 4
        layers = [layer for _ in range(4) for layer in (nn.Linear(width, width, bias=False), nn.GELU())]
        self.trunk, self.head = nn.Sequential(*layers).to(HALF), nn.Linear(width, 8 * WIDTH, bias=False).to(HALF)
        self.trunk_gradient, self.head_gradient = flat_gradients(self.trunk), flat_gradients(self.head)
        self.optimizer = torch.optim.SGD([*self.trunk.parameters(), *self.head.parameters()], lr=1e-5, fused=True)
        self.tokens, self.masked = torch.randn(WIDTH, width, dtype=HALF), WIDTH // 8
        self.targets = torch.randint(0, 8 * WIDTH, (self.masked,))

    def step(self) -> None:
        with region("encoder forward"):
            hidden = self.trunk(self.tokens)[: self.masked]
        with region("head"):
            masked = hidden.detach().requires_grad_()
            nn.functional.cross_entropy(self.head(masked), self.targets).backward()
        with region("reduce head"):
            work = dist.all_reduce(self.head_gradient, async_op=self.beside)
        with region("encoder backward"):
            hidden.backward(masked.grad)
        with region("reduce encoder"):
            dist.all_reduce(self.trunk_gradient)
        with region("optimizer step"):
            if work:
                work.wait()
            self.optimizer.step()
            self.head_gradient.zero_()
            self.trunk_gradient.zero_()


class TwoTowers:
    """Retrieval with all ranks' items as negatives: they are gathered before or beside the tower of the users."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 4
        self.items, self.users = matrix(8 * WIDTH, width), matrix(4 * WIDTH, width)
        self.item_weight, self.user_weights = matrix(width, width), [matrix(width, width) for _ in range(3)]
        self.all_items = torch.empty(16 * WIDTH, width, dtype=HALF)

    def step(self) -> None:
        with region("item tower"):
            items = self.items @ self.item_weight
        with region("gather items"):
            work = dist.all_gather_into_tensor(self.all_items, items, async_op=self.beside)
        with region("user tower"):
            users = self.users
            for weight in self.user_weights:
                users = torch.relu(users @ weight)
        with region("contrastive loss"):
            if work:
                work.wait()
            (users[: WIDTH // 8] @ self.all_items.T).logsumexp(1).mean()


class Graph:
    """Two layers of a graph net whose nodes' neighbours lie on another rank: exchanged before or beside the others."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        nodes, halo, features = 64 * WIDTH, 32 * WIDTH, 128
        rank = dist.get_rank()
        self.sizes = [0 if other == rank else halo for other in range(2)]
        self.x = torch.randn(nodes, features)
        self.sent, self.received = torch.randint(0, nodes, (halo,)), torch.empty(halo, features)
        self.local = torch.randint(0, nodes, (2, 2 * nodes))
        self.remote = torch.stack([torch.randint(0, halo, (nodes,)), torch.randint(0, nodes, (nodes,))])
        self.sums = torch.empty_like(self.x)
        self.weight = torch.randn(features, features) / features**0.5

    def layer(self, x: torch.Tensor) -> torch.Tensor:
        with region("pack halo"):
            packed = x[self.sent]
        with region("exchange halo"):
            work = dist.all_to_all_single(self.received, packed, self.sizes, self.sizes, async_op=self.beside)
        with region("interior"):
            self.sums.zero_()
            self.sums.index_add_(0, self.local[1], x[self.local[0]])
        with region("boundary"):
            if work:
                work.wait()
            self.sums.index_add_(0, self.remote[1], self.received[self.remote[0]])
        with region("update nodes"):
            return torch.tanh(self.sums @ self.weight)

    def step(self) -> None:
        x = self.x
        for _ in range(2):
            x = self.layer(x)
