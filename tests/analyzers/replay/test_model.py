"""Which tasks surely run alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import traceviz as tv
from analyzers.replay.change import combined
from analyzers.replay.engine import run
from analyzers.replay.host_changes import DropSync
from analyzers.replay.model import Lists, Tasks
from analyzers.replay.removals import without
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import Program

TORCH = Path(__file__).parents[2] / "data" / "torch"


def program(*, launches_at_the_end: bool) -> Trace:
    """K, a sync in "fetch", L, a sync outside, and M perhaps."""
    made = Program()
    made.range("fetch", 24, 113)
    made.kernel("K", 7, call=0, start=8, end=108)
    made.sync(25, 112)
    made.kernel("L", 7, call=120, start=127, end=177)
    made.sync(130, 181)
    if launches_at_the_end:
        made.kernel("M", 7, call=190, start=197, end=247)
    return made.trace()


@pytest.mark.parametrize("launches", [False, True])
def test_a_sync_after_the_last_launch_does_not_matter(launches: bool) -> None:
    trace = program(launches_at_the_end=launches)
    found = tasks(trace)
    none = np.zeros(len(trace.ops), dtype=bool)
    no_syncs, dropped = without("host-sync", trace, found, none, none), combined(trace, found, [DropSync("nvtx:fetch")])
    assert no_syncs is not None
    assert no_syncs.same_as(dropped) is dropped.same_as(no_syncs) is not launches
    assert np.array_equal(run(no_syncs).unit_end, run(dropped).unit_end) is not launches
    assert not found.same_as(dropped)


def test_of_a_real_program_what_is_said_to_run_alike_does() -> None:
    trace = tv.load(str(TORCH / "item_before.rank*.json.gz"))
    found, none = tasks(trace), np.zeros(len(trace.ops), dtype=bool)
    no_syncs = without("host-sync", trace, found, none, none)
    dropped = combined(trace, found, [DropSync("nvtx:MP lookup")])
    assert no_syncs is not None
    assert no_syncs.same_as(dropped)
    one, other = run(no_syncs), run(dropped)
    for name in ("unit_start", "unit_began", "unit_end"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_any_number_that_differs_counts() -> None:
    found = tasks(program(launches_at_the_end=True))
    assert found.same_as(replace(found, refuted=9, blind_ns=9))  # what is only told of them
    for part in ("calls", "units", "room"):
        record = getattr(found, part)
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if isinstance(value, Lists):
                other = Lists.of(np.append(value.owner, 0), np.append(value.items, 1), value.first.size - 1)
            else:
                other = value.copy()
                other.flat[0] = not other.flat[0]
            changed: Tasks = replace(found, **{part: replace(record, **{name: other})})
            assert not found.same_as(changed), name
    assert not found.same_as(replace(found, queue=1))
