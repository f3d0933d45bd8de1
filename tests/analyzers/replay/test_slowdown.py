"""How much slower units go on beside others, from a few like ones (µs)."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.replay.model import LARGE, LOADS, TALKING, WAITING
from analyzers.replay.sharing import LITTLE_TAKEN, NO_GAIN, USUAL, Slowdown, slowdown
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import names_of, on_ranks, written


def of(trace: Trace, name: str) -> tuple[Slowdown, list[int]]:
    found = tasks(trace)
    names = names_of(trace, found.units)
    rows = np.flatnonzero([name in one for one in names])
    return slowdown(trace, found.units, found.occupancy), rows.tolist()


def alone(*times: int) -> str:
    """X, of 100 µs, at these times."""
    return "; ".join(f"X 7 @{at} {at + 10}-{at + 110}" for at in times) + "; "


def test_like_kernels_alone_and_beside_others() -> None:
    """X takes 100 µs alone, and 150 all the way beside Y: there it does 2/3 of its pace.

    The first comes behind nothing, the others behind like ones.
    """
    beside = "; ".join(f"Y 9 @{at - 10} {at + 5}-{at + 165}; X 7 @{at} {at + 10}-{at + 160}" for at in (800, 1_000))
    found, rows = of(written(alone(0, 200, 400, 600) + beside), "X")
    assert found.known[rows[1:], LARGE].all()
    assert not found.known[:, TALKING].any()
    assert found.least_slower[rows[1:], LARGE] == pytest.approx([1 / 3] * 5)
    assert found.beside[rows].tolist() == [[0] * 5] * 4 + [[0, 0, 0, 1, 0]] * 2
    assert found.alone_ns(found.likely_slower)[rows] == pytest.approx([100_000] * 6)


def test_what_never_ran_beside_others_may_be_slowed_or_not() -> None:
    found, rows = of(written(alone(0, 200)), "X")
    assert not found.known[rows].any()
    assert found.least_slower[rows].tolist() == [[0] * len(LOADS)] * 2
    assert found.likely_slower[rows].tolist() == [USUAL[LARGE].tolist()] * 2
    assert found.most_slower[rows].tolist() == [[LITTLE_TAKEN] * 2 + [NO_GAIN] * 3] * 2


def test_what_it_loses_is_told_apart_by_what_is_beside() -> None:
    """X takes 100 µs alone, 125 all beside Y, which loses 1/5, and 200 beside a transfer: half."""
    beside = "Y 9 @590 605-740; X 7 @600 610-735; AllReduce 11 @790 805-1015; X 7 @800 810-1010"
    found, rows = of(written(alone(0, 200, 400) + beside), "X")
    assert found.likely_slower[rows[1], LARGE] == pytest.approx(0.2)
    assert found.likely_slower[rows[1], TALKING] == pytest.approx(0.5)
    assert found.alone_ns(found.likely_slower)[rows] == pytest.approx([100_000] * 5)


def test_a_transfer_that_waits_is_not_one_that_transfers() -> None:
    """Rank 0 waits from 20 to 60 and transfers to 120; K runs from 30 to 80: 30 of 50 µs beside the wait."""
    waiting = "AllReduce:0 9 @10 20-120 wait_ns=40000; K 7 @20 30-80"
    found, rows = of(on_ranks(waiting, "AllReduce:0 9 @50 60-120"), "K")
    assert found.beside[rows[0], [WAITING, TALKING]].tolist() == [0.6, 0.4]


def test_what_one_loses_beside_another_tells_what_that_loses() -> None:
    """X loses 1/3 beside the all-reduce, which never ran alone: most likely it loses as much, where 1/4 is usual."""
    found, rows = of(written(alone(0, 200, 400) + "AllReduce 9 @590 605-765; X 7 @600 610-760"), "AllReduce")
    assert not found.known[rows, LARGE].any()
    assert found.likely_slower[rows, LARGE] == pytest.approx([1 / 3])
    assert found.most_slower[rows, LARGE].tolist() == [NO_GAIN]


def test_the_range_holds_what_is_most_likely() -> None:
    """X takes five times as long beside the all-reduce: 4/5 of its pace. Then the all-reduce may lose as much, too."""
    found, rows = of(written(alone(0, 200, 400) + "AllReduce 9 @590 605-1115; X 7 @600 610-1110"), "AllReduce")
    assert found.likely_slower[rows, LARGE] == pytest.approx([0.8])
    assert (found.least_slower <= found.likely_slower).all()
    assert (found.likely_slower <= found.most_slower).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "text",
    [
        # Collectives of unknown sizes: 40 and 90 µs alone. What one takes beside others says nothing.
        "X 7 @0 10-50; X 7 @200 210-300; X 7 @400 410-450; X 7 @600 610-700; Y 9 @790 805-965; X 7 @800 810-960",
        "X 7 @0 10-10; X 7 @200 210-210",  # they take no time
    ],
)
def test_times_alone_that_differ_too_much_or_are_none_tell_nothing(text: str) -> None:
    found, rows = of(written(text), "X")
    assert not found.known[rows].any()


def test_a_collective_is_beside_what_runs_on_any_of_its_ranks() -> None:
    """Of the transfer from 20 to 120, rank 0 runs K from 20 to 50 and rank 1 from 40 to 70: half."""
    texts = (f"AllReduce:0 9 @0 20-120; K 7 @{low - 10} {low}-{high}" for low, high in ((20, 50), (40, 70)))
    found, rows = of(on_ranks(*texts), "AllReduce")
    assert found.beside[rows, LARGE].tolist() == [0.5, 0.5]
