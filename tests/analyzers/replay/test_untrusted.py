"""Nothing is predicted of a program that is not all on record."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from analyzers.compare.compare import compare
from analyzers.load import load
from analyzers.replay.answer import what_if
from tests.support.command_lines import invoked
from tests.support.kineto_files import ten_steps


def test_a_program_that_lost_work_is_not_predicted(tmp_path: Path) -> None:
    result = invoked("what-if", str(ten_steps(tmp_path / "t.json", (12, 13))))
    assert result.exit_code == 3
    first = " ".join(result.stdout.split("\n\n")[0].split())
    assert first == "NO PREDICTION launches have no GPU work on record: 2 of 50 of rank 0."


def unlinked(path: Path, kernels: Collection[int]) -> Path:
    """A capture some of whose kernels have correlation id 0, as CUPTI writes where it does not know.

    They run at the end, on two streams of their own: nothing tells which was launched by which call.
    """
    content = json.loads(ten_steps(path).read_text())
    of_gpu = [one for one in content["traceEvents"] if one["cat"] == "kernel"]
    for number in kernels:
        one = of_gpu[number]
        stream = 8 + number // 5 % 2
        one.update(ts=100 + number, tid=stream, args={**one["args"], "correlation": 0, "stream": stream})
    path.write_text(json.dumps(content))
    return path


WHY = "the links from GPU ops to their launches are missing (10 of 50 of rank 0), so what ran in which step is unknown"


def test_links_that_are_missing_are_the_reason_and_not_marks(tmp_path: Path) -> None:
    path = unlinked(tmp_path / "t.json", range(0, 50, 5))  # the first kernel of each step
    trace = load([path])
    assert trace.steps is not None
    assert (trace.steps.size, trace.steps.unknown) == (0, WHY)
    found = what_if(trace)
    assert (found.replay, found.reason, found.exit_code) == (None, WHY, 3)
    result = compare([load([ten_steps(tmp_path / "whole.json")]), trace], labels=("before", "after"))
    assert (result.reason, result.exit_code) == (f"after: {WHY}: there is no step to compare", 3)


@pytest.mark.parametrize("kernels", [(), (4,)])
def test_marks_tell_steps_where_few_links_are_missing(tmp_path: Path, kernels: Collection[int]) -> None:
    """1 of 51 kernels is 1.96 %; here of 50, so one more is added where one lacks its link."""
    path = unlinked(tmp_path / "t.json", kernels)
    if kernels:
        content = json.loads(path.read_text())
        more = [dict(one, args=dict(one["args"])) for one in content["traceEvents"][-2:]]
        for one in more:
            one["ts"] += 1
            one["args"]["correlation"] = 51
        content["traceEvents"] += more
        path.write_text(json.dumps(content))
    trace = load([path])
    assert trace.steps is not None
    assert trace.steps.present == list(range(10))
