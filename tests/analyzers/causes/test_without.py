"""What is promised of a cause's removal: where a wait or call is not on record, and where a launch queue was full."""

from __future__ import annotations

import gzip
import json

import pytest

from analyzers.overlap.measure import Missed
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, one_rank
from tests.support.captures import DATA, one_capture

US = 1000


def late_launch(run: Builder) -> Missed:
    """Why alpha came late."""
    (rank,) = check_overlap(run.trace(), "kernel:alpha", "kernel:beta").ranks
    return next(one for one in rank.missed if one.cause == "late-launch")


def after_a_wait(gamma_end: int, *, recorded: bool) -> Missed:
    """A wait between the launches of two sides, alpha's being late.

        host      beta gamma   wait    delta                             alpha
        stream 7  |beta 10 ……………………………………… 110|delta|
        stream 9   |gamma 12 … its end|
        stream 8                                                          |alpha 112 …

    The wait is made before delta's launch, so it is taken for stream 7's; where it is not recorded it may be alpha's.
    """
    run, rank = one_rank()
    gamma = rank.kernel("gamma", 9, 1 * US, gamma_end, launch=(0, 500))
    record = rank.record(9, 600)
    if recorded:
        rank.wait(7, record, 700)
    else:
        rank.call("cudaStreamWaitEvent", 700, 800)
    rank.kernel("beta", 7, 10 * US, 110 * US, launch=(1 * US, 5 * US))
    rank.kernel("alpha", 8, 112 * US, 150 * US, launch=(100 * US, 105 * US))
    assert gamma == 0
    return late_launch(run)


def test_nothing_is_promised_where_an_unrecorded_wait_may_have_held_the_op() -> None:
    """Launched at 10, alpha could have started at 17; but had the wait been its own, gamma would have held it to 60."""
    assert [after_a_wait(end, recorded=True).sooner_ns for end in (9 * US, 60 * US)] == [95 * US] * 2
    assert after_a_wait(9 * US, recorded=False).sooner_ns == 95 * US, "gamma was done"
    found = after_a_wait(60 * US, recorded=False)
    assert (found.sooner_ns, found.next_cause, found.next_behind) == (None, None, "")


@pytest.mark.parametrize("known", [True, False])
def test_without_its_python_a_thread_still_blocks_as_long_as_is_known(known: bool) -> None:
    """The sync from 20 to 60, for gamma, done at 55, still returns at 60; so does one for what nobody knows.

    Then alpha starts at 67, 45 sooner.
    """
    run, rank = one_rank()
    rank.kernel("gamma", 9, 8 * US, 55 * US, launch=(0, 500))
    rank.kernel("beta", 7, 10 * US, 110 * US, launch=(1 * US, 5 * US))
    if known:
        rank.synchronize("stream", 20 * US, 60 * US, stream=9)
    else:
        rank.call("cudaStreamSynchronize", 20 * US, 60 * US)
    rank.kernel("alpha", 8, 112 * US, 150 * US, launch=(100 * US, 105 * US))
    assert late_launch(run).sooner_ns == 45 * US


def test_a_launch_queue_that_really_filled_is_named() -> None:
    """1,700 kernels of 36 µs on stream 13, launched faster than they ran, then one on stream 17."""
    (rank,) = check_overlap(one_capture("torch/full_queue.json.gz"), "stream:17", "stream:13").ranks
    late = next(one for one in rank.missed if one.cause == "late-launch")
    events = json.loads(gzip.decompress((DATA / "torch" / "full_queue.json.gz").read_bytes()))["traceEvents"]
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") == "kernel" and e["args"]["stream"] == 13}
    calls = [e for e in events if e.get("cat") == "cuda_runtime" and e["args"]["correlation"] in kernels]
    starts = sorted(e["ts"] for e in kernels.values())
    waited = 0.0
    for number, call in enumerate(sorted(calls, key=lambda e: float(e["ts"]))):
        ahead = number - sum(start <= call["ts"] for start in starts)
        assert ahead <= 1021  # no stream holds more
        waited += call["dur"] if ahead == 1021 else 0
    assert waited > 16_000
    assert f"; {waited / 1000:.1f} ms of it its launch queue was full" in late.evidence
    assert late.next_cause == "late-launch" and "a full launch queue" in late.next_behind
