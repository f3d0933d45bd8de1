"""Waits that a program makes in other turns and leaves out in one: each rule and each exception by hand.

`tests/simulator/test_races.py` holds all of them against programs whose needed waits are known.

Pictures have a row a turn. p, s, m are launches on stream 7, 9 and 7; `7>9` makes stream 9 wait for all of stream 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from analyzers.ordering.ordering import Ordering
from analyzers.syncs.left_out import left_out
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank, one_rank


@dataclass
class Thread:
    """Writes turns of a program from words: "p7" launches, "7>9" makes 9 wait for 7, "r7" records, "w9 x" waits for x.

    "r7 x" records event x; "sync" blocks on the device. `stated` as nsys has it; else links are inferred.
    """

    stated: bool = True
    run: Builder = field(default_factory=Builder)
    now: int = 0
    ops: dict[tuple[int, str], int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self.rank: Rank = self.run.rank(0)

    def turn(self, words: str) -> Thread:
        began = self.now
        for word in words.split(","):
            self.do(word.strip())
            self.now += 10
        self.rank.range(f"ProfilerStep#{self.steps}", began, self.now - 1)
        self.steps += 1
        self.now += 10
        return self

    def do(self, word: str) -> None:
        if ">" in word:
            before, after = map(int, word.split(">"))
            self.rank.wait_stream(after, before, self.now, stated=self.stated)
        elif word == "sync":
            self.rank.synchronize("device", self.now, self.now + 5)
        elif word.startswith("r") and word[1:2].isdigit():
            stream, _, event = word[1:].partition(" ")
            self.events[event] = self.rank.record(int(stream), self.now, stated=self.stated)
        elif word.startswith("w") and " " in word:
            stream, _, event = word[1:].partition(" ")
            self.rank.wait(int(stream), self.events[event], self.now, stated=self.stated)
        elif word:
            start = 100_000 + 100 * self.now
            op = self.rank.kernel(word[0], int(word[1:]), start, start + 500, launch=(self.now, self.now + 1))
            self.ops[self.steps, word] = op

    def found(self, trace: Trace | None = None) -> list[tuple[tuple[int, str], tuple[int, str], int, int]]:
        """What does not wait for what, each by turn and word, and in how many of how many other turns it does."""
        ordering = Ordering(trace or self.run.trace())
        word_of = {op: word for word, op in self.ops.items()}
        found = left_out(ordering)
        units = [word_of[int(ordering.lanes.op[unit])] for unit in (*found.unit, *found.behind)]
        half = found.unit.size
        return sorted(zip(units[:half], units[half:], found.made.tolist(), found.turns.tolist(), strict=True))


def turns(*words: str, stated: bool = True) -> Thread:
    thread = Thread(stated)
    for one in words:
        thread.turn(one)
    return thread


def test_a_wait_that_all_turns_make_is_left_out_nowhere() -> None:
    assert turns(*["p7, 7>9, s9, 9>7, m7"] * 3).found() == []


@pytest.mark.parametrize("stated", [True, False])
def test_a_fork_left_out_in_one_turn_is_found(stated: bool) -> None:
    # p7 7>9 s9 9>7 m7
    # p7     s9 9>7 m7
    # p7 7>9 s9 9>7 m7
    whole = "p7, 7>9, s9, 9>7, m7"
    found = turns(whole, "p7, s9, 9>7, m7", whole, stated=stated).found()
    assert found == [((1, "s9"), (1, "p7"), 2, 2)]


@pytest.mark.parametrize("stated", [True, False])
def test_a_join_left_out_in_one_turn_is_found(stated: bool) -> None:
    whole = "p7, 7>9, s9, 9>7, m7"
    assert turns(whole, whole, "p7, 7>9, s9, m7", stated=stated).found() == [((2, "m7"), (2, "s9"), 2, 2)]


def test_of_several_waits_the_one_that_is_left_out_is_found() -> None:
    # p7 7>9 s9 7>11 t11  9>7 11>7 m7
    # p7 7>9 s9 7>11 t11  9>7      m7
    whole = "p7, 7>9, s9, 7>11, t11, 9>7, 11>7, m7"
    without = whole.replace(" 11>7,", "")
    assert turns(whole, without, whole).found() == [((1, "m7"), (1, "t11"), 2, 2)]


def test_where_another_wait_orders_the_work_nothing_is_missing() -> None:
    # 9>11 t11 11>7 m7: through 11, 7 waits for 9, whether it waits for 9 itself or not
    whole = "s9, 9>11, t11, 9>7, 11>7, m7"
    assert turns(whole, whole.replace(" 9>7,", ""), whole).found() == []


def test_where_the_host_waited_nothing_is_missing() -> None:
    whole = "p7, sync, 7>9, s9, 9>7, m7"
    assert turns(whole, "p7, sync, s9, 9>7, m7", whole).found() == []


def test_a_turn_that_launches_otherwise_is_not_compared() -> None:
    # The last turn has an op more: it may be another branch of the program.
    whole = "p7, 7>9, s9, 9>7, m7"
    assert turns(whole, whole, "p7, s9, x9, 9>7, m7").found() == []


def test_a_wait_that_few_turns_make_is_not_the_programs_habit() -> None:
    # made in one turn of four
    without = "p7, s9, 9>7, m7"
    assert turns(without, "p7, 7>9, s9, 9>7, m7", without, without).found() == []


def test_a_loop_may_begin_without_a_wait_for_what_earlier_turns_did() -> None:
    # s9 p7        `if step: main.wait_stream(side)`: the wait is for what the side did in the turn before
    # s9 9>7 p7
    # s9 9>7 p7
    assert turns("s9, p7", *["s9, 9>7, p7"] * 3).found() == []


def test_a_loop_may_begin_with_several_turns_without_a_wait() -> None:
    # A ring of two buffers: from turn 2 on, 9 waits for the op of 7 two turns ago. Nothing is waited for before.
    thread = Thread()
    for turn in range(5):
        waits = f"w9 done{turn - 2}, " if turn >= 2 else ""
        thread.turn(f"{waits}s9, 9>7, p7, r7 done{turn}")
    assert thread.found() == []


def test_in_a_ring_a_later_turn_that_leaves_the_wait_out_is_found() -> None:
    thread = Thread()
    for turn in range(6):
        waits = f"w9 done{turn - 2}, " if turn >= 2 and turn != 4 else ""
        thread.turn(f"{waits}s9, 9>7, p7, r7 done{turn}")
    assert thread.found() == [((4, "s9"), (2, "p7"), 3, 3)]


def test_the_first_turn_needs_a_wait_that_can_only_be_for_its_own_work() -> None:
    # p7 7>9 s9     m7 9>7 x7    at m7 only this turn's s9 can be waited for: for those before, x7 has waited
    # p7 7>9 s9 9>7 m7 9>7 x7
    whole = "p7, 7>9, s9, 9>7, m7, 9>7, x7"
    assert turns(whole.replace("9>7, m7", "m7"), whole, whole).found() == [((0, "m7"), (0, "s9"), 2, 2)]


def test_a_record_left_over_in_the_first_turn_tells_that_its_wait_is_missing() -> None:
    # p7 x7 r7       s9     the fork might be for m7 of the turn before, but its event is recorded here, too
    # p7 x7 r7 w9    s9
    def turn(number: int, wait: bool) -> str:
        return f"p7, r7 e{number}, {f'w9 e{number}, ' if wait else ''}s9, 9>7, m7"

    assert turns(turn(0, False), turn(1, True), turn(2, True)).found() == [((0, "s9"), (0, "p7"), 2, 2)]
    assert turns("p7, s9, 9>7, m7", turn(1, True), turn(2, True)).found() == []


def test_work_from_before_the_capture_may_have_been_waited_for_before_it() -> None:
    # s9 of before the capture has no launch on record; turn 0 does not wait for it
    thread = Thread()
    thread.rank.kernel("s", 9, 50_000, 50_500)
    thread.turn("p7, 9>7, m7, x9").turn("p7, 9>7, m7, x9").turn("p7, 9>7, m7, x9")
    assert thread.found() == []
    thread = Thread()
    thread.rank.kernel("s", 9, 50_000, 50_500)
    thread.turn("p7, m7, x9").turn("p7, 9>7, m7, x9").turn("p7, 9>7, m7, x9")
    assert thread.found() == []


def test_where_waits_are_not_recorded_none_is_missing() -> None:
    run, rank = one_rank()
    for turn in range(3):
        at = 1000 * turn
        rank.kernel("p", 7, at + 500, at + 600, launch=(at, at + 1))
        if turn != 1:
            rank.call("cudaEventRecord", at + 10, at + 11)
            rank.call("cudaStreamWaitEvent", at + 12, at + 13)
        rank.kernel("s", 9, at + 510, at + 620, launch=(at + 20, at + 21))
    assert left_out(Ordering(run.trace())).unit.size == 0
