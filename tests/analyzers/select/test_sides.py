from __future__ import annotations

import shlex

import pytest

from analyzers.common.errors import TracevizError
from analyzers.select.language import Atom
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.trace.tables import Trace
from tests.support.builder import one_rank


def names(trace: Trace, a: str, b: str) -> tuple[list[str], list[str], list[str]]:
    """(ops of A, ops of B, warnings) once shared ops belong to one side."""
    side_a, side_b, notes = without_shared(trace, select(trace, a), select(trace, b))
    assert not (side_a.picked & side_b.picked).any()
    found = [trace.ops.to_frame()["name"][side.picked].tolist() for side in (side_a, side_b)]
    return found[0], found[1], [note.message for note in notes]


def forward() -> Trace:
    run, rank = one_rank()
    rank.range("forward", 0, 100)
    rank.range("lookup", 10, 20)
    rank.range("crossing", 15, 120)
    for name, launch in (("before", 5), ("inside", 12), ("after", 50), ("outside", 110)):
        rank.kernel(name, 7, 200 + launch, 201 + launch, launch=(launch, launch + 1))
    rank.kernel("ncclDevKernel_AllReduce", 9, 300, 310, launch=(60, 61))
    return run.trace()


@pytest.mark.parametrize("swapped", [False, True])
def test_the_smaller_set_inside_the_larger_keeps_the_shared_ops(swapped: bool) -> None:
    sides = ("nvtx:forward", "comm") if swapped else ("comm", "nvtx:forward")
    *found, notes = names(forward(), *sides)
    comm, range_ = found[::-1] if swapped else found
    assert comm == ["ncclDevKernel_AllReduce"]
    assert range_ == ["before", "inside", "after"]
    assert notes == ["1 ops that both sides pick count for 'comm' only, which lies inside 'nvtx:forward'."]


def test_each_side_may_be_the_inner_one_of_some_ops() -> None:
    run, rank = one_rank()
    for start, outer, inner in ((0, "A", "B"), (100, "B", "A")):
        rank.range(outer, start, start + 50)
        rank.range(inner, start + 10, start + 20)
        rank.kernel(f"in {inner}", 7, start, start + 1, launch=(start + 15, start + 16))
        rank.kernel(f"only {outer}", 7, start, start + 1, launch=(start + 30, start + 31))
    a, b, notes = names(run.trace(), "nvtx:A", "nvtx:B")
    assert a == ["only A", "in A"]
    assert b == ["in B", "only B"]
    assert len(notes) == 2


def test_two_names_of_the_same_ops_are_an_error() -> None:
    with pytest.raises(TracevizError, match="pick the same 1 ops"):
        names(forward(), "comm", "kernel:nccl")


def test_ranges_that_cross_or_coincide_claim_no_shared_op() -> None:
    run, rank = one_rank()
    rank.range("A", 0, 50)
    rank.range("A", 100, 110)
    rank.range("B", 0, 50)
    rank.range("B", 200, 210)
    for launch in (10, 105, 205):
        rank.kernel("k", 7, launch, launch + 1, launch=(launch, launch + 1))
    with pytest.raises(TracevizError, match="share 1 ops, and neither lies inside the other"):
        names(run.trace(), "nvtx:A", "nvtx:B")


def test_the_hint_of_the_error_works_when_pasted_into_a_shell() -> None:
    awkward = 'user\'s "own", (range)'
    run, rank = one_rank()
    rank.range(awkward, 0, 30)
    rank.kernel("shared", 7, 0, 1, launch=(1, 2))
    rank.kernel("range only", 8, 0, 1, launch=(3, 4))
    rank.kernel("stream only", 7, 0, 1, launch=(40, 41))
    a, b = "stream:7", str(Atom("nvtx", awkward))
    with pytest.raises(TracevizError) as caught:
        names(run.trace(), a, b)
    words = shlex.split(str(caught.value.hint))
    pasted = words[words.index("-b") + 1]
    assert names(run.trace(), a, pasted)[:2] == (["shared", "stream only"], ["range only"])
