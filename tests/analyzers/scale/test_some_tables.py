"""A capture of which only some tables are looked at has these as it has them among all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analyzers.readers.reading import Reading
from analyzers.scale.parts import open_run
from analyzers.trace.communication import Declared
from analyzers.trace.schemas import TABLES
from analyzers.workers.local import LocalWorkers
from tests.support import counters as raw

DATA = Path(__file__).parents[2] / "data"
RUNS = {
    "torch": sorted((DATA / "torch").glob("dpmp_overlap.rank?.json.gz")),
    "clocks-apart": sorted((DATA / "nsys").glob("rowpar_s1.rank*.nsys2025.sqlite")),
    "waits-by-traffic": [],  # made by the test
}


@pytest.mark.parametrize("comm", [(), (Declared("kernel:*", "a test"),)], ids=["", "declared"])
@pytest.mark.parametrize("name", RUNS)
def test_some_tables_are_as_they_are_among_all(name: str, comm: tuple[Declared, ...], tmp_path: Path) -> None:
    reading = Reading(cache=False, counters=True, workers=1, comm=comm)
    paths = RUNS[name] or [raw.of_rank("before", 0, tmp_path)]
    run = open_run(map(str, paths), reading, LocalWorkers(1, tmp_path))
    assert all(folder is not None for folder in run.folders)
    every = list(run.parts())
    for table in TABLES:
        for whole, some in zip(every, run.parts(tables=(table,)), strict=True):
            pd.testing.assert_frame_equal(getattr(some, table), getattr(whole, table))
            assert (some.captures, some.processes) == (whole.captures, whole.processes)
    if not comm:
        assert any(
            len(whole.ranges) and not len(some.ranges) for whole, some in zip(every, run.parts(tables=()), strict=True)
        )
