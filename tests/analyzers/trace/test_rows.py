"""Rows of a device in order of start, and where a process's rows stand, against Python's own sort and a plain loop."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.trace.columns import table
from analyzers.trace.op_rows import call_rows, op_rows, ops_by_start, those, wanted_by_start
from analyzers.trace.tables import Trace
from tests.support.builder import Builder


@pytest.mark.parametrize("are_mixed", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_rows_are_from_the_first_of_a_process_to_its_last(seed: int, are_mixed: bool) -> None:
    dice = random.Random(seed)
    ops, calls = ([dice.randint(0, 4) for _ in range(dice.randint(0, 12))] for _ in range(2))
    if not are_mixed:
        ops, calls = sorted(ops), sorted(calls)
    tables = {name: table(name, {"process": np.array(own, int)}) for name, own in (("ops", ops), ("api", calls))}
    trace = Trace((), (), **tables)
    for process in range(6):
        for own, found in ((ops, op_rows(trace, process)), (calls, call_rows(trace, process))):
            rows = [row for row, owner in enumerate(own) if owner == process]
            assert [*range(len(own))][found] == ([*range(rows[0], rows[-1] + 1)] if rows else [])
            assert are_mixed or [*range(len(own))][found] == rows


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
