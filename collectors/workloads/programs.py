"""The workloads' programs but TorchRec's: each a class that makes what it runs on, and whose `step` is one step."""

from __future__ import annotations

import queue
import threading

import torch
import torch.distributed as dist

from collectors.workloads.rank import Event, Rank, Tables, products, region


class DpMp:
    """Sharded (MP) embedding bags, whose pooled rows go through an all-to-all, beside data-parallel (DP) ones.

    serial: DP after MP. overlapped: DP on a side stream, beside the all-to-all. hidden-sync: as that, but a number
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


class Pipelines:
    """Where the next batch's embedding lookup is placed beside forward, backward and optimizer.

    serial: lookup after the optimizer, in its stream. overlap: beside the optimizer. prefetch: beside the forward
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


class AllToAll:
    """An all-to-all whose result is checked on the host, beside compute that has nothing to do with it.

    sync: the check is read back at once. garbage: copied without waiting, and read at once. event: read after an
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


class Delta:
    """The rows that a step touched, copied to the host: in the training stream, or beside it.

    sync: a blocking copy to the host. async: a copy on the device into a buffer that is used again, then one to
    pinned memory on a side stream, taken over by a thread of the host.
    """

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.variant, self.sizes = rank, variant, sizes
        kind = torch.bfloat16 if rank.on_gpu else torch.float32
        self.weights = torch.randn(sizes["rows"], sizes["dim"], device=rank.device)
        self.buffer = torch.empty(sizes["touched"], sizes["dim"], device=rank.device)
        self.host = rank.pinned(sizes["touched"], sizes["dim"])
        self.x = torch.randn(sizes["width"], sizes["width"], device=rank.device, dtype=kind)
        self.side = rank.stream()
        self.copied: queue.Queue[Event] = queue.Queue()
        self.taken = threading.Semaphore(1)  # the host buffer is free
        threading.Thread(target=self.take, daemon=True).start()

    def step(self) -> None:
        """Track what is touched, and train."""
        with region("inputs"):
            touched = torch.randint(0, self.sizes["rows"], (self.sizes["touched"],), device=self.rank.device)
        with region("track delta"):
            if self.variant == "sync":
                self.weights.index_select(0, touched).cpu()
            else:
                self.stream_out(touched)
        with region("train compute"):
            y = products(self.x, self.sizes["products"])
        with region("gradients"):
            dist.all_reduce(y)

    def stream_out(self, touched: torch.Tensor) -> None:
        """Copy on the device; to the host beside what follows."""
        main = self.rank.main()
        main.wait_stream(self.side)  # the last copy has left the buffer
        torch.index_select(self.weights, 0, touched, out=self.buffer)
        self.side.wait_stream(main)
        self.taken.acquire()
        with self.rank.on(self.side), region("stream out"):
            self.host.copy_(self.buffer, non_blocking=True)
            self.copied.put(self.rank.event())

    def take(self) -> None:
        """Take over what has been copied, in a thread of its own."""
        while True:
            self.copied.get().synchronize()
            self.taken.release()


class RowParallel:
    """A row-parallel linear layer in s chunks: each a matrix product and an all-reduce, on a stream of its own.

    s1, s2, s4: the number of chunks."""

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.chunks = rank, int(variant[1:])
        kind = torch.bfloat16 if rank.on_gpu else torch.float32
        self.inner, hidden = 4 * sizes["hidden"] // rank.world, sizes["hidden"]
        self.each = sizes["tokens"] // self.chunks
        self.kind = kind
        self.weight = torch.randn(hidden, self.inner, device=rank.device, dtype=kind) * 0.01
        self.outputs = torch.empty(self.chunks, self.each, hidden, device=rank.device, dtype=kind)
        self.streams = [rank.stream() for _ in range(self.chunks)]

    @torch.no_grad()
    def step(self) -> None:
        """One forward pass of the layer."""
        main = self.rank.main()
        with region("inputs"):
            inputs = torch.randn(self.chunks, self.each, self.inner, device=self.rank.device, dtype=self.kind)
        with region("row parallel linear"):
            for index, stream in enumerate(self.streams):
                stream.wait_stream(main)
                with self.rank.on(stream), region(f"chunk {index}"):
                    torch.mm(inputs[index], self.weight.t(), out=self.outputs[index])
                    dist.all_reduce(self.outputs[index], async_op=True).wait()
            for stream in self.streams:
                main.wait_stream(stream)


class Ddp:
    """Training steps of a transformer, data-parallel."""

    def __init__(self, rank: Rank, sizes: dict[str, int], variant: str) -> None:
        self.rank, self.shape = rank, (sizes["batch"], sizes["tokens"], sizes["width"])
        self.kind = torch.bfloat16 if rank.on_gpu else torch.float32
        width = sizes["width"]
        layer = torch.nn.TransformerEncoderLayer(width, sizes["heads"], 4 * width, batch_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, sizes["layers"], enable_nested_tensor=False)
        model = model.to(rank.device, self.kind)
        self.model = self.distributed(model, rank)
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

    def distributed(self, model: torch.nn.TransformerEncoder, rank: Rank) -> torch.nn.Module:
        """The model on every rank."""
        devices = [rank.device] if rank.on_gpu else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=devices, bucket_cap_mb=50)


class Fsdp(Ddp):
    """The same, fully sharded."""

    def distributed(self, model: torch.nn.TransformerEncoder, rank: Rank) -> torch.nn.Module:
        """Each layer sharded, then the rest: with `fully_shard`, or the class before it (torch before 2.6)."""
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
