"""Waits that a program makes in other turns and leaves out in one: each rule and each exception by hand, then all by
brute force.

Pictures have a row a turn. p, s, m are launches on stream 7, 9 and 7; `7>9` makes stream 9 wait for all of stream 7.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
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


# By brute force, on programs of one thread whose turns launch the same, and whose links are stated. In words:
#
# A wait is made at an anchor, a launch right before or after it: by a stream, for all that another stream has been
# given by then; the op that takes it is the next that its stream is given, so many turns later. It is the same wait
# wherever anchor, streams and op are the same launches of their turns.
# In a turn with its anchor and its op in which the stream takes fewer waits at the anchor than in any turn that makes
# it, the wait is left out, if the other stream has been given something and not all of that is ordered before the op.
# Before the first turn that makes it, it is so only if a record more than waits is there (as many as where it is made),
# or if in no turn that makes it it can be for earlier turns' work: by its last op before, the stream knew all of that.
# At least half of the turns in which it is made or left out make it.


@dataclass(frozen=True)
class Wait:
    anchor: int
    stream: int
    source: int
    taker: int
    later: int


@dataclass
class Slow:
    """A program: for each turn, launches (streams) and between them waits (stream, source) and lone records."""

    turns: list[list[tuple[str, int, int]]]

    def __post_init__(self) -> None:
        self.launches: list[tuple[int, int, int]] = []  # turn, number in it, stream
        self.known: list[set[int]] = []  # launches ordered before each
        self.waits: list[tuple[int, int, int, int]] = []  # launches before it, stream, source, of the source
        self.records: list[int] = []  # launches before each
        knows: dict[int, set[int]] = {}
        for turn, actions in enumerate(self.turns):
            number = 0
            for what, stream, source in actions:
                if what == "launch":
                    mine = knows.setdefault(stream, set())
                    self.known.append(set(mine))
                    mine.add(len(self.launches))
                    self.launches.append((turn, number, stream))
                    number += 1
                else:
                    self.records.append(len(self.launches))
                if what == "wait":
                    self.waits.append((len(self.launches), stream, source, len(self.given(source, len(self.launches)))))
                    knows.setdefault(stream, set()).update(knows.get(source, set()))

    def given(self, stream: int, before: int) -> list[int]:
        return [k for k, (_, _, on) in enumerate(self.launches[:before]) if on == stream]

    def at(self, turn: int, number: int) -> int | None:
        return next((k for k, one in enumerate(self.launches) if one[:2] == (turn, number)), None)

    def next_of(self, stream: int, position: int) -> int | None:
        return next((k for k in range(position, len(self.launches)) if self.launches[k][2] == stream), None)

    def missing(self, *, after: bool) -> set[tuple[int, int]]:
        back = 0 if after else -1  # the anchor of what is done before launch k is launch k, or the one before
        made: dict[Wait, list[tuple[int, int]]] = {}  # turn of the anchor, position of the wait
        taken = Counter((position + back, stream) for position, stream, _, _ in self.waits)
        records = Counter(position + back for position in self.records)
        for position, stream, source, _ in self.waits:
            anchor, taker = position + back, self.next_of(stream, position)
            if 0 <= anchor < len(self.launches) and taker is not None:
                (turn, number, _), (taking, taken_by, _) = self.launches[anchor], self.launches[taker]
                wait = Wait(number, stream, source, taken_by, taking - turn)
                if turn not in [other for other, _ in made.get(wait, [])]:
                    made.setdefault(wait, []).append((turn, position))
        found = set()
        for wait, where in made.items():
            anchors = {turn: self.at(turn, wait.anchor) for turn, _ in where}
            fewest = min(taken[anchors[turn] or 0, wait.stream] for turn, _ in where)
            recorded = min(records[anchors[turn] or 0] for turn, _ in where)
            earlier = any(self.may_be_for_earlier(wait, position) for _, position in where)
            left_out, others = set(), set()
            for turn in range(len(self.turns)):
                anchor, op = self.at(turn, wait.anchor), self.at(turn + wait.later, wait.taker)
                if anchor is None:
                    continue
                fewer = taken[anchor, wait.stream] < fewest
                given = self.given(wait.source, anchor - back)
                leading = turn < min(turn for turn, _ in where)
                there = op is not None and bool(given)
                there = there and (not leading or not earlier or records[anchor] >= recorded)
                if there or not fewer:
                    others.add(turn)
                if there and fewer and op is not None and not set(given) <= self.known[op]:
                    left_out.add((op, given[-1]))
            if 2 * len(where) >= len(others):
                found |= left_out
        return found

    def may_be_for_earlier(self, wait: Wait, position: int) -> bool:
        op = self.next_of(wait.stream, position)
        assert op is not None
        began = self.at(self.launches[op][0], 0)
        own = self.given(wait.stream, op)
        known = self.known[own[-1]] if own else set()
        return not set(self.given(wait.source, began or 0)) <= known

    def all_missing(self) -> set[tuple[int, int]]:
        """Of several units of one stream, the last."""
        both = self.missing(after=False) | self.missing(after=True)
        last: dict[tuple[int, int], int] = {}
        for op, behind in both:
            key = op, self.launches[behind][2]
            last[key] = max(last.get(key, -1), behind)
        return {(op, behind) for (op, _), behind in last.items()}


def random_program(dice: random.Random) -> list[list[tuple[str, int, int]]]:
    streams = [7, 9, 11]
    template: list[tuple[str, int, int]] = []
    for _ in range(dice.randint(2, 5)):
        waits = range(dice.choice([0, 0, 1, 1, 2]))
        template.extend(("wait", *dice.sample(streams, 2)) for _ in waits)
        template.append(("launch", dice.choice(streams), 0))

    def turn() -> Iterator[tuple[str, int, int]]:
        for action in template:
            if action[0] == "launch" or dice.random() < 0.8:
                yield action
            elif dice.random() < 0.5:
                yield "record", 0, action[2]

    return [list(turn()) for _ in range(dice.randint(2, 5))]


def as_trace(program: list[list[tuple[str, int, int]]]) -> tuple[Builder, list[int]]:
    run, rank = one_rank()
    now, ops = 0, []
    for number, turn in enumerate(program):
        began = now
        for what, stream, source in turn:
            if what == "launch":
                start = 100_000 + 100 * now
                ops.append(rank.kernel("k", stream, start, start + 50, launch=(now, now + 1)))
            elif what == "wait":
                rank.wait_stream(stream, source, now)
            else:
                rank.record(source, now)
            now += 10
        rank.range(f"ProfilerStep#{number}", began, now - 1)
        now += 10
    return run, ops


@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(40, 300))])
def test_what_is_left_out_is_what_the_slow_calculation_says(seed: int) -> None:
    program = random_program(random.Random(seed))
    run, ops = as_trace(program)
    ordering = Ordering(run.trace())
    found = left_out(ordering)
    pairs = {
        (ops.index(int(ordering.lanes.op[unit])), ops.index(int(ordering.lanes.op[behind])))
        for unit, behind in zip(found.unit, found.behind, strict=True)
    }
    assert pairs == Slow(program).all_missing()
