"""What chains of ops begin with."""

import numpy as np
import pytest

from analyzers.causes.queues import first_of_chains


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


@pytest.mark.parametrize("count", [2, 31, 32, 33, 240])
def test_a_chain_of_all_ops_is_followed_to_its_end(count: int) -> None:
    order = np.arange(count) * 7 % count  # none is behind the one before it, as of streams that wait for each other
    assert first_of_chains(order[1:], order[:-1], count).tolist() == [order[0]] * count
