"""The plan of a stream-parallel loop says where each chunk ran, and which fork or join is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.syncs.loops import Chunk, StreamPlan, stream_plan
from analyzers.syncs.order_report import order_report
from tests.support.builder import one_rank
from tests.support.captures import one_capture
from traceviz.output.document import markdown
from traceviz.output.views.syncs import blocks


def loop(*, forked: tuple[int, ...] = (0, 1, 2), joined: tuple[int, ...] = (0, 1, 2)) -> StreamPlan:
    """Two turns of a loop of three chunks, each on a worker of its own."""
    run, rank = one_rank()
    for turn in range(2):
        start = turn * 1000
        rank.kernel("before", 7, start + 10, start + 200, launch=(start, start + 2))
        rank.range("linear", start + 5, start + 500)
        for chunk in range(3):
            at = start + 10 + chunk * 20
            if chunk in forked:
                rank.wait_stream(11 + chunk, 7, at)
            rank.range(f"chunk {chunk}", at + 5, at + 15)
            rank.kernel("matmul", 11 + chunk, start + 200, start + 400, launch=(at + 6, at + 8))
        for chunk in joined:
            rank.wait_stream(7, 11 + chunk, start + 200 + chunk * 5)
        rank.kernel("after", 7, start + 500, start + 600, launch=(start + 510, start + 512))
    return stream_plan(run.trace())


def test_a_loop_with_all_its_waits_holds() -> None:
    plan = loop()
    assert plan.holds
    assert [(chunk.turn, chunk.chunk, chunk.stream, chunk.main) for chunk in plan] == [
        (turn, f"chunk {number}", 11 + number, 7) for turn in range(2) for number in range(3)
    ]
    assert {(chunk.waits_main, chunk.joined, chunk.communication_joined) for chunk in plan} == {
        ("direct", "direct", "")
    }
    assert all(chunk.exact and chunk.loop == "linear" and chunk.ops == 1 for chunk in plan)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_join_left_out_shows_at_its_chunk(missing: int) -> None:
    plan = loop(joined=tuple(each for each in range(3) if each != missing))
    assert not plan.holds
    for chunk in plan:
        # Nothing else orders the worker before main; in the second turn only its own work counts.
        assert chunk.joined == ("no" if chunk.chunk == f"chunk {missing}" else "direct")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_fork_left_out_shows_at_its_chunk(missing: int) -> None:
    plan = loop(forked=tuple(each for each in range(3) if each != missing))
    assert not plan.holds
    for chunk in plan:
        assert chunk.waits_main == ("no" if chunk.chunk == f"chunk {missing}" else "direct")


def printed(plan: StreamPlan) -> str:
    """The plan as it is printed, of a run in which no race was found."""
    nothing = order_report(one_rank()[0].trace())
    return markdown(blocks(replace(nothing, plan=plan)))


def test_a_plan_alarms_of_no_wait_that_may_only_be_unseen() -> None:
    """Where what waits were for is inferred, one that is not seen may be there; where it is stated, it is not."""
    assert "every worker waits for main and is joined" in printed(loop())
    plan = loop(joined=(0, 1))
    assert "not every worker waits or is joined; no race is seen" in printed(plan)
    unsure = printed(plan.having(exact=False))
    assert "not every wait can be seen in this capture" in unsure
    assert "not seen" in unsure
    assert "| no |" not in unsure


def test_a_worker_joined_through_another_is_joined_indirectly() -> None:
    run, rank = one_rank()
    rank.kernel("before", 7, 10, 20, launch=(0, 2))
    for number, worker in enumerate((11, 12)):
        at = 10 + number * 20
        rank.wait_stream(worker, 7, at)
        rank.range(f"chunk {number}", at + 5, at + 15)
        rank.kernel("matmul", worker, 200, 400, launch=(at + 6, at + 8))
    rank.wait_stream(12, 11, 60)
    rank.wait_stream(7, 12, 70)
    rank.kernel("after", 7, 500, 600, launch=(100, 102))
    assert [chunk.joined for chunk in stream_plan(run.trace())] == ["indirect", "direct"]


@pytest.mark.parametrize(
    ("name", "ranks", "exact"), [("nsys/rowpar_s4.4gpu.sqlite", 4, True), ("torch/rowpar_s4.rank0.json.gz", 1, False)]
)
def test_each_chunk_of_rowpar_runs_on_its_own_stream_forked_and_joined(name: str, ranks: int, exact: bool) -> None:
    plan = stream_plan(one_capture(name))
    assert plan.holds
    assert len(plan) == ranks * 3 * 4
    turns: dict[tuple[int, int], list[Chunk]] = {}
    for one in plan:
        turns.setdefault((one.rank, one.turn), []).append(one)
        assert (one.waits_main, one.joined, one.exact) == ("direct", "direct", exact)
        assert one.communication_joined in ("indirect", "")
    for turn in turns.values():
        assert [one.chunk for one in turn] == [f"chunk {number}" for number in range(4)]
        assert len({one.stream for one in turn}) == 4
