"""Real captures of runs whose settings order their work: the cause that times show, and the setting if it is known."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzers.load import load
from analyzers.overlap.measure import Missed
from analyzers.replay.worth import with_worth
from analyzers.trace.settings import SERIALIZING_SETTING
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.analyzers.causes.test_causes import h200
from tests.support.builder import Builder, Rank, one_rank
from tests.support.causes_of import with_one_queue

DATA = Path(__file__).parents[2] / "data" / "settings"
US = 1000


def answer(name: str) -> tuple[OverlapResult, Missed]:
    """The answer on chain beside side, with the largest cause."""
    trace = load([DATA / name])
    result = with_worth(check_overlap(trace, "nvtx:chain", "nvtx:side"), trace)
    (rank,) = result.ranks
    return result, rank.missed[0]


def kernels(name: str) -> dict[str, list[list[tuple[int, int, int]]]]:
    """Range -> of each of its occurrences the kernels: when launched (the call's return), start and end, ns."""
    with gzip.open(DATA / name) as file:
        events: list[dict[str, Any]] = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]

    def span(one: dict[str, Any]) -> tuple[int, int]:
        return round(one["ts"] * 1000), round(one["ts"] * 1000) + round(one["dur"] * 1000)

    ran = {one["args"]["correlation"]: span(one) for one in events if one["cat"] == "kernel"}
    calls = [(*span(one), one["args"]["correlation"]) for one in events if one["cat"] == "cuda_runtime"]
    found: dict[str, list[list[tuple[int, int, int]]]] = {}
    for mark in sorted((one for one in events if one["cat"] == "user_annotation"), key=lambda one: one["ts"]):
        low, high = span(mark)
        inside = [(end, *ran[key]) for start, end, key in calls if low <= start < high and key in ran]
        found.setdefault(mark["name"], []).append(sorted(inside))
    return found


def test_one_connection_lets_a_kernel_begin_only_once_those_launched_before_have_begun() -> None:
    """What the captures show, read by hand: the side is launched while the chain's first kernel runs."""
    found = kernels("connections-1.json.gz")
    for chain, side in zip(found["chain"][1:], found["side"][1:], strict=True):
        assert side[0][0] < chain[1][1], "launched before the chain's second kernel begins"
        assert 0 <= side[0][1] - chain[-1][1] < 3 * US, "and begins right behind the begin of its last"


@pytest.mark.parametrize("name", ["connections-1.json.gz", "connections-1.sqlite.gz"])
def test_a_shared_hardware_queue_is_named(name: str) -> None:
    result, one = answer(name)
    on_record = name.endswith("sqlite.gz")
    assert one.cause == "shared-queue"
    assert one.ns > 0.9 * result.ranks[0].missed_ns
    assert ("CUDA_DEVICE_MAX_CONNECTIONS=1: both" in one.evidence) == on_record
    assert ("as with CUDA_DEVICE_MAX_CONNECTIONS=1, which is not on record" in one.evidence) == (not on_record)
    assert any(warning.code == SERIALIZING_SETTING for warning in result.warnings) == on_record


@pytest.mark.parametrize("name", ["blocking.json.gz", "blocking.sqlite.gz"])
def test_launches_that_block_are_host_syncs(name: str) -> None:
    result, one = answer(name)
    setting = "CUDA_LAUNCH_BLOCKING=1" if name.endswith("sqlite.gz") else "as with CUDA_LAUNCH_BLOCKING=1"
    assert one.cause == "host-sync"
    assert one.ns > 0.95 * result.ranks[0].missed_ns
    assert one.finding.endswith(f"launches return only once their kernels are done ({setting})")
    assert result.fix is None or "graph" not in result.fix.advice
    assert result.fix is None or result.fix.advice.startswith("unset CUDA_LAUNCH_BLOCKING")
    if result.fix is not None:
        assert (", if it is set," in result.fix.advice) == (not name.endswith("sqlite.gz")), "only one is on record"


def on_amd(alpha_start: int, queues: tuple[int, int] = (3, 3)) -> Trace:
    """B runs from 10 to 110 µs on stream 1, A, launched after it, on stream 2."""
    run, rank = one_rank()
    rank.kernel("beta", 1, 10 * US, 110 * US, launch=(0, 1 * US), call="hipLaunchKernel")
    rank.kernel("alpha", 2, alpha_start, alpha_start + 50 * US, launch=(2 * US, 3 * US), call="hipLaunchKernel")
    for stream, queue in zip((1, 2), queues, strict=True):
        run.stream(rank, stream, queue=queue)
    trace = run.trace()
    return replace(trace, captures=(replace(trace.captures[0], runtime="HIP"),))


def test_streams_of_amd_s_that_share_a_hardware_queue_follow_each_other() -> None:
    (rank,) = check_overlap(on_amd(112 * US), "kernel:alpha", "kernel:beta").ranks
    (one,) = rank.missed
    assert one.cause == "shared-queue"
    assert one.evidence == (
        "alpha (alpha, stream 2) was free to run, and began 2.00 µs after beta (stream 1), launched before it, had "
        "ended; hardware queue 3: both are in one hardware queue"
    )


def cause_names(trace: Trace) -> set[str]:
    (rank,) = check_overlap(trace, "kernel:alpha", "kernel:beta").ranks
    return {one.cause for one in rank.missed}


def test_with_one_connection_no_kernel_waits_for_anothers_end() -> None:
    """B begins at 10 µs, and A, free since 3 µs, only behind B's end: that is not what a shared queue does."""
    of_amd = on_amd(112 * US)
    cuda = replace(
        of_amd, captures=(replace(of_amd.captures[0], runtime="CUDA"),), streams=of_amd.streams.to_frame().iloc[:0]
    )
    assert cause_names(with_one_queue(cuda)) == {"unknown"}


def test_what_a_full_gpu_may_have_held_no_queue_did() -> None:
    run, rank = one_rank()
    h200(run)
    size = {"block": 256, "registers": 32, "shared_bytes": 0, "call": "hipLaunchKernel"}
    rank.kernel("beta", 1, 10 * US, 110 * US, launch=(0, 1 * US), grid=1056, **size)
    rank.kernel("alpha", 2, 112 * US, 150 * US, launch=(2 * US, 3 * US), grid=1, **size)
    for stream in (1, 2):
        run.stream(rank, stream, queue=3)
    trace = run.trace()
    assert cause_names(replace(trace, captures=(replace(trace.captures[0], runtime="HIP"),))) == {"gpu-full"}


def in_turn(groups: int, *, stalled: int = 0) -> tuple[Builder, Rank]:
    """B's two kernels on stream 7, the second `stalled` ns late; A on stream 8, launched last, begins with that one."""
    run, rank = one_rank()
    for group in range(groups):
        at = 500 * US * group
        rank.kernel("beta", 7, at + 10 * US, at + 110 * US, launch=(at, at + 1 * US))
        second = at + 110 * US + stalled
        rank.kernel("beta", 7, second, second + 50 * US, launch=(at + 1 * US, at + 2 * US))
        rank.kernel("alpha", 8, second + 500, second + 200 * US, launch=(at + 2 * US, at + 3 * US))
    return run, rank


def test_times_alone_tell_a_queue_by_kernels_that_were_held_by_one_just_let_go() -> None:
    """Where the one before stood still as well, for no reason that is seen, something else may have held both."""
    assert "shared-queue" in cause_names(in_turn(3)[0].trace())
    assert "shared-queue" not in cause_names(in_turn(2)[0].trace()), "too few"
    assert "shared-queue" not in cause_names(in_turn(3, stalled=30 * US)[0].trace())
