"""Missing waits are found, and waits that are there, or left out on purpose, are no alarm."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from analyzers.load import load
from analyzers.syncs.crossings import Crossings, crossings
from tests.support.builder import Builder, Rank, one_rank
from tests.support.captures import A_WORKLOAD_OF_EACH, DATA, WORKLOADS, one_capture
from tests.support.nightly import mostly_nightly

CLEAN = [
    *(f"torch/{name}.rank{rank}.json.gz" for rank in (0, 1) for name in
      ("ddp", "a2a_async", "a2a_sync", "opt_overlap", "opt_serial", "full_gpu", "dpmp_overlap", "dpmp_serial",
       "dpmp_hidden_sync", "delta_async", "delta_sync", "rowpar_s1", "rowpar_s4")),
    *(f"nsys/{path.name}" for path in sorted(DATA.glob("nsys/*.sqlite")) if not path.name.startswith("collectives")),
]  # fmt: skip


def statuses(found: Crossings) -> list[tuple[str, int, str]]:
    return [(row.what, row.stream, row.status) for row in found]


def fork(*, wait: bool, busy: int = 500) -> Crossings:
    """Main runs until `busy`; the side stream gets an op at 20, with or without a wait."""
    run, rank = one_rank()
    rank.range("producer", 0, 4)
    rank.kernel("produce", 7, 10, busy, launch=(0, 2))
    if wait:
        rank.wait_stream(9, 7, 10)
    rank.range("consumer", 15, 30)
    rank.kernel("consume", 9, max(busy, 40) if wait else 40, busy + 100, launch=(20, 22))
    return crossings(run.trace())


def test_a_fork_without_a_wait_beside_running_work_is_a_missing_wait() -> None:
    (missing,) = fork(wait=False).missing
    assert (missing.what, missing.stream, missing.other) == ("fork", 9, 7)
    assert (missing.name, missing.behind_name) == ("consume", "produce")
    assert (missing.range, missing.behind_range) == ("consumer", "producer")
    assert missing.exact
    assert missing.message == (
        "'consume' on stream 9 ('consumer') does not wait for 'produce' on stream 7 ('producer'): a possible race"
    )


def test_a_fork_with_a_wait_is_ordered() -> None:
    assert statuses(fork(wait=True)) == [("fork", 9, "ordered")]


def test_a_fork_after_the_work_is_done_has_nothing_to_wait_for() -> None:
    assert statuses(fork(wait=False, busy=15)) == [("fork", 9, "done")]


def never_waiting(*, first: str) -> Crossings:
    """In each of three turns stream 9 makes a batch for 7 and never waits; it is launched first in the turn, or last.

    stream 9   |batch 0|batch 1|batch 2          stream 9             |batch 0|
    stream 7           |use 0 ……|use 1 ……|        stream 7   |use ……|
    """
    run, rank = one_rank()
    for turn in range(3):
        at = 1000 * turn
        rank.range(f"step {turn}", at, at + 900)
        for number, name in enumerate(("batch", "use") if first == "batch" else ("use", "batch")):
            stream = 9 if name == "batch" else 7
            start = at + 500 + (100 if name == "batch" else 200)
            rank.kernel(name, stream, start, start + 950, launch=(at + 100 * number, at + 100 * number + 2))
            if name == "batch":
                rank.wait_stream(7, 9, at + 100 * number + 10)
    return crossings(run.trace())


def test_a_stream_that_runs_ahead_of_an_earlier_turn_lacks_no_wait() -> None:
    assert {status for what, _, status in statuses(never_waiting(first="batch")) if what == "fork"} == {
        "done",
        "chosen",
    }
    assert {missing.what for missing in never_waiting(first="use").missing} == {"fork"}


def test_where_streams_wait_for_values_in_memory_none_lacks_a_wait() -> None:
    run, rank = one_rank()
    rank.kernel("produce", 7, 10, 500, launch=(0, 2))
    rank.call("cuStreamWriteValue32_v2", 10, 11)
    rank.call("cuStreamWaitValue32_v2", 12, 13)
    rank.kernel("consume", 9, 500, 600, launch=(20, 22))
    assert statuses(crossings(run.trace())) == [("fork", 9, "chosen")]


def test_a_wait_before_newer_work_was_queued_is_taken_as_meant() -> None:
    run, rank = one_rank()
    rank.kernel("inputs", 7, 10, 50, launch=(0, 2))
    rank.wait_stream(9, 7, 5)
    rank.kernel("MP", 7, 50, 500, launch=(10, 12))
    rank.kernel("DP", 9, 50, 400, launch=(20, 22))
    rank.wait_stream(7, 9, 25)
    rank.kernel("merge", 7, 500, 600, launch=(30, 32))
    assert statuses(crossings(run.trace())) == [("fork", 9, "chosen"), ("join", 7, "ordered")]


def test_a_wait_without_its_stream_on_record_guards_the_next_launch() -> None:
    run, rank = one_rank()
    rank.kernel("produce", 7, 10, 500, launch=(0, 2))
    rank.record(7, 10, stated=False)
    rank.call("cudaStreamWaitEvent", 12, 13)
    rank.kernel("consume", 9, 510, 600, launch=(20, 22))
    assert not crossings(run.trace()).missing


def step(rank: Rank, at: int, *, join: bool) -> None:
    """Produce on main, work on the side, and merge on main, which waits for the side or not."""
    rank.range(f"step {at // 1000}", at, at + 900)
    rank.kernel("produce", 7, at + 10, at + 300, launch=(at, at + 2))
    rank.wait_stream(9, 7, at + 10)
    rank.kernel("side", 9, at + 300, at + 600, launch=(at + 20, at + 22))
    if join:
        rank.wait_stream(7, 9, at + 30)
    rank.kernel("merge", 7, at + (600 if join else 300), at + 700, launch=(at + 40, at + 42))


def test_a_join_left_out_in_one_step_is_a_missing_wait() -> None:
    run, rank = one_rank()
    for number in range(3):
        step(rank, number * 1000, join=number != 1)
    rank.synchronize("device", 3000, 3100)
    (missing,) = crossings(run.trace()).missing
    assert (missing.what, missing.name, missing.behind_name) == ("join", "merge", "side")
    assert missing.range == "step 1"


def test_a_join_before_the_side_stream_is_used_again_comes_later() -> None:
    run, rank = one_rank()
    for number in range(3):
        at = number * 1000
        rank.range(f"step {number}", at, at + 900)
        rank.wait_stream(7, 9, at)
        rank.kernel("fill buffer", 7, at + 10, at + 100, launch=(at + 5, at + 7))
        rank.wait_stream(9, 7, at + 10)
        rank.copy("DtoH", 9, at + 100, at + 800, launch=(at + 20, at + 22), target_memory="pinned")
        rank.kernel("train", 7, at + 100, at + 900, launch=(at + 30, at + 32))
    rank.synchronize("device", 3000, 3100)
    found = crossings(run.trace())
    assert [row for row in statuses(found) if row[0] == "join"] == [("join", 7, "later")] * 3
    assert not found.missing


def fan_out(*, joined: tuple[int, ...]) -> Crossings:
    run, rank = one_rank()
    rank.kernel("produce", 7, 10, 300, launch=(0, 2))
    for number, worker in enumerate((11, 12, 13, 14)):
        at = 10 + number * 10
        rank.wait_stream(worker, 7, at)
        rank.kernel("matmul", worker, 300, 600 + number, launch=(at + 5, at + 7))
    for number, worker in enumerate(joined):
        rank.wait_stream(7, worker, 100 + number * 5)
    rank.kernel("next", 7, 700, 800, launch=(200, 202))
    rank.synchronize("device", 300, 900)
    return crossings(run.trace())


def test_of_several_workers_the_one_that_is_not_joined_is_caught() -> None:
    assert not fan_out(joined=(11, 12, 13, 14)).missing
    for left_out in (11, 12, 13, 14):
        (missing,) = fan_out(joined=tuple(each for each in (11, 12, 13, 14) if each != left_out)).missing
        assert (missing.what, missing.stream, missing.other) == ("join", 7, left_out)


def test_a_collective_joined_steps_later_is_no_alarm_and_one_never_joined_is() -> None:
    for joins in (True, False):
        run, rank = one_rank()
        for number in range(5):
            at = number * 1000
            rank.range(f"step {number}", at, at + 900)
            rank.kernel("compute", 7, at + 10, at + 300, launch=(at, at + 2))
            rank.wait_stream(17, 7, at + 10)
            rank.kernel("ncclDevKernel_AllReduce", 17, at + 300, at + 1200, launch=(at + 20, at + 22))
            if joins and number:
                rank.wait_stream(7, 17, at + 25)
            rank.kernel("more", 7, at + (1200 if joins and number else 300), at + 1300, launch=(at + 30, at + 32))
        assert bool(crossings(run.trace()).missing) is not joins


@pytest.mark.parametrize("rank", [0, 1])
def test_the_race_is_flagged_in_every_step_that_still_had_work_in_flight(rank: int) -> None:
    found = crossings(one_capture(f"torch/dpmp_race.rank{rank}.json.gz"))
    assert {(missing.what, missing.range, missing.behind_range) for missing in found.missing} == {
        ("fork", "DP Embedding", "MP Embedding")
    }
    assert len(found.missing) == 2  # in the first step the first launch took so long that the lookups had ended
    assert not any(missing.exact for missing in found.missing)


@pytest.mark.parametrize("name", CLEAN)
def test_captures_without_a_race_raise_no_alarm(name: str) -> None:
    assert crossings(one_capture(name)).missing == []


@pytest.mark.parametrize("name", mostly_nightly(WORKLOADS, A_WORKLOAD_OF_EACH.__contains__))
def test_of_all_workloads_only_the_race_raises_an_alarm(name: str) -> None:
    found = crossings(load([DATA / "workloads" / name])).missing
    if name.startswith("dpmp.race"):
        assert {(missing.what, missing.range, missing.behind_range) for missing in found} == {
            ("fork", "DP Embedding", "MP Embedding")
        }
        assert {missing.rank for missing in found} == set(range(int(name.split(".")[2][0])))
        assert all(missing.exact == ("nsys" in name) for missing in found)
    else:
        assert not found


def test_work_of_its_own_beside_another_stream_lacks_no_wait() -> None:
    """Stream 24 takes no wait at all, nor does any stream wait for it: it fetches its own result to the host."""
    path = DATA / "nsys" / "collectives.2gpu.pinned.sqlite"
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file:
        waits = file.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION WHERE streamId = 24").fetchone()
    assert waits == (0,)
    assert not crossings(one_capture(f"nsys/{path.name}")).missing


def test_overlap_is_ordered_exactly_in_nsys() -> None:
    found = crossings(one_capture("nsys/dpmp_overlap.4gpu.sqlite"))
    side = [(one.status, one.exact) for one in found if one.range == "DP Embedding"]
    assert side == [("ordered", True)] * (4 * 3)


def test_reuse_of_the_buffer_in_delta_tracking_is_ordered() -> None:
    found = crossings(one_capture("torch/delta_async.rank0.json.gz"))
    assert [one.status for one in found if one.what == "join"] == ["later"] * 3
    assert [one.status for one in found if one.what == "fork"] == ["done", "ordered", "ordered"]


def test_a_trace_without_work_has_no_crossings() -> None:
    run = Builder()
    run.rank(0)
    assert len(crossings(run.trace())) == 0
