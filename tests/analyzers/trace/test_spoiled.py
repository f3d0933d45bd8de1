"""Durations that can't be are cut, counted, and keep a verdict open where they matter: by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.narrow import EVERYTHING
from analyzers.trace.tables import Trace
from analyzers.trace.times import about_spoiled, cut_spoiled
from analyzers.verdict.check import check_overlap
from tests.support.brute import busy_and_overlap, ns
from tests.support.builder import Builder

INPUT = Path(__file__).parents[2] / "data" / "public" / "duration-runs-over"
US = 1_000


def trace(
    *, ends: int, form: str = "kineto", runtime: str = "CUDA", call: str = "cudaLaunchKernel", **more: Any
) -> Trace:
    """On stream 7 `a` from 0 to `ends`, though `b` begins there at 100 µs; on stream 8 `c` from 50 µs to 400."""
    run = Builder()
    rank = run.rank(0)
    rank.kernel("a", 7, 0, ends, launch=(-9 * US, -8 * US), **more)
    rank.kernel("b", 7, 100 * US, 200 * US, launch=(-7 * US, -6 * US), call=call, **more)
    rank.kernel("c", 8, 50 * US, 400 * US, launch=(-5 * US, -4 * US))
    made = run.trace()
    return replace(made, captures=tuple(replace(one, format=form, runtime=runtime) for one in made.captures))


def span_of(event: dict[str, Any]) -> tuple[int, int]:
    return ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])


def ends_of(made: Trace) -> list[int]:
    return [end // US for end in made.ops.end_ns.tolist()]


def test_an_op_ends_by_the_start_of_the_next_on_its_stream() -> None:
    """Said to run 250 µs past it; the other stream's op is not concerned."""
    made = cut_spoiled(trace(ends=350 * US))
    assert ends_of(made) == [100, 200, 400]
    assert [cut // US for cut in made.ops.cut_ns.tolist()] == [250, 0, 0]
    assert (made.processes[0].cut, made.processes[0].cut_ns) == (1, 250 * US)
    assert [one.message for one in about_spoiled(made).warnings] == [
        "Ops ran past the start of the next one on their stream, which can't be: 1 op of rank 0, by 250 µs in all. "
        "They are cut there."
    ]


@pytest.mark.parametrize(
    ("ends", "more"),
    [
        (100, {}),  # as it should
        (101, {}),  # within what times of a GPU are good for
        (350, {"graph": 3}),  # nodes of a graph run together
        (350, {"hlo": 3}),  # and what XLA puts on one lane
        (350, {"form": "xla"}),
        (350, {"runtime": "SYCL"}),  # a queue of SYCL need not keep order
        (350, {"form": "rocprof"}),  # a hardware queue keeps no order
        (118, {"call": "cudaLaunchKernelExC"}),  # launched to begin before the one before has ended
    ],
)
def test_what_may_run_together_is_left(ends: int, more: dict[str, Any]) -> None:
    made = trace(ends=ends * US, **more)
    assert cut_spoiled(made) is made


def test_no_kernel_begins_ms_before_the_one_that_it_depends_on_has_ended() -> None:
    assert ends_of(cut_spoiled(trace(ends=350 * US, call="cudaLaunchKernelExC"))) == [100, 200, 400]


def test_a_side_that_gets_over_a_hundredth_shorter_can_t_be_told() -> None:
    """`a` and `b` run 200 µs, 150 of them beside `c`: 75 %. With what was cut, 100 µs, they would run 300 µs."""
    made = cut_spoiled(trace(ends=350 * US))
    found = check_overlap(made, "stream:7", "stream:8", min_overlap=0.6, explain=False)
    assert (found.ranks[0].a.busy_ns, found.ranks[0].overlap_ns) == (200 * US, 150 * US)
    assert (found.verdict, found.exit_code, found.job.spoiled) == ("inconclusive", 3, (0, 1))
    assert found.reason.startswith("measured 75 %, but 1 op of rank 0 ran past the start of the next on its stream, so")
    found = check_overlap(
        cut_spoiled(trace(ends=201 * US + 500)), "stream:7", "stream:8", min_overlap=0.6, explain=False
    )
    assert (found.verdict, found.job.spoiled) == ("overlapped", None), "1.5 of 200 µs"


def test_the_input_after_a_public_report() -> None:
    """Compute is 1.0 ms up to its second kernel, and 11 of 0.4; 12 collectives of 0.5 ms meet it in the first alone."""
    run = load(sorted(INPUT.glob("*.json.gz")), reading=Reading(cache=False))
    found = check_overlap(run, "comm", "compute", min_overlap=0.6, explain=False)
    for rank in found.ranks:
        assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == (6_000 * US, 5_400 * US, 500 * US)
    assert (found.verdict, found.exit_code) == ("inconclusive", 3)
    assert {one.code for one in found.warnings} >= {"cut-durations"}


DEPENDENT = Path(__file__).parents[2] / "data" / "dependent" / "pdl.rank0.json.gz"


def test_real_kernels_that_depend_on_the_one_before_are_left_as_captured() -> None:
    """798 of 800 begin before the one before has ended, by up to 34 µs; none ends before it."""
    events = json.loads(gzip.decompress(DEPENDENT.read_bytes()))["traceEvents"]
    kernels = [one for one in events if one.get("cat") == "kernel"]
    a, b = ([span_of(one) for one in kernels if one["name"] == name] for name in ("kernel_a", "kernel_b"))
    trace = load([DEPENDENT])
    assert [one.cut for one in trace.processes] == [0]
    (rank,) = check_overlap(trace, "kernel:kernel_a", "kernel:kernel_b", narrowing=EVERYTHING).ranks
    assert rank.overlap_ns == busy_and_overlap(a, b)[2]


def test_long_dependent_launches_are_told_by_being_the_rule() -> None:
    """Of six pairs all overlap by 100 µs: left. Where one of six does, its first kernel's end is cut."""
    for early, cut in ((range(6), 0), ((3,), 1)):
        run = Builder()
        rank = run.rank(0)
        for pair in range(6):
            at, ends = 1_000 * pair * US, 300 if pair in early else 200
            rank.kernel("a", 7, at, at + ends * US, launch=(at - 9 * US, at - 8 * US))
            launch = (at - 7 * US, at - 6 * US)
            rank.kernel("b", 7, at + 200 * US, at + 400 * US, launch=launch, call="cudaLaunchKernelExC")
        made = run.trace()
        made = replace(made, captures=tuple(replace(one, format="kineto", runtime="CUDA") for one in made.captures))
        assert [one.cut for one in cut_spoiled(made).processes] == [cut]
