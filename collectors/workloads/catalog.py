"""Which workloads and variants there are, their sizes, and what a capture of each must show."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from collectors.errors import CollectError


@dataclass(frozen=True)
class Expected:
    """What traceviz must find: a verdict for A against B, the largest cause on the critical rank, and what else.

    `causes` empty: whatever was missed is of no account. `at_most` bounds the real overlap ratio. `with_ranks` has
    verdicts and bound for numbers of ranks of which more is known. `sync` is the range in which the host must have
    been blocked; "" where it must not have been in any range of the workload's.
    """

    a: str
    b: str
    verdicts: tuple[str, ...]
    causes: tuple[str, ...] = ()
    sync: str | None = None
    missing_wait: bool | None = None
    unwaited_copy: bool | None = None
    at_most: float | None = None
    with_ranks: dict[int, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    why: str = ""

    def of_ranks(self, count: int | None) -> Expected:
        """What a run of so many ranks must show."""
        verdicts, at_most = self.with_ranks.get(count or 0, (self.verdicts, self.at_most))
        return replace(self, verdicts=verdicts, at_most=at_most, with_ranks={})


@dataclass(frozen=True)
class Workload:
    """One workload: its program's class, its sizes, what each variant must show, and the package that it `needs`."""

    program: str
    about: str
    sizes: dict[str, int]
    variants: dict[str, Expected]
    small: dict[str, int] = field(default_factory=dict)  # for a CPU, where only the program itself is tried
    needs: str = ""

    @property
    def is_here(self) -> bool:
        """Whether what it needs beside torch is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def load(self) -> Any:
        """Its program, to be made of a rank, sizes and a variant; imports torch."""
        module, _, name = self.program.partition(".")
        return getattr(importlib.import_module(f"collectors.workloads.{module}"), name)


DP, MP = "nvtx:DP Embedding", "nvtx:MP Embedding"
_LOOKUP, _OPTIMIZER, _FORWARD = "nvtx:emb_lookup", "nvtx:optimizer", "nvtx:dense forward"
SERIAL, OVERLAPPED = ("serialized",), ("overlapped",)
SOME = ("partial", "overlapped")
ANY_VERDICT = ("serialized", *SOME)
_NOT_MUCH = ("serialized", "partial")
BEHIND, _HOST = ("event-dependency", "same-stream"), ("host-sync", "late-launch")
_ordered = partial(Expected, sync="", missing_wait=False)
_dpmp = partial(_ordered, DP, MP)
_lookup = partial(_ordered, _LOOKUP, _OPTIMIZER)
_check = partial(Expected, "nvtx:comms", "nvtx:irrelevant compute")
_copy = partial(Expected, "memcpy:DtoH", "nvtx:train compute")
_chunked = partial(_ordered, "comm", "compute")
_CHUNKS = _chunked(
    _NOT_MUCH,
    ("event-dependency", "gpu-full"),
    at_most=0.35,
    with_ranks={2: (("partial",), 0.35), 4: (_NOT_MUCH, 0.2)},  # captures at the sizes below: 0.21-0.32, 0.00-0.18
    why="products fill the GPU, so little or none of an all-reduce fits beside one",
)

WORKLOADS: dict[str, Workload] = {
    "dpmp": Workload(
        "programs.DpMp",
        "sharded embedding bags (lookup, then all-to-all of the pooled rows) beside data-parallel ones",
        {"rows": 400_000, "dim": 128, "batch": 131_072, "bag": 8, "mp_tables": 8, "dp_tables": 2},
        {
            "serial": _dpmp(SERIAL, BEHIND, why="the lookups wait for the all-to-all"),
            "overlapped": _dpmp(OVERLAPPED, why="they run beside the all-to-all"),
            "hidden-sync": _dpmp(
                SERIAL,
                _HOST,
                sync="MP Embedding",
                why="an .item() inside MP's forward keeps the host from submitting DP's",
            ),
            "race": _dpmp(ANY_VERDICT, missing_wait=True, why="the side stream never waits for the inputs"),
        },
        {"rows": 100, "dim": 8, "batch": 16, "bag": 2, "mp_tables": 2, "dp_tables": 1},
    ),
    "pipelines": Workload(
        "programs.Pipelines",
        "four train pipelines that place the next batch's embedding lookup differently",
        {"rows": 400_000, "dim": 128, "batch": 32_768, "bag": 16, "tables": 6, "layers": 3, "parameters": 96_000_000},
        {
            "serial": _lookup(SERIAL, ("same-stream",), why="one stream for all"),
            "overlap": _lookup(SOME, why="lookup beside the optimizer"),
            "prefetch": _ordered(_LOOKUP, _FORWARD, SOME, why="lookup beside the forward pass"),
            "both": _lookup(SOME, why="half the tables beside the forward pass, half beside the optimizer"),
        },
        {"rows": 100, "dim": 8, "batch": 16, "bag": 2, "tables": 2, "layers": 2, "parameters": 1000},
    ),
    "a2a": Workload(
        "programs.AllToAll",
        "an all-to-all whose result is checked on the host, beside compute that does not need it",
        {"elements": 64_000_000, "width": 4096, "products": 12},
        {
            "sync": _check(
                SERIAL, _HOST, "assert", why="the check's copy to the host keeps the compute from being submitted"
            ),
            "garbage": _check(
                OVERLAPPED, sync="", unwaited_copy=True, why="the host reads the flag before the copy is there"
            ),
            "event": _check(OVERLAPPED, sync="assert", unwaited_copy=False, why="the host waits for the copy alone"),
        },
        {"elements": 64, "width": 8, "products": 2},
    ),
    "delta": Workload(
        "programs.Delta",
        "touched rows copied to the host in every step",
        {"rows": 1_000_000, "dim": 128, "touched": 200_000, "width": 4096, "products": 24},
        {
            "sync": _copy(SERIAL, sync="track delta", why="a blocking copy to the host in the training stream"),
            "async": _copy(
                OVERLAPPED,
                sync="",
                missing_wait=False,
                unwaited_copy=False,
                why="a copy on the device, and one to the host beside the training, which a thread waits for",
            ),
        },
        {"rows": 100, "dim": 8, "touched": 10, "width": 8, "products": 2},
    ),
    "rowpar": Workload(
        "programs.RowParallel",
        "a row-parallel linear layer in s chunks, each a product and an all-reduce on a stream of its own",
        {"tokens": 8192, "hidden": 8192},
        {
            "s1": _chunked(SERIAL, ("event-dependency",), at_most=0, why="nothing to overlap with one chunk"),
            "s2": _CHUNKS,
            "s4": _CHUNKS,
        },
        {"tokens": 8, "hidden": 8},
    ),
    "ddp": Workload(
        "programs.Ddp",
        "training steps of a transformer under DistributedDataParallel",
        {"layers": 4, "width": 2048, "heads": 16, "batch": 8, "tokens": 1024},
        {"step": Expected("comm", "compute", SOME, (), "", why="buckets are reduced beside the backward pass")},
        {"layers": 2, "width": 16, "heads": 2, "batch": 2, "tokens": 4},
    ),
    "fsdp": Workload(
        "programs.Fsdp",
        "training steps of a transformer under fully sharded data parallelism",
        {"layers": 4, "width": 2048, "heads": 16, "batch": 8, "tokens": 1024},
        {"step": Expected("comm", "compute", SOME, (), "", why="layers are gathered while others compute")},
        {"layers": 2, "width": 16, "heads": 2, "batch": 2, "tokens": 4},
    ),
    "torchrec": Workload(
        "recommender.Run",
        "TorchRec's sharded embedding bags and dense layers, stepped by its own train pipelines",
        {"rows": 400_000, "dim": 128, "batch": 32_768, "bag": 16, "tables": 8, "layers": 3},
        {
            "base": Expected("comm", "compute", ANY_VERDICT, why="TrainPipelineBase: one batch after the other"),
            "sparse-dist": Expected(
                "comm",
                "compute",
                ANY_VERDICT,
                why="TrainPipelineSparseDist: the next batch's indices go round meanwhile",
            ),
        },
        {"rows": 100, "dim": 8, "batch": 16, "bag": 2, "tables": 4, "layers": 2},
        needs="torchrec",
    ),
}


def find(name: str, variant: str | None) -> tuple[Workload, str]:
    """A workload, and the variant asked for, or its first.

    Raises
    ------
    CollectError : there is none of that name.
    """
    workload = WORKLOADS.get(name)
    if workload is None:
        raise CollectError(f"there is no workload {name!r}.", hint=f"There are: {', '.join(WORKLOADS)}.")
    chosen = variant or next(iter(workload.variants))
    if chosen not in workload.variants:
        raise CollectError(f"{name} has no variant {chosen!r}.", hint=f"It has: {', '.join(workload.variants)}.")
    return workload, chosen


def read_sizes(workload: Workload, given: list[str], *, small: bool = False) -> dict[str, int]:
    """The workload's sizes with those given in their place.

    >>> read_sizes(WORKLOADS["rowpar"], ["tokens=64"])
    {'tokens': 64, 'hidden': 8192}

    Raises
    ------
    CollectError : one is not the workload's, or no whole number above 0.
    """
    sizes = dict(workload.small if small else workload.sizes)
    for text in given:
        name, _, value = text.partition("=")
        if name not in sizes or not value.isdecimal() or int(value) == 0:
            known = ", ".join(f"{key}={size}" for key, size in sizes.items())
            raise CollectError(f"{text!r} is no size of this workload.", hint=f"It has: {known}.")
        sizes[name] = int(value)
    return sizes
