"""A short slice of `python -m tests.fuzz`, the same cases each time."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.contract import broken
from tests.fuzz.run import fuzz

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(("loader", "cases"), [("kineto", 25), ("nsys", 20), ("nsys-stats", 40)])
def test_a_slice_of_the_fuzzing_finds_nothing(loader: str, cases: int) -> None:
    tally = fuzz(loader, cases, seed=2026)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.inputs > cases * 0.8
    assert tally.outcomes["exit 2"] < tally.commands / 2, "most mutants are still answered"


def test_the_oracle_knows_a_wrong_answer() -> None:
    answer = {
        "schema": "traceviz.overlap/3", "verdict": "overlapped", "passed": True, "reason": "", "pair": {}, "bar": 0.6,
        "ranks": [], "ranks_given": 1, "ranks_known": None, "ranks_met": 1, "last_arrival": None,
        "job": {"real_overlap_ratio": 0.7}, "gain": None, "clocks": None, "warnings": [],
    }  # fmt: skip
    assert not broken(json.dumps(answer), 0)
    assert "exit code 1" in broken(json.dumps(answer), 1)
    assert "ratio and bar" in broken(json.dumps({**answer, "job": {"real_overlap_ratio": 0.5}}), 0)
    assert "without a reason" in broken(json.dumps({**answer, "verdict": "inconclusive", "passed": None}), 3)
    del answer["warnings"]
    assert "lacks ['warnings']" in broken(json.dumps(answer), 0)
