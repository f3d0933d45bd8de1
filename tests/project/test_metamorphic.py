"""A few captures and every relation; `python -m tests.metamorphic` does all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.matching.pairs import JITTER_NS
from tests.metamorphic import LOSES_A_MATCH, RELATIONS, Relation, differences, double, runs
from tests.support.command_lines import run_json

pytestmark = pytest.mark.nightly

FEW = ("torch full_gpu", "nsys dpmp_overlap.2gpu", "nsys rowpar_s1 a report a rank")
RUNS = runs()


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_figures_become_what_the_change_makes_them(tmp_path: Path, relation: Relation, name: str) -> None:
    files, pair = RUNS[name]
    found = differences(files, pair, relation, tmp_path / "changed")
    assert not found


def test_every_relation_applies_somewhere() -> None:
    assert len(RELATIONS) == 8
    assert len(RUNS) >= 25


@pytest.mark.parametrize("name", LOSES_A_MATCH)
def test_where_doubling_does_not_double_a_match_is_lost_and_the_verdict_says_so(tmp_path: Path, name: str) -> None:
    """Ends of matched calls honestly lie up to some 30 µs apart, however long a run is; twice that is no match."""
    files, pair = RUNS[name]
    captures = [str(path) for path in files], [str(path) for path in double(files, tmp_path)]
    skews = [one["end_skew_ns"] for one in run_json("collectives", *captures[0])["collectives"]]
    assert max(skews) < JITTER_NS < 2 * max(skews)
    matched = [
        sum(len(one["ranks"]) == len(files) for one in run_json("collectives", *names)["collectives"])
        for names in captures
    ]
    assert matched == [3, 2]
    answers = [run_json("check-overlap", *names, "-a", pair[0], "-b", pair[1]) for names in captures]
    messages = [
        [one["message"] for one in answer["warnings"] if one["code"] == "unmatched-calls"] for answer in answers
    ]
    assert not messages[0]
    assert messages[1][0].startswith("2 of 6 ops of communication are matched with no other rank's")
    for before, after in zip(answers[0]["ranks"], answers[1]["ranks"], strict=True):  # what rests on no match
        assert after["overlap_ns"] == 2 * before["overlap_ns"]
        for side in "ab":
            assert after[side]["busy_ns"] == 2 * before[side]["busy_ns"]
