from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analyzers.trace.columns import table
from analyzers.trace.merge import merge
from analyzers.trace.ranges import launches
from analyzers.trace.schemas import Ranges
from analyzers.trace.tables import Capture, Trace
from tests.support.builder import Builder


def capture(path: str, origin: int | None, *, processes: int = 1) -> Trace:
    """Each process calls CUDA twice and launches one op with the second call."""
    run = Builder()
    for number in range(processes):
        rank = run.rank(number)
        rank.call("cudaEventQuery", 1, 2)
        rank.range(f"range of {path}", 0, 50)
        rank.kernel(f"{path}.{number}", 7, 100, 110, launch=(10 + number, 12 + number))
        run.add("syncs", process=number, start_ns=60, end_ns=70)
        run.add("comms", process=number, start_ns=60, end_ns=70, operation=path)
    trace = run.trace()
    captures = (Capture(path, "synthetic", first_ns=0, last_ns=110),)
    return replace(trace, captures=captures, origin_utc_ns=origin)


EPOCH = 1_790_000_000_000_000_000


def test_processes_captures_and_launches_are_renumbered() -> None:
    merged = merge([capture("a", EPOCH, processes=2), capture("b", EPOCH), capture("c", EPOCH, processes=2)])
    assert merged.ops.process.tolist() == [0, 1, 2, 3, 4]
    assert [process.capture for process in merged.processes] == [0, 0, 1, 2, 2]
    assert merged.ops.name.tolist() == ["a.0", "a.1", "b.0", "c.0", "c.1"]
    for name in ("api", "ranges", "syncs", "comms"):
        assert sorted(set(getattr(merged, name).process.tolist())) == [0, 1, 2, 3, 4]
    _, start, end = launches(merged)
    assert start.tolist() == [10, 11, 10, 10, 11]
    assert end.tolist() == [12, 13, 12, 12, 13]


def test_times_move_onto_the_earliest_captures_zero() -> None:
    merged = merge([capture("late", EPOCH + 5_000), capture("early", EPOCH), capture("later", EPOCH + 7)])
    assert merged.origin_utc_ns == EPOCH
    assert merged.ops.start_ns.tolist() == [5_100, 100, 107]
    assert merged.ops.end_ns.tolist() == [5_110, 110, 117]
    assert merged.api.start_ns.tolist() == [5_001, 5_010, 1, 10, 8, 17]
    assert merged.ranges.end_ns.tolist() == [5_050, 50, 57]
    assert merged.syncs.start_ns.tolist() == [5_060, 60, 67]
    assert merged.comms.start_ns.tolist() == [5_060, 60, 67]
    assert [(one.first_ns, one.last_ns) for one in merged.captures] == [(5_000, 5_110), (0, 110), (7, 117)]


def test_a_capture_without_a_clock_keeps_its_zero_and_is_reported() -> None:
    merged = merge([capture("a", EPOCH), capture("b", None)])
    assert merged.ops.start_ns.tolist() == [100, 100]
    (warning,) = merged.warnings
    assert warning.code == "no-common-clock"
    assert "1 of 2 captures have no absolute start time (b …)" in warning.message
    assert merge([capture("a", None), capture("b", None)]).origin_utc_ns is None


@pytest.mark.parametrize("empty", [pd.Categorical([]), pd.Categorical(np.array([], object)), [], ""])
def test_a_capture_without_any_text_joins_one_that_has_some(empty: object) -> None:
    without = table("ranges", {"name": empty}, length=0)
    some = table("ranges", {"name": ["x", "y", "x"], "kind": ["op", "nvtx", "op"]})
    for frames in ([without, some], [some, without], [without, some, some]):
        joined = Ranges.stacked(frames)
        assert joined.name.tolist() == ["x", "y", "x"] * (len(frames) - 1)
        assert joined.kind.texts == some.kind.texts
