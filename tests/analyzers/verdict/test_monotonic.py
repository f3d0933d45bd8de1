"""Taking evidence away may widen an answer and never flips it, on every real capture.

Left out, one at a time: peers, synchronization records, event records, what is said of communication calls (group,
sequence, size; under nsys NCCL's NVTX payloads). Held, for the job and for each rank that remains: no bar is met where
the whole misses it or missed where the whole meets it, and the whole's ratio lies within every range called sure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import joined
from analyzers.matching.peers import ranks_known
from analyzers.readers.captures import read_many
from analyzers.readers.inputs import Input, find_inputs
from analyzers.readers.reading import Reading
from analyzers.trace.columns import ints, table
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from tests import answers

BARS = np.arange(1, 100) / 100
SLACK = 1e-4  # on another rank's clock, which may run faster by 50 ppm, all durations are as much longer
WITHOUT = ("syncs", "records", "comms")
QUICK = ("workload.fsdp.step.4gpu.torch", "torch.item_before")
RUNS = {name: files for name, files in answers.groups().items() if not name.startswith("stats.")}
EVERY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in RUNS]


@cache
def read(name: str) -> tuple[list[Input], list[Trace]]:
    inputs, _ = find_inputs(RUNS[name])
    return inputs, list(read_many(inputs, Reading(workers=1))[0])


def run_of(inputs: Sequence[Input], traces: Sequence[Trace]) -> Trace:
    return joined(traces, inputs, [], [], align=True)


def without(trace: Trace, name: str) -> Trace:
    return replace(trace, **{name: table(name)})


def without_processes(trace: Trace, gone: Sequence[int]) -> Trace:
    """A report of fewer ranks: none of their work, host calls stay."""
    keeps = ~np.isin(ints(trace.ops, "process"), gone)
    return replace(trace, ops=trace.ops.to_frame()[keeps].reset_index(drop=True))


def reductions(name: str) -> Iterator[tuple[str, Trace]]:
    """What was left out, and the run without it."""
    inputs, traces = read(name)
    for left_out in WITHOUT:
        yield f"without {left_out}", run_of(inputs, [without(trace, left_out) for trace in traces])
    count = len(traces)
    for size in range(1, count):
        for kept in itertools.combinations(range(count), size):
            yield f"captures {kept}", run_of([inputs[i] for i in kept], [traces[i] for i in kept])
    if count == 1:
        working = [int(one) for one in np.unique(ints(traces[0].ops, "process"))]
        for size in range(1, len(working)):
            for gone in itertools.combinations(working, size):
                yield f"without processes {gone}", run_of(inputs, [without_processes(traces[0], gone)])


def asked(trace: Trace, pair: tuple[str, str]) -> OverlapResult | None:
    try:
        return check_overlap(trace, *pair, explain=False)
    except TracevizError:
        return None


def flips(whole: OverlapResult, reduced: OverlapResult) -> list[str]:
    wrong = []
    for bar in BARS:
        answered = whole.job.meets(bar), reduced.job.meets(bar)
        if set(answered) == {True, False}:
            wrong.append(f"bar {bar:.0%}: {answered[0]} of the whole, {answered[1]} here")
    full = {(rank.rank, rank.device): rank.real_overlap_ratio for rank in whole.ranks}
    for rank in reduced.ranks:
        ratio = full.get((rank.rank, rank.device))
        low, high = rank.ratio_range
        if ratio is not None and rank.real_overlap_ratio is not None and not low - SLACK <= ratio <= high + SLACK:
            wrong.append(f"rank {rank.rank}: {ratio:.3f} of the whole, {low:.3f} to {high:.3f} here")
    return wrong


@pytest.mark.parametrize("name", EVERY)
def test_less_evidence_never_flips_an_answer(name: str) -> None:
    trace = run_of(*read(name))
    pairs = [("comm", "compute"), *filter(None, [answers.pair_of(name)])]
    wrong = []
    states_ranks = ranks_known(trace) is not None
    for pair in pairs:
        whole = asked(trace, pair)
        if whole is None:
            continue
        for what, reduced in reductions(name):
            fewer = what.startswith(("captures", "without processes"))
            if fewer and not states_ranks:
                continue  # nothing in the capture says that there were others: docs/cannot-tell.md
            named = {one.pid: one.rank for one in trace.processes}
            if any(named[one.pid] != one.rank for one in reduced.processes if one.rank >= 0):
                continue  # by order, as nothing names them
            answer = asked(reduced, pair)
            if answer is not None:
                wrong += [f"{pair} {what}: {one}" for one in flips(whole, answer)]
    assert not wrong, "\n".join(wrong[:30])
