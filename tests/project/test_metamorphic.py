"""A few captures and every relation; `python -m tests.metamorphic` does all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metamorphic import EXPLAINED, RELATIONS, Relation, differences, runs

pytestmark = pytest.mark.nightly

FEW = ("torch full_gpu", "torch a2a_async", "nsys dpmp_overlap.2gpu", "nsys rowpar_s1 a report a rank")
RUNS = runs()


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_figures_become_what_the_change_makes_them(tmp_path: Path, relation: Relation, name: str) -> None:
    files, pair = RUNS[name]
    found = differences(files, pair, relation, tmp_path / "changed")
    assert bool(found) == ((relation.name, name) in EXPLAINED), found


def test_every_relation_applies_somewhere() -> None:
    assert len(RELATIONS) == 8
    assert len(RUNS) >= 25
