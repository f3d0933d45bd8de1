"""Gaps and what waiting for late ranks cost: by hand, and against every nanosecond looked at."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from analyzers.arrays.intervals import union
from analyzers.causes.gaps import MAX_PAUSE_NS, find_gaps, waited_in_vain
from analyzers.overlap.pairing import Pairing
from analyzers.trace.tables import Trace
from tests.support.builder import one_rank


def trace_of(*ops: tuple[str, int, int, int]) -> Trace:
    """Ops (name, start, end, wait), each on a stream of its own."""
    run, rank = one_rank()
    for stream, (name, start, end, wait) in enumerate(ops):
        rank.kernel(name, stream, start, end, wait_ns=wait)
    return run.trace()


def gaps_of(*ops: tuple[str, int, int, int], shift: int = 0) -> list[tuple[str, int, int, int, int]]:
    """(side, start, end, alone, waited) of each gap; names begin with their side and end with their instance."""
    trace = trace_of(*((name, start + shift, end + shift, wait) for name, start, end, wait in ops))
    side = [np.array([int(name[-1]) if name[0] == which else -1 for name, *_ in ops]) for which in "ab"]
    pairing = Pairing("step", side[0], side[1], np.zeros(3, np.int64), ("0", "1", "2"))
    rows = np.flatnonzero(side[0] >= 0), np.flatnonzero(side[1] >= 0)

    found = find_gaps(trace, *rows, pairing)
    if found is None:
        return []
    alone = found.alone(found.start_ns, found.end_ns)
    columns = (found.start_ns - shift, found.end_ns - shift, alone, found.peer_ns)
    return [("ab"[side], *row) for side, *row in zip(found.side.tolist(), *(c.tolist() for c in columns), strict=True)]


def test_a_gap_runs_from_the_last_end_or_the_beginning_to_the_next_start() -> None:
    assert gaps_of(("a0", 0, 30, 0), ("a0", 50, 60, 0), ("b0", 10, 20, 0), ("b0", 40, 80, 0)) == [
        ("a", 30, 50, 10, 0),  # b runs from 40 to 50
        ("b", 0, 10, 10, 0),
        ("b", 20, 40, 10, 0),  # a runs from 20 to 30
    ]


def test_an_instance_with_one_side_has_no_gaps_and_instances_stay_apart() -> None:
    ops = (("a0", 0, 10, 0), ("b0", 20, 30, 0), ("a1", 5, 15, 0), ("a2", 40, 50, 0), ("b2", 45, 60, 0))
    assert gaps_of(*ops) == [("b", 0, 20, 10, 0), ("b", 40, 45, 5, 0)]
    # A's last of one instance and its first of the next follow each other on no line.
    ops = (("a0", 0, 10, 0), ("b0", 0, 10, 0), ("a1", 100, 110, 0), ("b1", 105, 130, 0), ("a1", 120, 140, 0))
    assert gaps_of(*ops) == [("a", 110, 120, 10, 0), ("b", 100, 105, 5, 0)]


def test_a_wait_counts_apart_and_ends_the_gap_where_its_op_begins() -> None:
    # b spins from 20 to 50, a runs from 0 to 40 and again from 60.
    assert gaps_of(("a0", 0, 40, 0), ("a0", 60, 70, 0), ("b0", 20, 55, 30)) == [
        ("a", 40, 60, 5, 0),  # b waits until 50, which hides nothing, then runs until 55
        ("b", 0, 20, 20, 5),  # a runs alone until 20; on time b would have run from 20 to 25
    ]


def test_a_wait_counts_for_as_long_as_it_cost_overlap() -> None:
    # b waits from 10 to 40 and from 50 to 55, runs from 40 to 50 and from 55 to 60: on time it would run from 10 to 25.
    ops = ("b0", 10, 50, 30), ("b0", 50, 60, 5)
    assert gaps_of(("a0", 0, 30, 0), *ops) == [("b", 0, 10, 10, 15)]
    assert gaps_of(("a0", 0, 20, 0), *ops) == [("b", 0, 10, 10, 10)], "a runs for 10 of those 15"
    assert gaps_of(("a0", 0, 45, 0), *ops) == [("b", 0, 10, 10, 10)], "5 it overlaps now"
    assert gaps_of(("a0", 0, 100, 0), *ops) == [("b", 0, 10, 10, 0)], "all it overlaps now"
    assert gaps_of(("a0", 0, 5, 0), ("a0", 30, 45, 0), *ops) == [("b", 0, 10, 5, 0)], "on time it would be done by 30"


def test_trivial_ops_end_no_gap_and_fill_none() -> None:
    # a runs from 0 to 300. b's op of 1 at 100 is under a hundredth of the one of 150, and under a twentieth of all.
    a, b = ("a0", 0, 300, 0), ("b0", 250, 400, 0)
    assert gaps_of(a, ("b0", 100, 101, 0), b) == [("b", 0, 250, 249, 0)]
    assert gaps_of(a, ("b0", 100, 102, 0), b) == [("b", 0, 100, 100, 0), ("b", 102, 250, 148, 0)], "2 of 150"
    assert gaps_of(a, *(("b0", 100 + 2 * k, 101 + 2 * k, 0) for k in range(7)), b) == [("b", 0, 250, 243, 0)]
    assert len(gaps_of(a, *(("b0", 100 + 2 * k, 101 + 2 * k, 0) for k in range(8)), b)) == 9, "they take 8 of 158"


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
    unit = MAX_PAUSE_NS // 3  # three of them are within a pause, four are not
    shift = instance * SPAN * unit

    def real(which: Ops) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.array([start + wait for start, _, wait in which], np.int64) * unit + shift,
            np.array([end for _, end, _ in which], np.int64) * unit + shift,
        )

    starts = np.array([start for start, _, _ in mine], np.int64) * unit + shift
    really, resident = union(*real(mine)), union(starts, real(mine)[1])
    found = waited_in_vain(resident, really, union(*real(others)), np.arange(4) * SPAN * unit)
    pieces = zip((found.starts - shift).tolist(), (found.ends - shift).tolist(), strict=True)
    assert {t for start, end in pieces for t in range(start // unit, end // unit)} == slowly(mine, others)
