"""What waits wait for, inferred from captures of simulated programs, is mostly what the program says it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from analyzers.ordering.ordering import Ordering
from analyzers.trace.tables import Trace
from tests.simulator.generate import generate
from tests.simulator.machine import simulate
from tests.simulator.measure import loaded
from tests.support.nightly import few_by_default

# Of waits, the least that have to be right, and the most that may be for another stream's work than the truth.
BARS = {"kineto": (0.92, 0.05), "kineto-default": (0.83, 0.125)}
Awaited = tuple[int, int]  # the stream that recorded, and how many units it had been given by then; -1 unknown


def awaited(trace: Trace) -> dict[tuple[int, int], list[Awaited]]:
    """What each wait of each rank and thread is for, in order of time."""
    ordering = trace.once(Ordering)
    lanes, links, waits = ordering.lanes, ordering.linked, ordering.linked.calls.waits
    found: dict[tuple[int, int], list[Awaited]] = {}
    for wait in range(waits.size):
        source = int(links.waits.source[wait])
        where = trace.processes[waits.process[wait]].rank, int(lanes.thread[waits.host[wait]])
        known = (int(lanes.stream[source]), int(links.awaited[wait])) if source >= 0 else (-1, -1)
        found.setdefault(where, []).append(known)
    return found


@pytest.mark.parametrize("seeds", few_by_default(24, 60))
@pytest.mark.parametrize("fmt", BARS)
def test_inferred_links_are_mostly_those_of_the_program(fmt: str, seeds: int, tmp_path: Path) -> None:
    """The truth is what nsys states of the same run."""
    counted: Counter[str] = Counter()
    for seed in range(seeds):
        run = simulate(generate(seed, ranks=1 if seed % 5 else 2))
        truth, found = (sorted(awaited(loaded(run, each, tmp_path)).items()) for each in ("nsys", fmt))
        for (_, true), (_, inferred) in zip(truth, found, strict=True):
            for right, guess in zip(true, inferred, strict=True):
                counted.update(all=1, right=guess == right, wrong=guess[0] not in (-1, right[0]))
    least, most = BARS[fmt]
    assert counted["right"] >= least * counted["all"]
    assert counted["wrong"] <= most * counted["all"]
