"""Host work that one rank does and the others don't: by hand, and of a fault planted in a real program."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from analyzers.causes.own_work import OwnWork, host_gaps, own_work
from analyzers.load import load
from analyzers.replay.engine import run as replayed
from analyzers.replay.host_changes import Level
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.brute import ns
from tests.support.builder import Builder

US, MS = 1_000, 1_000_000
PLANTED = Path(__file__).parents[2] / "data" / "planted"


def program(busy: dict[int, int], steps: int = 4, *, marked: bool = True) -> Trace:
    """Steps of 20 ms: a kernel, host work for so many ms on each rank, mostly in `tokenize`, a copy, and a kernel."""
    run = Builder()
    for number, ms in busy.items():
        rank = run.rank(number)
        for step in range(steps):
            at = 20 * MS * step
            rank.range(f"step {step}", at, at + 20 * MS - 1)
            rank.kernel("first", 7, at + 60 * US, at + 500 * US, launch=(at + 40 * US, at + 50 * US))
            rank.range("load batch", at + 60 * US, at + ms * MS + 200 * US)
            if marked:
                rank.range("tokenize", at + 90 * US, at + ms * MS + 90 * US)
            begin = at + ms * MS + 150 * US
            with rank.on_thread(1):
                rank.range("aten::copy_", begin, begin + 40 * US, kind="op")
            rank.kernel("second", 7, begin + 700 * US, begin + 900 * US, launch=(begin + 5 * US, begin + 20 * US))
    return run.trace()


def found(trace: Trace, steps: int = 4) -> tuple[OwnWork, ...]:
    return own_work([host_gaps(trace)], 20 * MS, steps)


def test_the_range_of_the_rank_that_works_longer_is_named_with_what_it_takes() -> None:
    """Rank 2 tokenizes for 6 ms, the others for 1: 5 ms are its own, in each of 4 steps."""
    (one,) = found(program({0: 1, 1: 1, 2: 6, 3: 1}))
    assert (one.rank, one.where, one.before, one.of, one.steps) == (2, "tokenize", "aten::copy_", "load batch", 4)
    assert (one.ns, one.others_ns, one.more_ns) == (6 * MS, 1 * MS, 5 * MS)
    assert one.words == "rank 2: tokenize, before aten::copy_ of load batch, 6.00 ms a step; the other ranks 1.00 ms"
    assert one.change == "level nvtx:tokenize"


def test_without_a_range_of_its_own_it_is_the_range_around() -> None:
    """From the first launch's return at 50 µs on: 10 µs in the step, 6 ms and 95 µs in `load batch`."""
    (one,) = found(program({0: 1, 1: 6, 2: 1}, marked=False))
    assert (one.rank, one.where, one.ns, one.others_ns) == (1, "load batch", 6 * MS + 95 * US, 1 * MS + 95 * US)


@pytest.mark.parametrize("busy", [{0: 6, 1: 6, 2: 6}, {0: 4, 1: 5, 2: 6}, {0: 6}])
def test_what_all_do_is_no_rank_s_own(busy: dict[int, int]) -> None:
    assert not found(program(busy))


def test_work_of_a_step_now_and_then_is_none() -> None:
    """6 ms in one of four steps: not what makes the rank late step by step."""
    trace = program({0: 1, 1: 1, 2: 1})
    gaps = host_gaps(trace)
    longer = gaps.having(ns=gaps.ns + 6 * MS * ((gaps.rank == 2) & (gaps.step == 3)))
    assert not own_work([longer], 20 * MS, 4)


def test_ranks_that_run_other_code_are_no_measure() -> None:
    """Rank 2, the last of a pipeline, computes a loss behind 6 ms of host work; no other rank makes that call."""
    trace = program({0: 1, 1: 1, 2: 6})
    gaps = host_gaps(trace)
    loss = gaps.behind.is_one_of(["aten::copy_"]) & (gaps.rank == 2)
    others = gaps.having(behind=np.where(loss, "aten::nll_loss", gaps.behind.tolist()))
    assert not own_work([others], 20 * MS, 4)


def test_a_rank_alone_with_long_gaps_is_found() -> None:
    """The others have no gap that is long enough to be one."""
    gaps = host_gaps(program({0: 1, 1: 6}))
    gaps = gaps.take((gaps.rank == 1) | (gaps.ns == 0))
    named = {one.where: (one.rank, one.ns, one.others_ns) for one in own_work([gaps], 20 * MS, 4)}
    assert named["tokenize"] == (1, 6 * MS, 0)


def test_parts_give_what_the_whole_does() -> None:
    trace = program({0: 1, 1: 1, 2: 6})
    gaps = host_gaps(trace)
    parts = [gaps.take(gaps.rank == rank) for rank in range(3)]
    assert own_work(parts, 20 * MS, 4) == found(trace)


def test_leveled_a_rank_s_host_is_no_longer_there_than_the_others() -> None:
    """The second launch of rank 2 comes 5 ms sooner, as on the others; theirs stay."""
    trace = program({0: 1, 1: 1, 2: 6})
    found = tasks(trace)
    level = Level("nvtx:tokenize")._apply(trace, found)
    moved = replayed(found).call_start - replayed(level).call_start
    at = found.calls.start_ns
    rank = trace.api.process[found.calls.call]
    assert set(moved[(rank == 2) & (at > 1 * MS) & (at < 20 * MS)].tolist()) == {5 * MS}
    assert not moved[rank != 2].any()


def test_a_fault_planted_in_a_real_program_is_found() -> None:
    """Rank 1 is busy for 6 ms in `load batch`: by the file, from its begin to the first call in it."""
    files = sorted(PLANTED.glob("late_plain.rank*.json.gz"))
    result = check_overlap(load(files))
    (one,) = result.own_work
    assert (one.rank, one.where, one.before, one.steps) == (1, "load batch", "aten::to", len(result.steps.numbers))  # type: ignore[union-attr,arg-type]
    took = []
    events = json.loads(gzip.decompress(files[1].read_bytes()))["traceEvents"]
    for batch in (each for each in events if each.get("name") == "load batch" and each.get("ph") == "X"):
        begin, end = ns(batch["ts"]), ns(batch["ts"]) + ns(batch["dur"])
        calls = [ns(e["ts"]) for e in events if e.get("cat") == "cuda_runtime" and begin <= ns(e["ts"]) < end]
        took.append(min(calls) - begin)
    assert one.ns == sum(took) // len(took)
    assert 6 * MS < one.ns < 6.3 * MS
    assert one.others_ns < 0.3 * MS
