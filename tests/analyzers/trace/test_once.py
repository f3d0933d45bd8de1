"""What many analyses need of a trace is there, and is worked out once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.clocks import align
from analyzers.export import parquet
from analyzers.load import load
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.report import order_report
from analyzers.trace.columns import ints, table
from analyzers.trace.narrow import clip, only_ranks, only_steps
from analyzers.trace.schemas import OF_COLLECTIVES, WAIT_RANGE, Ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder
from traceviz.timelines.picture import picture

DATA = Path(__file__).parents[2] / "data"
PAIR = ("nvtx:DP Embedding", "nvtx:MP Embedding")


@pytest.fixture
def orderings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ops each Ordering that is made has."""
    made: list[int] = []
    make = Ordering.__init__

    def counted(self: Ordering, trace: Trace) -> None:
        made.append(len(trace.ops))
        make(self, trace)

    monkeypatch.setattr(Ordering, "__init__", counted)
    return made


def sample() -> Trace:
    return load([DATA / "torch" / "dpmp_overlap.rank*.json.gz"])


def test_a_check_its_order_and_its_timeline_share_one_ordering(orderings: list[int]) -> None:
    trace = sample()
    picture(trace, check_overlap(trace, *PAIR), order_report(trace))
    assert orderings == [len(trace.ops)]


@pytest.mark.parametrize("part", [lambda trace: only_ranks(trace, (0,)), lambda trace: only_steps(trace, 0, 100)])
def test_parts_that_cut_no_op_share_that_of_the_whole(part: Callable[[Trace], Trace], orderings: list[int]) -> None:
    trace = load([DATA / "torch" / "ddp.rank*.json.gz"])
    for one in (trace, part(trace)):
        check_overlap(one)
        order_report(one)
    assert orderings == [len(trace.ops)]


def test_a_window_has_an_ordering_of_its_own(orderings: list[int]) -> None:
    trace = sample()
    middle = int(np.median(ints(trace.ops, "start_ns")))
    part = clip(trace, middle, int(ints(trace.ops, "end_ns").max()))
    check_overlap(part, *PAIR)
    order_report(part)
    assert len(orderings) <= 2, "with ops cut, and as they are"


def test_waits_and_last_arrivals_are_worked_out_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    fill = align.with_collectives

    def counted(trace: Trace) -> Trace:
        made.append(len(trace.ops))
        return fill(trace)

    monkeypatch.setattr(align, "with_collectives", counted)
    trace = sample()
    check_overlap(trace, *PAIR)
    check_overlap(only_ranks(trace, (1,)), *PAIR)
    assert made == [len(trace.ops)]


def test_what_was_made_of_a_trace_goes_with_it() -> None:
    trace = sample()
    ordering = trace.once(Ordering)
    assert trace.once(Ordering) is ordering
    assert trace.warn("code", "text").once(Ordering) is not ordering
    gone = weakref.ref(trace)
    gc.disable()
    try:
        del trace
        assert gone() is None, "nothing that was made of it holds on to it"
    finally:
        gc.enable()


def test_columns_of_collectives_are_there_before_any_is_known() -> None:
    run = Builder()
    run.rank(0).kernel("ncclDevKernel_AllReduce", 9, 0, 100)
    bare = run.trace()
    assert bare.clocks is None, "aligning was never tried"
    assert [bare.ops.to_frame()[column].tolist() for column in OF_COLLECTIVES] == [
        [Ops.schema[column].default] for column in OF_COLLECTIVES
    ]
    aligned = align.align(bare).trace
    assert aligned.clocks is not None
    assert [getattr(aligned.ops, column).tolist() for column in OF_COLLECTIVES] == [[0], [1], [-1], [-1], [0], [0], [0]]


def test_an_export_is_read_back_with_them(tmp_path: Path) -> None:
    trace = sample()
    assert (ints(trace.ops, "last_rank") >= 0).any()
    again = load([parquet.to_parquet(trace, tmp_path / "out")])
    for column in OF_COLLECTIVES:
        assert again.ops.to_frame()[column].tolist() == trace.ops.to_frame()[column].tolist()
        stored = parquet.pq.read_table(tmp_path / "out" / "ops.parquet").column_names
        assert (column in stored) is (column in WAIT_RANGE)


def test_keys_and_ids_take_32_bits_within_and_the_same_types_in_files_whatever_they_hold(tmp_path: Path) -> None:
    trace = sample()
    wide = replace(trace, ops=trace.ops.having(correlation=ints(trace.ops, "correlation") + 2**40))
    for number, item in enumerate((trace, wide)):
        stored = parquet.pq.read_table(parquet.to_parquet(item, tmp_path / str(number)) / "ops.parquet").schema
        for column in ("process", "rank", "device", "context"):
            assert getattr(item.ops, column).dtype == np.int32
            assert str(stored.field(column).type) == "int32"
        assert str(stored.field("correlation").type) == "int64"
    assert trace.ops.to_frame()["correlation"].dtype == np.int32
    for column in ("process", "correlation", "start_ns"):
        assert ints(trace.ops, column).dtype == np.int64
        assert not ints(trace.ops, column).flags.writeable
    assert np.shares_memory(ints(trace.ops, "start_ns"), ints(trace.ops, "start_ns")), "no copy at each use"


def test_a_column_of_one_value_takes_no_room_when_it_is_read_or_joined() -> None:
    frames = [
        table("ops", {"start_ns": np.arange(rows), "stream": stream}) for rows, stream in ((3, 7), (2, 7), (0, 9))
    ]
    for frame in (*frames[:2], Ops.stacked(frames)):
        assert ints(frame, "stream").tolist() == [7] * len(frame)
        assert ints(frame, "stream").strides == (0,)
    differing = Ops.stacked([frames[0], table("ops", {"start_ns": np.arange(2), "stream": 8})])
    assert ints(differing, "stream").tolist() == [7, 7, 7, 8, 8]


def test_what_was_worked_out_once_can_be_given_up() -> None:
    trace = load([DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"])
    made: list[int] = []

    def make(_: Trace) -> int:
        made.append(1)
        return len(made)

    assert [trace.once(make), trace.once(make)] == [1, 1]
    trace.forget(make)
    trace.forget(make)  # nothing is there any more
    assert trace.once(make) == 2
