"""Gaps of some instances at a time have the causes and the evidence of all at once, on real captures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.causes import explain, gaps, missed
from analyzers.causes.evidence import EvidenceWriter
from analyzers.causes.explain import Explainer
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
    monkeypatch.setattr(gaps, "AT_ONCE", at_once)
    monkeypatch.setattr(explain, "find_gaps", lambda *given: lots.append([*find_gaps(*given)]) or iter(lots[-1]))
    assert [rank.missed for rank in check_overlap(trace, a, b).ranks] == [rank.missed for rank in whole.ranks]
    assert any(rank.missed for rank in whole.ranks)
    assert max(map(len, lots)) > 1


@pytest.mark.parametrize("lots", [1, 2])
def test_of_gaps_held_as_long_that_of_a_is_told_whichever_comes_first(
    lots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "AT_ONCE", 4 // lots)
    run, rank = one_rank()
    for stream, start, end in ((7, 0, 100), (8, 20, 200), (8, 1000, 1100), (7, 1020, 1200)):
        rank.kernel("k", stream, start, end)
    # A is idle for the first 20 ns of the second instance, B for those of the first: the other runs alone then.
    a, b = np.array([0, -1, -1, 1]), np.array([-1, 0, 1, -1])
    pairing = Pairing("step", a, b, np.zeros(2, np.int64), ("0", "1"))
    weights, longest = np.zeros((2, missed.AFTER + 1), np.int64), dict[int, list[missed.LongGap]]()
    writer = EvidenceWriter(Explainer(run.trace(), a >= 0, b >= 0, pairing), ("A", "B"))
    explained = [*writer.explainer.explain(0, 0)]
    assert len(explained) == lots
    for one in explained:
        missed._weigh(writer, one, np.arange(2), weights, longest)
    assert weights.sum(axis=1).tolist() == [20, 20]
    ((told, other),) = longest.values()
    assert (other.gap.idle_side, other.gap.start_ns, other.ns) == (1, 0, 20)
    assert (told.gap.idle_side, told.gap.start_ns, told.ns) == (0, 1000, 20)
