"""Gaps of some instances at a time have the causes and the evidence of all at once, on real captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.causes import causes, missed
from analyzers.causes.gaps import find_gaps
from analyzers.load import load
from analyzers.verdict.check import check_overlap

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize(
    ("captures", "a", "b"),
    [
        ("torch/dpmp_hidden_sync.rank*", "nvtx:DP Embedding", "nvtx:MP Embedding"),
        ("nsys/dpmp_overlap.2gpu.sqlite", "nvtx:DP Embedding", "nvtx:MP Embedding"),
        ("nsys/full_gpu.2gpu.sqlite", "nvtx:branch A", "nvtx:branch B"),
        ("torch/a2a_sync.rank*", "comm", "compute"),
    ],
)
def test_in_lots_all_is_as_at_once(
    captures: str, a: str, b: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = load(sorted(DATA.glob(captures)))
    whole = check_overlap(trace, a, b)
    lots = []
    monkeypatch.setattr(missed, "AT_ONCE", at_once)
    monkeypatch.setattr(causes, "find_gaps", lambda *given: lots.append([*find_gaps(*given)]) or iter(lots[-1]))
    assert [rank.missed for rank in check_overlap(trace, a, b).ranks] == [rank.missed for rank in whole.ranks]
    assert any(rank.missed for rank in whole.ranks)
    assert max(map(len, lots)) > 1
