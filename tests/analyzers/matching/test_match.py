"""Matching is right where the truth is known, whatever a capture lacks, and says when it is not sure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.clocks.hosts import AheadByHosts, host_bounds
from analyzers.matching.match import match
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import ints, table
from analyzers.trace.ranks import assign_ranks
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.captures import whole_run
from tests.support.collective_runs import MS, Call, Loss, Run, lose, right_pairs, run
from tests.support.nightly import few_by_default

TP = ((0, 1), (2, 3), (4, 5), (6, 7))
DP = ((0, 2, 4, 6), (1, 3, 5, 7))
MIXED = (Call(), Call("ReduceScatter", 1 << 16, 40_000), Call("AllGather", 1 << 16, 40_000), Call(transfer=8_000))
PARALLEL = (
    Call(groups=TP, name="tensor"),
    Call("AllGather", groups=TP, name="tensor"),
    Call(groups=DP, name="data", stream=24),
)


def judged(recorded: Run, matches: Matches) -> tuple[float, int]:
    """(share of calls matched right, wrong ones that are not marked unsure)."""
    truth = recorded.keep(np.lexsort((recorded.start, recorded.rank))).collective[matches.calls.op]
    found = matches.calls.collective
    return right_pairs(truth, found, matches.collectives.sure[found])


@pytest.mark.parametrize(
    "keyed", ["sequence", "", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("group", "communicator"))]
)
@pytest.mark.parametrize(
    ("calls", "loss"),
    [(MIXED, Loss(8, 8, 0.05)), ((Call(),), Loss(20, 20, 0.1)), (PARALLEL, Loss(6, 6, 0.03))],
    ids=["mixed", "one kind", "parallel groups"],
)
@pytest.mark.parametrize("seeds", few_by_default(4, 15))
def test_calls_lost_anywhere_leave_the_rest_matched(
    keyed: str, calls: tuple[Call, ...], loss: Loss, seeds: int
) -> None:
    """≥ 99 % of what is left is matched right, and what is wrong is marked, over seeds, offsets and drifts."""
    right, total = 0.0, 0
    for seed in range(seeds):
        recorded = lose(run(8, 60, calls, seed=seed, offset=50 * MS, drift=20e-6, keyed=keyed), loss, seed)
        share, unmarked = judged(recorded, match(recorded.trace()))
        assert unmarked == 0, seed
        right, total = right + share * recorded.rank.size, total + recorded.rank.size
    assert right >= 0.99 * total


def test_clocks_that_say_nothing_of_each_other_match_too() -> None:
    for seed in range(6):
        recorded = lose(run(6, 60, MIXED, seed=seed, offset=10**12, drift=20e-6), Loss(5, 5, 0.03), seed)
        share, wrong = judged(recorded, match(recorded.trace(epoch=False)))
        assert (share >= 0.99, wrong) == (True, 0)


def test_a_rank_that_was_not_captured_is_missed_by_nobody() -> None:
    recorded = lose(run(8, 60, PARALLEL, offset=50 * MS), Loss(5, 5, 0.02, whole=(3,)), 1)
    share, wrong = judged(recorded, match(recorded.trace()))
    assert (share >= 0.99, wrong) == (True, 0)


def test_jitter_as_wide_as_the_gaps_keeps_the_order_of_calls() -> None:
    recorded = run(4, 200, (Call(transfer=5_000),), gap=20_000, step_noise=30_000, rank_noise=2_000, jitter=4_000)
    share, wrong = judged(recorded, match(recorded.trace()))
    assert (share >= 0.99, wrong) == (True, 0)


def test_groups_of_ranks_are_told_apart_without_names() -> None:
    recorded = run(8, 60, PARALLEL, offset=50 * MS, drift=20e-6)
    matches = match(recorded.trace())
    sizes = np.bincount(matches.calls.collective)
    assert sorted(set(sizes.tolist())) == [2, 4]
    assert judged(recorded, matches) == (1.0, 0)


def test_a_perfectly_periodic_run_is_marked_unsure() -> None:
    """Nothing but the count tells which of equal steps is which: a rank that lacks one could be off by any."""
    step, ranks = 1_000_000, []
    builder = Builder()
    for rank in range(2):
        ranks.append(builder.rank(rank))
        for number in range(20):
            if (rank, number) != (1, 0):
                start = number * step + rank * 40 * MS
                ranks[rank].kernel("ncclDevKernel_AllReduce_Sum(x)", 20, start, start + 100_000)
    matches = match(builder.trace())
    assert not matches.collectives.sure.any()


def test_broadcasts_that_name_no_group_are_among_the_ranks_that_reduce_together() -> None:
    """The root leaves each at once, rank 1 after 1 ms, ranks 2 and 3 after 2: ends would make pairs of them."""
    random, builder = np.random.default_rng(0), Builder()
    ranks, truth, at = [builder.rank(rank) for rank in range(4)], [], 0
    for number in range(24):
        at += int(random.integers(4 * MS, 9 * MS))
        for rank, after in enumerate((0, MS, 2 * MS, 2 * MS)):
            name, stream = ("Broadcast_RING_LL", 24) if number % 2 else ("AllReduce_Sum_f32_RING_LL", 20)
            end = at + MS // 10 + (after if number % 2 else 0)
            truth.append((ranks[rank].kernel(f"ncclDevKernel_{name}(x)", stream, at, end), number))
    matches = match(builder.trace())
    assert matches.collectives.sure.all()
    expected = np.array([number for _, number in sorted(truth)])[matches.calls.op]
    assert right_pairs(expected, matches.calls.collective, np.ones(expected.size, bool)) == (1.0, 0)


def pipeline(stages: int, batches: int, *, named: bool) -> tuple[Trace, np.ndarray]:
    """Each micro-batch is sent from stage to stage; returns the true transfer of each op, in order of ops."""
    random = np.random.default_rng(3)
    builder = Builder()
    ranks = [builder.rank(stage) for stage in range(stages)]
    truth: list[tuple[int, int]] = []
    clock = np.zeros(stages, np.int64)
    for batch in range(batches):
        for stage in range(stages - 1):
            pair = clock[[stage, stage + 1]] + random.integers(200_000, 900_000, 2)
            end = int(pair.max()) + 50_000
            for side, (rank, name) in enumerate(((stage, "send"), (stage + 1, "recv"))):
                row = ranks[rank].kernel(
                    "ncclDevKernel_SendRecv(x)", 20 + 4 * stage, int(pair[side]), end + side * 700, launch=(0, 1)
                )
                truth.append((row, batch * stages + stage))
                if named:
                    builder.add(
                        "comms", process=rank, correlation=len(truth), operation=name, group="pipe",
                        group_ranks=str(list(range(stages))), peer=2 * stage + 1 - rank, bytes=1 << 20,
                    )  # fmt: skip
            clock[[stage, stage + 1]] = end
    return builder.trace(), np.array([transfer for _, transfer in sorted(truth)])


def test_sends_that_name_no_peer_among_several_stages_stay_alone() -> None:
    trace, _ = pipeline(4, 30, named=False)
    assert set(match(trace).collectives.matched_by) == {"alone"}


def test_calls_around_a_ring_of_which_one_capture_has_more_are_told_by_clocks() -> None:
    """Ends of a ring's calls lie up to 0.13 ms apart; rank 2 has one more before, and reductions tell of clocks."""
    builder, ring = Builder(), list[int]()
    ranks = [builder.rank(one) for one in range(3)]
    for at in range(6):
        for one, rank in enumerate(ranks):
            calls = [("all_reduce", "AllReduce", 10 * at, 0)]
            if at in (1, 2) or (at, one) == (0, 2):
                calls.append(("send_recv", "SendRecv", 10 * at + 5, (40_000, 170_000, 90_000)[(one + at) % 3]))
            for operation, kernel, ms, late in calls:
                start = ms * 1_000_000 + late
                row = rank.kernel(f"ncclDevKernel_{kernel}(x)", 20, start, start + 500_000, launch=(0, 1))
                said = {"operation": operation, "group": "all", "group_ranks": "[0, 1, 2]"}
                builder.add("comms", process=one, correlation=builder.correlation, **said)
                ring += [row] * (operation == "send_recv")
    calls = match(builder.trace()).calls
    found = dict(zip(calls.op.tolist(), calls.collective.tolist(), strict=True))
    first, *others = [found[op] for op in ring]
    assert [len({*others[:3]}), len({*others[3:]}), len({first, *others})] == [1, 1, 3]


def test_sends_match_receives_between_each_two_stages() -> None:
    trace, truth = pipeline(4, 30, named=True)
    matches = match(trace)
    found = matches.calls.collective
    share, wrong = right_pairs(truth[matches.calls.op], found, matches.collectives.sure[found])
    assert (share >= 0.99, wrong) == (True, 0)
    assert set(matches.collectives.operation) == {"send_recv"}
    assert set(matches.collectives.matched_by) == {"pair"}


@pytest.mark.parametrize("name", ["ddp", "rowpar_s4", "rowpar_s4.4gpu.sqlite", "collectives.2gpu.pinned.sqlite"])
@pytest.mark.parametrize("seeds", few_by_default(6, 30))
def test_deletions_from_a_real_capture_leave_the_rest_matched(name: str, seeds: int) -> None:
    """The truth: what the complete capture matches. Each rank loses calls at its head, tail and middle.

    What hosts say of clocks is known, as it is wherever captures are loaded.
    """
    trace = whole_run(name)
    complete, hosts = match(trace), host_bounds(trace)
    truth = np.full(len(trace.ops), -1)
    truth[complete.calls.op] = complete.calls.collective
    wrong, total = 0, 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        drop = np.zeros(len(trace.ops), dtype=bool)
        for rank in trace.rank_ids:
            mine = complete.calls.op[complete.calls.rank == rank]
            if not mine.size:
                continue
            mine = mine[np.argsort(ints(trace.ops, "end_ns")[mine])]
            drop[mine[: random.integers(0, 3)]] = True
            drop[mine[mine.size - random.integers(0, 3) :]] = True
            drop[random.choice(mine)] = True
        kept = np.flatnonzero(~drop)
        columns = {column: trace.ops.to_frame()[column].take(kept).array for column in trace.ops.schema}
        lossy = assign_ranks(_with_ops(trace, columns))
        matches = match(lossy, lambda members: AheadByHosts(hosts, members))
        found = matches.calls.collective
        sure = matches.collectives.sure[found]
        share, unmarked = right_pairs(truth[kept][matches.calls.op], found, sure)
        wrong += round((1 - share) * found.size)
        total += found.size
        assert unmarked == 0, seed
    assert wrong <= 0.01 * total


@pytest.mark.parametrize("name", ["a2a_async", "ddp", "dpmp_overlap", "dpmp_serial", "full_gpu", "rowpar_s4"])
def test_a_trace_that_says_nothing_of_its_calls_matches_as_one_that_does(name: str) -> None:
    trace = whole_run(name)
    named, unnamed = match(trace), match(replace(trace, comms=table("comms")))
    for column in ("op", "collective"):
        assert ints(named.calls, column).tolist() == ints(unnamed.calls, column).tolist()
    assert set(named.collectives.matched_by) == {"group"}
    assert set(unnamed.collectives.matched_by) == {"order"}
    assert unnamed.collectives.sure.all()


def _with_ops(trace: Trace, columns: dict[str, object]) -> Trace:
    return replace(trace, ops=table("ops", columns))
