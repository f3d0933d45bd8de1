"""What is reported of collectives, against numbers by hand and pasted tables with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.clocks.align import align
from analyzers.collectives.costs import Collectives, bus_factor, collectives
from analyzers.readers.nsys import nsys_export as nsys
from analyzers.readers.nsys import stats
from analyzers.trace.merge import merge
from analyzers.trace.ranks import assign_ranks
from tests.support.builder import Builder
from tests.support.collective_runs import Call, run

DATA = Path(__file__).parents[2] / "data"


def pasted(name: str) -> Collectives:
    return collectives(align(assign_ranks(stats.read(DATA / "nsys-stats" / name))))


def codes(result: Collectives) -> set[str]:
    return {warning.code for warning in result.warnings}


@pytest.mark.parametrize(
    ("name", "answers", "ranks"),
    [
        ("config1_one_report_8gpu.txt", [266689, 261377], 8),
        ("config2_report_per_rank_8gpu.txt", [264926, 261631], 8),
        ("config3_rank0_only.txt", [441441, 270945], 1),
    ],
)
def test_pasted_tables_have_their_known_answers(name: str, answers: list[int], ranks: int) -> None:
    result = pasted(name)
    assert [one.fastest_ns for one in result] == answers
    assert [len(one.ranks) for one in result] == [ranks, ranks]
    assert ("one-rank" in codes(result)) == (ranks == 1)
    assert ("few-collectives" in codes(result)) == (ranks > 1)
    assert all(one.bytes is None and one.bus_gb_s is None for one in result)


def test_ends_of_the_first_pasted_table_coincide_within_the_residual_claimed() -> None:
    result = pasted("config1_one_report_8gpu.txt")
    claimed = result.clocks.residual_ns
    assert claimed is not None
    assert claimed < 10_000
    for one in result:
        assert one.end_skew_ns <= claimed
        assert (one.last_arrival_rank, one.fastest_rank) == (5, 5)
        assert one.matched_by == "order"
        assert one.sure


def test_a_report_per_rank_without_a_common_clock_is_aligned() -> None:
    """In the second table rank 1 comes last by 790 µs in the second collective, whatever the clocks read."""
    result = pasted("config2_report_per_rank_8gpu.txt")
    first, second = result
    assert (first.last_arrival_rank, second.last_arrival_rank) == (1, 1)
    durations = {call.rank: call.duration_ns for call in second.ranks}
    for call in second.ranks:
        assert abs(call.wait_ns - (durations[call.rank] - 261631)) <= 2_000
    assert second.end_skew_ns <= 2_000


def three_ranks() -> Collectives:
    """Two all-reduces of 8 MB and one all-gather over three ranks on one clock.

    Ends coincide. Starts: 0, 30, 60 µs → end 160; 250, 200, 210 → 300; 400, 400, 420 → 430.
    """
    builder = Builder()
    spans = [([0, 30, 60], 160), ([250, 200, 210], 300), ([400, 400, 420], 430)]
    ranks = [builder.rank(rank) for rank in range(3)]
    for number, (starts, end) in enumerate(spans):
        for rank, start in enumerate(starts):
            gather = number == 2
            name = "AllGather" if gather else "AllReduce_Sum"
            ranks[rank].kernel(f"ncclDevKernel_{name}(x)", 20, start * 1000, end * 1000, launch=(0, 1))
            builder.add(
                "comms", process=rank, correlation=builder.correlation, group="0", group_ranks="[0, 1, 2]",
                group_size=3, sequence=number, dtype="Float", in_elements=1_000_000 if gather else 2_000_000,
                out_elements=3_000_000 if gather else 2_000_000, operation="_allgather_base" if gather else "allreduce",
            )  # fmt: skip
    return collectives(align(builder.trace()))


def test_every_figure_of_a_collective_by_hand() -> None:
    first, second, third = three_ranks()
    assert (first.index, first.operation, first.bytes, first.dtype) == (0, "all_reduce", 8_000_000, "Float")
    assert (first.group, first.group_ranks, first.group_size) == ("0", "[0, 1, 2]", 3)
    assert (first.fastest_ns, first.fastest_rank) == (100_000, 2)
    assert (first.last_arrival_rank, first.last_arrival_lead_ns, first.end_skew_ns) == (2, 30_000, 0)
    assert [call.wait_ns for call in first.ranks] == [60_000, 30_000, 0]
    assert [call.transfer_ns for call in first.ranks] == [100_000, 100_000, 100_000]
    assert first.algorithm_gb_s == pytest.approx(80.0)  # 8 MB in 100 µs
    assert first.bus_gb_s == pytest.approx(80.0 * 4 / 3)  # 2 (n − 1) / n of three ranks
    assert (first.matched_by, first.sure, first.confidence) == ("sequence", True, 1.0)
    assert (second.last_arrival_rank, second.last_arrival_lead_ns) == (0, 40_000)
    assert [call.wait_ns for call in second.ranks] == [0, 50_000, 40_000]
    assert third.bytes == 12_000_000  # what all-gather gathers
    assert third.algorithm_gb_s == pytest.approx(1200.0)
    assert third.bus_gb_s == pytest.approx(1200.0 * 2 / 3)


def test_the_summary_by_hand() -> None:
    kinds = {kind.operation: kind for kind in three_ranks().summary}
    both = kinds["all_reduce"]
    assert (both.count, both.median_ns, both.p90_ns) == (2, 75_000, 100_000)
    assert (both.worst_straggler_rank, both.worst_straggler_index, both.worst_straggler_ns) == (0, 1, 40_000)
    # waits 60 + 30 + 0 + 0 + 50 + 40 of durations 160 + 130 + 100 + 50 + 100 + 90
    assert both.wait_share == pytest.approx(180 / 630)
    assert both.last_by_rank == {0: 1, 2: 1}
    assert both.median_bus_gb_s == pytest.approx((80 + 160) / 2 * 4 / 3)
    assert (kinds["all_gather"].count, kinds["all_gather"].unsure) == (1, 0)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_bus_factors_are_those_of_nccl_tests(ranks: int) -> None:
    """From the fractions of a message each link carries, spelled out in nccl-tests' doc/PERFORMANCE.md."""
    assert bus_factor("all_reduce", ranks) == pytest.approx(2 * (ranks - 1) / ranks)
    for operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        assert bus_factor(operation, ranks) == pytest.approx((ranks - 1) / ranks)
    for operation in ("broadcast", "reduce", "send_recv"):
        assert bus_factor(operation, ranks) == 1.0


def test_groups_running_side_by_side_are_not_cut_off() -> None:
    groups = (Call(groups=((0, 1), (2, 3)), name="a"), Call(groups=((0, 2), (1, 3)), name="b", stream=24))
    for keyed in ("sequence", "group", "communicator"):
        assert "cut-off" not in codes(collectives(align(run(4, 30, groups, keyed=keyed).trace())))


@pytest.mark.parametrize(("later", "operation", "warned"), [
    (160, "AllReduce", True), (140, "AllReduce", False), (160, "Broadcast", False),
])  # fmt: skip
def test_a_rank_that_leaves_an_all_reduce_long_after_another_is_warned_of(
    later: int, operation: str, warned: bool
) -> None:
    """All 41 take 100 µs on both ranks and end together, but for the sixth, which rank 1 leaves so many µs later.

    100 µs for the operation, 2 µs for the clocks, each known to 1, and 50 are explained: 152. A broadcast's root
    leaves when it likes.
    """
    builder = Builder()
    ranks = [builder.rank(rank) for rank in range(2)]
    for number in range(41):
        name = operation if number == 5 else "AllReduce"
        for process, rank in enumerate(ranks):
            end = (number + 1) * 1_000_000 + later * 1_000 * (number == 5 and process == 1)
            rank.kernel(f"ncclDevKernel_{name}(x)", 20, (number + 1) * 1_000_000 - 100_000, end, launch=(0, 1))
            builder.add("comms", process=process, correlation=builder.correlation, group="0", sequence=number)
    result = collectives(align(builder.trace()))
    assert list(result)[5].end_skew_ns == later * 1_000
    assert result.clocks.residual_ns == 1_000
    text = (
        "Ranks leave 1 collective further apart than the operation and the clocks explain: rank 1 ends all_reduce 5 "
        "160 µs after the first."
    )
    assert [one.message for one in result.warnings if one.code == "ends-apart"] == [text] * warned


def test_unsure_matches_are_counted_in_a_warning() -> None:
    builder = Builder()
    for rank in range(2):
        process = builder.rank(rank)
        for number in range(10 - rank):
            start = number * 1_000_000 + rank * 40_000_000
            process.kernel("ncclDevKernel_AllReduce(x)", 20, start, start + 100_000)
    result = collectives(align(builder.trace()))
    assert "unsure-matches" in codes(result)
    assert all(kind.unsure for kind in result.summary)


def test_a_trace_without_communication_has_no_collectives() -> None:
    builder = Builder()
    builder.rank(0).kernel("gemm", 7, 0, 10)
    result = collectives(align(builder.trace()))
    assert (len(result), list(result), len(result.summary), len(result.to_frame())) == (0, [], 0, 0)
    assert len(result.summary.to_frame()) == 0


def test_one_rank_of_a_real_run_is_warned_of() -> None:
    trace = assign_ranks(nsys.read_sqlite(DATA / "nsys" / "rowpar_s1.rank0.nsys2025.sqlite"))
    result = collectives(align(trace))
    assert "one-rank" in codes(result)
    assert all(one.last_arrival_rank is None and one.matched_by == "alone" for one in result)
    assert {call.wait_ns for one in result for call in one.ranks} == {0}


def test_reports_of_four_ranks_match_on_session_times() -> None:
    """The same five calls on each rank, in order: zip them by hand."""
    paths = [DATA / "nsys" / f"rowpar_s1.rank{rank}.nsys2025.sqlite" for rank in range(4)]
    traces = [nsys.read_sqlite(path) for path in paths]
    durations = []
    for trace in traces:
        ops = trace.ops.to_frame()[trace.ops.to_frame()["name"].astype(str).str.contains("nccl")].sort_values(
            "start_ns"
        )
        durations.append((ops["end_ns"] - ops["start_ns"]).tolist())
    result = collectives(align(assign_ranks(merge(traces))))
    assert len(result) == 5
    for one, by_hand in zip(result, zip(*durations, strict=True), strict=True):
        assert [call.duration_ns for call in one.ranks] == list(by_hand)
        assert one.fastest_ns == min(by_hand)
        assert one.sure


def test_nccl_annotations_give_size_and_communicator() -> None:
    """Eight calls a step, two steps and a last barrier, of 8 MiB but for the 16 KiB ones of a second communicator."""
    result = collectives(align(assign_ranks(nsys.read_sqlite(DATA / "nsys" / "collectives.2gpu.pinned.sqlite"))))
    assert {one.matched_by for one in result} == {"communicator"}
    sizes = {}
    for one in result:
        sizes.setdefault(one.operation, []).append(one.bytes)
    eight = 8 << 20
    assert sizes == {
        "all_reduce": [eight, 16 << 10, eight, 16 << 10, 4],
        "all_to_all": [eight, eight],
        "send_recv": [eight, eight],
        "all_gather": [eight, eight],
        "reduce_scatter": [eight, eight],
        "broadcast": [eight, eight],
    }


def test_the_summary_names_no_operation_that_the_list_does_not_know() -> None:
    made = Builder()
    for number in (0, 1):
        rank = made.rank(number)
        rank.kernel("ncclDevKernel_Generic", 9, 0, 50)
        rank.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9, 100, 130)
    result = collectives(align(made.trace()))
    listed = sorted(str(one.operation or "") for one in result)
    assert listed == ["", "all_reduce"]
    assert sorted(kind.operation for kind in result.summary) == listed
    assert {kind.operation: kind.count for kind in result.summary} == {"": 1, "all_reduce": 1}


def test_copies_between_gpus_are_not_denied() -> None:
    made = Builder()
    for number in (0, 1):
        made.rank(number).copy("PtoP", 63, 0, 500, bytes=1 << 20)
    result = collectives(align(made.trace()))
    assert len(result) == 0
    (warning,) = [one for one in result.warnings if one.code == "peer-copies"]
    assert warning.message.startswith("2 copies between GPUs (2.0 MiB, 1.00 µs) are matched with no other rank's")
    assert result.copies.calls.bytes.tolist() == [1 << 20, 1 << 20]
