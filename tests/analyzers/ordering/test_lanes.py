"""Streams and host threads of a trace as lanes, and what the streams ran as units."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analyzers.ordering.lanes import take_or
from tests.support.builder import Builder, one_rank
from tests.support.order_of import array, lanes_of, named, names_of

rows = st.lists(st.tuples(*[st.integers(0, 2)] * 4, st.integers(0, 9), st.integers(-1, 2)), max_size=12)


def test_pick_takes_what_stands_at_a_position_and_the_missing_value_where_that_is_negative() -> None:
    assert take_or(array(5, 6, 7), array(2, -1, 0, -2)).tolist() == [7, -1, 5, -1]
    assert take_or(array(5, 6, 7), array(1, -1), 9).tolist() == [6, 9]
    for values, index in ((array(5, 6), array(0, 2)), (array(), array(0))):
        with pytest.raises(IndexError):
            take_or(values, index)
    assert take_or(array(), array(-1, -2)).tolist() == [-1, -1]
    flags = take_or(np.array([False, True]), array(-1, 0, 1), True)
    assert (flags.tolist(), flags.dtype) == ([True, False, True], np.bool_)


@given(table=rows)
@example(table=[(*where, 0, -1) for where in product(range(3), repeat=4)])
@example(table=[(process, device, 0, 0, 0, -1) for process, device in product(range(3), range(2))])
@example(table=[(0, 0, 0, 0, start, 1) for start in (0, 3, 2, 1, 3)])
def test_each_op_lies_on_the_lane_of_its_process_device_context_and_stream(
    table: list[tuple[int, ...]],
) -> None:
    run = Builder()
    ranks = [run.rank(number) for number in range(3)]
    for process, device, context, stream, start, thread in table:
        of = replace(ranks[process], device=device, context=context)
        launch = None if thread < 0 else (start, start)
        of.kernel("k", stream, start * 2, start * 2 + 1, launch=launch, thread=thread)
    lanes = lanes_of(run.trace())
    lane = lanes.lane_of_unit()[lanes.unit_of_op]
    where = zip(lanes.process[lane], lanes.device[lane], lanes.context[lane], lanes.stream[lane], strict=True)
    assert [tuple(map(int, each)) for each in where] == [row[:4] for row in table]
    # A lane for each of those, one for each launching thread, and one for the streams which that makes wait unseen.
    threads = {(row[0], row[5]) for row in table if row[5] >= 0}
    assert lanes.size == len({row[:4] for row in table}) + 2 * len(threads)
    hosts = {(int(lanes.process[host]), int(lanes.thread[host])) for host in np.flatnonzero(lanes.is_host())}
    assert hosts == threads
    assert np.all(np.diff(lanes.process) >= 0), "lanes of a process are neighbours"
    # A stream's units are numbered as they started, ties as they came.
    position = lanes.unit_of_op - lanes.first[lane]
    for one, row in enumerate(table):
        ahead = [k for k, other in enumerate(table) if other[:4] == row[:4] and (other[4], k) < (row[4], one)]
        assert position[one] == len(ahead)
        launcher = int(lanes.launcher[lanes.unit_of_op[one]])
        assert (launcher < 0) if row[5] < 0 else (lanes.thread[launcher], lanes.process[launcher]) == (row[5], row[0])
    assert np.diff(lanes.first).tolist() == [int(np.count_nonzero(lane == each)) for each in range(lanes.size)]
    assert lanes.start_ns.tolist() == [row[4] * 2 for row in (table[op] for op in lanes.op)]
    assert lanes.end_ns.tolist() == [row[4] * 2 + 1 for row in (table[op] for op in lanes.op)]


def test_a_stream_whose_context_is_not_told_is_the_one_of_its_number() -> None:
    run = Builder()
    first, second = run.rank(0), run.rank(1)
    first.kernel("k", 7, 10, 20, launch=(0, 1))
    unknown = [replace(rank, context=-1) for rank in (first, second)]
    unknown[0].record(7, 3)  # stream 7 again, not another one
    unknown[0].record(9, 5)
    unknown[1].record(7, 7)  # another process's
    lanes = lanes_of(run.trace())
    assert names_of(lanes, np.flatnonzero(lanes.thread == -1)) == ["s9", "s7", "1:s7"]
    assert [lanes.context[named(lanes, name)] for name in ("s9", "s7", "1:s7")] == [-1, 1, -1]


def test_what_runs_before_all_that_the_capture_launched_was_queued_before_it() -> None:
    """The first wait, at 12, is for the op launched at 20, not for the warm-up's that still runs at 30."""
    run, rank = one_rank()
    rank.kernel("warm-up", 7, 30, 40)
    rank.kernel("first", 7, 50, 60, launch=(20, 21))
    rank.kernel("unknown", 7, 70, 80)  # among launched ones: queued before what runs behind it
    rank.kernel("last", 7, 90, 95, launch=(25, 26))
    rank.call("cudaEventRecord", 10, 11)
    assert lanes_of(run.trace()).enqueue_ns.tolist() == [9, 20, 25, 25]


def test_a_graph_launch_is_a_unit_from_its_first_start_to_its_last_end() -> None:
    run, rank = one_rank()
    calls = [rank.call("cudaGraphLaunch", at, at + 1) for at in (0, 1, 50)]
    assert [run.rows["api"][row]["correlation"] for row in range(3)] == calls
    launched = [  # stream, start, end, launch, graph
        (8, 12, 45, 0, 0),
        (7, 10, 20, 0, 0),  # the first graph's first op
        (9, 10, 70, 1, 3),
        (9, 60, 65, 2, 3),  # the second graph once more
        (7, 11, 30, 0, 0),
        (9, 80, 85, -1, 3),  # of a launch that is not known, as is the next
        (9, 90, 95, -1, 3),
        (7, 100, 110, 2, -1),  # of no graph
        (7, 110, 120, 2, -1),
    ]
    for stream, start, end, launch, graph in launched:
        run.rows["ops"][rank.op("k", stream, start, end, graph=graph)]["launch"] = launch
    lanes = lanes_of(run.trace())
    units = list(zip(lanes.op, lanes.start_ns, lanes.end_ns, lanes.enqueue_ns, strict=True))
    assert units == [
        (1, 10, 45, 0),
        (7, 100, 110, 50),
        (8, 110, 120, 50),
        (2, 10, 70, 1),
        (3, 60, 65, 50),
        (5, 80, 85, 80),
        (6, 90, 95, 90),
    ]
    assert lanes.op[lanes.unit_of_op].tolist() == [1, 1, 2, 3, 1, 5, 6, 7, 8]
    # Stream 8 ran nothing of its own.
    assert [lanes.stream[lane] for lane in lanes.lane_of_unit()] == [7] * 3 + [9] * 4


def test_a_graph_is_of_the_stream_that_it_was_launched_on_though_another_branch_begins_first() -> None:
    run, rank = one_rank()
    rank.kernel("before", 7, 1, 5)
    nodes = [(20, 10, 90), (7, 12, 30), (8, 110, 120), (20, 105, 150)]  # two launches; of the second's a wait names 8
    for at in (0, 50):
        rank.call("cudaGraphLaunch", at, at + 1)
    for number, (stream, start, end) in enumerate(nodes):
        run.rows["ops"][rank.op("k", stream, start, end, graph=3)]["launch"] = number // 2
    rank.wait_stream(8, 7, 40)
    lanes = lanes_of(run.trace())
    units = [
        (lanes.stream[lane], *times)
        for lane, *times in zip(lanes.lane_of_unit(), lanes.start_ns, lanes.end_ns, strict=True)
    ]
    assert units == [(7, 1, 5), (7, 10, 90), (8, 105, 150)]
