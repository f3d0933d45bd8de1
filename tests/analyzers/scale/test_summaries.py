"""Summaries of captures go between processes, and are kept, without what nobody asks of them.

A capture of which only some tables are looked at has these as it has them among all.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

from analyzers.arrays.groups import is_repeated
from analyzers.common.progress import silent
from analyzers.readers.inputs import find_inputs
from analyzers.readers.reading import Reading
from analyzers.scale.parts import open_run, summarize_one
from analyzers.scale.summaries import CaptureSummary, summary_of
from analyzers.trace.columns import ints, stored
from analyzers.trace.communication import Declared
from analyzers.trace.schemas import TABLES
from analyzers.trace.table import Table
from analyzers.trace.tables import Trace
from analyzers.workers.local import LocalWorkers
from tests.support import counters as raw
from tests.support.collective_runs import MS, Call
from tests.support.collective_runs import run as collective_run

DATA = Path(__file__).parents[2] / "data"
RUNS = {
    "torch": sorted((DATA / "torch").glob("dpmp_overlap.rank?.json.gz")),
    "nsys": sorted((DATA / "nsys").glob("rowpar_s1.rank*.nsys2025.sqlite")),
}
READING = Reading(cache=False, workers=1)


@pytest.fixture(params=RUNS)
def summary(request: pytest.FixtureRequest) -> CaptureSummary:
    inputs, _ = find_inputs([str(RUNS[request.param][0])])
    return summarize_one(inputs[0], READING, None, silent)[0]


def of_one_value(trace: Trace) -> set[tuple[str, str]]:
    """Columns of several rows that take no room."""
    found = set()
    for name in TABLES:
        frame = getattr(trace, name).to_frame()
        for column in frame if len(frame) > 1 else ():
            values = stored(frame, column)
            if is_repeated(getattr(values, "codes", values)):
                found.add((name, column))
    return found


def test_a_summary_is_the_same_in_another_process(summary: CaptureSummary) -> None:
    found = pickle.loads(pickle.dumps(summary))
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(found.trace, name).to_frame(), getattr(summary.trace, name).to_frame())
    assert (found.trace.captures, found.trace.processes) == (summary.trace.captures, summary.trace.processes)
    assert np.array_equal(found.rows, summary.rows)
    assert (found.size, found.calls) == (summary.size, summary.calls)


def test_columns_of_one_value_take_no_room_there_either(summary: CaptureSummary) -> None:
    """No op has a wait before all captures are there, and all are of one process."""
    before = of_one_value(summary.trace)
    assert {("ops", "process"), ("ops", "wait_ns"), ("ops", "kind"), ("comms", "start_ns")} <= before
    assert before == of_one_value(pickle.loads(pickle.dumps(summary)).trace)


def test_of_a_call_little_is_kept_and_sent() -> None:
    """Op, launch, number, name, times and what tells its collective, 4 or 8 bytes each, and no other column."""
    trace = collective_run(2, 50, (Call(),) * 50, offset=50 * MS, drift=20e-6, keyed="sequence").trace()
    whole = summary_of(trace)
    assert len(whole.trace.comms) == len(whole.trace.ops) == 5_000
    assert len(pickle.dumps(whole)) < 64 * 5_000


@pytest.mark.parametrize("name", RUNS)
def test_a_run_leaves_out_when_communication_was_called_and_its_captures_do_not(name: str, tmp_path: Path) -> None:
    """Captures count from other zeros, and their clocks differ: neither makes a time of what is none."""
    run = open_run(map(str, RUNS[name]), READING, LocalWorkers(1, tmp_path))
    assert run.trace.clocks is not None
    assert run.trace.clocks.aligned
    assert len(run.trace.comms)
    assert not ints(run.trace.comms, "start_ns").any()
    assert not ints(run.trace.comms, "end_ns").any()
    assert {("comms", "start_ns"), ("comms", "end_ns")} <= of_one_value(run.trace)
    assert all((ints(part.comms, "end_ns") > ints(part.comms, "start_ns")).all() for part in run.parts())


def test_a_run_holds_no_table_of_its_captures(tmp_path: Path) -> None:
    run = open_run(map(str, RUNS["torch"]), READING, LocalWorkers(1, tmp_path))
    for handle in run.handles:
        held = [getattr(handle, name) for name in handle.__struct_fields__]
        held += [getattr(handle.context, name) for name in handle.context.__struct_fields__]
        assert not [one for one in held if isinstance(one, Trace | Table | CaptureSummary)]


def test_progress_moves_within_a_capture_that_is_read_again(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []

    def progress(what: str, done: int, of: int) -> None:
        if "looking at captures" in what:
            calls.append((done, of))

    run = open_run(map(str, RUNS["nsys"]), READING, LocalWorkers(1, tmp_path), progress=progress)
    again = [msgspec.structs.replace(handle, folder=None) for handle in run.handles]  # as where Dask reads them
    msgspec.structs.replace(run, handles=again).map(repr)
    ends = {0, *np.cumsum([handle.size + 1 for handle in run.handles]).tolist()}
    assert calls[-1][0] == calls[-1][1]
    assert {done for done, _ in calls} - ends


@pytest.mark.parametrize("comm", [(), (Declared("kernel:*", "a test"),)], ids=["", "declared"])
@pytest.mark.parametrize("name", [*RUNS, "waits-by-traffic"])
def test_some_tables_are_as_they_are_among_all(name: str, comm: tuple[Declared, ...], tmp_path: Path) -> None:
    reading = Reading(cache=False, counters=True, workers=1, comm=comm)
    paths = RUNS.get(name) or [raw.of_rank("before", 0, tmp_path)]
    run = open_run(map(str, paths), reading, LocalWorkers(1, tmp_path))
    assert all(handle.folder is not None for handle in run.handles)
    every = list(run.parts())
    for table in TABLES:
        for whole, some in zip(every, run.parts(tables=(table,)), strict=True):
            pd.testing.assert_frame_equal(getattr(some, table).to_frame(), getattr(whole, table).to_frame())
            assert (some.captures, some.processes) == (whole.captures, whole.processes)
    if not comm:
        assert any(
            len(whole.ranges) and not len(some.ranges) for whole, some in zip(every, run.parts(tables=()), strict=True)
        )
