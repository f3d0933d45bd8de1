"""Whose ops, calls and waits explain a gap: by hand, where several ranks, devices, threads or collectives are there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.causes.evidence import EvidenceWriter, ToldGap
from analyzers.causes.free_to_run import PEER_WAIT, longest_wait
from tests.analyzers.causes.test_causes import US, A, B, missed
from tests.support.builder import one_rank
from tests.support.causes_of import alone_by_instance, explainer


def test_the_first_op_of_a_capture_may_be_a_copy_whose_call_waits_for_it() -> None:
    run, rank = one_rank()
    where = {"target_memory": "pageable", "source_memory": "device"}
    assert rank.copy("DtoH", 7, 112 * US, 150 * US, launch=(2 * US, 151 * US), **where) == 0
    rank.kernel("beta", 7, 10 * US, 110 * US, launch=(0, 1 * US))
    (found,) = alone_by_instance(run.trace(), "memcpy", B).values()
    assert found == {"same-stream": 100 * US}


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
    explains = explainer(trace, A, B)
    gap = ToldGap(EvidenceWriter(explains, ("A", "B")), explains.explain(0, 0), 0)
    assert (gap.op, longest_wait(gap)) == (2, 1)
    assert "alpha only waited for rank 21" in PEER_WAIT.finding(gap)


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
