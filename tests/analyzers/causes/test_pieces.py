"""Pieces of gaps in time: by hand, and of real captures what they sum up to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.causes.pieces import GapPieces
from analyzers.causes.table import CAUSES
from analyzers.common.ids import instance_id
from analyzers.load import load
from analyzers.show.show import show
from analyzers.trace import run as runs
from analyzers.trace.tables import Trace
from analyzers.verdict import with_order as by_device
from analyzers.verdict.check import check_overlap
from analyzers.verdict.with_order import held_by_device
from tests.support.timeline_traces import late_behind_an_event, two_instances

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


def test_before_submission_the_host_is_told_apart_by_what_it_did() -> None:
    """`two_instances`: B runs from 10, the host is blocked from 12 to 40, A's launch returns at 42, A starts at 45."""
    found = found_in(two_instances(), "nvtx:A", "nvtx:B")
    assert found is not None
    assert in_words(found)[:3] == [
        ("late-launch", 10, 12, False),
        ("host-sync", 12, 40, False),
        ("late-launch", 40, 45, False),  # the last 3 µs it is on its way
    ]


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


def test_of_very_many_gaps_the_longest_are_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_IN_WORDS", "LEAST_IN_WORDS"):
        monkeypatch.setattr(by_device, name, 1)
    found = found_in(two_instances(), "nvtx:A", "nvtx:B")
    assert found is not None
    assert len(found.evidence) == 1
    assert set(found.gap[found.words == 0].tolist()) == {0}
    assert set(found.links) == {0}


SEVERAL = [*sorted(str(path) for path in Path("tests/data/torch").glob("dpmp_overlap.rank?.json.gz"))]
PAIR = ("nvtx:DP Embedding", "nvtx:MP Embedding")


def test_where_processes_were_looked_at_one_by_one_each_rank_has_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process then counts its own instances from 0; in the whole trace those of the second follow the first's."""
    trace = load(SEVERAL)
    together = held_by_device(trace, check_overlap(trace, *PAIR))
    monkeypatch.setattr(runs, "LARGE_PROCESS", 1)
    trace = load(SEVERAL)
    one_by_one = held_by_device(trace, check_overlap(trace, *PAIR))
    assert list(one_by_one) == list(together) == [(0, 0), (1, 1)]
    for key, found in one_by_one.items():
        for name in GapPieces.__struct_fields__:
            mine, theirs = getattr(found, name), getattr(together[key], name)
            assert np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs


def test_an_instance_of_each_rank_is_shown_as_where_all_were_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = load(SEVERAL)
    ids = [
        instance_id(rank.rank, rank.device, one.start_ns)
        for rank in check_overlap(trace, *PAIR).ranks
        for one in rank.instances
    ]
    together = [show(trace, one, *PAIR) for one in ids]
    assert {one.rank for one in together} == {0, 1}
    assert all(one.pieces for one in together)
    monkeypatch.setattr(runs, "LARGE_PROCESS", 1)
    trace = load(SEVERAL)
    assert [show(trace, one, *PAIR) for one in ids] == together
