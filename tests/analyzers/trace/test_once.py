"""What many analyses need of a trace is there, and is worked out once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.export import parquet
from analyzers.load import load
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.order_report import order_report
from analyzers.trace.columns import as_int64
from analyzers.trace.narrow import only_ranks, only_steps
from analyzers.trace.run import Run
from analyzers.trace.schemas import OF_COLLECTIVES, WAIT_RANGE
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.with_order import check_with_order

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


def test_a_check_and_its_order_share_one_ordering_a_rank(orderings: list[int]) -> None:
    trace = sample()
    check_with_order(Run.of(trace), *PAIR)
    assert orderings == [int((trace.ops.rank == rank).sum()) for rank in trace.rank_ids]


@pytest.mark.parametrize("part", [lambda trace: only_ranks(trace, (0,)), lambda trace: only_steps(trace, 0, 100)])
def test_parts_that_cut_no_op_share_that_of_the_whole(part: Callable[[Trace], Trace], orderings: list[int]) -> None:
    trace = load([DATA / "torch" / "ddp.rank*.json.gz"])
    order_report(trace)
    check_overlap(part(trace))
    order_report(part(trace))
    assert orderings == [len(trace.ops)]


def test_what_was_made_of_a_trace_goes_with_it() -> None:
    trace = sample()
    ordering = trace.once(Ordering)
    assert trace.once(Ordering) is ordering
    assert trace.warn("code", "text").once(Ordering) is not ordering


@pytest.mark.parametrize("ask", [lambda trace: trace.once(Ordering), lambda trace: check_overlap(trace, *PAIR)])
def test_no_answer_holds_on_to_a_trace(ask: Callable[[Trace], object]) -> None:
    """Parts of a run are asked one by one: each would otherwise stay in memory until the collector comes by."""
    trace = sample()
    gone = weakref.ref(trace)
    gc.disable()
    try:
        answer = ask(trace)
        del trace
        assert gone() is None, answer
    finally:
        gc.enable()


def test_an_export_is_read_back_with_them(tmp_path: Path) -> None:
    trace = sample()
    assert (trace.ops.last_rank >= 0).any()
    again = load([parquet.to_parquet(trace, tmp_path / "out")])
    for column in OF_COLLECTIVES:
        assert again.ops.to_frame()[column].tolist() == trace.ops.to_frame()[column].tolist()
        stored = parquet.pq.read_table(tmp_path / "out" / "ops.parquet").column_names
        assert (column in stored) is (column in WAIT_RANGE)


def test_keys_and_ids_take_32_bits_within_and_the_same_types_in_files_whatever_they_hold(tmp_path: Path) -> None:
    trace = sample()
    wide = replace(trace, ops=trace.ops.having(correlation=as_int64(trace.ops.correlation) + 2**40))
    for number, item in enumerate((trace, wide)):
        stored = parquet.pq.read_table(parquet.to_parquet(item, tmp_path / str(number)) / "ops.parquet").schema
        for column in ("process", "rank", "device", "context"):
            assert getattr(item.ops, column).dtype == np.int32
            assert str(stored.field(column).type) == "int32"
        assert str(stored.field("correlation").type) == "int64"
    assert trace.ops.to_frame()["correlation"].dtype == np.int32
    for column in ("process", "correlation", "start_ns"):
        assert as_int64(trace.ops.columns[column]).dtype == np.int64
        assert not as_int64(trace.ops.columns[column]).flags.writeable
    assert np.shares_memory(as_int64(trace.ops.start_ns), trace.ops.start_ns), "no copy at each use"


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
