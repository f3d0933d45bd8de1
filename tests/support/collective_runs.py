"""Synthetic runs of many ranks that communicate, with the truth known: who belongs to which collective, and the clocks.

A step is a list of calls; each names an operation, a size and how the ranks are split into groups. A rank arrives after
some compute, the call ends on every rank of its group once the last has arrived and the data is moved, give or take a
jitter. What a rank records is that time on its own clock: true time + offset + drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from analyzers.trace.columns import table
from analyzers.trace.ranks import assign_ranks
from analyzers.trace.tables import Capture, Process, Trace

MS = 1_000_000


@dataclass(frozen=True)
class Call:
    """One call of a step: each of `groups` (lists of ranks) makes it on its own; empty is all ranks."""

    operation: str = "AllReduce"
    bytes: int = 1 << 20
    transfer: int = 200_000
    groups: tuple[tuple[int, ...], ...] = ()
    name: str = "0"
    stream: int = 20


@dataclass(frozen=True)
class Run:
    """What was recorded, row by row, with the truth beside it."""

    ranks: int
    rank: np.ndarray
    collective: np.ndarray  # true number
    call: np.ndarray  # row in `calls`
    group: np.ndarray  # number of the group within its call
    true_start: np.ndarray
    true_end: np.ndarray
    calls: tuple[Call, ...]
    offset: np.ndarray  # per rank
    drift: np.ndarray  # per rank, ratio
    keyed: str = ""  # what the trace says of a call: sequence, group, communicator or nothing

    @property
    def start(self) -> np.ndarray:
        return self.recorded(self.true_start)

    @property
    def end(self) -> np.ndarray:
        return self.recorded(self.true_end)

    def recorded(self, true: np.ndarray) -> np.ndarray:
        """Time on the clock of each row's rank."""
        return true + self.offset[self.rank] + np.rint(self.drift[self.rank] * true).astype(np.int64)

    def keep(self, rows: np.ndarray) -> Run:
        """Only these rows were captured."""
        fields = ("rank", "collective", "call", "group", "true_start", "true_end")
        return replace(self, **{name: getattr(self, name)[rows] for name in fields})

    def trace(self, *, captures: bool = True, epoch: bool = True) -> Trace:
        """The Trace a loader would give: a process a rank, a capture a rank unless `captures` is False."""
        order = np.lexsort((self.start, self.rank))
        chosen = self.keep(order)
        names = [f"ncclDevKernel_{call.operation}_Sum_f32_RING_LL(args)" for call in self.calls]
        ops = table(
            "ops",
            {
                "process": chosen.rank,
                "device": np.zeros(order.size, np.int32),
                "stream": np.array([call.stream for call in self.calls])[chosen.call],
                "name": pd.Categorical.from_codes(chosen.call, [f"{n}<{i}>" for i, n in enumerate(names)]),
                "start_ns": chosen.start,
                "end_ns": chosen.end,
                "correlation": np.arange(order.size),
                "grid": np.full(order.size, 24),
            },
        )
        paths = [f"rank{rank}" for rank in range(self.ranks)] if captures else ["all"]
        trace = Trace(
            captures=tuple(Capture(path, "synthetic", start_utc_ns=0 if epoch else None) for path in paths),
            processes=tuple(
                Process(capture=rank if captures else 0, pid=100 + rank, claims={"manifest": rank})
                for rank in range(self.ranks)
            ),
            ops=ops,
            comms=self._comms(chosen),
            origin_utc_ns=0 if epoch else None,
            **{name: table(name) for name in ("api", "ranges", "syncs", "records", "devices", "streams")},
        )
        return assign_ranks(trace)

    def _comms(self, chosen: Run) -> pd.DataFrame:
        if not self.keyed:
            return table("comms")
        size = chosen.rank.size
        columns: dict[str, object] = {
            "process": chosen.rank,
            "correlation": np.arange(size),
            "operation": pd.Categorical.from_codes(
                chosen.call, [f"{c.operation}_{i}" for i, c in enumerate(self.calls)]
            ),
            "bytes": np.array([call.bytes for call in self.calls])[chosen.call],
        }
        names = {(c, g): f"{call.name}" for c, call in enumerate(self.calls) for g in range(len(call.groups) or 1)}
        ranks = {
            (c, g): str(list((call.groups or (tuple(range(self.ranks)),))[g]))
            for c, call in enumerate(self.calls)
            for g in range(len(call.groups) or 1)
        }
        most = max(len(call.groups) or 1 for call in self.calls)
        coded, which = np.unique(chosen.call * most + chosen.group, return_inverse=True)
        keys = [divmod(int(code), most) for code in coded]  # (call, group), few of them

        def texts(values: list[str]) -> pd.Categorical:
            few = pd.Categorical(values)
            return pd.Categorical.from_codes(few.codes[which], dtype=few.dtype)

        if self.keyed == "communicator":
            labels = sorted({(names[key], ranks[key]) for key in names})
            number = {key: labels.index((names[key], ranks[key])) for key in names}
            columns["communicator"] = np.array(
                [(-1) ** number[key] * (1_000_000_007 + number[key]) for key in keys], np.int64
            )[which]
        else:
            columns["group"] = texts([names[key] for key in keys])
            columns["group_ranks"] = texts([ranks[key] for key in keys])
            columns["group_size"] = np.array([ranks[key].count(",") + 1 for key in keys], np.int64)[which]
        if self.keyed == "sequence":
            columns["sequence"] = chosen.collective
        return table("comms", columns)


def run(
    ranks: int,
    steps: int,
    calls: Sequence[Call] = (Call(),),
    *,
    seed: int = 0,
    gap: int = 1 * MS,
    step_noise: int = 50_000,
    rank_noise: int = 100_000,
    jitter: int = 2_000,
    offset: int = 0,
    drift: float = 0.0,
    keyed: str = "",
) -> Run:
    """Simulate a run.

    Parameters
    ----------
    gap : compute before each call, ns, times a factor of its place in the step.
    step_noise, rank_noise : how much that varies over steps, and over ranks, ns (scale of an exponential).
    jitter : matched ends differ by this much, ns (normal).
    offset, drift : largest offset (ns) and drift (ratio) of a rank's clock; rank 0's are 0.
    """
    random = np.random.default_rng(seed)
    factor = random.uniform(0.5, 2.0, len(calls))
    clock = np.full(ranks, MS, np.int64)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("rank", "collective", "call", "group", "start", "end")}
    number = 0
    for _ in range(steps):
        for position, call in enumerate(calls):
            compute = int(gap * factor[position]) + int(random.exponential(step_noise))
            arrive = clock + compute + random.exponential(rank_noise, ranks).astype(np.int64)
            for index, group in enumerate(call.groups or (tuple(range(ranks)),)):
                who = np.array(group)
                done = arrive[who].max() + call.transfer + int(random.exponential(call.transfer / 10))
                ends = done + np.rint(random.normal(0, jitter, who.size)).astype(np.int64)
                ends = np.maximum(ends, arrive[who] + 1_000)
                parts["rank"].append(who)
                parts["start"].append(arrive[who])
                parts["end"].append(ends)
                for name, value in (("collective", number), ("call", position), ("group", index)):
                    parts[name].append(np.full(who.size, value))
                clock[who] = ends
                number += 1
    offsets = random.integers(-offset, offset + 1, ranks)
    drifts = random.uniform(-drift, drift, ranks)
    offsets[0], drifts[0] = 0, 0.0
    arrays = {name: np.concatenate(values) for name, values in parts.items()}
    times = {f"true_{name}": arrays.pop(name) for name in ("start", "end")}
    return Run(ranks=ranks, calls=tuple(calls), offset=offsets, drift=drifts, keyed=keyed, **arrays, **times)


@dataclass(frozen=True)
class Loss:
    """How much of a rank's calls a capture lacks: up to this many at its head and tail, this share in its middle."""

    head: int = 0
    tail: int = 0
    middle: float = 0.0
    whole: tuple[int, ...] = field(default=())


def lose(complete: Run, loss: Loss, seed: int = 0) -> Run:
    """Delete rows at random; rank by rank, and whole ranks."""
    random = np.random.default_rng(seed)
    keep = random.random(complete.rank.size) >= loss.middle
    for rank in range(complete.ranks):
        mine = np.flatnonzero(complete.rank == rank)
        mine = mine[np.argsort(complete.true_end[mine], kind="stable")]
        keep[mine[: int(random.integers(0, loss.head + 1))]] = False
        keep[mine[mine.size - int(random.integers(0, loss.tail + 1)) :]] = False
        if rank in loss.whole:
            keep[mine] = False
    return complete.keep(np.flatnonzero(keep))


def right_pairs(truth: np.ndarray, found: np.ndarray, sure: np.ndarray) -> tuple[float, int]:
    """(share of rows whose found collective is the truth's, number of wrong rows not marked unsure).

    A found collective stands for the true one that most of its rows belong to, and each true one for the found one
    that holds most of it: a row is right when both say so.
    """
    frame = pd.DataFrame({"truth": truth, "found": found})
    counts = frame.groupby(["truth", "found"]).size().rename("rows").reset_index()
    of_found = counts.sort_values("rows").drop_duplicates("found", keep="last").set_index("found")["truth"]
    of_truth = counts.sort_values("rows").drop_duplicates("truth", keep="last").set_index("truth")["found"]
    right = (of_found.loc[found].to_numpy() == truth) & (of_truth.loc[truth].to_numpy() == found)
    return float(right.mean()), int(np.count_nonzero(~right & sure))
