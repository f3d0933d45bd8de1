"""Nodes of CUDA graphs, run again one by one: what each waits for, and what changes of them bring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.replay.engine import places, run
from analyzers.replay.model import Tasks
from analyzers.replay.stream_changes import DropWait, Scale
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import US, Program, names_of, replayed, spans
from tests.support.builder import Builder


def node(program: Program, name: str, stream: int, start: int, end: int, launch: int) -> None:
    """A node of the graph that a call at `launch` launches, of 5 µs."""
    rows = program.run.rows["api"]
    known = [at for at, row in enumerate(rows) if row["start_ns"] == launch * US]
    call = None if known else (launch * US, (launch + 5) * US)
    op = program.rank.op(name, stream, start * US, end * US, graph=5, launch=call, call="cudaGraphLaunch")
    if known:
        program.run.rows["ops"][op]["launch"] = known[0]


def branches() -> Trace:
    """K; then a graph: "root", "left" behind it on stream 7 and "right" on 101, which "join" waits for; then L.

    "right" begins 2 µs after "root" ends, so it waited for that; "join" begins 1 µs after "right" ends, long after
    "left".
    """
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=57)
    node(program, "root", 7, 59, 69, launch=20)
    node(program, "left", 7, 70, 80, launch=20)
    node(program, "right", 101, 71, 131, launch=20)
    node(program, "join", 7, 132, 142, launch=20)
    program.kernel("L", 7, call=40, start=143, end=153)
    return program.trace()


def awaited(trace: Trace, found: Tasks) -> dict[str, set[str]]:
    """What each op waits for, by name: the one before it on its stream, and others."""
    units = found.units
    names = names_of(trace, units)
    return {
        name: {names[each] for each in [*units.waits[at].tolist(), int(units.previous[at])] if each >= 0}
        for at, name in enumerate(names)
    }


def test_nodes_wait_for_each_other_and_what_follows_for_the_last_of_each_stream() -> None:
    trace = branches()
    found = tasks(trace)
    assert awaited(trace, found) == {
        "K": set(),
        "root": {"K"},
        "left": {"root"},
        "right": {"root"},
        "join": {"left", "right"},
        "L": {"join", "right"},
    }
    captured = {
        "K": (7, 57),
        "root": (59, 69),
        "left": (70, 80),
        "right": (71, 131),
        "join": (132, 142),
        "L": (143, 153),
    }
    assert spans(trace, found, run(found)) == {name: [times] for name, times in captured.items()}


def test_a_shorter_branch_lets_the_graph_go_on() -> None:
    """ "right" takes 6 µs instead of 60: it ends at 77, "left" at 80, "join" begins 1 µs later."""
    found = replayed(branches(), [Scale("kernel:right", 0.1)])
    assert (found["right"], found["join"], found["L"]) == ([(71, 77)], [(81, 91)], [(92, 102)])


def test_a_branch_that_waits_no_longer_begins_with_its_graph() -> None:
    """Without "root" to wait for, "right" is submitted at 25 as all of the graph is, and begins as branches do."""
    found = replayed(branches(), [DropWait("kernel:right", "kernel:root")])
    (start, end), (joined, _) = found["right"][0], found["join"][0]
    assert 25 <= start <= 40
    assert end == start + 60
    assert joined == max(end, 80) + 1


def test_a_branch_that_begins_with_its_graph_waits_for_what_the_graph_does() -> None:
    """K ends at 57; "left" begins at 59, "right" at 66, too early to wait for "left"; the next graph for both."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=57)
    for first, launch in ((59, 20), (102, 40)):
        node(program, f"left {launch}", 7, first, first + 20, launch=launch)
        node(program, f"right {launch}", 101, first + 7, first + 40, launch=launch)
    trace = program.trace()
    found = tasks(trace)
    assert awaited(trace, found) == {
        "K": set(),
        "left 20": {"K"},
        "right 20": {"K"},
        "left 40": {"left 20", "right 20"},
        "right 40": {"left 20", "right 20"},
    }
    assert replayed(trace, [Scale("kernel:K", 2.0)])["right 40"] == [(159, 192)]  # 50 µs later


def test_a_graph_takes_one_place_of_the_launch_queue() -> None:
    """Of a queue of two, "L" takes the place of K, and what would come next that of the graph's first node."""
    trace = branches()
    units = tasks(trace).units
    names = names_of(trace, units)
    found = {name: names[at] if at >= 0 else "" for name, at in zip(names, places(units, 2), strict=True)}
    assert found == {"K": "", "root": "", "left": "", "right": "", "join": "", "L": "K"}
    assert names[places(units, 1)[names.index("L")]] == "root"


def test_a_collective_in_a_graph_begins_with_its_last_rank() -> None:
    """Both graphs compute and reduce; rank 1 launches its own 100 µs late, and with half its kernel is 20 µs sooner."""
    builder = Builder()
    for number, late in ((0, 0), (1, 100)):
        program = Program(builder, number)
        rank = program.rank
        call = rank.call("cudaGraphLaunch", late * US, (late + 5) * US)
        for name, start, end in (("work", late + 7, late + 47), ("ncclDevKernel_AllReduce", late + 48, 168)):
            op = rank.op(name, 7, start * US, end * US, graph=5)
            row = builder.rows["ops"][op]
            row["correlation"], row["launch"] = call, len(builder.rows["api"]) - 1
    trace = builder.trace()
    works = trace.ops.name.matching("work".__eq__)
    waits = np.where(~works & (trace.ops.rank == 0), 100 * US, 0)
    trace = replace(trace, ops=trace.ops.having(collective=np.where(works, -1, 0), wait_ns=waits))
    assert replayed(trace)["ncclDevKernel_AllReduce"] == [(48, 168), (148, 168)]
    assert replayed(trace, [Scale("kernel:work", 0.5)])["ncclDevKernel_AllReduce"] == [(28, 148), (128, 148)]
