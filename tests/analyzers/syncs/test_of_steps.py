"""Host syncs of a step as findings, by hand."""

from __future__ import annotations

from analyzers.syncs.of_steps import StepSync, groups_by_rank, step_syncs
from analyzers.trace.narrow import EVERYTHING, Narrowing
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder

US, MS = 1_000, 1_000_000


def program(blocked: tuple[int, ...] = (2, 4), steps: int = 3) -> Trace:
    """Steps of 10 ms; of each rank a kernel of so many ms, an `.item()` in `clip` that waits for it, then a kernel.

    The copy follows the kernel at once; the call returns 20 µs after it, and the next launch comes 100 µs later.
    """
    run = Builder()
    for number, ms in enumerate(blocked):
        rank = run.rank(number)
        for step in range(steps):
            at = 10 * MS * step
            rank.range(f"step {step}", at, at + 10 * MS - 1)
            rank.kernel("norm", 7, at + 20 * US, at + ms * MS, launch=(at, at + 10 * US))
            done = at + ms * MS + 2 * US
            rank.range("clip", at + 20 * US, done + 50 * US)
            rank.range("aten::item", at + 30 * US, done + 30 * US, kind="op")
            rank.copy("DtoH", 7, done - 2 * US, done, bytes=4, launch=(at + 40 * US, at + 44 * US))
            rank.synchronize("stream", at + 45 * US, done + 20 * US, stream=7)
            rank.range("optimizer", done + 60 * US, done + 300 * US)
            rank.kernel("adam", 7, done + 130 * US, done + 400 * US, launch=(done + 120 * US, done + 128 * US))
        rank.synchronize("device", 10 * MS * steps, 10 * MS * steps + 5 * MS)  # behind the last step
    return run.trace()


def found(trace: Trace, steps: int = 3) -> tuple[StepSync, ...]:
    return step_syncs([groups_by_rank(trace)], steps)


def test_a_sync_is_told_with_its_place_its_ranks_and_what_it_costs_a_step() -> None:
    """Rank 1 is blocked from 45 µs to 4.022 ms of each step; its GPU is idle for 20 µs, and for 100 more."""
    (one,) = found(program())
    assert (one.call, one.origin, one.range, one.copy) == ("cudaStreamSynchronize", "aten::item", "clip", "DtoH")
    assert (one.rank, one.ranks, one.count, one.steps) == (1, (0, 1), 1, 3)
    assert (one.blocked_ns, one.idle_ns) == (4 * MS - 23 * US, 120 * US)
    assert (one.delayed, one.change) == ("optimizer", "drop-sync nvtx:clip")
    assert one.words == (
        "aten::item (cudaStreamSynchronize) in clip: 1 time a step on ranks 0–1, blocks the host 3.98 ms and leaves "
        "the GPU idle 120 µs, which delays optimizer"
    )


def test_only_steps_that_count_count() -> None:
    """What is behind the last step is in none."""
    trace = program()
    assert {group.count for group in groups_by_rank(trace)[1]} == {3}
    assert {group.count for group in groups_by_rank(trace, [0, 2])[1]} == {2}
    assert [one.ranks for one in step_syncs([groups_by_rank(trace, [1])], 1)] == [(0, 1)]


def test_check_overlap_names_them_whatever_overlap_they_cost() -> None:
    trace = program()
    for narrowing in (Narrowing(), EVERYTHING):
        result = check_overlap(trace, "kernel:norm", "kernel:adam", narrowing=narrowing)
        assert [one.range for one in result.host_syncs] == ["clip"]
    assert not check_overlap(trace, "kernel:norm", "kernel:adam", explain=False).host_syncs


def test_of_a_window_of_time_only_what_is_launched_there_counts() -> None:
    """Step 1 lasts from 10 to 20 ms."""
    trace = program()
    narrowing = Narrowing(window=(10 * MS, 20 * MS - 1))
    (one,) = check_overlap(trace, "kernel:norm", "kernel:adam", narrowing=narrowing).host_syncs
    assert (one.count, one.steps, one.blocked_ns) == (1, 1, 4 * MS - 23 * US)
