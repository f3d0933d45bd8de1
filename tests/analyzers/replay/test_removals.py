"""What is left of small programs where a cause is gone everywhere: times that follow by hand (µs)."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.replay.engine import run as run_of
from analyzers.replay.removals import REMOVALS, without
from analyzers.replay.tasks import tasks
from analyzers.select.select import select
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import Program, blocked, spans
from tests.support.builder import Builder

NOTHING = "kernel:nothing of this name"


def left(trace: Trace, cause: str, a: str = NOTHING, b: str = NOTHING) -> dict[str, list[tuple[float, float]]]:
    changed = without(cause, trace, tasks(trace), select(trace, a).picked, select(trace, b).picked)
    assert changed is not None
    return spans(trace, changed, run_of(changed))


def test_without_host_syncs_the_host_goes_on() -> None:
    """L's launch follows at 25 + 8, is submitted at 38, and L starts 2 µs after K's end."""
    assert left(blocked(), "host-sync") == {"K": [(8, 108)], "L": [(110, 160)]}


def test_without_host_work_syncs_still_wait() -> None:
    """K is submitted at 0 and starts 3 µs later; the sync returns 4 µs after its end, L is submitted at once."""
    assert left(blocked(), "late-launch") == {"K": [(3, 103)], "L": [(109, 159)]}


def alternating() -> Program:
    """On one stream in, A, B, A, B and tail, each 2 µs behind the other; then the host waits, and launches more."""
    program = Program()
    program.kernel("in", 7, call=0, start=7, end=10)
    for name, call, start, end in (("A", 10, 17, 117), ("B", 20, 119, 139), ("A", 30, 141, 241), ("B", 40, 243, 263)):
        program.kernel(name, 7, call=call, start=start, end=end)
    return program


def test_without_one_stream_for_both_each_side_keeps_its_order() -> None:
    """Both begin behind "in" as they are submitted, at 15 and 25; the second A comes behind the first, as does B."""
    program = alternating()
    program.kernel("tail", 7, call=50, start=265, end=270)
    found = left(program.trace(), "same-stream", "kernel:A", "kernel:B")
    assert found["A"] == [(17, 117), (119, 219)]
    assert found["B"] == [(27, 47), (49, 69)]
    assert found["tail"] == [(221, 226)]  # behind both, though B was queued last


def test_what_stands_between_the_sides_holds_neither() -> None:
    """More starts 2 µs after it is submitted, at 25, and B behind that; the tail is behind both sides."""
    program = Program()
    program.kernel("in", 7, call=0, start=7, end=10)
    for name, call, start, end in (
        ("A", 10, 17, 117),
        ("more", 20, 119, 139),
        ("B", 30, 141, 241),
        ("tail", 40, 243, 248),
    ):
        program.kernel(name, 7, call=call, start=start, end=end)
    found = left(program.trace(), "same-stream", "kernel:A", "kernel:B")
    assert found == {"in": [(7, 10)], "A": [(17, 117)], "more": [(27, 47)], "B": [(49, 149)], "tail": [(151, 156)]}


def test_a_sync_then_waits_for_both_sides() -> None:
    """B is done at 69, but A at 219 only: the sync returns 4 µs later, and the next is launched 3 + 5 µs after."""
    program = alternating()
    program.sync(50, 267)
    program.kernel("next", 7, call=270, start=277, end=280)
    found = left(program.trace(), "same-stream", "kernel:A", "kernel:B")
    assert found["next"] == [(233, 236)]


def test_without_waits_of_one_side_for_the_other_it_starts_when_submitted() -> None:
    """A, of stream 9, waited for B and for what of neither side came before it."""
    program = Program()
    program.kernel("first", 11, call=0, start=7, end=60)
    program.kernel("B", 7, call=10, start=17, end=117)
    program.wait(9, 11, at=16)
    program.wait(9, 7, at=20)
    program.kernel("A", 9, call=30, start=119, end=139)
    assert left(program.trace(), "event-dependency", "kernel:A", "kernel:B")["A"] == [(62, 82)]
    assert left(program.trace(), "event-dependency", "kernel:A", "kernel:first")["A"] == [(119, 139)]


def test_work_of_neither_side_takes_no_time() -> None:
    program = Program()
    program.kernel("else", 7, call=0, start=7, end=107)
    program.kernel("A", 7, call=10, start=109, end=129)
    program.kernel("B", 9, call=20, start=27, end=127)
    found = left(program.trace(), "stream-busy", "kernel:A", "kernel:B")
    assert found == {"else": [(7, 7)], "A": [(17, 37)], "B": [(27, 127)]}


def test_there_is_room_for_everything() -> None:
    """K's 40 blocks fill 10 SMs twice; L, released at 25, finds room with K's second half only, or at once."""
    run = Builder()
    run.add("devices", process=0, device=0, sms=10, threads_per_sm=2048, blocks_per_sm=32)
    program = Program(run)
    size = {"grid": 40, "block": 1024}
    program.kernel("K", 7, call=0, start=7, end=107, **size)
    program.kernel("L", 9, call=20, start=58, end=68, **size)
    before = tasks(program.trace())
    assert spans(program.trace(), before, run_of(before))["L"] == [(58, 68)]
    found = left(program.trace(), "gpu-full")
    assert found["K"] == [(7, 107)]
    ((start, end),) = found["L"]
    assert 25 <= start <= 27
    assert end - start == pytest.approx(10)


def test_no_rank_waits_for_another() -> None:
    """An all-reduce of 20 µs begins at 27 on one rank, at 67 on the other."""
    both = Builder()
    for number, call, wait in ((0, 20, 40_000), (1, 60, 0)):
        program = Program(both, number)
        program.kernel("ncclDevKernel_AllReduce", 9, call=call, start=call + 7, end=87, collective=0, wait_ns=wait)
    assert left(both.trace(), "peer-wait") == {"ncclDevKernel_AllReduce": [(27, 47), (67, 87)]}


def test_what_nobody_knows_the_cause_of_can_not_be_removed() -> None:
    nothing = np.zeros(2, dtype=bool)
    assert without("unknown", blocked(), tasks(blocked()), nothing, nothing) is None
    assert "unknown" not in REMOVALS
