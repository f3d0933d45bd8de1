from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.ordering.ordering import Ordering
from analyzers.trace.tables import Trace
from tests.support.builder import one_rank
from tests.support.nightly import times

SEEDS = st.integers(0, 2**32)


@dataclass
class Program:
    """A random program of launches, records, waits and synchronizations, and what each of its steps needs done first.

    `needs[i]` are the steps that step i directly comes after; steps of kind "op" are GPU ops, in order of `ops`.
    `queue` holds the steps given to each stream, `wait_for` the record of each waiting step, `ends` the end of each op.
    """

    seed: int
    streams: int = 4
    threads: int = 2
    length: int = 60
    needs: list[set[int]] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)
    queue: dict[int, list[int]] = field(default_factory=dict)
    wait_for: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    returns: dict[int, int] = field(default_factory=dict)  # when each synchronization returned

    def run(self, blocking: tuple[int, ...] = ()) -> Trace:
        dice = random.Random(self.seed)
        run, rank = one_rank()
        for stream in range(1, self.streams + 1):
            run.stream(rank, stream, default=int(stream == 1), blocking=int(stream in blocking))
        queued: dict[int, int] = {}
        learned: dict[int, set[int]] = {thread: set() for thread in range(1, self.threads + 1)}
        free = dict.fromkeys(range(1, self.streams + 1), 0)
        for at in range(0, self.length * 10, 10):
            thread, stream = dice.randint(1, self.threads), dice.randint(1, self.streams)
            what = dice.choices(["op", "record", "wait", "stream", "event", "device"], [6, 3, 3, 0.4, 0.4, 0.2])[0]
            if what in ("wait", "event") and not self.records:
                continue
            step = len(self.needs)
            self.needs.append(set(learned[thread]))
            if what in ("op", "record", "wait"):  # queued on a stream, behind what is queued there
                self.needs[step] |= {queued[stream]} if stream in queued else set()
                if stream == 1:  # the legacy default stream: behind every blocking stream, and they behind it
                    self.needs[step] |= {queued[other] for other in blocking if other in queued}
                elif stream in blocking and 1 in queued:
                    self.needs[step].add(queued[1])
                queued[stream] = step
                self.queue.setdefault(stream, []).append(step)
            if what == "op":
                start = max(free[stream], at + dice.randint(1, 300))
                free[stream] = start + dice.randint(1, 50)
                rank.kernel(f"k{step}", stream, start, free[stream], launch=(at, at + 2), thread=thread)
                self.ops.append(step)
                self.ends[step] = free[stream]
            elif what == "record":
                self.records.append((rank.record(stream, at, thread=thread), step))
            elif what in ("wait", "event"):
                record, recorded = dice.choice(self.records)
                self.needs[step].add(recorded)
                if what == "wait":
                    self.wait_for[step] = recorded
                    rank.wait(stream, record, at, thread=thread)
                else:
                    rank.synchronize("event", at, at + 5, record=record, thread=thread)
                    learned[thread].add(step)
                    self.returns[step] = at + 5
            else:
                self.needs[step] |= {queued[s] for s in ([stream] if what == "stream" else queued) if s in queued}
                rank.synchronize(what, at, at + 5, stream=stream if what == "stream" else -1, thread=thread)
                learned[thread].add(step)
                self.returns[step] = at + 5
        return run.trace()

    def behind(self) -> list[set[int]]:
        """All steps that each step comes after, by plain closure."""
        behind: list[set[int]] = []
        for needs in self.needs:
            behind.append(set().union(needs, *(behind[need] for need in needs)))
        return behind

    def reachable(self) -> np.ndarray:
        """For ops i, j: does i come before j?"""
        behind = self.behind()
        return np.array([[first in behind[second] for second in self.ops] for first in self.ops])

    def stream_of(self, step: int) -> int:
        return next(stream for stream, steps in self.queue.items() if step in steps)

    def held_by(self, step: int) -> set[int]:
        """The ops right behind the waits a stream took between its last op and this step, however many hops away."""
        found: set[int] = set()
        steps = self.queue[self.stream_of(step)]
        for earlier in reversed(steps[: steps.index(step)]):
            if earlier in self.ends:
                return found
            if earlier in self.wait_for:
                record = self.wait_for[earlier]
                found |= self.last_op_before(record) | self.held_by(record)
        return found

    def last_op_before(self, step: int) -> set[int]:
        steps = self.queue[self.stream_of(step)]
        earlier = [each for each in steps[: steps.index(step)] if each in self.ends]
        return set(earlier[-1:])


@given(seed=SEEDS, blocking=st.sampled_from([(), (2, 3)]))
def test_order_is_reachability_in_the_program(seed: int, blocking: tuple[int, ...]) -> None:
    program = Program(seed, streams=2 + seed % 4, threads=1 + seed % 3)
    ordering = Ordering(program.run(blocking))
    truth = program.reachable()
    count = len(program.ops)
    first, second = (index.ravel() for index in np.indices((count, count)))
    np.testing.assert_array_equal(ordering.before(first, second).reshape(count, count), truth)
    np.testing.assert_array_equal(ordering.before(first, second, exact=True).reshape(count, count), truth)


@times(1 / 3)
@given(seed=SEEDS)
def test_a_path_leads_from_op_to_op_through_ordered_steps(seed: int) -> None:
    program = Program(seed)
    ordering = Ordering(program.run())
    truth = program.reachable()
    for first, second in np.ndindex(truth.shape):
        path = ordering.path(first, second)
        assert bool(path) == bool(truth[first, second])
        if path:
            assert (path[0].op, path[-1].op) == (first, second)
            assert all(early.instant_ns <= late.instant_ns + 5 for early, late in pairwise(path))


@times(1 / 2)
@given(seed=SEEDS)
def test_a_host_knows_of_an_op_by_the_first_synchronization_that_waited_for_it(seed: int) -> None:
    program = Program(seed, streams=2 + seed % 4, threads=1 + seed % 3)
    trace = program.run((2, 3) if seed % 2 else ())
    behind, ops = program.behind(), np.arange(len(program.ops))[::-1]
    instant, call = Ordering(trace).host_knows(ops)
    never = np.iinfo(np.int64).max
    for op, known, row in zip(ops, instant.tolist(), call.tolist(), strict=True):
        step = program.ops[op]
        assert known == min((end for each, end in program.returns.items() if step in behind[each]), default=never)
        assert row == -1 if known == never else trace.api.to_frame()["end_ns"].iloc[row] == known


@times(2 / 3)
@given(seed=SEEDS)
def test_an_op_is_released_by_its_stream_and_by_the_op_behind_its_waits_that_ended_last(seed: int) -> None:
    program = Program(seed, streams=2 + seed % 4)
    trace = program.run()
    released = Ordering(trace).released_by(np.arange(len(trace.ops)))
    step_of = dict(enumerate(program.ops))
    for op, step in step_of.items():
        previous, held = program.last_op_before(step), program.held_by(step)
        assert {step_of.get(int(released.previous[op]), -1)} - {-1} == previous
        latest = max((program.ends[each] for each in held), default=-1)
        waited = int(released.waited[op])
        assert (int(trace.ops.to_frame()["end_ns"].iloc[waited]) if waited >= 0 else -1) == latest
        if waited >= 0:
            assert step_of[waited] in held


# By hand.


def test_each_step_of_a_path_says_where_and_when_the_host_asked_for_it() -> None:
    run, rank = one_rank()
    rank.kernel("before", 9, 0, 1)
    first = rank.kernel("a", 7, 100, 120, launch=(0, 2))
    rank.wait_stream(8, 7, 5)
    second = rank.kernel("b", 8, 130, 140, launch=(25, 27))
    rank.synchronize("stream", 30, 145, stream=8, thread=4)
    third = rank.kernel("c", 9, 170, 180, launch=(160, 162), thread=4)
    path = Ordering(run.trace()).path(first, third)
    assert [(step.kind, step.stream, step.thread, step.instant_ns, step.op, step.call) for step in path] == [
        ("op", 7, -1, 0, first, 0),
        ("record", 7, -1, 5, -1, 1),
        ("wait", 8, -1, 7, -1, 2),
        ("synchronize", -1, 4, 145, -1, 4),
        ("launch", 9, -1, 160, -1, -1),
        ("op", 9, -1, 160, third, 5),
    ]
    assert [str(step) for step in path[2:4]] == ["wait on stream 8", "synchronize on thread 4"]
    assert Ordering(run.trace()).path(third, first) == Ordering(run.trace()).path(second, first) == ()


def test_inferred_links_count_unless_only_stated_ones_are_asked_for() -> None:
    run, rank = one_rank()
    first = np.array([rank.kernel("a", 7, 100, 120, launch=(0, 2))])
    rank.wait_stream(8, 7, 5, stated=False)
    second = np.array([rank.kernel("b", 8, 130, 140, launch=(10, 12))])
    ordering = Ordering(run.trace())
    assert ordering.before(first, second).tolist() == [True]
    assert ordering.before(first, second, exact=True).tolist() == [False]
    assert [step.exact for step in ordering.path(0, 1)] == [True, False, False, True]
    source, lane_and_position = ordering.lane_and_position(first)[0], ordering.lane_and_position(second)
    assert ordering.complete(source, *lane_and_position).tolist() == [1]
    assert ordering.complete(source, *lane_and_position, exact=True).tolist() == [0]
    assert ordering.complete(source, *lane_and_position).dtype == np.int64
