"""What a capture says each call and unit waited for, in programs small enough to follow by hand."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

from analyzers.replay import tasks as module
from analyzers.replay.model import RELEASES
from analyzers.replay.tasks import tasks
from tests.analyzers.replay.programs import US, Program, blocked, replayed, written


def test_host_work_waits_and_dispatch() -> None:
    found = tasks(blocked())
    calls, units = found.calls, found.units
    assert calls.before_ns.tolist() == [0, 20 * US, 8 * US]
    assert [calls.waits[call].tolist() for call in range(3)] == [[], [0], []]
    assert calls.after_ns[1] == 4 * US  # K ends at 108, the sync returns at 112
    assert calls.cost_ns[1] <= 3 * US  # what it takes where nothing is to be waited for
    assert units.submitted_ns.tolist() == [5 * US, 5 * US]
    assert [units.dispatch_ns[0, 0], units.dispatch_ns[1, 0]] == [3 * US, 2 * US]
    assert units.unexplained_ns.tolist() == [0, 0]


def test_a_host_clock_that_is_behind_its_gpus() -> None:
    """A sync returns 15 µs before the end of K by these clocks: the host's is 15 µs behind, and its sync waited for K.

    It is not 70 µs behind, as K began 30 µs after its launch: then it is unknown what the sync waited for.
    """
    for end, waits, behind in ((127, [0], 15), (182, [], 0)):
        calls = tasks(written(f"K 7 @0 30-{end}; sync 25-112")).calls
        assert calls.waits[1].tolist() == waits
        assert calls.start_ns.tolist() == [behind * US, (25 + behind) * US]


def test_a_stream_that_waits_for_another() -> None:
    found = tasks(written("K 7 @0 7-107; 9<7 @6; L 9 @10 109-120"))
    assert [found.units.waits[unit].tolist() for unit in range(2)] == [[], [0]]
    assert [found.units.dispatch_ns[0, 0], found.units.dispatch_ns[1, 2]] == [2 * US, 2 * US]


def test_streams_that_run_nothing_are_followed_once_however_often_they_wait() -> None:
    """Streams 9 and 11 only wait, for 7 and for each other: there are billions of ways from the last kernel back."""
    rounds = [
        f"K 7 @{at} {at + 7}-{at + 12}; 9<7 @{at + 6}; {'11<9 @{0}; 9<11 @{0}; '.format(at + 6) * 2}7<9 @{at + 7}"
        for at in range(0, 1200, 20)
    ]
    waits = tasks(written("; ".join(rounds))).units.waits
    assert all((waits[unit] < unit).all() for unit in range(60))
    assert 0 in waits[59]


def test_what_another_release_takes_is_what_it_takes_others() -> None:
    """L, held by a wait, starts 8 µs after it; kernels behind others on their stream 1 and 3 µs after those: 2."""
    text = "K 7 @0 7-107; K 7 @10 108-120; K 7 @20 123-140; 9<7 @26; L 9 @30 148-160"
    units = tasks(written(text)).units
    assert units.dispatch_ns[3].tolist() == [2 * US, 2 * US, 8 * US]
    assert units.dispatch_ns[1].tolist() == [2 * US, 1 * US, 8 * US]


def test_a_long_gap_that_nothing_explains_is_counted() -> None:
    found = tasks(written("K 7 @0 7-17; L 7 @10 57-67"))  # 40 µs after K's end
    assert found.units.unexplained_ns.tolist() == [0, 30 * US]
    assert found.units.idle_ns.tolist() == [0, 40 * US]


def test_threads_that_take_turns() -> None:
    program = Program()
    program.kernel("forward", 7, call=0, start=7, end=12)
    with program.rank.on_thread(2):
        program.kernel("backward", 7, call=15, start=22, end=40)
        program.kernel("backward", 7, call=40, start=47, end=50)
    program.kernel("optimizer", 7, call=60, start=67, end=99)
    calls = tasks(program.trace()).calls
    by_start = np.argsort(calls.start_ns)
    follows = {int(calls.start_ns[call]) // US: int(calls.handed[call]) for call in by_start}
    started = {call: int(calls.start_ns[call]) // US for call in by_start}
    assert {at: started.get(other, -1) for at, other in follows.items()} == {0: -1, 15: 0, 40: -1, 60: 40}
    assert calls.gap_ns[calls.handed >= 0].tolist() == [15 * US, 10 * US]  # by thread: 60 - 45, 15 - 5


def test_threads_that_call_at_the_same_time_follow_nobody() -> None:
    program = Program()
    for at in (0, 40, 80):
        program.kernel("a", 7, call=at, start=at + 7, end=at + 9)
        with program.rank.on_thread(2):
            program.kernel("b", 9, call=at + 3, start=at + 10, end=at + 12)
    assert (tasks(program.trace()).calls.handed == -1).all()


def test_a_full_queue_holds_a_launch() -> None:
    """With 2 places, the fourth launch goes on when the second kernel starts, at 109, and takes 5 µs then."""
    trace = written("K 7 @0 7-107; K 7 @10 109-209; K 7 @20 211-311; L 7 @30-114 313-320")
    assert tasks(trace).calls.cost_ns[3] == 84 * US  # without a full queue that is the call's own time
    with patch.object(module, "LAUNCH_QUEUE", 2):
        assert tasks(trace).calls.cost_ns.tolist() == [5 * US] * 4
        assert replayed(trace)["L"] == [(313, 320)]


def test_a_copy_that_blocks_is_submitted_within_its_call() -> None:
    found = tasks(written("K 7 @0 7-107; DtoH 7 @10-115 109-111 target_memory=pageable"))
    assert found.units.submitted_ns[1] <= 3 * US
    assert found.units.dispatch_ns[1, RELEASES.index("stream")] == 2 * US


def test_a_wait_whose_event_nobody_names_is_for_what_ended_right_before() -> None:
    """The record was made before the capture began; L starts 2 µs after K's end, 90 µs after its launch."""
    program = Program()
    program.kernel("K", 7, call=0, start=7, end=107)
    program.rank.wait(9, -1, 6 * US, stated=False)
    program.kernel("L", 9, call=10, start=109, end=120)
    found = tasks(program.trace())
    assert [found.units.waits[unit].tolist() for unit in range(2)] == [[], [0]]
    assert found.units.unexplained_ns.tolist() == [0, 0]
