"""Capture programs before and after one fix: the truth for a prediction of what a fix is worth.

    torchrun --nproc-per-node 2 tools/capture-pairs.py FOLDER [PAIR ...]
    nsys profile -t cuda,nvtx --cuda-event-trace=true --cuda-graph-trace=node --export=sqlite -o all \\
        torchrun --nproc-per-node 2 tools/capture-pairs.py --nsys [PAIR ...]
    python tools/capture-pairs.py --cut all.sqlite FOLDER

The first times 20 steps of both variants in turns, without a profiler, and writes the medians of the rounds to
FOLDER/step_time_ms.json; then a torch.profiler trace a rank. The second makes one report of all ranks and pairs, out of
which the third cuts a small one for each variant.

| pair | program | the fix, as a change of the program before it |
|---|---|---|
| ddp_log | DDP; the host prepares a batch each step | drop-sync nvtx:log loss |
| ddp_log_late | the same; the loss read is that of the step before: little to gain | drop-sync nvtx:log loss |
| dpmp_item | sharded embedding beside a data-parallel tower | drop-sync nvtx:MP embedding |
| dpmp_move | the same | move-wait nvtx:DP tower before nvtx:MP embedding |
| delta_sync | touched rows copied to the host | drop-sync nvtx:stream out |
| delta_stream | the same, in the stream of the training | own-stream nvtx:stream out, joined before track delta |
| opt_lookup | optimizer and lookup | own-stream nvtx:lookup, joined before dense forward |
| towers | two towers that each fill the GPU: nothing to gain | own-stream nvtx:tower B, joined before merge |
| buckets | gradients reduced during backward | drop-wait nvtx:backward on nvtx:reduce |
| pipe_send | two pipeline stages of matmuls that fill the GPU: it costs | drop-wait nvtx:stage on nvtx:send |
| pipe_recv | the same: nothing to gain | move-wait nvtx:recv before nvtx:stage |
| pipe_send_attention | stages of attention kernels that fill the GPU: nothing | drop-wait nvtx:stage on nvtx:send |
| pipe_recv_attention | the same: nothing | move-wait nvtx:recv before nvtx:stage |
| a2a_check | an all-to-all whose result the host checks | move-wait nvtx:compute before nvtx:validation |
| moe_split | experts, then an all-to-all back | split nvtx:combine 4 |
| moe_late | the same; a rank's host is 2 ms late | on-time 1 |
| moe_half | the same; half the bytes a token | scale collective:all_to_all 0.5 |
| fsdp_late | FSDP; a rank's host is 3 ms late | on-time 1 |
| rowpar_split | row-parallel linear layers and their all-reduce | split nvtx:reduce 4 |
| tp_half | tensor-parallel layers; attention over half the length | scale nvtx:attention 0.5 |
| decode_graph | small kernels, each behind 60 µs of Python | graph nvtx:decode |
| launch_graph | small kernels, launched one by one | graph nvtx:decode |
| fsdp_log | FSDP that reads its loss each step | drop-sync nvtx:log loss |
| moe_shared | experts beside which a shared expert could run | own-stream nvtx:shared expert, joined before merge |
| input_copy | the next batch is copied to the GPU in the stream of the training | own-stream nvtx:next batch |
| halves | layers of two halves that wait for each other's all-reduce | drop-wait nvtx:half 0 on nvtx:reduce 1; 1 on 0 |
| gather_ahead | sharded weights, gathered behind the layer before | move-wait nvtx:gather before nvtx:layer |
| select | rows found by the GPU, whose number the host reads | drop-sync nvtx:select |
| experts_split | eight smaller experts, then an all-to-all back | split nvtx:combine 4 |
| stack_split | four like layers, of which the last alone is reduced | split nvtx:reduce 4 |
| rowpar_halves | row-parallel linear layers and their all-reduce | split nvtx:reduce 2 |
| scatter_split | the same with a reduce-scatter | split nvtx:reduce 4 |
| buckets_room | gradients reduced during backward; its kernels leave room | drop-wait nvtx:backward on nvtx:reduce |
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pairs.machinery import (
    HALF,
    STEPS,
    WIDTH,
    capture_pair,
    captured_steps,
    join_ranks,
    matrix,
    region,
    settle,
    warmed,
    work_on_host,
)
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

PIECES = 4


def lookups(tables: int, batch: int, bag: int) -> list[Callable[[], torch.Tensor]]:
    """Lookups of `bag` rows each, by the kernel of embedding bags."""
    rows = 50 * WIDTH

    def lookup() -> Callable[[], torch.Tensor]:
        table = torch.randn(rows, 128)
        indices, offsets = torch.randint(0, rows, (batch * bag,)), torch.arange(0, batch * bag, bag)
        return lambda: nn.functional.embedding_bag(indices, table, offsets, mode="sum")

    return [lookup() for _ in range(tables)]


class Ddp:
    """Training whose host prepares each batch; the loss is read at once ("now"), a step later ("late"), or never."""

    def __init__(self, log: str) -> None:
        self.log = log
        layers = [layer for _ in range(6) for layer in (nn.Linear(WIDTH // 2, WIDTH // 2, bias=False), nn.GELU())]
        self.model = DistributedDataParallel(nn.Sequential(*layers).to(HALF), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.batch = matrix(WIDTH, WIDTH // 2)
        self.logged = torch.zeros(1, device="cpu", pin_memory=True)
        self.copied = torch.cuda.Event()

    def step(self) -> None:
        with region("load batch"):
            work_on_host(1.5e-3)
        with region("forward"):
            loss = self.model(self.batch).float().pow(2).mean()
        with region("backward"):
            loss.backward()
        with region("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.log == "now":
            with region("log loss"):
                loss.item()
        if self.log == "late":
            with region("log loss"):
                self.copied.synchronize()
                self.logged.copy_(loss.detach(), non_blocking=True)
                self.copied.record()


class Embedding:
    """Tables spread over ranks, looked up and exchanged, and a tower in a stream of its own that needs none of it."""

    def __init__(self, *, item: bool = False, tower: str = "forked first") -> None:
        self.item, self.order = item, tower
        self.tables = lookups(8, batch=16 * WIDTH, bag=5)
        self.x = matrix(WIDTH // 2, WIDTH // 2)
        self.side = torch.cuda.Stream()

    def embedding(self) -> torch.Tensor:
        with region("MP embedding"):
            pooled = torch.cat([lookup() for lookup in self.tables], 1)
            received = torch.empty_like(pooled)
            dist.all_to_all_single(received, pooled)
            if self.item and received[0, 0].isnan().item():
                raise ValueError("not a number")
        return received

    def tower(self, fork: torch.cuda.Event) -> torch.Tensor:
        with region("DP tower"):
            self.side.wait_event(fork)
            with torch.cuda.stream(self.side):
                y = self.x
                for _ in range(12):
                    y = y @ self.x
        return y

    def step(self) -> None:
        main = torch.cuda.current_stream()
        fork = main.record_event()
        if self.order == "first":
            y = self.tower(fork)
        received = self.embedding()
        if self.order != "first":
            y = self.tower(fork if self.order == "forked first" else main.record_event())
        main.wait_stream(self.side)
        with region("merge"):
            received.mul_(0.5)
            y.mul_(0.5)


class Delta:
    """Touched rows go to the host, in the stream of the training or in their own; "sync" waits for them."""

    def __init__(self, how: str, rows: int) -> None:
        self.how = how
        self.table = torch.randn(128 * WIDTH, 128)
        self.touched = torch.randint(0, 128 * WIDTH, (rows,))
        self.rows = torch.empty(rows, 128)
        self.on_host = torch.empty(rows, 128, device="cpu", pin_memory=True)
        self.x = matrix(WIDTH, WIDTH)
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        main = torch.cuda.current_stream()
        with region("track delta"):
            if self.how != "main":
                main.wait_stream(self.side)
            torch.index_select(self.table, 0, self.touched, out=self.rows)
        with region("stream out"):
            if self.how != "main":
                self.side.wait_stream(main)
            with torch.cuda.stream(main if self.how == "main" else self.side):
                self.on_host.copy_(self.rows, non_blocking=True)
            if self.how == "sync":
                self.side.synchronize()
        with region("compute"):
            y = self.x @ self.x @ self.x @ self.x
        with region("reduce"):
            dist.all_reduce(y)


class Optimizer:
    """The next batch's lookups, of little parallelism, before or beside an optimizer that is bound by memory."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.parameters = [nn.Parameter(torch.randn(384, 8 * WIDTH)) for _ in range(10)]
        for parameter in self.parameters:
            parameter.grad = torch.randn_like(parameter)
        self.optimizer = torch.optim.AdamW(self.parameters, fused=True)
        self.tables = lookups(8, batch=WIDTH // 32, bag=256)
        self.x = matrix(WIDTH, WIDTH)
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        main = torch.cuda.current_stream()
        if self.beside:
            self.side.wait_stream(main)
        with torch.cuda.stream(self.side if self.beside else main), region("lookup"):
            pooled = torch.cat([lookup() for lookup in self.tables], 1)
        with region("optimizer"):
            self.optimizer.step()
        if self.beside:
            main.wait_stream(self.side)
        with region("dense forward"):
            pooled.mul_(0.5)
            y = self.x @ self.x
        with region("reduce"):
            dist.all_reduce(y)


class Towers:
    """Two towers whose kernels each fill the GPU, in one stream or in two."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.x = matrix(WIDTH, WIDTH)
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        main = torch.cuda.current_stream()
        if self.beside:
            self.side.wait_stream(main)
        with torch.cuda.stream(self.side if self.beside else main), region("tower B"):
            b = self.x @ self.x @ self.x
        with region("tower A"):
            a = self.x @ self.x @ self.x
        if self.beside:
            main.wait_stream(self.side)
        with region("merge"):
            dist.all_reduce(a.add_(b))


class Buckets:
    """Backward of four layers, each gradient reduced while the next is computed, if nothing waits for it at once."""

    def __init__(self, *, wait: bool, rows: int = WIDTH, gradient: int = 2 * WIDTH) -> None:
        self.wait = wait
        self.x, self.weight = matrix(rows, WIDTH), matrix(WIDTH, WIDTH)
        self.gradients = [torch.randn(gradient, WIDTH, dtype=HALF) for _ in range(4)]

    def step(self) -> None:
        works: list[Any] = []
        for gradient in self.gradients:
            with region("backward"):
                if self.wait and works:
                    works[-1].wait()
                self.x @ self.weight
            with region("reduce"):
                works.append(dist.all_reduce(gradient, async_op=True))
        with region("optimizer"):
            for work in works:
                work.wait()
            for gradient in self.gradients:
                gradient.mul_(0.5)


class Pipeline:
    """Four microbatches through two stages, whose kernels fill the GPU; a receive is posted `ahead` of its stage."""

    def __init__(self, *, wait_for_send: bool = False, ahead: int = 3, attention: bool = False) -> None:
        self.wait_for_send, self.ahead, self.attention = wait_for_send, ahead, attention
        if attention:
            self.x = torch.randn(32, 32, WIDTH // 8, 128, dtype=HALF)
        else:
            self.x, self.weights = matrix(2 * WIDTH, WIDTH // 2), (matrix(WIDTH // 2, WIDTH), matrix(WIDTH, WIDTH // 2))
        self.received = [torch.empty_like(self.stage(self.x, 0)) for _ in range(4)]
        self.gradients = matrix(WIDTH, WIDTH // 2)

    def stage(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x) if self.attention else x @ self.weights[number]

    def first(self) -> list[Any]:
        sends: list[Any] = []
        for _ in self.received:
            with region("stage"):
                if self.wait_for_send and sends:
                    sends[-1].wait()
                activations = self.stage(self.x, 0)
            with region("send"):
                sends.append(dist.isend(activations, 1))
        return sends

    def second(self) -> None:
        receives: list[Any] = []
        for index, activations in enumerate(self.received):
            for buffer in self.received[len(receives) : index + self.ahead + 1]:
                with region("recv"):
                    receives.append(dist.irecv(buffer, 0))
            with region("stage"):
                receives[index].wait()
                self.stage(activations, 1)

    def step(self) -> None:
        sends = self.first() if dist.get_rank() == 0 else self.second()
        with region("gradients"):
            for send in sends or ():
                send.wait()
            dist.all_reduce(self.gradients)


class Check:
    """An all-to-all whose result the host checks, before or after it submits work that does not depend on it."""

    def __init__(self, *, first: str) -> None:
        self.first = first
        self.x = matrix(WIDTH, WIDTH)
        self.sent = torch.randn(4 * WIDTH, WIDTH)
        self.received = torch.empty_like(self.sent)

    def compute(self) -> None:
        with region("compute"):
            self.x @ self.x @ self.x

    def step(self) -> None:
        with region("prepare"):
            self.x @ self.x
        with region("exchange"):
            work = dist.all_to_all_single(self.received, self.sent, async_op=True)
        if self.first == "compute":
            self.compute()
        with region("validation"):
            work.wait()
            if not (self.received.abs().sum() > 0).item():
                raise ValueError("nothing received")
        if self.first == "validation":
            self.compute()


class Experts:
    """Tokens go to their experts and back, all to all; the way back in pieces, late on a rank, or of half the bytes."""

    def __init__(self, *, pieces: int = 1, late: float = 0, share: float = 1, experts: int = PIECES) -> None:
        self.pieces, self.late, self.experts = pieces, late if dist.get_rank() == 1 else 0, experts
        self.router, self.weight = matrix(WIDTH // 4, 8), matrix(WIDTH // 4, WIDTH)
        self.tokens = matrix(2 * WIDTH * PIECES, WIDTH // 4)
        self.given = torch.empty(2 * WIDTH * PIECES, WIDTH, dtype=HALF)
        self.back = torch.empty_like(self.given)
        self.sent = self.tokens[: int(share * len(self.tokens))]
        self.received = torch.empty_like(self.sent)
        self.returned = int(share * len(self.given))

    def combine(self, first: int, end: int) -> Any:
        with region("combine"):
            return dist.all_to_all_single(self.back[first:end], self.given[first:end], async_op=True)

    def step(self) -> None:
        with region("route"):
            (self.tokens @ self.router).argmax(1).bincount(minlength=8).tolist()
            work_on_host(self.late)
        with region("dispatch"):
            dist.all_to_all_single(self.received, self.sent)
        works = []
        rows, each = len(self.tokens) // self.experts, len(self.tokens) // self.pieces
        for expert in range(self.experts):
            with region("experts"):
                part = slice(expert * rows, (expert + 1) * rows)
                torch.mm(self.tokens[part], self.weight, out=self.given[part])
            if self.pieces > 1 and part.stop % each == 0:
                works.append(self.combine(part.stop - each, part.stop))
        if self.pieces == 1:
            works.append(self.combine(0, self.returned))
        with region("merge"):
            for work in works:
                work.wait()
            self.back.mul_(0.5)


class Fsdp:
    """Training of sharded blocks that logs its loss; a rank's host may be late with its batch."""

    def __init__(self, *, late: float, log: bool = True) -> None:
        self.late, self.log = late if dist.get_rank() == 1 else 0, log
        narrow, wide = WIDTH // 2, 2 * WIDTH

        def block() -> nn.Module:
            return nn.Sequential(nn.Linear(narrow, wide, bias=False), nn.GELU(), nn.Linear(wide, narrow, bias=False))

        self.model = nn.Sequential(block(), block()).to(HALF)
        for part in self.model:
            fully_shard(part)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.batch = matrix(WIDTH // 2, narrow)

    def step(self) -> None:
        with region("load batch"):
            work_on_host(0.3e-3 + self.late)
        with region("forward"):
            loss = self.model(self.batch).float().pow(2).mean()
        with region("backward"):
            loss.backward()
        with region("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.log:
            with region("log loss"):
                loss.item()


class RowParallel:
    """Row-parallel linear layers: a matmul and its all-reduce, or several of each, one after the other."""

    def __init__(self, pieces: int, *, scatter: bool = False) -> None:
        self.scatter = scatter
        self.inputs = matrix(2 * WIDTH, WIDTH // 2).chunk(pieces)
        self.weight = matrix(WIDTH // 2, WIDTH)
        self.outputs = torch.empty(2 * WIDTH, WIDTH, dtype=HALF).chunk(pieces)
        self.mine = torch.empty(WIDTH, WIDTH, dtype=HALF).chunk(pieces)

    def reduce(self, piece: int) -> Any:
        with region("reduce"):
            if self.scatter:
                return dist.reduce_scatter_tensor(self.mine[piece], self.outputs[piece], async_op=True)
            return dist.all_reduce(self.outputs[piece], async_op=True)

    def step(self) -> None:
        for _ in range(3):
            works = []
            for piece, (part, output) in enumerate(zip(self.inputs, self.outputs, strict=True)):
                with region("linear"):
                    torch.mm(part, self.weight, out=output)
                works.append(self.reduce(piece))
            for work in works:
                work.wait()
            with region("activation"):
                for output in self.mine if self.scatter else self.outputs:
                    output.mul_(0.5)


class Stack:
    """Four like layers, one behind the other; the last one's output is reduced, whole or in pieces."""

    def __init__(self, pieces: int) -> None:
        self.x, self.weight = matrix(2 * WIDTH, WIDTH // 2), matrix(WIDTH // 2, WIDTH // 2)
        self.outputs = torch.empty(2 * WIDTH, WIDTH // 2, dtype=HALF).chunk(pieces)

    def step(self) -> None:
        for _ in range(2):
            y, works = self.x, []
            with region("layers"):
                for _ in range(3):
                    y = y @ self.weight
            for part, output in zip(y.chunk(len(self.outputs)), self.outputs, strict=True):
                with region("last layer"):
                    torch.mm(part, self.weight, out=output)
                with region("reduce"):
                    works.append(dist.all_reduce(output, async_op=True))
            for work in works:
                work.wait()
            with region("activation"):
                for output in self.outputs:
                    output.mul_(0.5)


class TensorParallel:
    """Two layers of attention and feed-forward, each with its all-reduce; attention over all or half the length."""

    def __init__(self, *, length: int) -> None:
        self.x, self.weight = matrix(WIDTH // 2, WIDTH), matrix(WIDTH, WIDTH)
        self.queries, self.keys = matrix(WIDTH // 2, length), matrix(length, WIDTH)

    def step(self) -> None:
        for _ in range(2):
            with region("attention"):
                for _ in range(3):
                    y = self.queries @ self.keys
            with region("reduce"):
                dist.all_reduce(y)
            with region("feed forward"):
                y = self.x @ self.weight @ self.weight
            with region("reduce"):
                dist.all_reduce(y)


class Decode:
    """Small kernels, one by one behind some Python or as one CUDA graph, then a prefill; the next token is read."""

    def __init__(self, *, kernels: int, python: float, prefill: int, graph: bool) -> None:
        self.kernels, self.python, self.prefill = kernels, python, prefill
        self.small, self.x = matrix(256, 256), matrix(WIDTH, WIDTH)
        self.graph = torch.cuda.CUDAGraph() if graph else None
        if self.graph:
            self.decode()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.decode()

    def decode(self) -> None:
        y = self.small
        for _ in range(self.kernels):
            work_on_host(self.python)
            y = y @ self.small

    def step(self) -> None:
        with region("decode"):
            if self.graph:
                self.graph.replay()
            else:
                self.decode()
        with region("prefill"):
            for _ in range(self.prefill):
                y = self.x @ self.x
        with region("reduce"):
            dist.all_reduce(y)
        with region("next token"):
            y[0, 0].item()


class SharedExpert:
    """Tokens go to their experts and back, all to all; an expert that all share works on them meanwhile, or before."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.tokens, self.weight = matrix(2 * WIDTH, WIDTH // 2), matrix(WIDTH // 2, WIDTH // 2)
        self.received, self.back = torch.empty_like(self.tokens), torch.empty_like(self.tokens)
        self.side = torch.cuda.Stream()

    def shared(self) -> torch.Tensor:
        with region("shared expert"):
            y = self.tokens
            for _ in range(3):
                y = y @ self.weight
        return y

    def step(self) -> None:
        main = torch.cuda.current_stream()
        if self.beside:
            self.side.wait_stream(main)
        with torch.cuda.stream(self.side if self.beside else main):
            y = self.shared()
        with region("dispatch"):
            dist.all_to_all_single(self.received, self.tokens)
        with region("experts"):
            z = self.received @ self.weight
        with region("combine"):
            dist.all_to_all_single(self.back, z)
        if self.beside:
            main.wait_stream(self.side)
        with region("merge"):
            y.add_(self.back)


class Input:
    """Training whose next batch comes from pinned memory, in its stream or in one of its own."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.on_host = torch.randn(6 * WIDTH, WIDTH // 2, device="cpu").to(HALF).pin_memory()
        self.batches = [matrix(6 * WIDTH, WIDTH // 2) for _ in range(2)]
        self.weight = matrix(WIDTH // 2, WIDTH // 2)
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        main = torch.cuda.current_stream()
        current, coming = self.batches
        if self.beside:
            self.side.wait_stream(main)
        with torch.cuda.stream(self.side if self.beside else main), region("next batch"):
            coming.copy_(self.on_host, non_blocking=True)
        with region("forward"):
            y = current @ self.weight @ self.weight @ self.weight
        with region("reduce"):
            dist.all_reduce(y[: WIDTH // 2])
        if self.beside:
            main.wait_stream(self.side)
        self.batches.reverse()


class Halves:
    """Three layers of two halves; each is reduced while the other is computed, if that need not wait."""

    def __init__(self, *, wait: bool) -> None:
        self.wait = wait
        self.halves = [matrix(WIDTH, WIDTH // 2) for _ in range(2)]
        self.weight = matrix(WIDTH // 2, WIDTH // 2)

    def step(self) -> None:
        works: list[Any] = [None, None]
        for _ in range(3):
            for index in range(2):
                with region(f"half {index}"):
                    if works[index]:
                        works[index].wait()
                    if self.wait and works[1 - index]:
                        works[1 - index].wait()
                    self.halves[index] = self.halves[index] @ self.weight @ self.weight
                with region(f"reduce {index}"):
                    works[index] = dist.all_reduce(self.halves[index], async_op=True)
        with region("end"):
            for work in works:
                work.wait()
            for half in self.halves:
                half.mul_(0.5)


class Gather:
    """Four layers of sharded weights; those of the next one are gathered before this one is submitted, or behind it."""

    def __init__(self, *, ahead: bool) -> None:
        self.ahead = ahead
        self.x = matrix(WIDTH, WIDTH // 2)
        self.shard = matrix(WIDTH // 4, WIDTH // 2)
        self.weights = [torch.empty(WIDTH // 2, WIDTH // 2, dtype=HALF) for _ in range(2)]
        self.side = torch.cuda.Stream()

    def gather(self, layer: int) -> None:
        with region("gather"), torch.cuda.stream(self.side):
            dist.all_gather_into_tensor(self.weights[layer % 2], self.shard)

    def layer(self, layer: int) -> None:
        with region("layer"):
            y = self.x
            for _ in range(3):
                y = y @ self.weights[layer % 2]
            work_on_host(0.4e-3)

    def step(self) -> None:
        main = torch.cuda.current_stream()
        self.gather(0)
        for layer in range(4):
            main.wait_stream(self.side)
            if self.ahead and layer < 3:
                self.gather(layer + 1)
            self.layer(layer)
            if not self.ahead and layer < 3:
                self.gather(layer + 1)
        with region("end"):
            self.side.wait_stream(main)


class Select:
    """Rows are found by a mask whose count the host reads, or a fixed number of them is taken."""

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        self.scores = torch.randn(64 * WIDTH)
        self.table, self.x = torch.randn(64 * WIDTH, 128), matrix(WIDTH, WIDTH // 2)
        self.weight = matrix(WIDTH // 2, WIDTH // 2)
        self.taken = torch.arange(32 * WIDTH)

    def step(self) -> None:
        with region("layers"):
            y = self.x
            for _ in range(6):
                y = y @ self.weight
        with region("select"):
            rows = self.taken if self.fixed else (self.scores > 0).nonzero().flatten()
        with region("pool"):
            pooled = self.table[rows].sum(0)
        for _ in range(12):
            with region("head"):
                pooled = pooled * 0.5
                work_on_host(30e-6)
        with region("reduce"):
            dist.all_reduce(y)


def decode(*, graph: bool) -> Decode:
    return Decode(kernels=20, python=60e-6, prefill=3, graph=graph)


def launch(*, graph: bool) -> Decode:
    return Decode(kernels=80, python=0, prefill=3, graph=graph)


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "ddp_log": (lambda: Ddp("now"), lambda: Ddp("never")),
    "ddp_log_late": (lambda: Ddp("late"), lambda: Ddp("never")),
    "dpmp_item": (lambda: Embedding(item=True), lambda: Embedding(item=False)),
    "dpmp_move": (lambda: Embedding(tower="last"), lambda: Embedding(tower="first")),
    "delta_sync": (lambda: Delta("sync", 16 * WIDTH), lambda: Delta("side", 16 * WIDTH)),
    "delta_stream": (lambda: Delta("main", 24 * WIDTH), lambda: Delta("side", 24 * WIDTH)),
    "opt_lookup": (lambda: Optimizer(beside=False), lambda: Optimizer(beside=True)),
    "towers": (lambda: Towers(beside=False), lambda: Towers(beside=True)),
    "buckets": (lambda: Buckets(wait=True), lambda: Buckets(wait=False)),
    "pipe_send": (lambda: Pipeline(wait_for_send=True), Pipeline),
    "pipe_recv": (lambda: Pipeline(ahead=0), lambda: Pipeline(ahead=1)),
    "pipe_send_attention": (
        lambda: Pipeline(wait_for_send=True, attention=True),
        lambda: Pipeline(attention=True),
    ),
    "pipe_recv_attention": (lambda: Pipeline(ahead=0, attention=True), lambda: Pipeline(ahead=1, attention=True)),
    "a2a_check": (lambda: Check(first="validation"), lambda: Check(first="compute")),
    "moe_split": (Experts, lambda: Experts(pieces=PIECES)),
    "moe_late": (lambda: Experts(late=2e-3), Experts),
    "moe_half": (Experts, lambda: Experts(share=0.5)),
    "fsdp_late": (lambda: Fsdp(late=3e-3), lambda: Fsdp(late=0)),
    "rowpar_split": (lambda: RowParallel(1), lambda: RowParallel(PIECES)),
    "tp_half": (lambda: TensorParallel(length=WIDTH), lambda: TensorParallel(length=WIDTH // 2)),
    "decode_graph": (lambda: decode(graph=False), lambda: decode(graph=True)),
    "launch_graph": (lambda: launch(graph=False), lambda: launch(graph=True)),
    "fsdp_log": (lambda: Fsdp(late=0), lambda: Fsdp(late=0, log=False)),
    "moe_shared": (lambda: SharedExpert(beside=False), lambda: SharedExpert(beside=True)),
    "input_copy": (lambda: Input(beside=False), lambda: Input(beside=True)),
    "halves": (lambda: Halves(wait=True), lambda: Halves(wait=False)),
    "gather_ahead": (lambda: Gather(ahead=False), lambda: Gather(ahead=True)),
    "select": (lambda: Select(fixed=False), lambda: Select(fixed=True)),
    "experts_split": (lambda: Experts(experts=8), lambda: Experts(experts=8, pieces=PIECES)),
    "stack_split": (lambda: Stack(1), lambda: Stack(PIECES)),
    "rowpar_halves": (lambda: RowParallel(1), lambda: RowParallel(2)),
    "scatter_split": (lambda: RowParallel(1, scatter=True), lambda: RowParallel(PIECES, scatter=True)),
    "buckets_room": (
        lambda: Buckets(wait=True, rows=WIDTH // 32, gradient=WIDTH // 4),
        lambda: Buckets(wait=False, rows=WIDTH // 32, gradient=WIDTH // 4),
    ),
}


def capture_nsys(name: str, workload: Any) -> None:
    """20 steps inside a range of their own, which `cut` looks for."""
    settle()
    with region(f"captured {name}"):
        captured_steps(workload, STEPS)


def cut(report: Path, folder: Path) -> None:
    """Make a report of each variant: what happened in its ranges, and 1 ms around."""
    with contextlib.closing(sqlite3.connect(report)) as whole:
        windows = whole.execute(
            "SELECT coalesce(text, value), min(start), max(end) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id "
            "WHERE coalesce(text, value) LIKE 'captured %' GROUP BY 1"
        ).fetchall()
    for text, first, last in windows:
        name = text.removeprefix("captured ")
        part = folder / f"{name}.sqlite"
        shutil.copy(report, part)
        with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as file:
            _cut_to(file, first - 10**6, last + 10**6)
            file.execute("VACUUM")
        with part.open("rb") as plain, gzip.open(f"{part}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        part.unlink()


def _cut_to(file: sqlite3.Connection, first: int, last: int) -> None:
    """Leave out what happened outside, samples of the host, and texts that nothing refers to any more."""
    tables = {
        name: {row[1] for row in file.execute(f"PRAGMA table_info({name})")}
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    }
    for table in ("SAMPLING_CALLCHAINS", "COMPOSITE_EVENTS", "SCHED_EVENTS"):
        if tables.pop(table, None):
            file.execute(f"DROP TABLE {table}")
    for table, columns in tables.items():
        outside = f"start < {first} OR start > {last}"
        if table == "NVTX_EVENTS":  # but for marks that name domains and the like
            file.execute(f"DELETE FROM {table} WHERE ({outside}) AND eventType IN (59, 60)")
        elif table.startswith("CUPTI_ACTIVITY_KIND") and "start" in columns:
            file.execute(f"DELETE FROM {table} WHERE {outside}")
    for table, columns in tables.items():
        if table.startswith("CUPTI_ACTIVITY_KIND") and "start" not in columns and "correlationId" in columns:
            calls = "SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            file.execute(f"DELETE FROM {table} WHERE correlationId NOT IN ({calls})")
    texts = " UNION ".join(
        f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"
        for table, columns in tables.items()
        for column in columns
        if table != "StringIds" and (column.endswith(("Name", "nameId", "textId", "TextId")))
    )
    file.execute(f"DELETE FROM StringIds WHERE id NOT IN ({texts})")


def main() -> None:
    target, *names = sys.argv[1:]
    if target == "--cut":
        cut(Path(names[0]), Path(names[1]))
        return
    device = join_ranks()
    for name in names or PAIRS:
        if target == "--nsys":
            for which, make in zip(("before", "after"), PAIRS[name], strict=True):
                capture_nsys(f"{name}_{which}", warmed(make, device))
        else:
            capture_pair(name, PAIRS[name], device, Path(target))
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
