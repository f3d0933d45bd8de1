"""Ops of each device in order of start, against Python's own sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.trace.by_start import ops_by_start, those, wanted_by_start
from tests.support.builder import Builder

OPS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.booleans()), min_size=1, max_size=15)


@given(OPS, st.booleans())
def test_ops_of_a_device_come_in_order_of_start_and_ties_as_they_stand(
    ops: list[tuple[int, int, bool]], ascending: bool
) -> None:
    run = Builder()
    ranks = [run.rank(0), run.rank(1)]
    ops = sorted(ops, key=lambda op: op[1]) if ascending else ops
    for rank, start, _ in ops:
        ranks[rank].kernel("k", 7, start, start + 3)
    trace = run.trace()
    rows = {rank: [row for row, op in enumerate(ops) if op[0] == rank] for rank in (0, 1)}
    in_order = [sorted(rows[rank], key=lambda row: ops[row][1]) for rank in (0, 1) if rows[rank]]
    wanted = np.array([op[2] for op in ops])
    found = [*ops_by_start(trace).values()]
    assert [each.tolist() for each in found] == in_order
    assert [those(each, wanted).tolist() for each in found] == [[row for row in one if ops[row][2]] for one in in_order]
    assert wanted_by_start(trace, wanted).tolist() == [row for one in in_order for row in one if ops[row][2]]
