"""What waiting for late ranks cost in overlap, against every nanosecond looked at."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from analyzers.arrays.intervals import subtract, union
from analyzers.causes.gaps import PAUSE_NS, waited_in_vain

SPAN = 200
Ops = list[tuple[int, int, int]]  # (start, end, wait)

ops = st.lists(
    st.tuples(st.integers(0, 80), st.integers(0, 40), st.integers(0, 50)).map(
        lambda one: (one[0], one[0] + one[1], min(one[1], one[2]))
    ),
    max_size=6,
)


def slowly(mine: Ops, others: Ops) -> set[int]:
    """The nanoseconds of one instance; times are in thirds of a pause, so that some runs end and some don't."""
    runs: list[Ops] = []
    for start, end, wait in sorted(op for op in mine if op[1] > op[0]):
        if runs and start <= max(before[1] for before in runs[-1]) + 3:
            runs[-1].append((start, end, wait))
        else:
            runs.append([(start, end, wait)])
    theirs = {t for start, end, wait in others for t in range(start + wait, end)}
    found: set[int] = set()
    for run in runs:
        begin, end = min(op[0] for op in run), max(op[1] for op in run)
        real = {t for start, end, wait in run for t in range(start + wait, end)}
        resident = {t for start, end, _ in run for t in range(start, end)}
        more = len(theirs & set(range(begin, begin + len(real)))) - len(theirs & real)
        vain = sorted((resident - real) & theirs & set(range(begin, end)))
        found |= set(vain[: max(more, 0)])
    return found


@given(ops, ops, st.integers(0, 3))
@example([(10, 90, 60)], [(0, 60, 0)], 0)
@example([(10, 50, 30), (53, 61, 0)], [(0, 40, 0)], 1)
@example([(10, 50, 30), (54, 61, 0)], [(0, 40, 0)], 1)
def test_they_are_what_a_slow_calculation_finds(mine: Ops, others: Ops, instance: int) -> None:
    unit = PAUSE_NS // 3  # three of them are within a pause, four are not
    shift = instance * SPAN * unit

    def real(which: Ops) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.array([start + wait for start, _, wait in which], np.int64) * unit + shift,
            np.array([end for _, end, _ in which], np.int64) * unit + shift,
        )

    starts = np.array([start for start, _, _ in mine], np.int64) * unit + shift
    really, resident = union(*real(mine)), union(starts, real(mine)[1])
    found = waited_in_vain(resident, really, subtract(resident, really), union(*real(others)), SPAN * unit)
    pieces = zip((found.starts - shift).tolist(), (found.ends - shift).tolist(), strict=True)
    assert {t for start, end in pieces for t in range(start // unit, end // unit)} == slowly(mine, others)


def test_runs_of_two_instances_are_not_one() -> None:
    # The second alone would, on time, run from 100 to 110. As one run both would be done at 109.
    really = union(np.array([90, 130]), np.array([99, 140]))
    resident = union(np.array([90, 100]), np.array([99, 140]))
    others = union(np.array([100]), np.array([110]))
    found = waited_in_vain(resident, really, subtract(resident, really), others, 100)
    assert (found.starts.tolist(), found.ends.tolist()) == ([100], [110])
