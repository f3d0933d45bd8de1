"""What is at stake, and which findings stopped overlap, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overlap.measure import Missed
from analyzers.verdict.check import check_overlap
from analyzers.verdict.findings import findings
from analyzers.verdict.gain import BOTH, LATE_RANKS, TRANSFER, Stake
from tests.analyzers.overlap.test_job import job_run
from tests.support.builder import one_rank


def test_exposed_communication_is_transfer_and_waiting() -> None:
    """Rank 0 comes at 0 and waits to 40 for rank 1; transfer is from 40 to 100; compute runs from 20 to 70.

    Alone, communication waits from 0 to 20 and transfers from 70 to 100; 30 of the 50 that could overlap did.
    """
    trace = job_run([{0: (0, 100), 1: (40, 100)}], {0: [(20, 70)], 1: [(40, 100)]})
    stake = check_overlap(trace, "comm", "compute").stake
    assert stake is not None
    assert (stake.rank, stake.missed_ns, stake.side, stake.is_communication) == (0, 20, "a", True)
    assert (stake.exposed_transfer_ns, stake.exposed_wait_ns) == (30, 20)
    assert check_overlap(trace, "compute", "comm").stake == replace(stake, side="b")


@pytest.mark.parametrize(
    ("transfer", "wait", "expected"),
    [(60, 30, TRANSFER), (59, 31, BOTH), (31, 59, BOTH), (30, 60, LATE_RANKS), (0, 5, LATE_RANKS), (0, 0, "")],
)
def test_two_thirds_dominate(transfer: int, wait: int, expected: str) -> None:
    stake = Stake(0, 0, 1, 7, "a", is_communication=True, exposed_transfer_ns=transfer, exposed_wait_ns=wait)
    assert stake.dominates == expected


def missed(cause: str, ns: int, after: int = 0) -> Missed:
    return Missed(cause, ns, after, "", "", None, None, "", 0, 0, -1, finding=cause)


CAUSES = ("host-sync", "late-launch", "same-stream", "gpu-full")


@given(st.lists(st.tuples(st.sampled_from(CAUSES), st.integers(1, 99), st.floats(0, 1)), unique_by=lambda one: one[0]))
def test_findings_sum_to_what_was_missed(shares: list[tuple[str, int, float]]) -> None:
    causes = [missed(name, ns, int(ns * part) if name == "late-launch" else 0) for name, ns, part in shares]
    run, rank = one_rank()
    rank.kernel("first", 7, 0, 50)
    rank.kernel("second", 9, 40, 90)
    (device,) = check_overlap(run.trace(), "kernel:first", "kernel:second", explain=False).ranks
    found = findings(replace(device, missed=tuple(causes)))
    assert sum(one.ns for one in found) == sum(ns for _, ns, _ in shares)
    assert [one.ns for one in found] == sorted((one.ns for one in found), reverse=True)


def test_a_sync_and_the_launches_it_made_late_are_one_finding() -> None:
    run, rank = one_rank()
    rank.kernel("first", 7, 0, 50)
    rank.kernel("second", 9, 40, 90)
    (device,) = check_overlap(run.trace(), "kernel:first", "kernel:second", explain=False).ranks
    found = findings(replace(device, missed=(missed("late-launch", 500, 450), missed("host-sync", 300))))
    assert [(one.ns, one.text) for one in found] == [(750, "host-sync"), (50, "late-launch")]
