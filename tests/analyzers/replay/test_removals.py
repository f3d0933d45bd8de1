"""What is left of small programs where a cause is gone everywhere: times that follow by hand (µs)."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.replay.engine import run as run_of
from analyzers.replay.removals import without
from analyzers.replay.tasks import tasks
from analyzers.select.select import select
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import BLOCKED, Program, blocked, on_ranks, spans, written
from tests.support.builder import Builder

Times = dict[str, list[tuple[float, float]]]


def left(trace: Trace, cause: str, a: str = "A", b: str = "B") -> Times:
    sides = (select(trace, f"kernel:{side}").picked for side in (a, b))
    changed = without(cause, trace, tasks(trace), *sides)
    assert changed is not None
    return spans(trace, changed, run_of(changed))


# On one stream in, A, B, A and B, each 2 µs behind the other.
ALTERNATING = "in 7 @0 7-10; A 7 @10 17-117; B 7 @20 119-139; A 7 @30 141-241; B 7 @40 243-263"
WAITING = "first 11 @0 7-60; B 7 @10 17-117; 9<11 @16; 9<7 @20; A 9 @30 119-139"


@pytest.mark.parametrize(
    ("cause", "text", "times"),
    [
        # L's launch follows at 25 + 8, is submitted at 38, and L starts 2 µs after K's end.
        ("host-sync", BLOCKED, {"K": [(8, 108)], "L": [(110, 160)]}),
        # K is submitted at 0 and starts 3 µs later; the sync returns 4 µs after its end, L is submitted at once.
        ("late-launch", BLOCKED, {"K": [(3, 103)], "L": [(109, 159)]}),
        # Both sides begin behind "in" as they are submitted, at 15 and 25; the second A comes behind the first, as does
        # B; the tail is behind both, though B was queued last.
        (
            "same-stream",
            ALTERNATING + "; tail 7 @50 265-270",
            {"A": [(17, 117), (119, 219)], "B": [(27, 47), (49, 69)], "tail": [(221, 226)]},
        ),
        # A sync waits for both sides: B is done at 69, but A at 219 only: it returns 4 µs later, and the next is
        # launched 3 + 5 µs after.
        ("same-stream", ALTERNATING + "; sync 50-267; next 7 @270 277-280", {"next": [(233, 236)]}),
        # What stands between the sides starts 2 µs after it is submitted, at 25, and B behind that.
        (
            "same-stream",
            "in 7 @0 7-10; A 7 @10 17-117; more 7 @20 119-139; B 7 @30 141-241; tail 7 @40 243-248",
            {"in": [(7, 10)], "A": [(17, 117)], "more": [(27, 47)], "B": [(49, 149)], "tail": [(151, 156)]},
        ),
        # A, of stream 9, waited for B and for what of neither side came before it.
        ("event-dependency", WAITING, {"A": [(62, 82)]}),
        # Work of neither side takes no time.
        (
            "stream-busy",
            "else 7 @0 7-107; A 7 @10 109-129; B 9 @20 27-127",
            {"else": [(7, 7)], "A": [(17, 37)], "B": [(27, 127)]},
        ),
    ],
)
def test_without_a_cause(cause: str, text: str, times: Times) -> None:
    found = left(written(text), cause)
    assert {name: found[name] for name in times} == times


def test_waits_for_what_is_of_neither_side_stay() -> None:
    assert left(written(WAITING), "event-dependency", "A", "first")["A"] == [(119, 139)]


def test_there_is_room_for_everything() -> None:
    """K's 40 blocks fill 10 SMs twice; L, released at 25, finds room with K's second half only, or at once."""
    run = Builder()
    run.add("devices", process=0, device=0, sms=10, threads_per_sm=2048, blocks_per_sm=32)
    program = Program(run)
    program.write("K 7 @0 7-107 grid=40 block=1024; L 9 @20 58-68 grid=40 block=1024")
    before = tasks(program.trace())
    assert spans(program.trace(), before, run_of(before))["L"] == [(58, 68)]
    found = left(program.trace(), "gpu-full")
    ((start, end),) = found["L"]
    assert found["K"] == [(7, 107)]
    assert 25 <= start <= 27
    assert end - start == pytest.approx(10)


def test_no_rank_waits_for_another() -> None:
    """An all-reduce of 20 µs begins at 27 on one rank, at 67 on the other."""
    both = on_ranks("AllReduce:0 9 @20 27-87 wait_ns=40000", "AllReduce:0 9 @60 67-87 wait_ns=0")
    assert left(both, "peer-wait") == {"ncclDevKernel_AllReduce": [(27, 47), (67, 87)]}


def test_what_nobody_knows_the_cause_of_can_not_be_removed() -> None:
    nothing = np.zeros(2, dtype=bool)
    assert without("unknown", blocked(), tasks(blocked()), nothing, nothing) is None
