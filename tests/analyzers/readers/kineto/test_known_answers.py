"""Answers known before this package existed, by brute force over the rows a trace was read into."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from analyzers.readers.kineto.read import read
from analyzers.trace.tables import Trace

DATA = Path(__file__).parents[3] / "data" / "torch"


def launched_within(trace: Trace, name: str) -> pd.DataFrame:
    """Ops whose launch starts inside an annotation of this name, on the thread that launched."""
    rows = []
    ranges = [row for row in trace.ranges.itertuples() if row.name == name and row.kind == "annotation"]
    for op in trace.ops.itertuples():
        call = trace.api.iloc[op.launch]
        if any(r.thread == call["thread"] and r.start_ns <= call["start_ns"] <= r.end_ns for r in ranges):
            rows.append({"stream": op.stream, "start": op.start_ns, "end": op.end_ns})
    return pd.DataFrame(rows, columns=["stream", "start", "end"])


def covered(ops: pd.DataFrame, edges: list[int]) -> list[bool]:
    """For each stretch between neighbouring edges: whether an op covers it."""
    return [any(o.start <= low and high <= o.end for o in ops.itertuples()) for low, high in pairwise(edges)]


def overlap_and_busy(a: pd.DataFrame, b: pd.DataFrame) -> tuple[int, int, int]:
    edges = sorted({*a["start"], *a["end"], *b["start"], *b["end"]})
    lengths = [high - low for low, high in pairwise(edges)]
    in_a, in_b = covered(a, edges), covered(b, edges)
    return (
        sum(length for length, x, y in zip(lengths, in_a, in_b, strict=True) if x and y),
        sum(length for length, x in zip(lengths, in_a, strict=True) if x),
        sum(length for length, y in zip(lengths, in_b, strict=True) if y),
    )


@pytest.mark.parametrize(
    ("scenario", "rank", "overlap", "smaller"),
    [
        ("dpmp_serial", 0, 0, None),
        ("dpmp_serial", 1, 0, None),
        ("dpmp_overlap", 0, 162879, 1012379),
        ("dpmp_overlap", 1, 212705, 1012835),
        ("dpmp_hidden_sync", 0, 0, None),
        ("dpmp_hidden_sync", 1, 84256, 996290),
    ],
)
def test_embedding_ranges_overlap_as_known(scenario: str, rank: int, overlap: int, smaller: int | None) -> None:
    trace = read(DATA / f"{scenario}.rank{rank}.json.gz")
    found, *busy = overlap_and_busy(launched_within(trace, "DP Embedding"), launched_within(trace, "MP Embedding"))
    assert found == overlap
    assert smaller is None or min(busy) == smaller


@pytest.mark.parametrize(
    ("scenario", "a", "b", "rank", "ratio"),
    [
        ("dpmp_race", "DP Embedding", "MP Embedding", 0, 0.313),
        ("dpmp_race", "DP Embedding", "MP Embedding", 1, 0.368),
        ("full_gpu", "branch A", "branch B", 0, 0.076),
        ("full_gpu", "branch A", "branch B", 1, 0.080),
    ],
)
def test_ratios_are_as_known(scenario: str, a: str, b: str, rank: int, ratio: float) -> None:
    trace = read(DATA / f"{scenario}.rank{rank}.json.gz")
    found, *busy = overlap_and_busy(launched_within(trace, a), launched_within(trace, b))
    assert round(found / min(busy), 3) == ratio
