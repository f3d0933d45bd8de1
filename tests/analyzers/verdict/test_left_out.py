"""A rank that was given, and has nothing in what is looked at, is named: no verdict speaks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.trace.narrow import Narrowing
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.kineto_files import KinetoFile

STEP_NS = 10_000


def rank(number: int, first_step: int, *, overlaps: bool) -> KinetoFile:
    """Three steps in which a and b run 1 µs each, all of it or none of it side by side; no collectives."""
    file = KinetoFile(number)
    for k in range(3):
        at = k * STEP_NS
        file.range(f"ProfilerStep#{first_step + k}", at, at + STEP_NS - 100)
        file.kernel("kernel_a", 7, at + 1000, at + 2000, launch=at + 10)
        start = at + (1000 if overlaps else 3000) + number
        file.kernel("kernel_b", 9, start, start + 1000, launch=at + 20)
    return file


@pytest.fixture
def run(tmp_path: Path) -> Trace:
    """Rank 0 numbers its steps 0 to 2 and overlaps; rank 1 numbers its 7 to 9, and does not."""
    files = [rank(0, 0, overlaps=True), rank(1, 7, overlaps=False)]
    return load([file.write(tmp_path / f"{k}.json") for k, file in enumerate(files)])


PAIR = ("kernel:kernel_a", "kernel:kernel_b")


def test_all_of_it_is_serialized_by_the_worse_rank(run: Trace) -> None:
    assert check_overlap(run, *PAIR).verdict == "serialized"


def test_steps_that_leave_a_rank_out_name_it_and_decide_nothing(run: Trace) -> None:
    result = check_overlap(run, *PAIR, narrowing=Narrowing(steps=(1, 2)))
    assert (result.verdict, result.passed, result.exit_code) == ("inconclusive", None, 3)
    assert "100 % on rank 0, but rank 1, of which a capture was given, has no GPU work in step 1" in result.reason
    assert "was captured" not in result.reason
    assert "--ranks 0" in result.reason


def test_a_window_that_leaves_a_rank_out_decides_nothing(tmp_path: Path) -> None:
    late = rank(1, 0, overlaps=False)
    late.base_ns += 5 * STEP_NS
    files = [rank(0, 0, overlaps=True), late, rank(2, 0, overlaps=True)]
    files[2].range("idle", 0, 9 * STEP_NS)
    trace = load([file.write(tmp_path / f"{k}.json") for k, file in enumerate(files)])
    result = check_overlap(trace, *PAIR, narrowing=Narrowing(window=(0, 3 * STEP_NS)))
    assert result.passed is None
    assert "rank 1" in result.reason


def test_a_part_of_a_trace_that_leaves_a_rank_out_decides_nothing(run: Trace) -> None:
    assert check_overlap(Narrowing(steps=(1, 2)).of(run), *PAIR).passed is None


def test_a_rank_that_ranks_leave_out_is_not_asked_about(run: Trace) -> None:
    for narrowing in (Narrowing(ranks=(0,)), Narrowing(ranks=(0,), steps=(1, 2))):
        assert check_overlap(run, *PAIR, narrowing=narrowing).verdict == "overlapped"
        assert check_overlap(narrowing.of(run), *PAIR).verdict == "overlapped"


def test_a_selector_that_picks_nothing_on_a_rank_never_passes(tmp_path: Path) -> None:
    """Rank 1 runs neither side: what rank 0 meets it can't be said to meet, and what rank 0 misses stays missed."""
    other = KinetoFile(1)
    for k in range(3):
        other.range(f"ProfilerStep#{k}", k * STEP_NS, (k + 1) * STEP_NS - 100)
        other.kernel("conv", 7, k * STEP_NS + 1000, k * STEP_NS + 2000, launch=k * STEP_NS + 10)
        other.kernel("pool", 9, k * STEP_NS + 1000, k * STEP_NS + 2001, launch=k * STEP_NS + 20)
    for overlaps, passed in ((True, None), (False, False)):
        paths = [file.write(tmp_path / f"{k}.json") for k, file in enumerate((rank(0, 0, overlaps=overlaps), other))]
        result = check_overlap(load(paths), *PAIR)
        assert result.passed is passed, result.reason
    found = check_overlap(load([rank(0, 0, overlaps=True).write(tmp_path / "0.json"), paths[1]]), *PAIR)
    assert "neither side ran on rank 1" in found.reason
