"""Why no figure of a run can be trusted: 2 % of the launches in what is looked at are the bound."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.untrusted import untrusted
from tests.support.kineto_files import ten_steps


@pytest.mark.parametrize(
    ("lost", "narrowing", "why"),
    [
        ((), ALL, ""),
        ((7,), ALL, "1 of 50 of rank 0"),  # 2 %
        ((7,), Narrowing(steps=(0, 1)), ""),  # launch 7 is the third one of step 1
        ((7,), Narrowing(steps=(1, 3)), "1 of 10 of rank 0"),
        ((7, 8, 9, 5, 6), ALL, "5 of 50 of rank 0"),  # all of step 1
        ((7, 8, 9, 5, 6), Narrowing(steps=(1, 3)), "5 of 10 of rank 0"),
    ],
)
def test_launches_without_work_matter_from_a_fiftieth_of_what_is_looked_at(
    tmp_path: Path, lost: Collection[int], narrowing: Narrowing, why: str
) -> None:
    run = Run.of(load([ten_steps(tmp_path / "t.json", lost)]))
    assert untrusted(run, narrowing) == (why and f"launches have no GPU work on record: {why}")
