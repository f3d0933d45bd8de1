"""`show`: what an id names is what the full answers say of it, and what the raw tables hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.causes.table import CAUSES
from analyzers.common.errors import TracevizError
from analyzers.common.ids import collective_id, gap_id, instance_id, read_id, sync_id
from analyzers.load import load
from analyzers.select.select import select
from analyzers.show.show import show
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

DATA = Path(__file__).parents[2] / "data"
ITEM = DATA / "torch" / "item_before.rank*.json.gz"
PAIRS = [
    ("torch/item_before.rank*.json.gz", "comm", "compute"),
    ("torch/dpmp_overlap.rank*.json.gz", "nvtx:DP Embedding", "nvtx:MP Embedding"),
    ("nsys/rowpar_s4.4gpu.sqlite", "comm", "compute"),
]


@pytest.fixture(scope="module")
def item() -> Trace:
    return load([ITEM])


def late_trace() -> Trace:
    """B runs 0 to 100 on stream 7; A's only kernel is launched from 70 to 75 and runs from 80 to 120 on stream 8."""
    run = Builder()
    rank = run.rank(0)
    rank.range("B", -20, -5)
    rank.kernel("b", stream=7, start=0, end=100, launch=(-15, -10))
    rank.range("A", 60, 78)
    rank.kernel("a", stream=8, start=80, end=120, launch=(70, 75))
    return run.trace()


def test_a_gap_by_hand() -> None:
    """A had nothing running from 0, where B begins, to 80; B ran for all of it; the launch returned at 75."""
    found = show(late_trace(), gap_id(0, 0, 0), "nvtx:A", "nvtx:B")
    assert (found.kind, found.rank, found.device, found.start_ns, found.end_ns) == ("gap", 0, 0, 0, 80)
    assert found.figures["length_ns"] == 80
    assert found.figures["alone_ns"] == 80
    assert sum(one.ns for one in found.pieces) == 80
    assert [one.name for one in found.pieces] == ["late-launch"]
    assert (
        found.sentence
        == "A had nothing running for 80 ns on rank 0; B ran alone for 80 ns of it. Then a began on stream 8."
    )
    assert "a was launched 70 ns into the gap by thread 1, and began 10 ns later on stream 8" in found.evidence
    assert instance_id(0, 0, 0) in [one.id for one in found.related]


def test_an_instance_by_hand() -> None:
    """Both run from 80 to 100: 20 of a possible 40, A's length; the gap of A before it is the only one."""
    found = show(late_trace(), instance_id(0, 0, 0), "nvtx:A", "nvtx:B")
    assert (found.start_ns, found.end_ns) == (0, 120)
    assert dict(found.figures) == {
        "a_busy_ns": 40,
        "b_busy_ns": 100,
        "real_overlap_ns": 20,
        "achievable_ns": 40,
        "missed_ns": 20,
    }
    assert [(one.name, one.ns) for one in found.pieces] == [("late-launch", 80)]
    assert [one.id for one in found.related] == [gap_id(0, 0, 0)]


@pytest.mark.parametrize(("name", "a", "b"), PAIRS)
def test_the_gap_of_each_cause_is_shown_as_the_verdict_tells_it(name: str, a: str, b: str) -> None:
    from analyzers.verdict.check import check_overlap

    trace = load([DATA / name])
    causes = [(rank, one) for rank in check_overlap(trace, a, b).ranks for one in rank.missed if one.op >= 0]
    assert causes
    for rank, one in causes:
        found = show(trace, gap_id(rank.rank, rank.device, one.start_ns), a, b)
        assert (found.start_ns, found.end_ns) == (one.start_ns, one.end_ns)
        assert {piece.name: piece.evidence for piece in found.pieces}[one.cause] == one.evidence
        assert one.instance in " ".join(each.words for each in found.related)


@pytest.mark.parametrize(("name", "a", "b"), PAIRS)
def test_nothing_of_the_idle_side_but_short_ops_runs_in_a_gap(name: str, a: str, b: str) -> None:
    """By brute force on the raw tables: without its waits no op of that side lies in it, and one begins at its end.

    But for ops under a hundredth of the side's longest, of which it says how many.
    """
    from analyzers.verdict.check import check_overlap

    trace = load([DATA / name])
    sides = [select(trace, one).picked for one in (a, b)]
    for rank in check_overlap(trace, a, b).ranks:
        for one in rank.missed:
            if one.op < 0:
                continue
            found = show(trace, gap_id(rank.rank, rank.device, one.start_ns), a, b)
            ops = trace.ops.to_frame()[
                (trace.ops.to_frame()["rank"] == rank.rank) & (trace.ops.to_frame()["device"] == rank.device)
            ]
            idle = ops[sides[0 if sides[0][one.op] else 1][ops.index]]
            real_start = idle["start_ns"] + idle["wait_ns"]
            running = np.minimum(idle["end_ns"], found.end_ns) - np.maximum(real_start, found.start_ns)
            length = (idle["end_ns"] - real_start)[running > 0]
            assert (length < (idle["end_ns"] - real_start).max() / 100).all()
            assert (f"nothing but {length.size} short op" in found.sentence) == (length.size > 0)
            assert (idle["start_ns"] == found.end_ns).any() or (real_start >= found.end_ns).any()


def test_every_sync_is_shown_with_its_own_figures(item: Trace) -> None:
    from analyzers.syncs.points import host_syncs

    points = list(host_syncs(item))
    assert len(points) > 20
    for one in points:
        found = show(item, sync_id(one.rank, one.start_ns))
        assert (found.rank, found.start_ns, found.end_ns - found.start_ns) == (one.rank, one.start_ns, one.duration_ns)
        assert found.figures["gpu_idle_ns"] == one.gpu_idle_ns
        call = item.api.to_frame().iloc[one.call]
        assert found.start_ns <= call["start_ns"] < call["end_ns"] <= found.end_ns


def test_a_sync_leads_to_the_gap_it_held_and_back(item: Trace) -> None:
    found = show(item, "sync:r0:18069860")
    (gap,) = found.related
    assert gap.id.startswith("gap:r0.d0:")
    assert "sync:r0:18069860" in [one.id for one in show(item, gap.id).related]


def test_a_collective_by_its_own_ops(item: Trace) -> None:
    """By the raw ops: its window, the last to come and the waits; clocks were aligned as the trace was loaded."""
    for number in range(4):
        ops = item.ops.take(item.ops.collective == number).to_frame()
        assert len(ops) == 4
        last = ops.loc[ops["start_ns"].idxmax()]
        found = show(item, collective_id(number))
        assert (found.start_ns, found.end_ns) == (ops["start_ns"].min(), ops["end_ns"].max())
        assert found.pieces[0].name == f"rank {last['rank']}"
        assert found.figures["fastest_ns"] == (ops["end_ns"] - ops["start_ns"]).min()
        assert found.figures["longest_wait_ns"] == last["start_ns"] - ops["start_ns"].min()


def test_steps_are_those_of_the_marks(item: Trace) -> None:
    """Each step holds one all-to-all, in its order."""
    assert [show(item, collective_id(number)).steps for number in range(4)] == [(0,), (1,), (2,), (3,)]
    marks = item.ranges.take(item.ranges.name.is_one_of(["ProfilerStep#3"])).to_frame()
    assert ((marks["start_ns"] <= 18069860) & (marks["end_ns"] > 18069860)).any()
    assert show(item, "sync:r0:18069860").steps == (3,)


def test_what_is_not_there_is_said_with_where_to_look(item: Trace) -> None:
    for finding, command in (
        ("gap:r0.d0:5", "check-overlap"),
        ("gap:r9.d0:8211267", "check-overlap"),
        ("inst:r0.d0:5", "check-overlap"),
        ("sync:r0:5", "syncs"),
        ("coll:4", "collectives"),
    ):
        with pytest.raises(TracevizError) as told:
            show(item, finding)
        assert finding in told.value.message
        assert f"traceviz {command} TRACE... --format json --brief" in str(told.value.hint)


@pytest.mark.parametrize(
    "text", ["", "gap", "gap:0", "gap:r0:5", "sync:r0.d0:5", "coll:-1", "coll:1.5", "x" * 999, "gap:r0.d0:١"]
)
def test_what_is_no_id_is_said_in_one_line(text: str) -> None:
    with pytest.raises(TracevizError) as told:
        read_id(text)
    assert "Ids look like gap:r0.d0:1876012" in str(told.value)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400


@pytest.mark.parametrize("text", ["gap:r0.d0:-17", "inst:r12.d3:4", "sync:r-1:0", "coll:0"])
def test_ids_read_back_as_they_are_written(text: str) -> None:
    assert str(read_id(text)) == text


def test_causes_of_an_instance_are_known_causes(item: Trace) -> None:
    from analyzers.verdict.check import check_overlap

    ranks = check_overlap(item, "comm", "compute", explain=False).ranks
    found = [show(item, instance_id(rank.rank, rank.device, rank.instances[0].start_ns)) for rank in ranks]
    assert any(one.pieces for one in found)
    assert {piece.name for one in found for piece in one.pieces} <= set(CAUSES)
