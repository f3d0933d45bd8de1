"""The critical path: by hand, and whole on random programs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from analyzers.replay.engine import run
from analyzers.replay.path import by_kind, critical_path
from analyzers.replay.tasks import tasks
from tests.analyzers.replay.programs import US, Program, blocked
from tests.simulator.generate import generate
from tests.simulator.machine import simulate
from tests.simulator.measure import loaded
from tests.support.builder import Builder


def test_a_path_known_by_hand() -> None:
    """K is launched and runs to 108; the host waits to 112, works for 8 µs, and launches L, which runs to 177."""
    trace = blocked()
    found = tasks(trace)
    path = critical_path(trace, found, run(found))
    assert [(one.kind, one.start_ns // US, one.end_ns // US) for one in path] == [
        ("launch", 0, 8),
        ("computation", 8, 108),
        ("host waiting", 108, 112),
        ("host work", 112, 120),
        ("launch", 120, 127),
        ("computation", 127, 177),
    ]
    assert by_kind(path)["computation"] == 150 * US


def test_it_goes_on_at_the_rank_that_came_last() -> None:
    both = Builder()
    for number, call in ((0, 0), (1, 60)):
        program = Program(both, number)
        wait = {0: 60 * US, 1: 0}[number]
        program.kernel("ncclDevKernel_AllReduce", 9, call=call, start=call + 7, end=87, collective=0, wait_ns=wait)
    trace = both.trace()
    found = tasks(trace)
    path = critical_path(trace, found, run(found))
    assert [(one.kind, one.rank, one.ns // US) for one in path] == [
        ("host work", 1, 60),
        ("launch", 1, 7),
        ("communication", 0, 20),
    ]


def whole(seeds: range, folder: Path) -> None:
    for seed in seeds:
        trace = loaded(simulate(generate(seed, ranks=1 + seed % 2)), "nsys", folder)
        found = tasks(trace)
        times = run(found)
        path = critical_path(trace, found, times)
        assert path[-1].end_ns == times.unit_end.max()
        assert all(one.end_ns == other.start_ns for one, other in pairwise(path)), seed
        assert sum(by_kind(path).values()) == path[-1].end_ns - path[0].start_ns


def test_segments_follow_each_other(tmp_path: Path) -> None:
    whole(range(12), tmp_path)


@pytest.mark.nightly
def test_segments_follow_each_other_in_many(tmp_path: Path) -> None:
    whole(range(12, 200), tmp_path)
