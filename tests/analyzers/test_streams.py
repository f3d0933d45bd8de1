from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import streams as concurrency
from analyzers.streams import RankStreams, streams
from analyzers.trace.tables import Trace
from tests.support import oracle, traces
from tests.support.builder import Builder, one_rank
from tests.support.traces import Op


def agrees(found: RankStreams, rows: list[Op]) -> None:
    lanes = {stream: [row.interval for row in rows if row.stream == stream] for stream in {row.stream for row in rows}}
    order = sorted(lanes)
    assert [use.stream for use in found.streams] == order
    assert found.span_ns == max(row.interval[1] for row in rows) - min(row.start for row in rows)
    assert {k: ns for k, ns in enumerate(found.busy_streams_ns) if ns} == {
        k: ns for k, ns in oracle.levels(lanes).items() if ns
    }
    assert found.overlap_ns.tolist() == [
        [oracle.busy(lanes[one]) if one == two else oracle.overlap(lanes[one], lanes[two]) for two in order]
        for one in order
    ]
    for use in found.streams:
        assert use.ops == len(lanes[use.stream])
        assert use.busy_ns == oracle.busy(lanes[use.stream])
        assert use.alone_ns == oracle.alone(lanes, use.stream)


@given(traces.ops, st.sampled_from([0, 2**60]))
def test_every_device_of_every_rank_agrees_with_the_oracle(rows: list[Op], shift: int) -> None:
    found = streams(traces.build(rows, shift=shift)).ranks
    keys = sorted({(row.rank, row.device) for row in rows})
    assert [(one.rank, one.device) for one in found] == keys
    for one in found:
        agrees(one, [row for row in rows if (row.rank, row.device) == (one.rank, one.device)])
        assert sum(one.busy_streams_ns) == one.span_ns
        assert np.array_equal(one.overlap_ns, one.overlap_ns.T)


@given(traces.ops)
def test_a_matrix_swept_in_chunks_is_the_same(rows: list[Op]) -> None:
    whole = [one.overlap_ns.tolist() for one in streams(traces.build(rows)).ranks]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrency, "CELLS", 5)
        assert [one.overlap_ns.tolist() for one in streams(traces.build(rows)).ranks] == whole


def sample() -> Trace:
    run, rank = one_rank()
    rank.kernel("k", 7, 0, 10)
    rank.kernel("k", 9, 5, 15)
    rank.kernel("k", 9, 20, 30)
    run.rank(1).kernel("k", 7, 0, 40)
    return run.trace()


def test_the_frames() -> None:
    result = streams(sample())
    assert result.to_frame().reset_index().to_numpy().tolist() == [
        [0, 0, 7, 1, 10, 5],
        [0, 0, 9, 2, 20, 15],
        [1, 0, 7, 1, 40, 40],
    ]
    assert result.concurrency()["ns"].tolist() == [5, 20, 5, 0, 40]
    assert result.pairs().to_numpy().tolist() == [[0, 0, 7, 9, 5]]
    assert "rank 0: 16.7 % of 30 ns with two or more of 2 streams busy" in repr(result)


def test_a_trace_of_instants_has_no_span_and_divides_by_nothing() -> None:
    run = Builder()
    run.rank(0).kernel("k", 7, 5, 5)
    result = streams(run.trace())
    assert result.ranks[0].busy_streams_ns == (0,)
    assert "0 % of 0 ns" in repr(result)
