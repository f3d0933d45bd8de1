"""Gaps of some instances at a time have the causes and the evidence of all at once, on real captures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.causes import causes, missed
from analyzers.causes.causes import Explainer
from analyzers.causes.gaps import find_gaps
from analyzers.load import load
from analyzers.overlap.pairing import Pairing
from analyzers.verdict.check import check_overlap
from tests.support.builder import one_rank

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


@pytest.mark.parametrize("at_once", [None, 1])
def test_of_gaps_held_as_long_that_of_a_is_told_whichever_comes_first(at_once: int | None) -> None:
    run, rank = one_rank()
    for stream, start, end in ((7, 0, 100), (8, 20, 200), (8, 1000, 1100), (7, 1020, 1200)):
        rank.kernel("k", stream, start, end)
    # A is idle for the first 20 ns of the second instance, B for those of the first: the other runs alone then.
    a, b = np.array([0, -1, -1, 1]), np.array([-1, 0, 1, -1])
    pairing = Pairing("step", a, b, np.zeros(2, np.int64), ("0", "1"))
    weights, longest = np.zeros((2, missed.AFTER + 1), np.int64), dict[int, list[missed.Held]]()
    lots = 0
    for one in Explainer(run.trace(), a >= 0, b >= 0, pairing).explain(0, 0, at_once):
        missed._weigh(one, np.arange(2), weights, longest)
        lots += 1
    assert lots == (1 if at_once is None else 2)
    assert weights.sum(axis=1).tolist() == [20, 20]
    ((told, other),) = longest.values()
    assert (other.gap.gaps.side[0], other.gap.gaps.start_ns[0], other.most[0]) == (1, 0, 20)
    assert (told.gap.gaps.side[0], told.gap.gaps.start_ns[0], told.most[0]) == (0, 1000, 20)
