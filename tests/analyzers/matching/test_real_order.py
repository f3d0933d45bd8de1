"""Every call that all its ranks made is matched, and sure, in captures of real programs: held against raw JSON."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from analyzers.load import load
from analyzers.select.select import select
from analyzers.trace.tables import Trace
from tests.support import raw_programs as raw
from tests.support.captures import DATA

MS = 1_000_000
Kernel = tuple[int, int]  # rank, and which of its kernels of communication, by when they start
PROGRAMS = {"mcore_pp": 174, "trec_base": 96, "trec_a2a_async_base": 4}


def files(name: str) -> list[Path]:
    return sorted(DATA.glob(f"communication/{name}.rank?.json.gz"))


def calls_by_raw_order(paths: list[Path]) -> set[frozenset[Kernel]]:
    """The calls that all their ranks made, each as the kernels it ran."""
    ranks = raw.read(paths)
    number: dict[raw.OpId, Kernel] = {}
    for rank in ranks.values():
        kernels = sorted((op for op in rank.ops if op.is_communication), key=lambda op: op.start)
        number |= {raw.identity(op): (rank.number, which) for which, op in enumerate(kernels)}
    return {frozenset(number[raw.identity(op)] for op in call) for call in raw.collectives(ranks)}


def found(trace: Trace) -> dict[frozenset[Kernel], bool]:
    """The calls that were matched, each as the kernels it ran, and whether it is sure."""
    assert trace.matches is not None
    calls = trace.matches.calls
    rank, start, number = calls.rank, calls.start_ns, calls.collective
    of_rank = np.empty(rank.size, np.int64)
    for one in np.unique(rank):
        own = np.flatnonzero(rank == one)
        of_rank[own[np.argsort(start[own], kind="stable")]] = np.arange(own.size)
    sure = trace.matches.collectives.sure.tolist()
    together: dict[int, set[Kernel]] = {}
    for one, kernel in zip(number.tolist(), zip(rank.tolist(), of_rank.tolist(), strict=True), strict=True):
        together.setdefault(one, set()).add(kernel)
    return {frozenset(kernels): sure[one] for one, kernels in together.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_that_all_its_ranks_made_is_matched_and_sure(name: str) -> None:
    by_raw_order = calls_by_raw_order(files(name))
    assert len(by_raw_order) == PROGRAMS[name]
    assert found(load(files(name))) == dict.fromkeys(by_raw_order, True)


def test_calls_whose_sender_comes_last_are_matched_with_their_bytes_and_group() -> None:
    """All 60 exchanges of two pipelines of two stages; 8,388,608 bf16 each way, where they go both ways at once too."""
    trace = load(files("mcore_pp"))
    assert trace.matches is not None
    exchanges = trace.matches.collectives.take(trace.matches.collectives.operation.is_one_of(["send_recv"]))
    assert len(exchanges) == 60
    assert set(exchanges.bytes) == {2 * 8_388_608}
    assert set(exchanges.matched_by) == {"pair"}
    assert np.count_nonzero(select(trace, "group:PIPELINE_MODEL_PARALLEL_GROUP").picked) == 120


@pytest.mark.parametrize(("name", "rank", "shift"), [("mcore_pp", 2, 7 * MS), ("trec_base", 0, -5 * MS)])
def test_clocks_of_one_host_that_differ_by_milliseconds_yield_to_equal_calls(
    name: str, rank: int, shift: int, tmp_path: Path
) -> None:
    """One rank's capture says it began that much later: all is matched, its clock is found, and it says so."""
    moved = []
    for path in files(name):
        text = gzip.decompress(path.read_bytes()).decode()
        if f".rank{rank}." in path.name:
            text = re.sub(
                r'"baseTimeNanoseconds": (\d+)',
                lambda base: f'"baseTimeNanoseconds": {int(base[1]) + shift}',
                text,
                count=1,
            )
        moved.append(tmp_path / path.name)
        moved[-1].write_bytes(gzip.compress(text.encode(), mtime=0))
    before, after = load(files(name)), load(moved)
    assert found(after) == dict.fromkeys(calls_by_raw_order(files(name)), True)
    assert "hosts-contradict" in {one.code for one in after.warnings}
    assert "hosts-contradict" not in {one.code for one in before.warnings}
    assert before.clocks is not None
    assert after.clocks is not None
    reference = [clocks.clocks[rank].offset_ns - clocks.clocks[1].offset_ns for clocks in (before.clocks, after.clocks)]
    assert reference[1] - reference[0] == pytest.approx(shift, abs=20_000)
    width = [
        max((one.upper_ns or 0) - (one.lower_ns or 0) for one in each.clocks) for each in (before.clocks, after.clocks)
    ]
    assert width[1] >= width[0]


@pytest.mark.parametrize(
    ("files_of", "aligned", "sure"),
    [
        ("rocm/roctracer.rank?.json.gz", True, 4),  # ends of no order lie alike: those near each other are one
        ("counters/contend_before.sqlite.gz", False, 3),  # rank 2 lacks the first call, of which there are only three
    ],
)
def test_clocks_as_they_are_tell_what_no_order_tells(files_of: str, aligned: bool, sure: int) -> None:
    matches = load(sorted(DATA.glob(files_of)), align=aligned).matches
    assert matches is not None
    assert np.count_nonzero(matches.collectives.sure & (matches.calls_of_each > 1)) == sure
