"""Communication by process group, told apart and summed, against sums by hand over all ranks' kernels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.align import align
from analyzers.collectives import costs
from analyzers.collectives.costs import DeviceTimes, collectives
from analyzers.select.select import picked, select
from analyzers.trace.groups import Group, groups_of
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

NAME = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TP, DP = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}, {0: [0, 2], 1: [1, 3], 2: [0, 2], 3: [1, 3]}


def run() -> Trace:
    """Four ranks, two tensor-parallel pairs and two data-parallel ones; each call takes another time on each rank."""
    builder = Builder()
    ranks = [builder.rank(number) for number in range(4)]
    at = 1000
    for turn in range(3):
        for rank in ranks:
            for kind, groups, sized in (("mesh_tp", TP, 1 << 20), ("DATA_PARALLEL_GROUP", DP, 1 << 22)):
                start = 10_000_000 * turn + (5_000_000 if groups is DP else 0) + 1000 * rank.process
                end = 10_000_000 * turn + (5_000_000 if groups is DP else 0) + 500_000 + 7 * sized // (1 << 18)
                rank.kernel("gemm", 7, start - 500, start)
                at += 1
                rank.kernel(NAME, 20, start, end, correlation=at)
                builder.add(
                    "comms", process=rank.process, correlation=at, operation="allreduce",
                    group=f"{kind[0]}{groups[rank.process][0]}", group_description=kind,
                    group_ranks=str(groups[rank.process]), group_size=2, sequence=turn, in_elements=sized,
                    out_elements=sized, dtype="Float",
                )  # fmt: skip
    return builder.trace()


@pytest.fixture(scope="module")
def trace() -> Trace:
    return run()


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("group:tp", "t"), ("group:mesh_tp", "t"), ("group:dp", "d"), ("group:DATA*", "d"), ("group:~PARALLEL", "d"),
        ("group:size=2", "td"), ("group:tp,group:dp", "td"), ("group:pp", ""), ("group:size=4", ""),
    ],
)  # fmt: skip
def test_a_group_is_picked_by_what_it_is_called_and_by_its_size(trace: Trace, text: str, kinds: str) -> None:
    rows = picked(trace, text)
    assert set(rows["name"]) <= {NAME}
    assert len(rows) == 12 * len(kinds)
    number = groups_of(trace)[1]
    groups = groups_of(trace)[0]
    assert {groups[number[row]].description[0].lower().replace("m", "t") for row in rows.index} == set(kinds)


@pytest.mark.parametrize(
    ("text", "ranks", "count"), [("ranks=0-1", {0, 1}, 6), ('"ranks=1,3"', {1, 3}, 6), ("ranks=0-3", set(), 0)]
)
def test_a_group_is_picked_by_exactly_its_ranks(trace: Trace, text: str, ranks: set[int], count: int) -> None:
    rows = picked(trace, f"group:{text}")
    assert (set(rows["rank"]), len(rows)) == (ranks, count)


def test_a_group_that_is_not_there_is_answered_with_those_that_are(trace: Trace) -> None:
    assert "there are tp, DATA_PARALLEL_GROUP, and group:size=N" in select(trace, "group:pp").reason


def test_sums_by_group_are_those_of_its_calls_one_by_one(trace: Trace) -> None:
    result = collectives(align(trace))
    took: dict[tuple[str, str], int] = defaultdict(int)
    fastest: dict[tuple[str, str], int] = defaultdict(int)
    waited: dict[tuple[str, str], int] = defaultdict(int)
    count: dict[tuple[str, str], int] = defaultdict(int)
    volume: dict[tuple[str, str], int] = defaultdict(int)
    for one in result:
        key = one.group_description, one.group_ranks
        count[key] += 1
        volume[key] += one.bytes or 0
        fastest[key] += min(call.duration_ns for call in one.ranks)
        for call in one.ranks:
            took[key] += call.duration_ns
            waited[key] += call.wait_ns
    assert len(result.groups) == 4
    for group in result.groups:
        key = group.group.description, group.group.ranks
        assert (group.count, group.bytes, group.ranks) == (count[key], volume[key], 2)
        assert (group.fastest_ns, group.duration_ns, group.wait_ns) == (fastest[key], took[key], waited[key])
        assert group.wait_share == waited[key] / took[key]
    by_hand = sum(
        int(end - start)
        for name, start, end in zip(
            trace.ops.to_frame()["name"], trace.ops.to_frame()["start_ns"], trace.ops.to_frame()["end_ns"], strict=True
        )
        if name == NAME
    )
    assert sum(group.duration_ns for group in result.groups) == by_hand
    assert [group.duration_ns for group in result.groups] == sorted(took.values(), reverse=True)


@given(st.lists(st.integers(0, 47)))
def test_groups_of_some_ops_are_those_of_all_at_their_rows(trace: Trace, rows: list[int]) -> None:
    groups, numbers = groups_of(trace)
    some = np.array(rows, np.int64)
    assert groups_of(trace, some)[0] == groups
    assert groups_of(trace, some)[1].tolist() == numbers[some].tolist()


def test_sums_by_device_are_those_of_its_calls(trace: Trace) -> None:
    result = collectives(align(trace))
    by_device = result.to_frame().reset_index().groupby(["rank", "device"])
    columns = ["duration_ns", "wait_ns", "transfer_ns"]
    assert result.by_device() == tuple(
        DeviceTimes(rank, device, len(calls), *calls[columns].sum().tolist()) for (rank, device), calls in by_device
    )


def test_collectives_come_out_of_the_table_the_same_however_many_at_once(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = collectives(align(trace))
    whole = list(result)
    assert [one.index for one in whole] == list(range(len(result)))
    monkeypatch.setattr(costs, "ROWS_TOGETHER", 5)
    assert list(result) == whole


def test_a_trace_that_names_no_group_has_no_sums_by_group() -> None:
    builder = Builder()
    builder.rank(0).kernel(NAME, 20, 0, 10)
    assert collectives(align(builder.trace())).groups == ()


def test_a_communicator_is_named_by_its_number() -> None:
    builder = Builder()
    rank = builder.rank(0)
    rank.kernel(NAME, 20, 0, 10, correlation=5)
    builder.add("comms", process=0, correlation=5, communicator=-2, group_size=4)
    groups, number = groups_of(builder.trace())
    assert groups == [Group(size=4, communicator="0xfffffffffffffffe")]
    assert number.tolist() == [0]
    assert len(picked(builder.trace(), "group:0xfffffffffffffffe")) == 1
    assert str(groups[0]) == "communicator 0xfffffffffffffffe 4 ranks"


@pytest.mark.parametrize(("operation", "known"), [("ncclAllReduce", True), ("ncclSend", False)])
def test_a_communicator_without_a_size_is_of_the_ranks_whose_collectives_it_has(operation: str, known: bool) -> None:
    """As nsys records it: its number alone. All must take part in a collective, in sends need not."""
    builder = Builder()
    ranks = [builder.rank(k) for k in (0, 1, 2)]
    for k in (0, 2):
        ranks[k].kernel(NAME, 20, 0, 10, correlation=5)
        builder.add("comms", process=k, correlation=5, communicator=7, operation=operation)
    ranks[1].kernel("gemm", 20, 0, 10)
    trace = builder.trace()
    assert [len(picked(trace, text)) for text in ('group:"ranks=0,2"', "group:size=2")] == [2 * known] * 2
    assert len(picked(trace, "group:7")) == 2
    alone = replace(trace, captures=(replace(trace.captures[0], world_size=4),))
    assert len(picked(alone, "group:size=2")) == 0, "a rank is missing, which may be of it, too"


def test_first_words_stand_for_dimensions_and_nothing_else() -> None:
    for text, description, fits in [
        ("tp", "TENSOR_MODEL_PARALLEL_GROUP", True), ("ep", "EXPERT_DATA_PARALLEL_GROUP", True),
        ("dp", "EXPERT_DATA_PARALLEL_GROUP", False), ("dp", "dp_shard", True), ("dp", "dpx", False),
        ("pp", "pipeline", True), ("x", "x_y", False),
    ]:  # fmt: skip
        assert Group(description=description).fits(text, text.__eq__) is fits
