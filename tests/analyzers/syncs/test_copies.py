"""A copy to pinned memory that nothing waits for is found, and one that anything covers is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.syncs.copies import UnwaitedCopies, unwaited_copies
from tests.support.builder import one_rank
from tests.support.captures import one_capture

DATA = Path(__file__).parents[2] / "data" / "real"


def steps(cover: str) -> UnwaitedCopies:
    """Two steps that copy a value to pinned memory, and wait for it or not before the host reads it."""
    run, rank = one_rank()
    for number in range(2):
        at = number * 1000
        rank.range(f"step {number}", at, at + 900)
        rank.kernel("check", 7, at + 10, at + 100, launch=(at, at + 2))
        rank.copy("DtoH", 7, at + 100, at + 120, launch=(at + 5, at + 8), bytes=1, target_memory="pinned")
        record = rank.record(7, at + 10)
        if cover == "event":
            rank.synchronize("event", at + 20, at + 130, record=record)
        elif cover in ("stream", "device"):
            rank.synchronize(cover, at + 20, at + 130, stream=7 if cover == "stream" else -1)
        elif cover == "another stream":
            rank.wait(9, record, at + 15)
            rank.synchronize("stream", at + 20, at + 130, stream=9)
        elif cover == "older event":
            rank.synchronize("event", at + 20, at + 105, record=rank.record(9, at + 18))
        elif cover == "wait of a stream":
            rank.wait(9, record, at + 15)
    rank.synchronize("device", 1950, 1960)
    return unwaited_copies(run.trace())


@pytest.mark.parametrize("cover", ["event", "stream", "device", "another stream"])
def test_a_synchronization_behind_the_copy_covers_it(cover: str) -> None:
    assert len(steps(cover)) == 0


@pytest.mark.parametrize("cover", ["nothing", "older event", "wait of a stream"])
def test_a_copy_nothing_waits_for_may_be_read_as_garbage(cover: str) -> None:
    (copy,) = steps(cover)  # the last one is covered by the synchronize at the end
    assert (copy.range, copy.stream, copy.bytes) == ("step 0", 7, 1)
    assert (copy.launched_ns, copy.start_ns, copy.end_ns) == (5, 100, 120)
    assert (copy.reason, copy.until_ns, copy.covered_ns, copy.exact) == ("next copy", 1005, 1960, True)


@pytest.mark.parametrize(
    ("start", "end", "covers"),
    [
        (20, 130, True),
        (20, 110, False),  # it returned before the copy was done, so it was for something else
        (2, 130, False),  # it began before the copy was launched
        (20, 1010, False),  # the next copy had been launched by then
    ],
)
def test_a_synchronization_of_an_unknown_stream_may_be_for_the_copy(start: int, end: int, covers: bool) -> None:
    """torch.profiler does not say by itself which stream `cudaStreamSynchronize` waited for."""
    run, rank = one_rank()
    for number in range(2):
        at = number * 1000
        rank.range(f"step {number}", at, at + 900)
        rank.copy("DtoH", 7, at + 100, at + 120, launch=(at + 5, at + 8), bytes=1, target_memory="pinned")
    rank.call("cudaStreamSynchronize", start, end)
    rank.synchronize("device", 1950, 1960)
    assert len(unwaited_copies(run.trace())) == (0 if covers else 1)


def test_several_copies_that_one_wait_of_their_step_covers_are_right() -> None:
    """Each has memory of its own, which no trace shows; of a wait in the next step that can't be known."""
    for behind, found in ((300, 0), (1_100, 3)):
        run, rank = one_rank()
        for step in range(2):
            at = 1_000 * step
            rank.range(f"step {step}", at, at + 999)
            for copy in range(2):
                begin = at + 100 * copy
                launch = (begin + 5, begin + 8)
                rank.copy("DtoH", 7, begin + 20, begin + 30, launch=launch, bytes=1, target_memory="pinned")
            rank.synchronize("event", at + behind, at + behind + 5, record=rank.record(7, at + 290))
        assert len(unwaited_copies(run.trace())) == found


def test_the_end_of_the_capture_is_the_last_chance() -> None:
    run, rank = one_rank()
    rank.copy("DtoH", 7, 100, 120, launch=(5, 8), target_memory="pinned")
    (copy,) = unwaited_copies(run.trace())
    assert (copy.reason, copy.covered_ns) == ("end of capture", -1)


@pytest.mark.parametrize("name", ["a2a_async", "a2a_sync", "dpmp_hidden_sync", "delta_sync", "ddp"])
def test_captures_that_wait_for_their_copies(name: str) -> None:
    for rank in (0, 1):
        trace = one_capture(f"torch/{name}.rank{rank}.json.gz")
        assert len(unwaited_copies(trace)) == 0


def test_delta_tracking_never_waits_for_what_it_copies_out_before_copying_again() -> None:
    trace = one_capture("torch/delta_async.rank0.json.gz")
    found = [*unwaited_copies(trace)]
    assert [(copy.range, copy.bytes, copy.reason) for copy in found] == [("stream out", 102_400_000, "next copy")] * 2
    assert all(copy.until_ns < copy.covered_ns for copy in found)
