"""Causes of random programs on several streams, against the slow calculation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.causes import hardware_queues
from analyzers.common.errors import TracevizError
from analyzers.trace.narrow import only_steps
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.support import oracle_causes
from tests.support.causes_of import alone_by_instance, instances, with_one_queue
from tests.support.programs import Action, execute, programs

A, B = "kernel:alpha,memcpy", "kernel:beta"


def shares(trace: Trace) -> list[tuple[str, int, int]]:
    return sorted(
        (one.cause, one.ns, one.after_sync_ns) for rank in check_overlap(trace, A, B).ranks for one in rank.missed
    )


@given(programs, st.booleans(), st.booleans())
def test_each_slice_has_the_cause_that_the_slow_calculation_names(
    program: list[Action], one_queue: bool, on_record: bool
) -> None:
    trace, device = execute(program, one_queue=one_queue, on_record=on_record)
    trace = with_one_queue(trace) if on_record else trace
    expected = {number: oracle_causes.alone(device, ops) for number, ops in instances(trace, A, B).items()}
    assert alone_by_instance(trace, A, B) == {number: found for number, found in expected.items() if found.total()}


@pytest.mark.nightly
@given(programs, st.booleans(), st.integers(0, 3))
def test_the_first_kernels_refute_a_shared_queue_only_where_all_do(
    program: list[Action], one_queue: bool, first: int
) -> None:
    trace, device = execute(program, one_queue=one_queue, on_record=True)
    trace = with_one_queue(trace)
    expected = {number: oracle_causes.alone(device, ops) for number, ops in instances(trace, A, B).items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardware_queues, "FIRST_KERNELS", first)
        found = alone_by_instance(trace, A, B)
    assert found == {number: causes for number, causes in expected.items() if causes.total()}


@given(programs)
def test_shares_sum_to_missed_and_are_those_of_alone_time(program: list[Action]) -> None:
    trace, _ = execute(program)
    alone = alone_by_instance(trace, A, B)
    for rank in check_overlap(trace, A, B).ranks:
        assert sum(one.ns for one in rank.missed) == rank.missed_ns
        assert rank.missed_ns == max(rank.achievable_ns - rank.real_overlap_ns, 0)
        assert all(one.ns > 0 and 0 <= one.after_sync_ns <= one.ns for one in rank.missed)
        weights = [one.ns // (2 if one.cause == "unknown" else 1) for one in rank.missed]
        assert weights == sorted(weights, reverse=True)
        least, most = {}, {}
        for instance in rank.instances:
            if instance.missed_ns:
                for cause, (low, high) in oracle_causes.fair(instance.missed_ns, alone[instance.index]).items():
                    least[cause] = least.get(cause, 0) + low
                    # Late launches after a host sync are rounded apart from the others.
                    most[cause] = most.get(cause, 0) + high + (cause == "late-launch")
        whole = sum(instance.missed_ns for instance in rank.instances)
        if rank.missed_ns == whole:
            low = {cause: ns - (cause == "late-launch") for cause, ns in least.items()}
            assert all(low[one.cause] <= one.ns <= most[one.cause] for one in rank.missed)
        else:  # instances overlapped one another: in the same proportions, rounded once more
            for one in rank.missed:
                assert (least[one.cause] - 2) * rank.missed_ns < (one.ns + 1) * whole
                assert (one.ns - 1) * whole < (most[one.cause] + 2) * rank.missed_ns


@pytest.mark.nightly
@given(programs)
def test_a_part_of_steps_is_explained_as_in_the_whole(program: list[Action]) -> None:
    """What an op waited for may lie outside the part; what it ran beside may not, or the part has missed that."""
    trace = execute(program)[0]
    whole = {(one.label, one.start_ns): one for rank in check_overlap(trace, A, B).ranks for one in rank.instances}
    steps = 1 + sum(action.what == "step" for action in program)
    parts = []
    for step in range(steps):
        try:
            parts.append(check_overlap(only_steps(trace, step, step + 1), A, B))
        except TracevizError:  # nothing was launched in this step
            continue
    found = check_overlap(trace, A, B)
    if found.paired_by != "training steps" or _met(found) != sum(map(_met, parts)):
        return
    together: dict[str, int] = {}
    for part in parts:
        for rank in part.ranks:
            assert all((one.label, one.start_ns) in whole for one in rank.instances)
            for one in rank.missed:
                together[one.cause] = together.get(one.cause, 0) + one.ns
    whole_shares: dict[str, int] = {}
    for cause, ns, _ in shares(trace):
        whole_shares[cause] = whole_shares.get(cause, 0) + ns
    assert together == whole_shares


def _met(result: OverlapResult) -> int:
    return sum(rank.overlap_ns for rank in result.ranks)
