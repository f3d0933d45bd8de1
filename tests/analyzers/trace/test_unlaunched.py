"""Which ops were launched before their capture began: by hand, by brute force, and in real captures read plainly."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.unlaunched import about_unlaunched, count_unlaunched, launched_before
from tests.support.builder import Builder, Rank, one_rank

DATA = Path(__file__).parents[2] / "data"
SCHEDULED = sorted(DATA.glob("workloads/*.torch/*rank*.json.gz"))


def op(rank: Rank, number: int, start: int, stream: int = 7, **more: object) -> int:
    """An op of 10 ns of which the capture has no call."""
    return rank.kernel("gemm", stream, start, start + 10, correlation=number, **more)


def launched(rank: Rank, number: int, start: int, stream: int = 7) -> int:
    """An op of 10 ns and its call."""
    rank.call("cudaLaunchKernel", 0, 1, correlation=number)
    row = len(rank.run.rows["api"]) - 1
    return rank.run.add(
        "ops",
        process=rank.process,
        device=0,
        context=1,
        stream=stream,
        name="gemm",
        start_ns=start,
        end_ns=start + 10,
        correlation=number,
        launch=row,
    )


def brute(rows: Sequence[tuple[int, int, int, bool]], calls: Sequence[int]) -> list[int]:
    """(number, start, stream, whether its call is recorded) of one process, op by op."""
    found = []
    if not any(known for *_, known in rows):
        return found
    for i, (number, start, stream, known) in enumerate(rows):
        recorded = any(call <= number for call in calls)
        behind = any(other[3] and other[2] == stream and other[1] < start for other in rows)
        if not known and number > 0 and not recorded and not behind:
            found.append(i)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_as_brute_force_tells(seed: int) -> None:
    draw = random.Random(seed)
    run, rank = one_rank()
    first = draw.randint(1, 12)
    rows = []
    others = [draw.randint(first, 20) + 100 for _ in range(draw.randint(0, 3))]
    for number in draw.sample(range(20), 12):
        start, stream = number * 5 + draw.choice([0, 0, 0, 30]), draw.randint(1, 3)
        known = number >= first and draw.random() < 0.8
        (launched if known else op)(rank, number, start, stream)
        rows.append((number, start, stream, known))
    for number in others:
        rank.call("cudaGetDevice", 0, 1, correlation=number)
    calls = [number for number, *_, known in rows if known] + others
    assert launched_before(run.trace()).nonzero()[0].tolist() == brute(rows, calls)


def test_a_run_says_once_how_much_was_launched_before_and_how_many_launches_are_lost() -> None:
    run = Builder()
    for number in range(2):
        rank = run.rank(number)
        op(rank, 3, 10)
        op(rank, 4, 15, stream=8)  # 5 ns of it beside the other
        launched(rank, 9, 30)
        if number:
            op(rank, 10, 50)
    said = {one.code: one.message for one in about_unlaunched(count_unlaunched(run.trace())).warnings}
    assert said == {
        "launched-before": "4 GPU ops (30 ns on 2 ranks together) were launched before the capture began: left out of "
        "both sides, of ranges and of steps.",
        "missing-launch": "GPU ops whose launch call the capture lacks belong to no range: 1 of 4 on rank 1.",
    }


@pytest.mark.parametrize("path", SCHEDULED[:: len(SCHEDULED) // 8], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_in_captures_that_a_schedule_began_all_without_a_call_were_launched_before(path: Path) -> None:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    calls = {e["args"]["correlation"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    without = [e["args"]["correlation"] for e in work if e["args"]["correlation"] not in calls]
    assert without, "this capture shows nothing"
    assert max(without) < min(calls)
    trace = load([path], reading=Reading(cache=False))
    assert sorted(trace.ops.correlation[launched_before(trace)].tolist()) == sorted(without)
    (counted,) = [one for one in trace.processes if one.ops]
    assert (counted.ops, counted.unlaunched, counted.launched_before) == (len(work), len(without), len(without))
