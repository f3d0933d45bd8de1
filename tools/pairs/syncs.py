"""Programs that read a result on the host each step, and the same without that: hidden syncs."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, flat_gradients, matrix, region, work_on_host

MAX_NORM = 1e-3
EXPERTS = 8


class Clipping:
    """Training of a small transformer; the host reads the norm that gradients are clipped by, or the GPU keeps it."""

    def __init__(self, *, read: bool) -> None:
        self.read = read
        width = WIDTH // 4
        layer = nn.TransformerEncoderLayer(
            width, 16, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(HALF)
        self.gradient = flat_gradients(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self.tokens = torch.randn(4, WIDTH // 4, width, dtype=HALF)

    def step(self) -> None:
        with region("get batch"):
            work_on_host(0.6e-3)
        with region("forward"):
            loss = self.model(self.tokens).float().pow(2).mean()
        with region("backward"):
            loss.backward()
        with region("reduce gradients"):
            dist.all_reduce(self.gradient)
        with region("clip gradients"):
            norm = self.gradient.norm()
            if self.read:
                scale = MAX_NORM / (norm.item() + 1e-6)
                if scale < 1:
                    self.gradient.mul_(scale)
            else:
                self.gradient.mul_((MAX_NORM / (norm + 1e-6)).clamp(max=1))
        with region("optimizer"):
            self.optimizer.step()
            self.gradient.zero_()


class Dispatcher:
    """Tokens picked for each of eight local experts by a boolean mask, or a fixed number of them by one sort."""

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        self.tokens, self.router = matrix(4 * WIDTH, WIDTH // 4), matrix(WIDTH // 4, EXPERTS)
        self.up = [matrix(WIDTH // 4, WIDTH // 2) for _ in range(EXPERTS)]
        self.down = [matrix(WIDTH // 2, WIDTH // 4) for _ in range(EXPERTS)]
        self.positions = torch.arange(4 * WIDTH)
        self.output = torch.empty_like(self.tokens)

    def step(self) -> None:
        capacity = len(self.tokens) // EXPERTS
        with region("router"):
            chosen = (self.tokens @ self.router).argmax(1)
            order = chosen.argsort() if self.fixed else self.positions
        for expert in range(EXPERTS):
            with region("dispatch"):
                if self.fixed:
                    rows = order[expert * capacity : (expert + 1) * capacity]
                else:
                    rows = self.positions[chosen == expert]
                mine = self.tokens[rows]
            with region("expert"):
                y = nn.functional.gelu(mine @ self.up[expert]) @ self.down[expert]
            with region("combine"):
                self.output[rows] = y
        with region("reduce output"):
            dist.all_reduce(self.output)


class Accumulation:
    """Gradients of four microbatches of a convolutional net; the running loss is kept by the host or by the GPU."""

    def __init__(self, *, read: bool) -> None:
        self.read = read
        channels = WIDTH // 32
        layers = [
            layer for _ in range(3) for layer in (nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.ReLU())
        ]
        self.model = nn.Sequential(*layers).to(dtype=HALF, memory_format=torch.channels_last)
        self.gradient = flat_gradients(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5, momentum=0.9, fused=True)
        images = torch.randn(24, channels, 56, 56, dtype=HALF)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.running_loss = 0.0
        self.running_loss_on_gpu = torch.zeros(())

    def step(self) -> None:
        for _ in range(4):
            with region("collate"):
                work_on_host(0.25e-3)
            with region("forward"):
                loss = self.model(self.images).float().pow(2).mean()
            with region("backward"):
                loss.backward()
            with region("running loss"):
                if self.read:
                    self.running_loss += loss.item()
                else:
                    self.running_loss_on_gpu += loss.detach()
        with region("sync gradients"):
            dist.all_reduce(self.gradient)
        with region("update"):
            self.optimizer.step()
            self.gradient.zero_()


class Block(nn.Module):
    """Pre-norm feed-forward with a residual."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Evaluation:
    """Evaluation whose three metrics go to the host with each batch, or stay on the GPU till the end of the epoch."""

    def __init__(self, *, read: bool) -> None:
        self.read = read
        self.model = nn.Sequential(
            *(Block(WIDTH // 4, WIDTH) for _ in range(3)), nn.Linear(WIDTH // 4, WIDTH // 8, bias=False)
        ).to(HALF)
        self.images = torch.randn(WIDTH, WIDTH // 4, dtype=HALF)
        self.labels = torch.randint(0, WIDTH // 8, (WIDTH,))
        self.history: list[torch.Tensor] = []
        self.history_on_gpu, self.batch = torch.zeros(100, 3), 0

    @torch.no_grad()
    def step(self) -> None:
        with region("decode images"):
            work_on_host(0.5e-3)
        with region("eval forward"):
            logits = self.model(self.images).float()
        with region("metrics"):
            top = logits.topk(5).indices == self.labels[:, None]
            loss = nn.functional.cross_entropy(logits, self.labels)
            values = torch.stack([loss, top[:, 0].float().mean(), top.any(1).float().mean()])
            dist.all_reduce(values)
            if self.read:
                self.history.append(values.cpu())
            else:
                self.history_on_gpu[self.batch % 100] = values
                self.batch += 1


class TimedLayers:
    """Tensor-parallel decoder layers with rotary embeddings, behind each of which a timer waits for the GPU, or not."""

    def __init__(self, *, timed: bool) -> None:
        self.timed, self.times = timed, [0.0] * 5
        self.length, self.heads, width = WIDTH // 4, 16, WIDTH // 2
        self.x, self.qkv, self.out = (
            matrix(self.length, width),
            matrix(width, 3 * width // 2),
            matrix(width // 2, width),
        )
        self.up, self.down = matrix(width, WIDTH), matrix(WIDTH, width)
        self.frequencies = 10000 ** -torch.linspace(0, 1, width // 4 // self.heads)

    def rotary(self) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(self.length, device=self.x.device, dtype=torch.float32)
        angles = positions[:, None] * self.frequencies
        return angles.cos().to(HALF), angles.sin().to(HALF)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = self.rotary()
        projected = nn.functional.layer_norm(x, x.shape[-1:]) @ self.qkv
        q, k, v = projected.view(self.length, 3, self.heads, -1).permute(1, 2, 0, 3)
        turned = []
        for part in (q, k):
            a, b = part.chunk(2, -1)
            turned.append(torch.cat((a * cos - b * sin, a * sin + b * cos), -1)[None])
        y = nn.functional.scaled_dot_product_attention(*turned, v[None], is_causal=True)
        return y[0].transpose(0, 1).reshape(self.length, -1) @ self.out

    def layer(self, x: torch.Tensor) -> torch.Tensor:
        with region("attention"):
            y = self.attention(x)
        with region("attention all-reduce"):
            dist.all_reduce(y)
        x = x + y
        with region("mlp"):
            y = nn.functional.silu(nn.functional.layer_norm(x, x.shape[-1:]) @ self.up) @ self.down
        with region("mlp all-reduce"):
            dist.all_reduce(y)
        return x + y

    def step(self) -> None:
        x = self.x
        for number in range(len(self.times)):
            begin = time.perf_counter()
            with region("decoder layer"):
                x = self.layer(x)
                if self.timed:
                    torch.cuda.synchronize()
            self.times[number] = time.perf_counter() - begin


class TokenCounts:
    """Three layers of experts on two ranks: the host reads how many tokens go where, or half of them go to each."""

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        self.tokens, self.routers = matrix(2 * WIDTH, WIDTH // 4), [matrix(WIDTH // 4, 2) for _ in range(3)]
        self.up, self.down = matrix(WIDTH // 4, WIDTH // 4), matrix(WIDTH // 4, WIDTH // 4)

    def layer(self, x: torch.Tensor, router: torch.Tensor) -> torch.Tensor:
        sent: list[int] | None = None
        received: list[int] | None = None
        with region("gate"):
            chosen = (self.tokens @ router).argmax(1)
            order = chosen.argsort()
        with region("token counts"):
            counts = torch.stack([(chosen == rank).sum() for rank in range(2)])
            coming = torch.empty_like(counts)
            dist.all_to_all_single(coming, counts)
            if not self.fixed:
                sent, received = torch.stack([counts, coming]).tolist()
        with region("dispatch tokens"):
            packed = x[order]
            given = packed.new_empty(sum(received) if received else len(packed), packed.shape[1])
            dist.all_to_all_single(given, packed, received, sent)
        with region("expert mlp"):
            y = nn.functional.gelu(given @ self.up) @ self.down
        with region("return tokens"):
            back = torch.empty_like(packed)
            dist.all_to_all_single(back, y, sent, received)
            output = torch.empty_like(x)
            output[order] = back
        return output

    def step(self) -> None:
        x = self.tokens
        for router in self.routers:
            x = self.layer(x, router)
