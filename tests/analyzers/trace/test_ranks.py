from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.common.errors import TracevizError
from analyzers.trace.ranks import RANK_RULES, assign_ranks
from analyzers.trace.tables import Capture, Process, Trace
from tests.support.builder import Builder


def trace_of(*claims: dict[str, int], idle: tuple[int, ...] = (), captures: int = 0) -> Trace:
    """A trace whose processes claim ranks; those in `idle` have no GPU work."""
    run = Builder()
    for number in range(len(claims)):
        rank = run.rank(number)
        if number not in idle:
            rank.kernel("k", 7, 0, 1)
    files = tuple(Capture(f"file{k}", "synthetic") for k in range(captures or len(claims)))
    processes = tuple(Process(capture=min(k, len(files) - 1), pid=100 + k, claims=own) for k, own in enumerate(claims))
    return assign_ranks(replace(run.trace(), processes=processes, captures=files))


@pytest.mark.parametrize("rule", [rule for rule in RANK_RULES if rule != "order"])
def test_each_rule_names_the_ranks_and_gaps_stay_gaps(rule: str) -> None:
    trace = trace_of({rule: 3}, {rule: 0})
    assert trace.ops.rank.tolist() == [3, 0]
    assert [process.rule for process in trace.processes] == [rule, rule]
    assert trace.rank_ids == [0, 3]
    assert trace.warnings == ()


def test_rules_are_believed_in_their_order() -> None:
    order = ["manifest", "distributed", "environment", "file-name", "gpu"]
    for first, rule in enumerate(order):
        claims = [{later: 10 * k + process for k, later in enumerate(order[first:])} for process in (1, 2)]
        trace = trace_of(*claims)
        assert trace.ops.rank.tolist() == [1, 2]
        assert trace.processes[0].rule == rule


def test_a_rule_serves_only_if_every_working_process_has_a_claim() -> None:
    trace = trace_of({"distributed": 5, "file-name": 1}, {"file-name": 0})
    assert trace.ops.rank.tolist() == [1, 0]
    assert trace.processes[0].rule == "file-name"


def test_without_any_claim_ranks_are_the_order_of_the_working_processes() -> None:
    trace = trace_of({}, {}, {}, idle=(1,))
    assert trace.ops.rank.tolist() == [0, 1]
    assert [process.rank for process in trace.processes] == [0, -1, 1]
    assert trace.processes[2].rule == "order"


def test_a_process_without_gpu_work_has_no_say() -> None:
    trace = trace_of({"environment": 0}, {"environment": 0}, {}, idle=(1, 2))
    assert trace.ops.rank.tolist() == [0]


@pytest.mark.parametrize("rule", ["manifest", "distributed", "environment", "file-name"])
def test_two_files_of_one_rank_are_an_error_that_names_both(rule: str) -> None:
    with pytest.raises(TracevizError, match="file0 and file1 both say they are rank 2") as caught:
        trace_of({rule: 2}, {rule: 2})
    assert RANK_RULES[rule] in str(caught.value)
    assert caught.value.hint


def test_two_processes_of_one_file_are_named_by_their_pids() -> None:
    with pytest.raises(TracevizError, match="Processes 100 and 101 of file0 both say they are rank 2"):
        trace_of({"environment": 2}, {"environment": 2}, captures=1)


def test_a_conflict_is_reported_not_guessed_over() -> None:
    trace = trace_of({"distributed": 0, "file-name": 1}, {"distributed": 1, "file-name": 1})
    assert trace.ops.rank.tolist() == [0, 1]
    (warning,) = trace.warnings
    assert warning.code == "rank-conflict"
    assert warning.message == "file0 is taken as rank 0 by distributedInfo in the trace; the file's name says 1."
