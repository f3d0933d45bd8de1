"""What ops were behind, on streams and in CUDA graphs: by hand, and random ones by the plainest way."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analyzers.causes.queues import BEHIND_NS, BRANCH_NS, find_nodes, first_of_chains
from analyzers.ordering.ordering import Ordering
from analyzers.trace.tables import Trace
from tests.support.builder import one_rank


@pytest.mark.parametrize("nearby", [0.0, 0.5, 0.9])
def test_first_of_chains(nearby: float) -> None:
    rng = np.random.default_rng(7)
    for _ in range(100):
        count = int(rng.integers(1, 60))
        start = rng.permutation(count)  # an op is behind one that started before it, wherever that stands
        behind = np.arange(count)
        for op in np.flatnonzero(rng.random(count) < 0.8):
            earlier = np.flatnonzero(start < start[op])
            if earlier.size:
                is_next = op and start[op - 1] < start[op] and rng.random() < nearby
                behind[op] = op - 1 if is_next else rng.choice(earlier)
        ops = np.flatnonzero(behind != np.arange(count))
        expected = []
        for op in range(count):
            while behind[op] != op:
                op = behind[op]
            expected.append(op)
        assert first_of_chains(ops, behind[ops], count).tolist() == expected
    order = np.arange(240) * 7 % 240  # one chain of all; none is behind the one before it
    assert first_of_chains(order[1:], order[:-1], 240).tolist() == [0] * 240


US = 1000
Node = tuple[int, int, int, int]  # launch, stream, start, end


def launched(nodes: list[Node], alone: tuple[Node, ...] = ()) -> Trace:
    """Launches of one graph, and ops of none."""
    run, rank = one_rank()
    for number in sorted({node[0] for node in nodes}):
        rank.call("cudaGraphLaunch", number, number + 1)
    for launch, stream, start, end in nodes:
        run.rows["ops"][rank.op("node", stream, start, end, graph=5)]["launch"] = launch
    for _, stream, start, end in alone:
        rank.kernel("alone", stream, start, end)
    return run.trace()


def test_the_picture() -> None:
    nodes = [(0, 7, 10, 30), (0, 7, 31, 60), (0, 20, 18, 70), (0, 7, 72, 90)]
    trace = launched([(n, s, start * US, end * US) for n, s, start, end in nodes], ((0, 7, 1 * US, 2 * US),))
    lanes = Ordering(trace).lanes
    found = find_nodes(trace, lanes)
    assert found.behind.tolist() == [-1, 0, -1, 1, -1]
    assert found.beside.tolist() == [-1, -1, -1, 2, -1]
    assert found.hidden.tolist() == [False, True, True, True, False]
    assert found.unseen.tolist() == [False, False, False, True, False]  # 12 µs behind n1
    assert [found.last[lanes.unit_of_op[op]] for op in range(5)] == [3, 3, 3, 3, 4]
    assert found.members(int(lanes.unit_of_op[0])).tolist() == [0, 1, 3, 2]
    assert found.members(int(lanes.unit_of_op[4])).tolist() == []


def test_random_launches_as_the_slow_way_finds_them() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        nodes, free = [], {}
        for launch in range(draw.randint(1, 3)):
            for _ in range(draw.randint(1, 8)):
                stream = draw.choice([7, 20, 22][: draw.randint(1, 3)])
                start = free.get(stream, launch * 100 * US) + draw.choice([500, 2_900, 3_100, 9_000])
                free[stream] = end = start + draw.randint(1, 30) * 500
                nodes.append((launch, stream, start, end))
            free = dict.fromkeys((7, 20, 22), max(free.values()) + 1)
        trace = launched(nodes)
        found = find_nodes(trace, Ordering(trace).lanes)
        for row, (launch, stream, start, _) in enumerate(nodes):
            mine = [(e, r) for r, (n, s, _, e) in enumerate(nodes) if (n, s) == (launch, stream) and e <= start]
            beside = [(e, r) for r, (n, s, _, e) in enumerate(nodes) if n == launch and s != stream and e <= start]
            began = min(s for n, _, s, _ in nodes if n == launch)
            several = len({s for n, s, _, _ in nodes if n == launch}) > 1
            assert found.behind[row] == max(mine, default=(0, -1))[1]
            assert found.beside[row] in {r for e, r in beside if e == max(beside)[0]} if beside else {-1}
            late = start - max(mine)[0] > BEHIND_NS if mine else start - began > BRANCH_NS
            assert found.unseen[row] == (several and late)
