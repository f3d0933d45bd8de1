"""No hiding: complete captures whose truth lies far from the bar get their verdict."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.simulator.measure import FORMATS
from tests.simulator.verdicts import verdicts
from tests.support.nightly import mostly_nightly

WITHHELD = 0.10  # of verdicts, at most
FEW, MANY = range(5), range(4000, 4300)


@pytest.mark.parametrize(
    ("fmt", "seeds"), mostly_nightly([("nsys", FEW), *product(FORMATS, [MANY])], lambda case: case[1] == FEW)
)
def test_no_verdict_is_wrong_and_few_are_withheld(fmt: str, seeds: range, tmp_path: Path) -> None:
    found = verdicts(seeds, fmt, tmp_path)
    assert not found["wrong"], found
    assert found["withheld"] <= WITHHELD * found.total(), found
    assert found.total() >= len(seeds)
