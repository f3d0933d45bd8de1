"""How surely an inferred link is what an op waited for: counted by hand, and by brute force on a real capture."""

from __future__ import annotations

import pytest

from analyzers.overlap.measure import Inferred
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import one_rank

A, B = "kernel:alpha", "kernel:beta"
US = 1000
STEP = 1000 * US


def steps_of(*late_us: int, stated: bool = False) -> Trace:
    """In each step beta runs for 100 µs on stream 7; alpha on 9 waits for it, and starts so many µs after its end.

    Of a negative number, alpha is launched that late instead, long after beta's end, and starts 3 µs after its launch.
    """
    run, rank = one_rank()
    for number, late in enumerate(late_us):
        at = number * STEP
        rank.range(f"step {number}", at, at + STEP - US)
        rank.kernel("beta", 7, at + 10 * US, at + 110 * US, launch=(at, at + US))
        rank.wait_stream(9, 7, at + 2 * US, stated=stated)
        start = at + (110 + late) * US if late >= 0 else at + (110 - late + 3) * US
        launch = at + 4 * US if late >= 0 else at + (110 - late) * US
        rank.kernel("alpha", 9, start, start + 50 * US, launch=(launch, launch + US))
    return run.trace()


@pytest.mark.parametrize(
    ("late_us", "expected", "words"),
    [
        ((2, 3, 4), Inferred(3, 3, 4 * US), "inferred: 3 of 3 starts followed within 4.00 µs"),
        ((2, 3, 15), Inferred(2, 3, 3 * US), "inferred: 2 of 3 starts followed within 3.00 µs"),
        ((2, -40, 3), Inferred(2, 2, 3 * US), "inferred: 2 of 2 starts followed within 3.00 µs"),
        ((30, 40, 50), Inferred(0, 3, None), "inferred: 0 of 3 starts followed within 10.0 µs"),
        ((2, -40, -40), Inferred(1, 1, 2 * US), "inferred: 1 of 1 start followed within 2.00 µs"),
    ],
)
def test_the_starts_that_a_link_held_are_counted(late_us: tuple[int, ...], expected: Inferred, words: str) -> None:
    """A launch after beta's end says nothing about the link: what held alpha there was its launch."""
    (rank,) = check_overlap(steps_of(*late_us), A, B).ranks
    found = next(one for one in rank.missed if one.cause == "event-dependency")
    assert found.inferred == expected
    assert f"through record on stream 7 → wait on stream 9 ({words})" in found.evidence
