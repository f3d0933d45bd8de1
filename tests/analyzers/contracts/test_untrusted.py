"""No rule is held by a capture that lost work or the names of calls; one that is broken stays so."""

from __future__ import annotations

import pytest

from analyzers.contracts.checks import check_contract
from analyzers.contracts.result import RuleResult
from analyzers.contracts.rules import read_contract
from analyzers.trace.lost import count_lost_work
from tests.support.builder import Builder


def ruled(calls: list[str], **rule: object) -> RuleResult:
    """A on stream 7 and B on stream 9, launched in one step with some calls between."""
    run = Builder()
    rank = run.rank(0)
    rank.range("step 0", 0, 1_000)
    rank.range("A", 10, 20)
    rank.kernel("A", 7, 100, 200, launch=(11, 13))
    for number, name in enumerate(calls):
        rank.call(name, 30 + 10 * number, 35 + 10 * number)
    rank.range("B", 500, 510)
    rank.kernel("B", 9, 600, 700, launch=(501, 503))
    [result] = check_contract(count_lost_work(run.trace()), read_contract({"rule": rule})).rules
    return result


LOST = "launches have no GPU work on record: 1 of 3 of rank 0"
NAMES = "the names of CUDA calls are lost (1 of 3 of rank 0), so nothing tells what blocked the host"


@pytest.mark.parametrize(
    ("calls", "outcome", "reason"),
    [
        (["cudaGetDevice"], "held", ""),
        (["cudaLaunchKernel"], "inconclusive", LOST),
        ([""], "inconclusive", NAMES),
    ],
)
def test_what_was_lost_may_break_the_rule(calls: list[str], outcome: str, reason: str) -> None:
    own = ruled(calls, own_stream="nvtx:A")
    assert (own.outcome, own.reason) == (outcome, reason)
    free = ruled(calls, no_host_sync_in="step 0")
    assert (free.outcome, free.reason) == (outcome, reason)


def test_what_is_broken_by_what_is_on_record_stays_broken() -> None:
    assert ruled(["cudaDeviceSynchronize", ""], no_host_sync_in="step 0").outcome == "broken"
