"""Whole programs under torch.profiler read by brute force: steps, collectives, waits and overlap, one rank at a time.

`json` with Decimal, `gzip` and plain loops; shares no code with the package, and follows the definitions alone. What a
step is, a person has told for each program (`tests/real/test_truth.py`); nothing is guessed here.
"""

from __future__ import annotations

import gzip
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import oracle

Event = Mapping[str, Any]
Interval = tuple[int, int]
Key = tuple[str, ...]  # what one sequence of calls has in common: (group, its ranks), or (group, sender, receiver)
ALIGNING = ("AllReduce", "AllGather", "ReduceScatter")  # no rank of these can end before all have come


class Op(NamedTuple):
    """A kernel, copy or memset: ns since the epoch on its host's clock; `args` are the trace's own."""

    rank: int
    kind: str
    name: str
    start: int
    end: int
    thread: object  # of its launch call
    launch: int  # start of the launch call, -1 where it was not recorded
    args: Event

    @property
    def is_communication(self) -> bool:
        return self.kind == "kernel" and self.name.startswith("ncclDevKernel")

    @property
    def is_compute(self) -> bool:
        return self.kind == "kernel" and not self.is_communication


class Range(NamedTuple):
    name: str
    start: int
    end: int


class Note(NamedTuple):
    """One `record_param_comms`: what a thread told of a call just before it launched it."""

    thread: object
    start: int
    args: Event


class Rank(NamedTuple):
    number: int
    ops: list[Op]  # in order of launch
    ranges: list[Range]  # `record_function`, in order of start
    notes: list[Note]  # in order of start


class Figures(NamedTuple):
    """Communication (A) against compute (B) on one rank, ns. The real ones are without the waits in collectives."""

    busy_a: int
    busy_b: int
    overlap: int
    real_busy_a: int
    real_busy_b: int
    real_overlap: int

    @property
    def achievable(self) -> int:
        return min(self.real_busy_a, self.real_busy_b)


def read(paths: Iterable[Path]) -> dict[int, Rank]:
    """Rank number -> what its file holds."""
    ranks = [_read(path) for path in paths]
    found = {rank.number: rank for rank in ranks}
    assert len(found) == len(ranks), "a file a rank"
    return dict(sorted(found.items()))


def _read(path: Path) -> Rank:
    with gzip.open(path) as file:
        document = json.load(file, parse_float=Decimal)
    base, number = document["baseTimeNanoseconds"], document["distributedInfo"]["rank"]
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]

    def nanoseconds(microseconds: Decimal | int) -> int:
        value = Decimal(microseconds) * 1000
        assert value == int(value), "whole nanoseconds"
        return int(value)

    def start(event: Event) -> int:
        return int(base) + nanoseconds(event["ts"])

    calls = {
        event["args"]["correlation"]: event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    ops, ranges, notes = [], [], []
    for event in events:
        kind, args = event.get("cat"), event.get("args", {})
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            call = calls.get(args["correlation"])
            thread, launch = (call["tid"], start(call)) if call else (None, -1)
            end = start(event) + nanoseconds(event["dur"])
            ops.append(Op(number, kind, event["name"], start(event), end, thread, launch, args))
        elif kind == "user_annotation":
            ranges.append(Range(event["name"], start(event), start(event) + nanoseconds(event["dur"])))
        elif event["name"] == "record_param_comms":
            notes.append(Note(event["tid"], start(event), args))
    ops.sort(key=lambda op: op.launch)
    ranges.sort(key=lambda one: one.start)
    notes.sort(key=lambda one: one.start)
    return Rank(number, ops, ranges, notes)


# Steps


def steps_ended_by(rank: Rank, name: str) -> list[Interval]:
    """Steps on the host where a range ends each: from the end of one to the end of the next."""
    return _between([min(op.launch for op in rank.ops), *(one.end for one in rank.ranges if one.name == name)])


def steps_begun_by(rank: Rank, prefix: str) -> list[Interval]:
    """Steps on the host where a range, by how its name begins, encloses each: from one begin to the next."""
    own = [one for one in rank.ranges if one.name.startswith(prefix)]
    return _between([*(one.start for one in own), own[-1].end])


def _between(instants: Sequence[int]) -> list[Interval]:
    return list(itertools.pairwise(instants))


def launched_in(rank: Rank, steps: Iterable[Interval]) -> list[Op]:
    """The ops whose launch call begins in one of the steps."""
    steps = list(steps)
    return [op for op in rank.ops if any(start <= op.launch < end for start, end in steps)]


# Matches


def collectives(ranks: Mapping[int, Rank]) -> list[list[Op]]:
    """Every call that all its ranks made, by their kernels: the k-th of a group on one rank is the k-th on all.

    What was launched before the capture began nothing tells of.
    """
    sequences: dict[Key, dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for rank in ranks.values():
        for op in rank.ops:
            if op.is_communication and op.launch >= 0 and "Collective name" in op.args:
                key = (op.args["Process Group Name"], op.args["Process Group Ranks"])
                sequences[key][rank.number].append(op)
    found = []
    for (_, members), by_rank in sequences.items():
        for call in zip(*by_rank.values(), strict=True) if sorted(by_rank) == json.loads(members) else ():
            assert len({(op.args["Collective name"], op.args["dtype"]) for op in call}) == 1, "one call, one operation"
            found.append(list(call))
    return found + _exchanges(ranks)


def _exchanges(ranks: Mapping[int, Rank]) -> list[list[Op]]:
    """Sends and receives: the k-th send from one rank to another is the k-th receive there. Kernels that share one
    are one call (a kernel may send and receive)."""
    sends: dict[Key, list[Op]] = defaultdict(list)
    receives: dict[Key, list[Op]] = defaultdict(list)
    for rank in ranks.values():
        for op in rank.ops:
            for note in _just_before(rank, op) if op.is_communication and "Collective name" not in op.args else []:
                group, own = note.args["Process Group Name"], str(rank.number)
                if note.args["Collective name"] == "send":
                    sends[group, own, str(note.args["Dst Rank"])].append(op)
                elif note.args["Collective name"] == "recv":
                    receives[group, str(note.args["Src Rank"]), own].append(op)
    assert sends.keys() == receives.keys(), "each is sent and received"
    partner: dict[OpId, Op] = {}
    for key, sent in sends.items():
        for source, target in zip(sent, receives[key], strict=True):
            for one, other in ((source, target), (target, source)):
                assert partner.setdefault(identity(one), other) == other, "a kernel talks with one kernel"
    pairs = {tuple(sorted((identity(other), one))) for one, other in partner.items()}
    by_id = {identity(op): op for rank in ranks.values() for op in rank.ops}
    return [[by_id[one], by_id[other]] for one, other in sorted(pairs)]


OpId = tuple[int, int, int]  # rank, launch, start


def identity(op: Op) -> OpId:
    """What tells an op from all others."""
    return op.rank, op.launch, op.start


def _just_before(rank: Rank, op: Op) -> list[Note]:
    """What the launching thread told between its communication kernel before this one and this one."""
    earlier = [
        other.launch
        for other in rank.ops
        if other.is_communication and other.thread == op.thread and other.launch < op.launch
    ]
    since = max(earlier, default=-1)
    return [note for note in rank.notes if note.thread == op.thread and since < note.start < op.launch]


# Clocks and waits


def offsets(ranks: Mapping[int, Rank], calls: Iterable[Sequence[Op]]) -> dict[int, int]:
    """How far each rank's clock runs ahead of the first rank's: the median over collectives that both made and that
    end together. Where there is none, the host's clock is believed."""
    first = next(iter(ranks))
    apart: dict[int, list[int]] = {number: [] for number in ranks}
    for call in calls:
        ends = {op.rank: op.end for op in call}
        if first in ends and any(word in call[0].name for word in ALIGNING):
            for number, end in ends.items():
                apart[number].append(end - ends[first])
    return {number: int(statistics.median(one)) if one else 0 for number, one in apart.items()}


def transfers(calls: Iterable[Sequence[Op]], ahead: Mapping[int, int]) -> dict[OpId, Interval]:
    """Of each kernel what is left after its wait: from the last arrival among its ranks, not past its own end."""
    found = {}
    for call in calls:
        last = max(op.start - ahead[op.rank] for op in call)
        for op in call:
            found[identity(op)] = (min(last + ahead[op.rank], op.end), op.end)
    return found


def waits(call: Sequence[Op], ahead: Mapping[int, int]) -> dict[int, int]:
    """Rank -> ns that its kernel of one call waited for the last to come."""
    left = transfers([call], ahead)
    return {op.rank: left[identity(op)][0] - op.start for op in call}


# Figures


def figures(ops: Iterable[Op], left: Mapping[OpId, Interval]) -> Figures:
    """Communication against compute, of some ops of one rank. A kernel without a match waits for nobody."""
    ops = list(ops)
    a = [(op.start, op.end) for op in ops if op.is_communication]
    b = [(op.start, op.end) for op in ops if op.is_compute]
    real_a = [left.get(identity(op), (op.start, op.end)) for op in ops if op.is_communication]
    return Figures(*oracle.sweep(a, b), *oracle.sweep(real_a, b))
