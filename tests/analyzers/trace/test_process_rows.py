"""Where a process's rows stand, against a plain loop over them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analyzers.trace.columns import table
from analyzers.trace.process_rows import call_rows, op_rows
from analyzers.trace.tables import Trace


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
