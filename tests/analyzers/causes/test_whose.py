"""Whose ops, calls and waits explain a gap: by hand, where several ranks, devices, threads or collectives are there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.causes.evidence import EvidenceWriter, ToldGap
from analyzers.causes.free_to_run import PEER_WAIT, longest_wait
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace
from tests.analyzers.causes.test_causes import US, A, B, causes, missed
from tests.support.builder import Builder, one_rank
from tests.support.causes_of import alone_by_instance, explainer


def first_gap(trace: Trace) -> ToldGap:
    """The one gap of a trace, or the first of the only lot."""
    explains = explainer(trace, A, B)
    explained = explains.explain(0, 0)
    return ToldGap(EvidenceWriter(explains, ("A", "B")), explained, 0)


def test_each_thread_is_blocked_by_its_own_calls() -> None:
    run, rank = one_rank()
    rank.kernel("beta", 7, 10 * US, 200 * US, launch=(0, 1 * US))
    rank.kernel("alpha", 8, 112 * US, 120 * US, launch=(100 * US, 105 * US))
    rank.kernel("alpha", 9, 160 * US, 300 * US, launch=(150 * US, 155 * US), thread=2)
    rank.synchronize("stream", 125 * US, 150 * US, stream=11, thread=2)
    # Thread 1 was busy until 105, then 7 µs on the way; thread 2 submits at 155, blocked for 25 of the 35 µs before.
    assert causes(run.trace()) == {"late-launch": (102 + 10 + 5) * US, "host-sync": 25 * US}
    late = missed(run.trace())["late-launch"]
    assert 0 < late.after_sync_ns < late.ns, "only thread 2 had been blocked"


def test_the_first_op_of_a_capture_may_be_a_copy_whose_call_waits_for_it() -> None:
    run, rank = one_rank()
    where = {"target_memory": "pageable", "source_memory": "device"}
    assert rank.copy("DtoH", 7, 112 * US, 150 * US, launch=(2 * US, 151 * US), **where) == 0
    rank.kernel("beta", 7, 10 * US, 110 * US, launch=(0, 1 * US))
    (found,) = alone_by_instance(run.trace(), "memcpy", B).values()
    assert found == {"same-stream": 100 * US}


def test_each_rank_and_device_is_explained_by_its_own_ops() -> None:
    run = Builder()
    expected = {}
    ranks = [run.rank(0), run.rank(1)]
    for number, device in ((0, 0), (1, 0), (0, 1)):
        rank = ranks[number]
        rank.device = device
        begin, length = 60 * len(expected) * US, (100 + 30 * len(expected)) * US
        end = begin + 10 * US + length
        rank.kernel("beta", 7, begin + 10 * US, end, launch=(begin, begin + 5 * US))
        rank.kernel("alpha", 7, end + 2 * US, end + 40 * US, launch=(begin + 7 * US, begin + 10 * US))
        expected[number, device] = {"same-stream": length}
    trace = run.trace()
    for (number, device), split in expected.items():
        (found,) = alone_by_instance(trace, A, B, rank=number, device=device).values()
        assert found == split


def test_of_several_waits_the_idle_sides_longest_within_the_gap_is_named_with_who_came_last() -> None:
    run, rank = one_rank()
    rank.kernel("beta", 7, 0, 300)
    rank.kernel("alpha", 8, 20, 140, wait_ns=115)  # waits to 135: 90 until the gap ends
    rank.kernel("alpha", 9, 60, 190, wait_ns=50)  # really runs first, from 110 on, where the gap ends
    rank.kernel("gamma", 10, 0, 190, wait_ns=110)  # of neither side
    rank.kernel("beta", 11, 0, 190, wait_ns=110)  # of the side that runs
    run.rank(1).kernel("alpha", 8, 0, 190, wait_ns=110)  # another process
    trace = run.trace()
    trace = replace(trace, ops=trace.ops.having(last_rank=np.arange(6) + 20, last_device=np.arange(6) + 30))
    gap = first_gap(trace)
    assert (gap.op, longest_wait(gap)) == (2, 1)
    assert "alpha only waited for rank 21" in PEER_WAIT.finding(gap)


@pytest.mark.parametrize("seed", range(10))
def test_what_runs_at_an_instant_is_found_in_whatever_order_the_capture_holds_ops(seed: int) -> None:
    random = np.random.default_rng(seed)
    run, rank = one_rank()
    for at in random.permutation(12).tolist():  # three streams, each with room for 30 ns an op
        rank.kernel("alpha" if at % 2 else "beta", 7 + at % 3, 10 * at, 10 * at + int(random.integers(1, 31)))
    trace = run.trace()
    explains = explainer(trace, A, B)
    start, end = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
    for instant in range(-1, 150, 7):
        running = [row for row in range(12) if start[row] <= instant < end[row]]
        assert sorted(explains.room.running_at(0, instant)) == running


@pytest.mark.parametrize("wait", [0, 1])
def test_a_gap_in_which_no_collective_of_the_idle_side_waits_names_none(wait: int) -> None:
    run, rank = one_rank()
    rank.kernel("beta", 7, 0, 100)
    rank.kernel("alpha", 8, 100, 140)
    rank.kernel("beta", 9, 50, 90, wait_ns=wait)  # of the side that runs; for nobody at 0
    rank.kernel("beta", 10, 100, 240, wait_ns=50)  # begins only as the gap ends
    trace = run.trace()
    gap = first_gap(trace)
    assert (gap.idle_side, gap.start_ns, gap.end_ns) == (0, 0, 100)
    assert longest_wait(gap) == -1


@pytest.mark.parametrize(
    ("returned", "start", "thread", "follows"),
    [
        (55, 66, 1, False),  # queued 11 µs before it could start: the host was ahead again
        (55, 65, 1, True),  # 10 µs are the way to the GPU
        (15, 300, 1, True),  # ahead before the sync
        (104, 300, 1, False),
        (106, 300, 1, True),  # ahead after alpha was submitted
        (55, 300, 2, True),  # another thread's lead
        (55, 300, -1, True),  # another process's
    ],
)
def test_a_late_launch_follows_a_sync_until_its_own_thread_is_ahead_again(
    returned: int, start: int, thread: int, follows: bool
) -> None:
    run, rank = one_rank()
    whose = run.rank(1) if thread < 0 else rank
    whose.kernel("gamma", 11, start * US, 310 * US, launch=(returned * US - 10, returned * US), thread=abs(thread))
    rank.kernel("beta", 7, 10 * US, 110 * US, launch=(0, 5 * US))
    rank.kernel("alpha", 8, 112 * US, 150 * US, launch=(100 * US, 105 * US))
    rank.synchronize("stream", 20 * US, 40 * US, stream=9)
    assert (missed(run.trace())["late-launch"].after_sync_ns > 0) is follows


def test_an_op_that_was_queued_as_its_gap_began_is_not_late_whatever_its_thread_did() -> None:
    run, rank = one_rank()
    rank.kernel("alpha", 7, 60 * US, 70 * US, launch=(0, 5 * US))
    rank.synchronize("stream", 20 * US, 40 * US, stream=9)
    rank.kernel("beta", 8, 60 * US, 120 * US, launch=(6 * US, 7 * US), thread=2)
    rank.kernel("alpha", 7, 100 * US, 130 * US, launch=(50 * US, 55 * US))
    trace = run.trace()
    explains = explainer(trace, A, B)
    explained = explains.explain(0, 0)
    at = explained.gaps.start_ns.tolist().index(70 * US)
    assert not explained.after_sync[at]
