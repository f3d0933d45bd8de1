"""Jobs of several hosts: calls are matched as they belong together, and clocks are within what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator.jobs import GPUS, STREAMS, Layout, job
from tests.simulator.jobs_right import Tally, captured, count
from tests.simulator.machine import Op, simulate
from tests.simulator.program import Launch
from tests.simulator.recorded import message_of
from tests.support.nightly import few_by_default

MATCHED = 0.999  # of the calls that were captured on all of their ranks


@pytest.mark.parametrize("seeds", few_by_default(3, 96))
def test_calls_are_matched_and_clocks_are_as_true_as_they_are_said_to_be(seeds: int, tmp_path: Path) -> None:
    tally = Tally()
    for seed in range(seeds):
        count(tally, seed, tmp_path)
    notes = "\n".join(tally.notes[:40])
    assert not tally.wrong_and_sure, notes
    assert not tally.sure_in_part, notes
    assert not tally.outside, notes
    assert tally.right >= MATCHED * tally.complete, f"{tally.right} of {tally.complete} {tally.missed}\n{notes}"
    assert tally.complete > 50 * seeds


@pytest.mark.parametrize(("tensor", "stages"), [(2, 1), (4, 2), (8, 2)])
def test_every_rank_is_in_one_group_of_each_kind_with_those_that_say_so(tensor: int, stages: int) -> None:
    layout = Layout(4 * GPUS, tensor, stages)
    for kind in STREAMS:
        groups = {layout.group(kind, rank) for rank in range(4 * GPUS)}
        assert all(layout.group(kind, rank) == group for group in groups for rank in group)
    assert layout.group("tensor", 0) == tuple(range(tensor))
    assert len(layout.group("data", 0)) == 4 * GPUS // tensor // stages
    assert layout.group("pipeline", 1) == (1, 1 + 2 * GPUS)


@pytest.mark.parametrize("seed", [1, 2, 7, 8])
def test_calls_wait_for_those_they_need_and_all_ranks_make_them(seed: int) -> None:
    run = simulate(job(seed).program)
    together: dict[str, dict[int, Op]] = {}
    for op in run.ops:
        if isinstance(op.action, Launch) and op.action.message is not None:
            together.setdefault(op.action.collective, {})[op.where[0]] = op
    for by_rank in together.values():
        for rank, op in by_rank.items():
            message = message_of(run, op)
            assert message is not None and tuple(sorted(by_rank)) == message.ranks
            if message.operation == "recv":
                assert max(op.start, by_rank[message.peer].start) < op.end
            elif message.operation == "allreduce":
                assert max(each.start for each in by_rank.values()) < op.end
            assert rank in message.ranks


def test_cut_captures_lack_heads_and_tails() -> None:
    one = job(6)
    assert one.cut
    assert len(captured(one).calls) < 0.9 * len(simulate(one.program).calls)
