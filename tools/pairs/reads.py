"""Programs whose host asks the GPU for a number, a size or an answer, or only waits for it; and the same without."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, flat_gradients, matrix, region, work_on_host
from pairs.syncs import Block

ACTIONS = 64
FANOUT = 32
TILES = 4


class PolicyUpdate:
    """PPO over three minibatches; the host reads behind each how far the policy went, or the GPU sums it up."""

    def __init__(self, *, read: bool) -> None:
        self.read, self.target_kl = read, 1e9
        width, rows = WIDTH // 8, 3 * WIDTH
        blocks = (Block(width, 4 * width) for _ in range(3))
        self.policy = nn.Sequential(*blocks, nn.Linear(width, ACTIONS)).to(HALF)
        self.gradient = flat_gradients(self.policy)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-5, fused=True)
        self.observations, self.actions = torch.randn(rows, width, dtype=HALF), torch.randint(0, ACTIONS, (rows, 1))
        self.advantages, self.old = torch.randn(rows, 1), torch.full((rows, 1), -4.2)
        self.minibatches = torch.randperm(rows).chunk(3)
        self.kl_sum, self.kl_sum_on_gpu = 0.0, torch.zeros(())

    def minibatch(self, rows: torch.Tensor) -> torch.Tensor:
        with region("gather minibatch"):
            work_on_host(0.4e-3)
            observations, actions = self.observations[rows], self.actions[rows]
            advantages, old = self.advantages[rows], self.old[rows]
        with region("policy forward"):
            now = self.policy(observations).float().log_softmax(1).gather(1, actions)
            ratio = (now - old).exp()
            loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        with region("policy backward"):
            loss.backward()
        with region("average policy"):
            dist.all_reduce(self.gradient)
        with region("policy step"):
            self.optimizer.step()
            self.gradient.zero_()
        return old - now.detach()

    def step(self) -> None:
        for rows in self.minibatches:
            moved = self.minibatch(rows)
            with region("early stop"):
                kl = moved.mean()
                if not self.read:
                    self.kl_sum_on_gpu += kl
                    continue
                reached = kl.item()
                self.kl_sum += reached
                if reached > self.target_kl:
                    break


class SampledGraph:
    """A graph net over sampled neighbours, each node's features fetched once: torch.unique, or as many rows as ids."""

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        nodes, self.seeds, self.width = 64 * WIDTH, 2 * WIDTH, WIDTH // 32
        self.features = torch.randn(nodes, self.width, dtype=HALF)
        self.neighbors = torch.randint(0, nodes, (nodes, FANOUT))
        self.batch = torch.randint(0, nodes, (self.seeds,))
        self.first, self.inner = matrix(self.width, WIDTH // 2), matrix(WIDTH // 2, WIDTH // 2)
        self.output = torch.zeros(())

    def padded_unique(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Each id once, and node 0 behind them; and where each one went."""
        ordered, order = ids.sort()
        number = nn.functional.pad((ordered[1:] != ordered[:-1]).cumsum(0), (1, 0))
        unique = torch.zeros_like(ids).scatter_(0, number, ordered)
        return unique, torch.empty_like(ids).scatter_(0, order, number)

    def step(self) -> None:
        with region("sample neighbors"):
            ids = self.neighbors[self.batch].flatten()
        with region("unique nodes"):
            if self.fixed:
                unique, inverse = self.padded_unique(ids)
            else:
                unique, inverse = torch.unique(ids, return_inverse=True)
        with region("build block"):
            work_on_host(0.5e-3)
        with region("gather features"):
            x = self.features[unique]
        with region("aggregate"):
            x = x[inverse].view(self.seeds, FANOUT, self.width).float().mean(1).to(HALF)
        with region("graph layers"):
            x = torch.relu(x @ self.first)
            for _ in range(4):
                x = torch.relu(x @ self.inner)
            self.output = x.float().mean()
        with region("average score"):
            dist.all_reduce(self.output)


class SpeculativeDecoder:
    """Tokens drafted by a small head, verified by all layers; the host asks if all were right, or the GPU picks."""

    def __init__(self, *, check: bool) -> None:
        self.check = check
        width, vocabulary, sequences = WIDTH // 2, 4 * WIDTH, WIDTH // 8
        self.table, self.draft_head = matrix(vocabulary, width), matrix(width, width)
        self.layers = [(matrix(width, 4 * width), matrix(4 * width, width)) for _ in range(4)]
        self.tokens, self.accepted = torch.randint(0, vocabulary, (sequences,)), torch.zeros(())

    def verify(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table[tokens]
        for up, down in self.layers:
            x = x + nn.functional.silu(x @ up) @ down
        return (x @ self.table.T).argmax(1)

    def step(self) -> None:
        with region("schedule"):
            work_on_host(0.5e-3)
        with region("draft"):
            draft = (self.table[self.tokens] @ self.draft_head).argmax(1)
        with region("verify"):
            verified, following = self.verify(torch.cat((self.tokens, draft))).chunk(2)
        with region("count accepted"):
            self.accepted += (draft == verified).sum()
            dist.all_reduce(self.accepted)
        with region("accept tokens"):
            if self.check and torch.equal(draft, verified):
                self.tokens = following
            else:
                self.tokens = torch.where(draft == verified, following, verified)


class PrioritizedReplay:
    """Q-learning whose replay is drawn by priorities, which the host fetches as an array, or the GPU keeps."""

    def __init__(self, *, read: bool) -> None:
        self.read = read
        width, stored, batch = WIDTH // 8, 8 * WIDTH, 2 * WIDTH
        self.online, self.target = (
            nn.Sequential(*(Block(width, 4 * width) for _ in range(3)), nn.Linear(width, ACTIONS)).to(HALF)
            for _ in range(2)
        )
        self.gradient = flat_gradients(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-5, fused=True)
        self.states, self.rewards = torch.randn(stored, width, dtype=HALF), torch.randn(stored)
        self.actions, self.rows = torch.randint(0, ACTIONS, (stored, 1)), torch.randperm(stored)[:batch]
        self.rows_on_host = self.rows.cpu().numpy()
        self.priorities, self.priorities_on_gpu = np.ones(stored, np.float32), torch.ones(stored)

    def step(self) -> None:
        with region("sample replay"):
            work_on_host(0.5e-3)
            states, following = self.states[self.rows], self.states[self.rows - 1]
            actions, rewards = self.actions[self.rows], self.rewards[self.rows]
        with region("target network"), torch.no_grad():
            goal = rewards + 0.99 * self.target(following).float().amax(1)
        with region("q network"):
            error = self.online(states).float().gather(1, actions)[:, 0] - goal
            loss = nn.functional.huber_loss(error, torch.zeros_like(error))
        with region("q backward"):
            loss.backward()
        with region("average q"):
            dist.all_reduce(self.gradient)
        with region("adam"):
            self.optimizer.step()
            self.gradient.zero_()
        with region("update priorities"):
            if self.read:
                self.priorities[self.rows_on_host] = error.detach().abs().cpu().numpy()
            else:
                self.priorities_on_gpu[self.rows] = error.detach().abs()


class Tiles:
    """A large image is upscaled tile by tile; behind each the host waits for its stream, or only once for all."""

    def __init__(self, *, wait: bool) -> None:
        self.wait = wait
        self.size, channels = WIDTH // 16, WIDTH // 64
        convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(6)]
        layers = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
        self.model = nn.Sequential(*layers).to(dtype=HALF, memory_format=torch.channels_last)
        image = torch.randn(1, channels, self.size, TILES * self.size, dtype=HALF)
        self.image = image.contiguous(memory_format=torch.channels_last)
        self.upscaled = torch.zeros_like(self.image)

    @torch.no_grad()
    def step(self) -> None:
        for number in range(TILES):
            columns = slice(number * self.size, (number + 1) * self.size)
            with region("crop tile"):
                work_on_host(0.3e-3)
                tile = self.image[..., columns].contiguous(memory_format=torch.channels_last)
            with region("upscale tile"):
                tile = self.model(tile)
            with region("blend tile"):
                self.upscaled[..., columns].lerp_(tile, 0.5)
                if self.wait:
                    torch.cuda.current_stream().synchronize()
        with region("average brightness"):
            dist.all_reduce(self.upscaled.float().mean())
