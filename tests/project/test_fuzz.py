"""What fuzzing takes for a wrong answer; `python -m tests.fuzz` itself is a part of the nightly run."""

from __future__ import annotations

import json

from tests.fuzz.contract import broken


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
