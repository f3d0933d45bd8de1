from __future__ import annotations

import pytest

from analyzers.overlap.pairing import Pairing, Possible, pairing_method
from analyzers.select.select import select
from analyzers.trace.narrow import clip
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank, one_rank
from tests.support.causes_of import pair


def paired(trace: Trace, a: str = "comm", b: str = "compute") -> Pairing:
    return pair(trace, select(trace, a), select(trace, b))


def labels(trace: Trace, pairing: Pairing) -> list[tuple[str, str, str]]:
    """(op, instance as A, instance as B) of every op."""
    name = [*pairing.label, ""]  # index -1 is of no instance
    return [
        (op, name[a], name[b])
        for op, a, b in zip(trace.ops.to_frame()["name"], pairing.a.tolist(), pairing.b.tolist(), strict=True)
    ]


def launch_in(rank: Rank, name: str, at: int, op: str, stream: int, start: int, end: int) -> None:
    rank.range(name, at, at + 5)
    rank.kernel(op, stream, start, end, launch=(at + 1, at + 2))


def test_the_kth_range_of_one_belongs_to_the_kth_of_the_other() -> None:
    run, rank = one_rank()
    for k in (1, 0):  # rows need not be in the order of time
        launch_in(rank, "A", 100 * k, f"a{k}", 1, 100 * k, 100 * k + 50)
        launch_in(rank, "B", 100 * k + 10, f"b{k}", 2, 100 * k + 20, 100 * k + 60)
    trace = run.trace()
    pairing = paired(trace, "nvtx:A", "nvtx:B")
    assert (pairing.rule, pairing.shift) == ("occurrence", 0)
    assert labels(trace, pairing) == [
        ("a1", "occurrence 1", ""),
        ("b1", "", "occurrence 1"),
        ("a0", "occurrence 0", ""),
        ("b0", "", "occurrence 0"),
    ]


def test_work_that_a_window_took_away_shifts_no_pair() -> None:
    run, rank = one_rank()
    for k in range(3):
        launch_in(rank, "A", 100 * k, f"a{k}", 1, 1000 * k, 1000 * k + 50)
        launch_in(rank, "B", 100 * k + 10, f"b{k}", 2, 1000 * k + 500, 1000 * k + 550)
    trace = clip(run.trace(), 500, 2100)  # without a0 and b2
    assert labels(trace, paired(trace, "nvtx:A", "nvtx:B")) == [
        ("b0", "", "occurrence 0"),
        ("a1", "occurrence 1", ""),
        ("b1", "", "occurrence 1"),
        ("a2", "occurrence 2", ""),
    ]


def test_an_occurrence_without_work_leaves_those_with_work_paired() -> None:
    run, rank = one_rank()
    rank.range("A", 0, 1)  # launches nothing
    for k in (1, 2):
        launch_in(rank, "A", 100 * k, f"a{k}", 1, 1000 * k, 1000 * k + 50)
        launch_in(rank, "B", 100 * k + 10, f"b{k}", 2, 1000 * k, 1000 * k + 50)
    trace = run.trace()
    pairing = paired(trace, "nvtx:A", "nvtx:B")
    assert (pairing.rule, pairing.a.tolist(), pairing.b.tolist()) == ("occurrence", [0, -1, 1, -1], [-1, 0, -1, 1])


def test_ranges_that_occur_unequally_often_are_paired_by_step() -> None:
    run, rank = one_rank()
    for step in range(2):
        rank.range(f"step {step}", 1000 * step, 1000 * step + 900)
        launch_in(rank, "A", 1000 * step, f"a{step}", 1, 1000 * step, 1000 * step + 50)
        for k in range(2):
            launch_in(rank, "B", 1000 * step + 100 + 10 * k, f"b{step}{k}", 2, 1000 * step, 1000 * step + 50)
    rank.kernel("ncclKernel", 3, 5000, 5001, launch=(1950, 1951))
    trace = run.trace()
    pairing = paired(trace, "nvtx:A,comm", "nvtx:B")
    assert pairing.rule == "step"
    assert labels(trace, pairing) == [
        ("a0", "step 0", ""),
        ("b00", "", "step 0"),
        ("b01", "", "step 0"),
        ("a1", "step 1", ""),
        ("b10", "", "step 1"),
        ("b11", "", "step 1"),
        ("ncclKernel", "", ""),  # outside all steps: in no instance
    ]


def test_families_pair_by_their_numbers_also_where_one_side_lacks_some() -> None:
    run, rank = one_rank()
    for k in (3, 4, 12):
        launch_in(rank, f"## forward {k} ##", 100 * k, f"a{k}", 1, 1000 * k, 1000 * k + 50)
    for k in (4, 12, 13):  # the capture begins in batch 3 and ends in 13
        launch_in(rank, f"## backward {k} ##", 100 * k + 10, f"b{k}", 2, 1000 * k, 1000 * k + 50)
    trace = run.trace()
    pairing = paired(trace, "nvtx:## forward # ##", "nvtx:## backward # ##")
    assert (pairing.rule, pairing.shift, pairing.process.tolist()) == ("number", 0, [0, 0, 0, 0])
    assert labels(trace, pairing) == [
        ("a3", "number 3", ""),
        ("a4", "number 4", ""),
        ("a12", "number 12", ""),
        ("b4", "", "number 4"),
        ("b12", "", "number 12"),
        ("b13", "", "number 13"),
    ]


def test_each_process_has_instances_of_its_own_in_the_order_of_time() -> None:
    run = Builder()
    for process in (0, 1):
        rank = run.rank(process)
        for k, at in ((9, 0), (1, 100)):
            launch_in(rank, f"A {k}", at, f"a{process}.{k}", 1, at, at + 50)
            launch_in(rank, f"B {k}", at + 10, f"b{process}.{k}", 2, at, at + 50)
    trace = run.trace()
    pairing = paired(trace, "nvtx:A #", "nvtx:B #")
    assert (pairing.process.tolist(), pairing.label) == ([0, 0, 1, 1], ("number 9", "number 1") * 2)
    assert pairing.a.tolist() == [0, -1, 1, -1, 2, -1, 3, -1]
    assert pairing.b.tolist() == [-1, 0, -1, 1, -1, 2, -1, 3]


def test_two_numbers_of_a_name_are_one_of_the_pair() -> None:
    run, rank = one_rank()
    for at, name in enumerate(("1.2", "2.1", "2.2")):
        launch_in(rank, f"fwd {name}", 100 * at, f"a{name}", 1, 100 * at, 100 * at + 50)
        launch_in(rank, f"bwd {name}", 100 * (3 - at) + 10, f"b{name}", 2, 100 * at, 100 * at + 50)
    trace = run.trace()
    assert labels(trace, paired(trace, "nvtx:fwd #.#", "nvtx:bwd #.#")) == [
        ("a1.2", "number 1, 2", ""),
        ("b1.2", "", "number 1, 2"),
        ("a2.1", "number 2, 1", ""),
        ("b2.1", "", "number 2, 1"),
        ("a2.2", "number 2, 2", ""),
        ("b2.2", "", "number 2, 2"),
    ]
    assert paired(trace, "nvtx:fwd #.#", "nvtx:bwd 2.#").rule == "capture", "one side has two numbers, the other one"


@pytest.mark.parametrize(
    ("a", "b", "rule"),
    [
        ("nvtx:A #", "nvtx:B #", "number"),
        ("nvtx:A #", "nvtx:B *", "occurrence"),  # only one side is a family
        ("nvtx:A #", "nvtx:C #", "occurrence"),  # no number is on both
        ("nvtx:A #", "nvtx:D #", "occurrence"),  # a number recurs
        ("nvtx:A #", "nvtx:E #", "occurrence"),  # its hash is no number
        ("nvtx:A #", "nvtx:F #", "number"),  # there are fewer
        ("nvtx:A #+compute", "nvtx:B #", "number"),
        ("nvtx:A #", "nvtx:B #,nvtx:F #", "capture"),  # two families
    ],
)
def test_numbers_pair_where_they_tell_what_belongs_together(a: str, b: str, rule: str) -> None:
    run, rank = one_rank()
    names = {"A": (1, 2), "B": (1, 2), "C": (8, 9), "D": (1, 1), "E": ("#", "#"), "F": (2,)}
    for at, (name, numbers) in enumerate(names.items()):
        for turn, number in enumerate(numbers):
            start = 1000 * turn + 100 * at
            launch_in(rank, f"{name} {number}", start, f"{name}{turn}", at, 1000 * turn, 1000 * turn + 9)
    assert paired(run.trace(), a, b).rule == rule


def test_a_part_that_can_not_pair_by_number_has_all_parts_pair_otherwise() -> None:
    assert pairing_method([Possible(), Possible()]) == "numbers"
    assert pairing_method([Possible(), Possible(by_numbers=False)]) == "ranges"


def test_a_pipeline_of_families_is_moved_by_a_number() -> None:
    """The copy of batch k + 1 runs beside the forward pass of batch k."""
    run, rank = one_rank()
    for k in range(5):
        launch_in(rank, f"copy {k}", 100 * k, f"a{k}", 1, 100 * k, 100 * k + 50)
        launch_in(rank, f"forward {k}", 100 * k + 10, f"b{k}", 2, 100 * (k + 1), 100 * (k + 1) + 50)
    trace = run.trace()
    pairing = paired(trace, "nvtx:copy #", "nvtx:forward #")
    assert pairing.shift == 1
    assert [one for one in labels(trace, pairing) if one[0] in ("a3", "b2")] == [
        ("b2", "", "number 3"),
        ("a3", "number 3", ""),
    ]


def test_without_step_marks_all_of_a_capture_is_one_instance() -> None:
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        rank.kernel("ncclKernel", 1, 0, 10)
        rank.kernel("gemm", 2, 0, 10)
    trace = run.trace()
    pairing = paired(trace)
    assert pairing.rule == "capture"
    assert pairing.label == ("capture", "capture")
    assert pairing.process.tolist() == [0, 1]
    assert pairing.a.tolist() == [0, -1, 1, -1]


@pytest.mark.parametrize("moved", [-1, 0, 1])
def test_a_pipeline_pairs_one_batch_with_its_neighbour_where_more_overlaps(moved: int) -> None:
    run = Builder()
    for number in (0, 1):  # instances of two ranks stay apart
        rank = run.rank(number)
        for k in range(4):
            launch_in(rank, "A", 100 * k, f"a{k}", 1, 1000 * k, 1000 * k + 500)
            launch_in(rank, "B", 100 * k + 50, f"b{k}", 2, 1000 * (k + moved) + 100, 1000 * (k + moved) + 500)
    trace = run.trace()
    pairing = paired(trace, "nvtx:A", "nvtx:B")
    assert pairing.shift == moved
    for op, as_a, as_b in labels(trace, pairing):
        k = int(op[1:])
        if op.startswith("a"):
            assert as_a == f"occurrence {k}"
        else:  # what has no counterpart there keeps an instance of its own
            assert as_b == f"occurrence {k + moved if 0 <= k + moved < 4 else k}"
    of_rank_0 = {*pairing.a[:8].tolist(), *pairing.b[:8].tolist()} - {-1}
    of_rank_1 = {*pairing.a[8:].tolist(), *pairing.b[8:].tolist()} - {-1}
    assert not of_rank_0 & of_rank_1
    lone = [k for k in range(4) if not 0 <= k + moved < 4]
    shared = {pairing.b[2 * k + 1] for k in lone} & set(pairing.a.tolist())
    assert not shared, "a lone instance of B meets no instance of A"


def test_a_tie_moves_nothing() -> None:
    run, rank = one_rank()
    for k in range(3):
        launch_in(rank, "A", 100 * k, f"a{k}", 1, 1000 * k, 1000 * k + 10)
        launch_in(rank, "B", 100 * k + 50, f"b{k}", 2, 1000 * k + 500, 1000 * k + 510)
    assert paired(run.trace(), "nvtx:A", "nvtx:B").shift == 0


def test_two_devices_of_one_process_never_pull_a_pair_towards_each_other() -> None:
    run, rank = one_rank()
    for k in range(3):
        launch_in(rank, "A", 100 * k, f"a{k}", 1, 1000 * k, 1000 * k + 10)
        rank.device = 1
        launch_in(rank, "B", 100 * k + 50, f"b{k}", 2, 1000 * (k + 1), 1000 * (k + 1) + 10)
        rank.device = 0
    assert paired(run.trace(), "nvtx:A", "nvtx:B").shift == 0


def test_an_empty_side_pairs_nothing() -> None:
    run = Builder()
    run.rank(0).kernel("gemm", 2, 0, 10)
    pairing = paired(run.trace())
    assert pairing.a.tolist() == [-1]
    assert pairing.b.tolist() == [0]
