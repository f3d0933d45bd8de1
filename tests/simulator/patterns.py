"""Patterns of real code whose order is right by design, though a stream waits late, seldom, or by no event at all."""

from __future__ import annotations

import random

from tests.simulator.generate import MAIN, SIDE, THIRD, Author, Shape, ns, size
from tests.simulator.program import Enter, Launch, Leave

GATHER = 21


def fsdp(author: Author, rng: random.Random, step: int) -> None:
    """FSDP's forward: shards are copied in and gathered ahead of use, and copied out on the computing stream.

    The copy-in stream waits once a step for the computing stream, whose optimizer wrote the shards, and before it
    reuses a buffer for the event behind that buffer's copy-out. Most of its copies wait for nothing.
    """
    plan = random.Random(rng.random())
    layers = plan.randint(2, 5)
    author.wait_stream(SIDE, MAIN)
    author.wait_stream(GATHER, MAIN)

    def unshard(k: int) -> None:
        if k >= layers:
            return
        author.launch(Launch("", SIDE, ns(plan, 3_000, 15_000), 512, reads=(f"shard{k}",), writes=(f"in{k % 2}",)))
        author.busy(500, 4_000)
        author.wait_stream(GATHER, SIDE)
        transfer = ns(plan, 20_000, 120_000)
        reads, writes = (f"in{k % 2}",), (f"gathered{k % 2}",)
        author.launch(Launch("a", GATHER, transfer, 512, f"all-gather {step} {k}", reads, writes, 9_000))
        author.busy(500, plan.choice([3_000, 20_000]))

    unshard(0)
    for k in range(layers):
        author.launch(Launch("", MAIN, ns(plan, 3_000, 15_000), 512, reads=(f"gathered{k % 2}",), writes=(f"full{k}",)))
        unshard(k + 1)
        for _ in range(plan.randint(1, 3)):
            author.launch(Launch("b", MAIN, ns(plan, 8_000, 80_000), size(plan), reads=(f"full{k}",), writes=("x",)))
            author.busy(500, 8_000)
    shards = tuple(f"shard{k}" for k in range(layers))
    author.launch(Launch("", MAIN, ns(plan, 5_000, 40_000), 1024, reads=("x",), writes=shards))


def symmetric_memory(author: Author, rng: random.Random, step: int) -> None:
    """Peers' parts are fetched and multiplied on two streams in turn; kernels that meet their peers order the ranks.

    With `signals` the streams order each other by memory operations, which no profiler links, and by no event.
    """
    plan = random.Random(rng.random())
    signals = plan.random() < 0.5
    author.signals = signals
    held = size(plan)
    author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), held, writes=("mine",)))
    author.launch(Launch("", MAIN, 4_000, 64, f"barrier {step} 0", ("mine",), ("mine",), name="barrier_kernel"))
    author.wait_stream(SIDE, MAIN)
    parts = plan.randint(2, 6)
    for k in range(parts):
        stream = (SIDE, MAIN)[k % 2]
        author.launch(Launch("a", stream, ns(plan, 8_000, 50_000), 64, reads=("mine",), writes=(f"part{k}",)))
        author.busy(500, 3_000)
        author.launch(Launch("b", stream, ns(plan, 8_000, 60_000), held, reads=(f"part{k}",), writes=(f"out{k}",)))
        author.busy(500, plan.choice([3_000, 30_000]))
    author.wait_stream(MAIN, SIDE)
    outs = tuple(f"out{k}" for k in range(parts))
    author.launch(Launch("", MAIN, 4_000, 64, f"barrier {step} 1", outs, ("all",), name="barrier_kernel"))
    author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), held, reads=("all",), writes=("next",)))
    author.signals = False


def annotated(author: Author, rng: random.Random, step: int) -> None:
    """Ranges around the phases of a step, its layers and both sides; the side stream is joined a phase later."""
    plan = random.Random(rng.random())
    layers, numbered = plan.randint(1, 3), plan.random() < 0.5
    author.do(Enter("forward"))
    author.launch(Launch("", MAIN, ns(plan, 4_000, 30_000), size(plan), writes=("in",)))
    for k in range(layers):
        author.do(Enter(f"layer {k}" if numbered else "layer"))
        author.wait_stream(SIDE, MAIN)
        author.do(Enter("DP Embedding"))
        author.launch(Launch("a", SIDE, ns(plan, 8_000, 90_000), size(plan), reads=("in",), writes=(f"a{k}",)))
        author.do(Leave())
        author.busy(500, 6_000)
        author.do(Enter("MP Embedding"))
        author.launch(Launch("b", MAIN, ns(plan, 8_000, 90_000), size(plan), reads=("in",), writes=(f"b{k}",)))
        author.do(Leave())
        author.do(Leave())
    author.do(Leave())
    author.do(Enter("backward"))
    author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), size(plan), reads=(f"b{layers - 1}",), writes=("grad",)))
    author.wait_stream(MAIN, SIDE)
    every = tuple(f"{side}{k}" for k in range(layers) for side in "ab")
    author.launch(Launch("", MAIN, 6_000, 64, reads=(*every, "grad"), writes=("out",)))
    author.do(Leave())


def ring(author: Author, rng: random.Random, step: int) -> None:
    """A ring of buffers: `if step >= depth: stream.wait_event(done[step % depth])`."""
    plan = random.Random(rng.random())
    depth = plan.randint(1, 3)
    buffer, result = f"buffer{step % depth}", f"result{step % depth}"
    author.launch(Launch("a", THIRD, ns(plan, 10_000, 90_000), 64, writes=(buffer,)))
    author.busy(500, plan.choice([4_000, 40_000]))
    author.launch(Launch("b", MAIN, ns(plan, 10_000, 120_000), size(plan), reads=(buffer,), writes=(result,)))
    for _ in range(plan.randint(0, 2)):
        author.launch(Launch("b", MAIN, ns(plan, 10_000, 60_000), size(plan), reads=(result,), writes=("x",)))
        author.busy(500, 5_000)


PATTERNS: tuple[Shape, ...] = (fsdp, symmetric_memory, annotated, ring)
