"""Pieces of gaps in time: by hand, and of real captures what they sum up to."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.causes.pieces import GapPieces
from analyzers.causes.table import CAUSES
from analyzers.load import load
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.with_order import held_by_device
from tests.support.timeline_traces import late_behind_an_event

A, B = "kernel:alpha,memcpy", "kernel:beta"
US = 1000


def found_in(trace: Trace, a: str, b: str) -> GapPieces | None:
    return held_by_device(trace, check_overlap(trace, a, b)).get((0, 0))


def in_words(found: GapPieces) -> list[tuple[str, int, int, bool]]:
    """(cause, from, to, early), µs."""
    columns = found.cause, found.start_ns // US, found.end_ns // US, found.early
    return [
        (CAUSES[cause], low, high, early)
        for cause, low, high, early in zip(*(c.tolist() for c in columns), strict=True)
    ]


def test_a_wait_is_cut_where_its_op_was_submitted_and_counts_as_one_cause() -> None:
    found = found_in(late_behind_an_event(), "kernel:a", "kernel:b")
    assert found is not None
    assert in_words(found) == [
        ("event-dependency", 0, 60, True),
        ("event-dependency", 60, 102, False),  # the last 2 µs the op is on its way
    ]
    assert found.alone_ns.tolist() == [60 * US, 41 * US]  # B pauses from 100 to 101
    (text,) = found.evidence
    assert "waited 101 µs for b of b on stream 7, through record on stream 7 → wait on stream 9" in text
    assert found.words.tolist() == [0, 0]


def test_the_links_of_a_gap_are_those_that_were_recorded() -> None:
    found = found_in(late_behind_an_event(), "kernel:a", "kernel:b")
    assert found is not None
    links = {one.kind: (one.from_ns // US, one.to_ns // US) for one in found.links[0]}
    assert links == {"launch": (58, 102), "event": (100, 102), "record": (-7, 40)}


@pytest.mark.parametrize("name", ["dpmp_overlap", "dpmp_hidden_sync", "a2a_sync", "opt_serial", "full_gpu"])
def test_pieces_of_real_captures_sum_up_to_the_time_one_side_ran_alone(name: str) -> None:
    pair = {"dpmp": ("nvtx:DP Embedding", "nvtx:MP Embedding"), "opt": ("nvtx:optimizer", "nvtx:emb_lookup")}
    a, b = pair.get(name.split("_")[0], ("comm", "compute"))
    trace = load([f"tests/data/torch/{name}.rank*.json.gz"])
    result = check_overlap(trace, a, b)
    for key, found in held_by_device(trace, result).items():
        (rank,) = [one for one in result.ranks if (one.rank, one.device) == key]
        assert sum(one.ns for one in rank.missed) == rank.missed_ns == rank.achievable_ns - rank.real_overlap_ns
        assert all(0 <= one.after_sync_ns <= one.ns for one in rank.missed)
        assert [one.weight_ns for one in rank.missed] == sorted((one.weight_ns for one in rank.missed), reverse=True)
        told = {CAUSES[cause] for cause in np.unique(found.cause).tolist()}
        assert {one.cause for one in rank.missed if one.op >= 0} <= told
        assert np.all(found.alone_ns <= found.end_ns - found.start_ns)
        assert np.all(found.alone_ns > 0)
        for one in rank.missed:
            here = (found.op == one.op) & (found.cause == CAUSES.index(one.cause))
            assert {found.evidence[words] for words in found.words[here].tolist()} == {one.evidence}
