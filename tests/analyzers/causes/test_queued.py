"""How surely an inferred link is what an op waited for: counted by hand, and by brute force on a real capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.ordering.inference import AT_ONCE_NS
from analyzers.overlap.measure import Inferred, Missed
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import one_rank

TORCH = Path(__file__).parents[2] / "data" / "torch"
A, B = "kernel:alpha", "kernel:beta"
US = 1000
STEP = 1000 * US


def steps_of(*late_us: int, stated: bool = False) -> Trace:
    """In each step beta runs for 100 µs on stream 7; alpha on 9 waits for it, and starts so many µs after its end.

    Of a negative number, alpha is launched that late instead, long after beta's end, and starts 3 µs after its launch.
    """
    run, rank = one_rank()
    for number, late in enumerate(late_us):
        at = number * STEP
        rank.range(f"step {number}", at, at + STEP - US)
        rank.kernel("beta", 7, at + 10 * US, at + 110 * US, launch=(at, at + US))
        rank.wait_stream(9, 7, at + 2 * US, stated=stated)
        start = at + (110 + late) * US if late >= 0 else at + (110 - late + 3) * US
        launch = at + 4 * US if late >= 0 else at + (110 - late) * US
        rank.kernel("alpha", 9, start, start + 50 * US, launch=(launch, launch + US))
    return run.trace()


def waited(trace: Trace) -> Missed:
    (rank,) = check_overlap(trace, A, B).ranks
    return next(one for one in rank.missed if one.cause == "event-dependency")


@pytest.mark.parametrize(
    ("late_us", "expected", "words"),
    [
        ((2, 3, 4), Inferred(3, 3, 4 * US), "inferred: 3 of 3 starts followed within 4.00 µs"),
        ((2, 3, 15), Inferred(2, 3, 3 * US), "inferred: 2 of 3 starts followed within 3.00 µs"),
        ((2, -40, 3), Inferred(2, 2, 3 * US), "inferred: 2 of 2 starts followed within 3.00 µs"),
        ((30, 40, 50), Inferred(0, 3, None), "inferred: 0 of 3 starts followed within 10.0 µs"),
        ((2, -40, -40), Inferred(1, 1, 2 * US), "inferred: 1 of 1 start followed within 2.00 µs"),
    ],
)
def test_the_starts_that_a_link_held_are_counted(late_us: tuple[int, ...], expected: Inferred, words: str) -> None:
    """A launch after beta's end says nothing about the link: what held alpha there was its launch."""
    found = waited(steps_of(*late_us))
    assert found.inferred == expected
    assert f"through record on stream 7 → wait on stream 9 ({words})" in found.evidence


def test_what_the_capture_states_is_not_inferred() -> None:
    found = waited(steps_of(2, 3, 15, stated=True))
    assert found.inferred is None
    assert "inferred" not in found.evidence


def test_on_a_real_capture_they_are_those_counted_call_by_call() -> None:
    """By one thread's calls alone: the wait before DP's first launch, the record before it, and what that recorded."""
    trace = load(sorted(TORCH.glob("dpmp_overlap.rank?.json.gz")))
    result = check_overlap(trace, "nvtx:DP Embedding", "nvtx:MP Embedding")
    for rank in result.ranks:
        ops = trace.ops.to_frame()[trace.ops.to_frame()["rank"] == rank.rank].copy()
        ops["asked_ns"] = trace.api.start_ns[ops["launch"]]
        process = int(ops["process"].iloc[0])
        calls = trace.api.to_frame()[trace.api.to_frame()["process"] == process].sort_values("start_ns")
        waits = calls[calls["name"] == "cudaStreamWaitEvent"]["start_ns"]
        records = calls[calls["name"].str.startswith("cudaEventRecord")]["start_ns"]
        ranges = trace.ranges.to_frame()[
            (trace.ranges.to_frame()["process"] == process) & (trace.ranges.to_frame()["name"] == "DP Embedding")
        ]
        starts = followed = within = 0
        for low, high in ranges[["start_ns", "end_ns"]].to_numpy():
            own = ops[(ops["stream"] == 25) & (ops["asked_ns"] >= low) & (ops["asked_ns"] < high)]
            first = own.sort_values("asked_ns").iloc[0]
            wait = waits[waits < first["asked_ns"]].max()
            record = records[records < wait].max()
            work = ops[(ops["stream"] == 7) & (ops["asked_ns"] < record)]["end_ns"].max()
            before = ops[(ops["stream"] == 25) & (ops["asked_ns"] < first["asked_ns"])]["end_ns"].max()
            if work >= first["asked_ns"] and not work < before:
                starts += 1
                if 0 <= first["start_ns"] - work <= AT_ONCE_NS:
                    followed += 1
                    within = max(within, int(first["start_ns"] - work))
        found = next(one for one in rank.missed if one.cause == "event-dependency")
        assert found.inferred == Inferred(followed, starts, within)
        assert starts > 0
