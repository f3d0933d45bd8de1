"""The order that real captures prove: never contradicted by their times, and inferred as what is stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.ordering.ordering import Ordering
from tests.support.captures import DATA, one_capture
from tests.support.nightly import mostly_nightly

CAPTURES = sorted(str(path.relative_to(DATA)) for path in [*DATA.glob("nsys/*.sqlite"), *DATA.glob("torch/*.json.gz")])
LONG = ("nsys/ddp_log.2gpu.sqlite", "torch/ddp.rank1.json.gz", "torch/full_queue.json.gz")  # of each, any two ops

EXACT = ["dpmp_overlap.4gpu.sqlite", "rowpar_s4.4gpu.sqlite", "rowpar_s1.rank0.nsys2025.sqlite"]


@pytest.mark.parametrize("name", EXACT)
def test_inference_finds_what_nsys_states(name: str) -> None:
    """Hide from an exact capture all that Kineto does not say; between streams with work every link is found again."""
    trace = one_capture(f"nsys/{name}")
    worked = set(zip(*(trace.ops.columns[column].tolist() for column in ("process", "stream")), strict=True))
    has_work = [
        each in worked
        for each in zip(*(trace.syncs.columns[column].tolist() for column in ("process", "stream")), strict=True)
    ]
    hidden = replace(
        trace,
        syncs=trace.syncs.having(event=-1, event_sync=-1).take(np.array(has_work)),
        records=trace.records.having(event=-1, event_sync=-1, stream=-1, context=-1),
    )
    stated, inferred = Ordering(trace), Ordering(hidden)
    truth, guess = stated.linked, inferred.linked
    assert truth.waits.exact.all()
    assert not guess.waits.exact.any()
    checked = 0
    for wait in range(truth.calls.waits.size):
        lane, source = truth.wait_lane[wait], truth.waits.source[wait]
        waiting = (int(stated.lanes.process[lane]), int(stated.lanes.stream[lane]))
        behind = (int(stated.lanes.process[source]), int(stated.lanes.stream[source]))
        if waiting in worked and behind in worked and source >= 0:
            assert inferred.lanes.stream[guess.waits.source[wait]] == behind[1]
            checked += 1
    assert checked >= 12


@pytest.mark.parametrize("name", mostly_nightly(CAPTURES, lambda name: name not in LONG))
def test_no_capture_contradicts_its_own_order(name: str) -> None:
    """Whatever is ordered before an op, inferred or not, had ended when that op started, on the GPU's own clock."""
    trace = one_capture(name)
    ordering = Ordering(trace)
    start, end = trace.ops.start_ns, trace.ops.end_ns
    process = trace.ops.process
    first, second = (index.ravel() for index in np.indices((len(start), len(start))))
    same = process[first] == process[second]
    first, second = first[same], second[same]
    before = ordering.before(first, second)
    assert (end[first] <= start[second])[before].all()


def test_what_is_inferred_or_assumed_is_reported() -> None:
    stated = Ordering(one_capture("nsys/dpmp_overlap.4gpu.sqlite"))
    assert stated.warnings == ()
    inferred = Ordering(one_capture("torch/dpmp_overlap.rank0.json.gz"))
    assert [warning.code for warning in inferred.warnings] == ["inferred-waits", "unknown-streams"]
    assert "18 of 18 stream waits" in inferred.warnings[0].message
    assert "3 streams" in inferred.warnings[1].message
