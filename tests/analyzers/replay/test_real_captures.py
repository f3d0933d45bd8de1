"""All real captures, run again: the page that says how far off that is, and its bar."""

from __future__ import annotations

import pytest

from analyzers.replay.predict import MOST_OFF
from tests.benchmarks.replay_errors import PAGE, captures, page, pairs, replay

REPLAYED = 0.8


@pytest.mark.nightly
def test_most_captures_replay_and_the_page_says_how_well() -> None:
    replays = [replay(name, files) for name, files in captures().items()]
    recorded = [one for one in replays if one.recorded and one.fidelity]
    near = [one for one in recorded if one.fidelity and one.fidelity.error <= MOST_OFF]
    assert len(near) >= REPLAYED * len(recorded)
    shown = PAGE.read_text(encoding="utf-8")
    assert page(replays, list(pairs())) == shown, "python -m tests.benchmarks.replay_errors writes it anew"
