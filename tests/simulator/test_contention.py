"""What overlap costs, against programs whose sides share bandwidth: what they truly lost is known."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.simulator.contend import answer, cost
from tests.support.nightly import mostly_nightly

POINTS = 0.05  # of a side's time
FORMS = ("nsys", "kineto")
FEW, MANY = range(500, 502), range(1000, 1100)
BY_FORM = pytest.mark.parametrize(
    ("form", "seeds"), mostly_nightly(product(FORMS, (FEW, MANY)), lambda case: case[1] == FEW)
)


def off_and_within(seeds: range, form: str, folder: Path) -> tuple[list[float], list[bool], int]:
    """How far each known cost is from the truth, of the side's time alone; whether the range holds it; how many."""
    off, within, asked = [], [], 0
    for seed in seeds:
        run, result = answer(seed, form, folder)
        for one in result.contention:
            for side, found in (("a", one.a), ("b", one.b)):
                asked += 1
                if found.paid_ns is None or found.paid_low_ns is None or found.paid_high_ns is None:
                    continue
                truth = cost(run, one.rank, side)
                slack = 0.002 * truth.taken_ns  # kernels of one kind differ by half a percent
                off.append(abs(found.paid_ns - truth.paid_ns) / (truth.taken_ns - truth.paid_ns))
                within.append(found.paid_low_ns - slack <= truth.paid_ns <= found.paid_high_ns + slack)
    return off, within, asked


@BY_FORM
def test_what_sides_paid(form: str, seeds: range, tmp_path: Path) -> None:
    off, within, asked = off_and_within(seeds, form, tmp_path)
    assert len(off) >= 0.6 * asked
    assert sum(one <= POINTS for one in off) >= 0.98 * len(off)
    assert sum(within) >= 0.9 * len(within)


@BY_FORM
def test_where_there_is_bandwidth_for_all_no_slowdown_is_claimed(form: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        _, result = answer(seed, form, tmp_path, contends=False)
        assert not any(one.a.is_slowed or one.b.is_slowed for one in result.contention)
