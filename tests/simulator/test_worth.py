"""What causes are worth, against programs in which each is really gone."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.simulator.machine import Run, simulate
from tests.simulator.program import Busy, Launch, Program
from tests.simulator.truth import gone, overlap
from tests.simulator.worth import Worth, measured, recovered
from tests.support.nightly import few_by_default, mostly_nightly

BEST = 0.95  # of the ranks where it is clear which removal recovers most; where nothing is predicted counts as wrong
NEAR, WITHIN = 0.8, 0.9


def hold(found: Worth) -> None:
    assert found.best[True] >= BEST * found.best.total(), found.wrong
    assert found.near[True] >= NEAR * found.near.total(), found.wrong
    assert found.within[True] >= WITHIN * found.within.total(), found.wrong


FEW, MANY = range(6, 10), range(300, 700)


@pytest.mark.parametrize(
    ("form", "seeds"), mostly_nightly(product(("nsys", "kineto"), (FEW, MANY)), lambda case: case == ("nsys", FEW))
)
def test_the_cause_worth_most_is_the_one_whose_removal_recovers_most(form: str, seeds: range, tmp_path: Path) -> None:
    hold(measured(seeds, form, tmp_path))


@pytest.mark.parametrize("seeds", few_by_default(3, 8))
def test_without_records_little_is_said_and_that_is_right(seeds: int, tmp_path: Path) -> None:
    found = measured(range(seeds), "kineto-default", tmp_path)
    assert found.best[False] <= found.unknown


def kernel(side: str, stream: int, ns: int) -> Launch:
    return Launch(side, stream, ns, 64, call_ns=1_000)


def without(program: Program, cause: str) -> Run:
    return simulate(program, gone(simulate(program), cause))


def test_without_one_stream_for_both_each_side_keeps_its_own_order() -> None:
    """b1 a1 b2 a2 of 100 µs each: b2 comes behind b1, a2 behind a1; at most both chains run beside each other."""
    program = Program((((*(kernel(side, 7, 100_000) for side in "baba"),),),))
    run = without(program, "same-stream")
    b1, a1, b2, a2 = run.ops
    assert b2.start >= b1.end
    assert a2.start >= a1.end
    assert a1.start < b1.end
    assert 190_000 < recovered(program)["same-stream"][0] <= 200_000


def test_without_one_stream_what_stands_between_two_sides_holds_neither() -> None:
    """a, n, b, m: n does not come behind a, nor b, but m behind both."""
    program = Program((((*(kernel(side, 7, 100_000) for side in ("a", "", "b", "")),),),))
    a, n, b, m = without(program, "same-stream").ops
    assert n.start < a.end
    assert n.end <= b.start < n.end + 5_000
    assert m.start >= max(a.end, b.end)


def test_without_peer_waits_a_rank_finds_the_others_there() -> None:
    """A reduction of 50 µs that waits 300 µs for rank 1 runs beside the 200 µs of computation that it now outlasts."""
    reduction = Launch("a", 13, 50_000, 64, "reduce", call_ns=1_000)
    work = kernel("b", 7, 200_000)
    program = Program((((reduction, work),), ((Busy(300_000), reduction, work),)))
    assert overlap(simulate(program), 0) == 0
    assert 45_000 < recovered(program)["peer-wait"][0] <= 50_000
