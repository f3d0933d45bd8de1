"""Copies by copy engines, exchange by exchange, against a count instant by instant; real captures row by row."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from analyzers.clocks.align import align
from analyzers.collectives.copies import PeerCopies, peer_copies
from analyzers.collectives.costs import collectives
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.scale import answers
from analyzers.scale.parts import opened
from analyzers.trace.narrow import EVERYTHING, Narrowing
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder

BARRIER = "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)"
CAPTURE = "tests/data/asynctp/asynctp_after.rank*.json.gz"
Part = dict[str, Any]


def _run(seed: int, ranks: int = 3, rounds: int = 6) -> tuple[Trace, list[list[Part]]]:
    """Ranks meet at barriers, which end for all at once, then copy; and what must come out, counted by hand."""
    chance = random.Random(seed)
    builder = Builder()
    workers = [builder.rank(number) for number in range(ranks)]
    free, truth = [0] * ranks, []
    for _ in range(rounds):
        starts = [free[number] + chance.randrange(100_000, 5_000_000) for number in range(ranks)]
        meet = max(starts) + 4
        parts = []
        for number, rank in enumerate(workers):
            rank.kernel(BARRIER, 7, starts[number], meet)
            instants: set[int] = set()
            moved, at, last = 0, meet + 5, meet
            for copy in range(3):
                took, size = chance.randrange(20, 90), 1 << chance.randrange(10, 20)
                rank.copy("PtoP", (7, 63)[copy % 2], at, at + took, bytes=size)
                instants |= set(range(at, at + took))
                moved, last = moved + size, max(last, at + took)
                at += chance.randrange(10, 100)
            rank.kernel("gemm", 7, last + 1, last + 50)
            free[number] = last + 60
            parts.append(
                {
                    "rank": number, "copies": 3, "bytes": moved, "busy_ns": len(instants), "start_ns": meet + 5,
                    "end_ns": last, "barrier_ns": meet - starts[number],
                    "barrier_wait_ns": max(starts) - starts[number],
                }
            )  # fmt: skip
        truth.append(parts)
    return builder.trace(), truth


def _rows(copies: PeerCopies) -> list[list[Part]]:
    found: list[list[Part]] = [[] for _ in range(len(copies))]
    for row in copies.calls.to_frame().to_dict("records"):
        found[row.pop("exchange")].append({str(key): value for key, value in row.items()})
    return found


def test_exchanges_are_what_ranks_copy_between_barriers() -> None:
    for seed in range(10):
        trace, truth = _run(seed)
        copies = peer_copies(trace)
        found = _rows(copies)
        assert len(found) == len(truth)
        for parts, expected in zip(found, truth, strict=True):
            assert [{key: part[key] for key in expected[0]} for part in parts] == expected
            for part in parts:
                assert part["gb_s"] == part["bytes"] / part["busy_ns"]
        for row, expected in zip(copies.table.to_frame().to_dict("records"), truth, strict=True):
            least = min(part["busy_ns"] for part in expected)
            first = min(part["rank"] for part in expected if part["busy_ns"] == least)
            assert (row["ranks"], row["matched_by"], row["fastest_ns"]) == (3, "barriers", least)
            assert row["fastest_rank"] == first
            assert row["bytes"] == max(part["bytes"] for part in expected)


def test_waits_at_barriers_do_not_depend_on_clocks() -> None:
    trace, truth = _run(1)
    off = (
        trace.ops.to_frame()["start_ns"] + 20_000 * trace.ops.to_frame()["rank"],
        trace.ops.to_frame()["end_ns"] + 20_000 * trace.ops.to_frame()["rank"],
    )
    moved = replace(trace, ops=trace.ops.having(start_ns=off[0].to_numpy(), end_ns=off[1].to_numpy()))
    waits = [[part["barrier_wait_ns"] for part in parts] for parts in _rows(peer_copies(moved))]
    assert waits == [[part["barrier_wait_ns"] for part in parts] for parts in truth]


def test_a_rank_without_barriers_has_one_exchange_and_no_match() -> None:
    builder = Builder()
    for number in (0, 1):
        rank = builder.rank(number)
        rank.copy("PtoP", 63, 0, 500, bytes=1 << 20)
        rank.copy("PtoP", 64, 250, 750, bytes=1 << 20)
    copies = peer_copies(builder.trace())
    assert (copies.table.ranks.tolist(), copies.table.matched_by.tolist()) == ([1, 1], ["alone", "alone"])
    assert copies.calls.busy_ns.tolist() == [750, 750]
    assert copies.calls.barrier_wait_ns.tolist() == [-1, -1]


def test_a_trace_without_copies_has_none() -> None:
    builder = Builder()
    builder.rank(0).kernel(BARRIER, 7, 0, 10)
    assert len(peer_copies(builder.trace())) == 0
    assert len(collectives(align(builder.trace())).copies.calls) == 0


def test_copies_that_are_not_matched_are_never_serialized_for_it() -> None:
    """Both overlap wholly: with barriers, without, and alone on one rank."""
    for barriers in (True, False):
        builder = Builder()
        for number in range(2):
            rank = builder.rank(number)
            for turn in range(4):
                at = 10_000 * turn
                if barriers:
                    rank.kernel(BARRIER, 7, at, at + 5)
                rank.copy("PtoP", 63, at + 10, at + 5010, bytes=1 << 20)
                rank.kernel("gemm", 7, at + 10, at + 6010)
        result = check_overlap(builder.trace())
        assert result.verdict == "overlapped"
        assert result.passed
        assert not [one for one in result.warnings if one.code == "unmatched-calls"]


def test_a_real_capture_of_async_tensor_parallelism() -> None:
    trace = load([CAPTURE])
    copies = peer_copies(trace)
    ops = trace.ops.to_frame()
    for rank in range(2):
        own = ops[(ops["rank"] == rank)]
        barriers = own[own["name"].astype(str).str.contains("barrier_kernel")].sort_values("start_ns")
        by_hand: dict[int, int] = {}
        for _, op in own[own["copy"] == "PtoP"].iterrows():
            before = int((barriers["start_ns"] <= op["start_ns"]).sum())
            by_hand[before] = by_hand.get(before, 0) + int(op["bytes"])
        mine = copies.calls.take(copies.calls.rank == rank)
        assert mine.bytes.tolist() == list(by_hand.values()) == [3 << 26] * 4
    assert (copies.table.ranks == 2).all()
    waits = copies.calls.to_frame().pivot(index="exchange", columns="rank", values="barrier_wait_ns").to_numpy()
    assert (waits.min(axis=1) == 0).all()
    assert np.median(waits[:, 0]) > 100_000  # rank 0 came first each time
    result = check_overlap(trace)
    assert result.verdict != "serialized"
    assert not [one for one in result.warnings if one.code == "unmatched-calls"]


def test_rank_by_rank_and_by_steps_are_the_same() -> None:
    whole = peer_copies(load([CAPTURE]))
    with opened([CAPTURE], Reading(memory=4 << 30)) as run:
        parts = answers.collectives(run, EVERYTHING).copies
        some = answers.collectives(run, Narrowing(steps=(1, 3))).copies
    assert parts.calls.to_frame().equals(whole.calls.to_frame())
    assert parts.table.to_frame().equals(whole.table.to_frame())
    assert len(some) == 2
    assert some.calls.busy_ns.tolist() == whole.calls.busy_ns.tolist()[2:6]
