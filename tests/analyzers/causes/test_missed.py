"""What one cause is told by: of its gaps those alike that take most of its time, and how much of it they are."""

from __future__ import annotations

import pytest

from analyzers.overlap.measure import Missed
from analyzers.trace.narrow import EVERYTHING
from analyzers.verdict.check import check_overlap
from tests.support.builder import one_rank

US = 1_000


def late(*where: tuple[str, int]) -> Missed:
    """A launch that comes late in each of some ranges, by so many µs, while the other side runs alone."""
    run, rank = one_rank()
    at = 0
    for name, us in where:
        rank.range(f"step {at // (1_000 * US)}", at, at + 1_000 * US - 1)
        rank.range(name, at + 15 * US, at + us * US + 8 * US)
        rank.kernel("beta", 7, at + 10 * US, at + (us + 100) * US, launch=(at, at + 5 * US))
        begin = at + us * US + 9 * US
        rank.kernel("alpha", 8, begin + 5 * US, begin + 305 * US, launch=(begin - 4 * US, begin + 1 * US))
        at += 1_000 * US
    (device,) = check_overlap(run.trace(), "kernel:alpha", "kernel:beta", narrowing=EVERYTHING).ranks
    return next(one for one in device.missed if one.cause == "late-launch")


def test_a_place_that_holds_most_stands_for_the_cause_with_its_share_though_another_gap_is_longer() -> None:
    """Late by 300 µs in `one`, by 200 in three `two`: 304 + 3 x 204 µs alone, of which 612 / 916 are in `two`."""
    found = late(("one", 300), ("two", 200), ("two", 200), ("two", 200))
    assert found.share == pytest.approx(612 / 916, abs=0.005)
    assert found.finding == (
        "launched late, 66.8 % of it this one: alpha was submitted up to 200 µs late; its thread was in host code of "
        "'two'"
    )


def test_of_many_places_none_stands_for_the_cause() -> None:
    found = late(*((f"place {name}", 200) for name in "abcdef"))
    assert found.finding.startswith("launched late, in many places: the most is 16.7 % of it, alpha was submitted")
