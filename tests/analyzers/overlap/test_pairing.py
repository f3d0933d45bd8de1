from __future__ import annotations

import pytest

from analyzers.overlap.pairing import Pairing, Possible, pairing_method
from analyzers.select.select import select
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank, one_rank
from tests.support.causes_of import pair


def paired(trace: Trace, a: str = "comm", b: str = "compute") -> Pairing:
    return pair(trace, select(trace, a), select(trace, b))


def labels(trace: Trace, pairing: Pairing) -> dict[str, str]:
    """Of every op in an instance: which, and as which side."""
    name = [*pairing.label, ""]  # index -1 is of no instance
    rows = zip(trace.ops.to_frame()["name"], pairing.a.tolist(), pairing.b.tolist(), strict=True)
    return {op: f"A of {name[a]}" if a >= 0 else f"B of {name[b]}" for op, a, b in rows if max(a, b) >= 0}


def launch_in(rank: Rank, name: str, at: int, op: str, stream: int, start: int, end: int) -> None:
    rank.range(name, at, at + 5)
    rank.kernel(op, stream, start, end, launch=(at + 1, at + 2))


def in_turn(*ops: str, each: str = "{side}") -> Trace:
    """Ops such as a3 and b3, 1,000 ns apart by their number, each launched in a range named after its side."""
    run, rank = one_rank()
    for op in ops:
        side, k = op[0].upper(), int(op[1:])
        at = 100 * k + 10 * (side == "B")
        launch_in(rank, each.format(side=side, k=k), at, op, 1 + (side == "B"), 1000 * k, 1000 * k + 50)
    return run.trace()


def test_the_kth_range_of_one_belongs_to_the_kth_of_the_other() -> None:
    trace = in_turn("a1", "b1", "a0", "b0")  # rows need not be in the order of time
    pairing = paired(trace, "nvtx:A", "nvtx:B")
    assert (pairing.rule, pairing.shift) == ("occurrence", 0)
    told = {f"{side.lower()}{k}": f"{side} of occurrence {k}" for side in "AB" for k in (0, 1)}
    assert labels(trace, pairing) == told


def test_families_pair_by_their_numbers_also_where_one_side_lacks_some() -> None:
    ops = ("a3", "a4", "a12", "b4", "b12", "b13")  # the capture begins in batch 3 and ends in 13
    trace = in_turn(*ops, each="## {side} {k} ##")
    pairing = paired(trace, "nvtx:## A # ##", "nvtx:## B # ##")
    assert (pairing.rule, pairing.shift, pairing.process.tolist()) == ("number", 0, [0, 0, 0, 0])
    assert labels(trace, pairing) == {op: f"{op[0].upper()} of number {op[1:]}" for op in ops}


def test_each_process_has_instances_of_its_own_in_the_order_of_time() -> None:
    run = Builder()
    for process in (0, 1):
        rank = run.rank(process)
        for k, at in ((9, 0), (1, 100)):
            launch_in(rank, f"A {k}", at, f"a{process}.{k}", 1, at, at + 50)
            launch_in(rank, f"B {k}", at + 10, f"b{process}.{k}", 2, at, at + 50)
    pairing = paired(run.trace(), "nvtx:A #", "nvtx:B #")
    assert (pairing.process.tolist(), pairing.label) == ([0, 0, 1, 1], ("number 9", "number 1") * 2)
    assert pairing.a.tolist() == [0, -1, 1, -1, 2, -1, 3, -1]
    assert pairing.b.tolist() == [-1, 0, -1, 1, -1, 2, -1, 3]


def test_two_numbers_of_a_name_are_one_of_the_pair() -> None:
    run, rank = one_rank()
    names = ("1.2", "2.1", "2.2")
    for at, name in enumerate(names):
        launch_in(rank, f"fwd {name}", 100 * at, f"a{name}", 1, 100 * at, 100 * at + 50)
        launch_in(rank, f"bwd {name}", 100 * (3 - at) + 10, f"b{name}", 2, 100 * at, 100 * at + 50)
    trace = run.trace()
    expected = {f"{side.lower()}{one}": f"{side} of number {one.replace('.', ', ')}" for one in names for side in "AB"}
    assert labels(trace, paired(trace, "nvtx:fwd #.#", "nvtx:bwd #.#")) == expected
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


@pytest.mark.parametrize("moved", [-1, 0, 1])
@pytest.mark.parametrize(("each", "rule"), [("{side}", "occurrence"), ("{side} {k}", "number")])
def test_a_pipeline_pairs_one_batch_with_its_neighbour_where_more_overlaps(moved: int, each: str, rule: str) -> None:
    run = Builder()
    for number in (0, 1):  # instances of two ranks stay apart
        rank = run.rank(number)
        for k in range(4):
            a, b = (each.format(side=side, k=k) for side in "AB")
            launch_in(rank, a, 100 * k, f"a{k} of {number}", 1, 1000 * k, 1000 * k + 500)
            start = 1000 * (k + moved)
            launch_in(rank, b, 100 * k + 50, f"b{k} of {number}", 2, start + 100, start + 500)
    trace = run.trace()
    pairing = paired(trace, *("nvtx:" + each.format(side=side, k="#") for side in "AB"))
    assert pairing.shift == moved
    for op, told in labels(trace, pairing).items():
        k = int(op[1])
        to = k + moved if op[0] == "b" and 0 <= k + moved < 4 else k  # what has no counterpart keeps one of its own
        assert told == f"{op[0].upper()} of {rule} {to}"
    of_a, of_b = ([set(one[first : first + 8].tolist()) - {-1} for first in (0, 8)] for one in (pairing.a, pairing.b))
    assert not (of_a[0] | of_b[0]) & (of_a[1] | of_b[1])
    lone = {int(pairing.b[2 * k + 1]) for k in range(4) if not 0 <= k + moved < 4}
    assert not lone & of_a[0], "a lone instance of B meets no instance of A"
