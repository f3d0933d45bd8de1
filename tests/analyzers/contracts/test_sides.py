"""Both sides' work by instance."""

from __future__ import annotations

import numpy as np

from analyzers.contracts.order import Order
from analyzers.contracts.sides import sides
from tests.support.builder import one_rank


def test_instances_times_places_on_a_lane_fit_their_type() -> None:
    run, rank = one_rank()
    for name, at in (("A", 0), ("B", 100)):
        rank.range(name, at, at + 5)
        rank.kernel(name.lower(), 1, at + 10, at + 20, launch=(at + 1, at + 2))
    trace = run.trace()
    found = sides(trace, Order(trace), "nvtx:A", "nvtx:B")
    assert [one.instance.tolist() for one in (found.a, found.b)] == [[0], [0]]
    assert found.a.instance.dtype == found.b.instance.dtype == np.int64
