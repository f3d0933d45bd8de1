from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.info import facts_of, info, info_of
from analyzers.load import load
from analyzers.select.select import select
from analyzers.trace.tables import Capture
from tests.support.builder import Builder, one_rank
from traceviz.output.document import Table
from traceviz.output.views.info import blocks

DATA = Path(__file__).parents[1] / "data"
CAPTURES = ("torch/ddp.rank0.json.gz", "torch/dpmp_hidden_sync.rank1.json.gz", "nsys/rowpar_s4.4gpu.sqlite")


def test_ranks_count_their_ops_by_kind_and_lane() -> None:
    run = Builder()
    rank = run.rank(3)
    run.add("devices", process=0, device=0, name="NVIDIA H200")
    run.add("devices", process=0, device=1, name="not used")
    rank.kernel("gemm", 7, 10, 20)
    rank.kernel("gemm", 9, 20, 30)
    rank.kernel("ncclDevKernel_AllReduce", 9, 30, 45)
    rank.copy("PtoP", 9, 1, 5)
    rank.copy("DtoH", 9, 1, 5)
    rank.op("Memset", 9, 1, 5, kind="memset")
    rank.op("graph", 9, 1, 5, kind="graph")
    (found,) = info(run.trace()).ranks
    assert (found.rank, found.rule, found.devices, found.gpu) == (3, "the collector's manifest", (0,), "NVIDIA H200")
    assert (found.kernels, found.communication, found.copies, found.memsets, found.graphs) == (2, 2, 1, 1, 1)
    assert (found.streams, found.first_ns, found.last_ns) == (2, 1, 45)


def test_ranges_count_every_occurrence_and_launch_also_of_ranges_inside_them() -> None:
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        rank.range("outer", 0, 100)
        rank.range("inner", 10, 20, kind="annotation")
        rank.range("inner", 30, 40)
        rank.range("operator", 0, 100, kind="op")
        rank.kernel("k", 7, 0, 1, launch=(15, 16))
        rank.kernel("k", 7, 1, 2, launch=(50, 51))
    found = info(run.trace())
    assert [(one.name, one.occurrences, one.launches) for one in found.ranges] == [("outer", 2, 4), ("inner", 4, 2)]
    assert found.more_ranges == 0


def listed(run: Builder) -> list[tuple[str, int, int, int, int | None, int | None]]:
    found = info(run.trace()).ranges
    return [(one.name, one.occurrences, one.launches, one.numbers, one.first, one.last) for one in found]


def test_only_numbers_that_differ_make_a_family_and_several_have_neither_first_nor_last() -> None:
    run, rank = one_rank()
    for at, name in enumerate(("conv2d 0", "conv2d 5", "layer 1.0", "layer 1.1", "layer 2.0", "epoch 1")):
        rank.range(name, 10 * at, 10 * at + 5)
        rank.kernel("k", 7, at, at + 1, launch=(10 * at + 1, 10 * at + 2))
    assert listed(run) == [
        ("layer #.#", 3, 3, 3, None, None),
        ("conv2d #", 2, 2, 2, 0, 5),
        ("epoch 1", 1, 1, 0, None, None),
    ]
    (shown,) = (block for block in blocks(info(run.trace())) if isinstance(block, Table) and block.title == "Ranges")
    assert [row[0] for row in shown.rows] == ["nvtx:layer #.#  (3 names)", "nvtx:conv2d #  (2 of 0–5)", "nvtx:epoch 1"]


def test_a_family_whose_numbers_are_in_different_captures_is_the_same_as_in_one() -> None:
    both, parts = Builder(), [Builder(), Builder()]
    for number in (0, 1):
        for run in (both, parts[number]):
            rank = run.rank(number)
            rank.range(f"step {number}", 0, 10)
            rank.kernel("k", 7, 0, 1, launch=(1, 2))
    facts = facts_of(parts[0].trace()) + facts_of(parts[1].trace())
    assert info_of(both.trace(), facts).ranges == info(both.trace()).ranges
    assert listed(both) == [("step #", 2, 2, 2, 0, 1)]


def test_xlas_numbered_ops_are_different_ones() -> None:
    run, rank = one_rank()
    rank.kernel("k", 7, 0, 1)
    for number in (1, 2):
        rank.range(f"fusion.{number}", 0, 10, kind="hlo")
    assert [one.name for one in info(run.trace()).ranges] == ["fusion.1", "fusion.2"]


def bare() -> Builder:
    run = Builder()
    run.rank(0).kernel("k", 7, 0, 1)
    return run


def full() -> Builder:
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        for step in (1, 2, 3):
            rank.range(f"step {step}", 10 * (step - 1), 10 * step)
        rank.range("aten::mm", 1, 9, kind="op")
        rank.kernel("k", 7, 20, 30, launch=(2, 3))
        run.add("syncs", process=number, start_ns=0, end_ns=1)
    return run


def test_what_a_bare_trace_can_not_tell() -> None:
    lacking = "\n".join(info(bare().trace()).cannot)
    for part in ("only one rank", "regions by name", "who launched what", "which stream waited", "steps:", "operator"):
        assert part in lacking


def test_a_trace_with_everything_has_nothing_it_can_not_tell() -> None:
    assert info(full().trace()).cannot == ()


def test_launches_that_are_missing_are_counted() -> None:
    run = full()
    run.rows["ops"][0]["launch"] = -1
    assert info(run.trace()).cannot == ("who launched 1 of 2 GPU ops: their launch calls are missing",)


def test_ranks_that_were_not_captured_are_counted() -> None:
    trace = replace(full().trace(), captures=(Capture("a", "synthetic", world_size=8),))
    assert info(trace).cannot == ("what the other ranks did: 2 of 8 were captured",)


def test_what_only_some_captures_lack_is_said_of_those() -> None:
    trace = full().trace()
    lacks = [("colours",), (), ("colours", "sounds"), ("colours",), ("colours",)]
    captures = [replace(trace.captures[0], path=f"a/r{n}.json", lacks=one) for n, one in enumerate(lacks)]
    lacking = info(replace(trace, captures=tuple(captures))).cannot
    assert lacking == ("colours: in r0.json, r2.json, r3.json, 1 more", "sounds: in r2.json")
    assert info(replace(trace, captures=tuple(captures[:1]))).cannot == ("colours",)


def test_the_frame_has_a_row_for_every_rank() -> None:
    frame = info(full().trace()).to_frame()
    assert frame.index.tolist() == [0, 1]
    assert frame["kernels"].tolist() == [1, 1]
    assert repr(info(full().trace())) == "<info: 1 capture(s), 2 rank(s), 3 step(s)>"


@pytest.mark.parametrize("name", CAPTURES)
def test_launches_of_every_range_are_those_it_would_pick(name: str) -> None:
    trace = load([DATA / name])
    found = info(trace).ranges
    assert found
    for one in found:
        assert one.launches == np.count_nonzero(select(trace, f'nvtx:"{one.name}"').picked), one.name


def test_steps_too_few_for_a_median_are_reported() -> None:
    run, rank = one_rank()
    rank.range("step 1", 0, 10)
    rank.kernel("k", 7, 10, 20, launch=(1, 2))
    assert "how much steps vary: 1 are too few for a median" in info(run.trace()).cannot
    rank.range("step 2", 10, 20)
    rank.range("step 3", 20, 30)
    assert not [lacking for lacking in info(run.trace()).cannot if "median" in lacking]
