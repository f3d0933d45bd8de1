"""What is known of single waits and calls where clocks may be off; all by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from analyzers.clocks.align import with_collectives
from analyzers.overlap.certainty import real_overlap_error, with_calls
from analyzers.overlap.job import Arrivals, LastArrival, arrivals
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import ints
from analyzers.trace.narrow import only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.analyzers.overlap.test_certainty import with_clocks
from tests.analyzers.overlap.test_job import AR, GEMM, job_run
from tests.support.builder import Builder


def three_ranks(*residuals: int | None) -> Trace:
    """The first is joined at 0, 20 and 30; the second at 200, 230 and 210 by ranks 0 to 2; the third by rank 1 alone.

    Ops: the first of ranks 0, 1, 2; the second; the third; compute of rank 0.
    """
    collectives = [
        {0: (0, 100), 1: (20, 100), 2: (30, 100)},
        {0: (200, 300), 1: (230, 300), 2: (210, 225)},
        {1: (400, 410)},
    ]
    return with_clocks(job_run(collectives, {0: [(0, 90)]}), *residuals)


def errors(trace: Trace) -> list[tuple[int, bool]]:
    error, known = ints(trace.ops, "wait_error_ns"), ints(trace.ops, "wait_known") > 0
    return list(zip(error.tolist(), known.tolist(), strict=True))


def test_a_wait_is_as_sure_as_its_own_clock_and_that_of_the_last_arrival() -> None:
    assert errors(three_ranks(0, 3, 4)) == [
        *((4, True), (7, True), (0, True)),  # rank 2 came 10 after rank 1, and 3 + 4 is less
        *((3, True), (0, True), (7, True)),  # rank 1 came 20 after rank 2
        *((0, True), (0, True)),
    ]


def test_the_last_arrival_is_unsure_by_as_much_as_another_may_have_come_later() -> None:
    # Rank 1 may be off by 5, rank 2 by 12: of the first, rank 1 came up to 17 − 10 after rank 2. Of the second, rank 2
    # could not come later by 17 − 20; its op lasts 15, and no more of it can be a wait.
    assert errors(three_ranks(0, 5, 12))[:6] == [(12, True), (17, True), (7, True), (5, True), (0, True), (15, True)]


def test_of_an_unknown_clock_all_of_an_op_may_be_a_wait() -> None:
    unknown = errors(three_ranks(0, 5, None))
    assert unknown[:3] == [(100, False), (80, False), (70, False)]
    assert unknown[3:6] == [(5, True), (70, False), (15, False)]
    assert unknown[6:] == [(0, True), (0, True)]
    trace = three_ranks(0, 5, None)
    assert real_overlap_error(trace, np.array([3])) == 5
    assert real_overlap_error(trace, np.array([3, 4])) is None


def test_waits_on_a_device_without_a_clock_have_no_known_error() -> None:
    assert [known for _, known in errors(three_ranks(0, 5))[:6]] == [False, False, False, True, False, False]


def test_without_clocks_or_matches_no_wait_is_unsure() -> None:
    trace = job_run([{0: (0, 100), 1: (20, 100)}], {})
    assert trace.clocks is None
    assert errors(trace) == [(0, True)] * 2
    run = Builder()
    run.rank(0).kernel(AR, 9, 0, 100)
    unmatched = with_clocks(run.trace(), None)
    empty = Matches(pd.DataFrame(), trace.matches.calls.iloc[:0] if trace.matches else pd.DataFrame(), pd.DataFrame())
    assert errors(unmatched) == errors(with_collectives(replace(unmatched, matches=empty))) == [(0, True)]


def test_a_part_of_a_trace_has_the_errors_of_its_own_ops() -> None:
    trace = three_ranks(0, 5, 12)
    assert errors(only_ranks(trace, (2,))) == [(7, True), (15, True)]


def test_each_op_knows_its_collective_and_how_many_calls_that_has() -> None:
    trace = three_ranks(0, 0, 0)
    assert ints(trace.ops, "collective").tolist() == [0, 0, 0, 1, 1, 1, 2, -1]
    assert ints(trace.ops, "collective_calls").tolist() == [3, 3, 3, 3, 3, 3, 1, 0]
    part = only_ranks(trace, (1,)).ops
    assert (ints(part, "collective").tolist(), ints(part, "collective_calls").tolist()) == ([0, 1, 2], [3, 3, 1])


def bounded(trace: Trace, **sides: str) -> Arrivals:
    names = trace.ops["name"].astype(str)
    side, other = ((names == sides.get(which, name)).to_numpy() for which, name in (("a", AR), ("b", GEMM)))
    return with_calls(arrivals(trace, side, other), trace, side, other)


def test_of_each_call_is_known_whether_it_may_have_come_last_and_what_it_hides() -> None:
    collectives = [{0: (0, 100), 1: (20, 100), 2: (30, 100)}, {0: (200, 300), 1: (230, 300), 2: (210, 225)}]
    trace = job_run(collectives, {0: [(0, 90), (250, 260)], 2: [(10, 40), (35, 60)]})
    found = bounded(with_clocks(trace, 0, 5, 12))
    calls = found.calls
    assert calls.collective.tolist() == [0, 0, 0, 1, 1, 1]
    assert calls.in_run.tolist() == [3] * 6
    assert (calls.rank.tolist(), calls.device.tolist()) == ([0, 1, 2, 0, 1, 2], [0] * 6)
    assert calls.came_last.tolist() == [False, False, True, False, True, False]
    # Rank 1 waited 10 for rank 2, and the two may be off by 17. In the second rank 2 ended before rank 1 came, as the
    # clocks have it, which are off by at least as much as its 15: of that nothing is sure.
    assert calls.may_be_last.tolist() == [False, True, True, False, True, True]
    assert calls.length_ns.tolist() == [100, 80, 70, 100, 70, 15]
    assert calls.hidden_ns.tolist() == [90, 0, 30, 10, 0, 0]
    assert (calls.alone_ns.tolist(), calls.hidden_alone_ns.tolist()) == (
        calls.length_ns.tolist(),
        calls.hidden_ns.tolist(),
    )
    assert found.beside_ns == {(0, 0): 90 + 10, (2, 0): 50}
    assert found.beside_error_ns == {(0, 0): 0, (2, 0): 0}


def test_an_op_of_no_length_never_came_last_unless_it_did() -> None:
    trace = job_run([{0: (0, 0), 1: (20, 30)}], {})
    assert bounded(with_clocks(trace, 0, 90)).calls.may_be_last.tolist() == [False, True]


def test_what_runs_beside_another_call_that_may_count_is_not_its_alone() -> None:
    """Rank 1 runs both collectives at once, from 40 to 100; only one of them is surely counted there."""
    collectives = [{0: (0, 100), 1: (10, 100)}, {0: (150, 200), 1: (40, 200)}]
    calls = bounded(with_clocks(job_run(collectives, {1: [(30, 60), (90, 120)]}), 0, 5)).calls
    assert calls.may_be_last.tolist() == [False, True, True, False]
    assert calls.alone_ns.tolist() == [100, 90, 50, 160], "rank 1's second call can't count, and takes nothing away"
    calls = bounded(with_clocks(job_run(collectives, {1: [(30, 60), (90, 120)]}), 0, 120)).calls
    assert calls.may_be_last.tolist() == [True, True, True, True]
    assert calls.length_ns.tolist() == [100, 90, 50, 160]
    assert calls.alone_ns.tolist() == [100, 90 - 60, 50, 160 - 60]
    assert calls.hidden_ns.tolist() == [0, 30 + 10, 0, 20 + 30]
    assert calls.hidden_alone_ns.tolist() == [0, 10, 0, 20], "of rank 1: 30-40 of the first, 100-120 of the second"


def test_the_other_sides_waits_are_no_work_of_its_own_and_as_unsure_as_clocks() -> None:
    gather = "ncclDevKernel_AllGather"
    collectives = [{0: (0, 100), 1: (10, 100)}, {0: (60, 90), 1: (50, 90)}]
    trace = with_clocks(job_run(collectives, {}, [AR, gather]), 0, 4)
    found = bounded(trace, b=gather)
    assert found.beside_ns == {(0, 0): 30, (1, 0): 30}, "rank 1 waited 10 of 40"
    assert found.beside_error_ns == {(0, 0): 0, (1, 0): 4}
    assert found.calls.hidden_ns.tolist() == [30, 30]


def test_processes_that_share_a_device_hide_behind_their_own_work_and_count_together() -> None:
    trace = job_run([{0: (0, 100), 1: (10, 100)}], {1: [(20, 50), (60, 70)]})
    trace = replace(trace, ops=trace.ops.assign(process=[0, 1, 1, 7]))
    found = bounded(with_clocks(trace, 0, 4))
    assert found.beside_ns == {(1, 0): 30 + 10}
    assert found.calls.hidden_ns.tolist() == [0, 30]


def test_sides_that_do_not_decide_are_left_as_they_are() -> None:
    trace = three_ranks(0, 5, 12)
    assert bounded(trace, a=GEMM).calls.collective.size == 0
    assert ints(trace.ops, "wait_ns")[0] == 30


def last_arrival(trace: Trace) -> LastArrival:
    found = check_overlap(trace).last_arrival
    assert found is not None
    return found


def test_a_late_rank_with_nothing_to_hide_behind_may_leave_less_that_could_overlap() -> None:
    """Both ranks may have come last to the first; to the second rank 1 did, surely.

    | | transfer | compute | overlap | at most |
    |---|---|---|---|---|
    | rank 0, first | 40-100 | 0-76 | 36 | 60 |
    | rank 1, second | 260-300 | 270-280 | 10 | 10 |

    Had rank 1 come last to both, 104 of transfer and 10 of compute would be all that counts: 10 of 10 overlap.
    """
    collectives = [{0: (40, 100), 1: (36, 100)}, {0: (200, 300), 1: (260, 300)}]
    trace = with_clocks(job_run(collectives, {0: [(0, 76)], 1: [(270, 280)]}), 0, 10)
    last = last_arrival(trace)
    assert last.real_overlap_ratio == 46 / 70
    assert (last.ratio_low, last.ratio_high) == (10 / 70, 1.0)


def test_a_collective_that_may_count_on_a_rank_left_out_may_count_nowhere() -> None:
    """Both ranks may have come last to the first; to the second rank 0 did."""
    collectives = [{0: (40, 100), 1: (36, 100)}, {0: (260, 300), 1: (200, 300)}]
    trace = with_clocks(job_run(collectives, {0: [(0, 76), (270, 280)], 1: [(0, 300)]}), 0, 10)
    last = last_arrival(only_ranks(trace, (0,)))
    assert last.real_overlap_ratio == (36 + 10) / (76 + 10), "rank 0 computes less than the 60 + 40 that it transfers"
    # Without the first, 10 of 40 overlap; the bounds are the least of both, 46 − 36, over the most, and 46 over 40.
    assert (last.ratio_low, last.ratio_high) == (10 / 86, 1.0)
    sure = last_arrival(only_ranks(with_clocks(trace, 0, 4), (0,)))
    assert (sure.ratio_low, sure.ratio_high) == (46 / 86, 46 / 86)


def test_a_collective_that_counts_on_a_rank_left_out_may_count_here() -> None:
    """Rank 1 came last to the first, or rank 0 did; to the second rank 0 did, surely."""
    collectives = [{0: (36, 100), 1: (40, 100)}, {0: (260, 300), 1: (200, 300)}]
    trace = with_clocks(job_run(collectives, {0: [(0, 76), (270, 280)], 1: [(0, 300)]}), 0, 10)
    last = last_arrival(only_ranks(trace, (0,)))
    assert last.real_overlap_ratio == 10 / 40
    # With the first, 40 more overlap, of 64 more: 50 of 104. The most is over what is sure, the least over all of 86
    # that rank 0 computes.
    assert (last.ratio_low, last.ratio_high) == (10 / 86, 1.0)
