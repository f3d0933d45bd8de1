"""What waits wait for where the capture does not say: short sequences of calls, and when the work ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank
from tests.support.order_of import Link, links_of

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


class HostThread:
    """One thread's calls, 10 ns apart, of which the capture says neither what recorded nor what is waited for."""

    def __init__(self) -> None:
        self.run = Builder()
        self.rank: Rank = self.run.rank(0)
        self.now = 0
        self.thread = 1
        self.events: dict[str, dict[int, int]] = {"records": {}, "syncs": {}}

    def launch(self, *streams: int, runs: tuple[int, int] | None = None, name: str = "gemm") -> HostThread:
        """Give streams work, which runs long after all calls, or as said."""
        for stream in streams:
            start, end = runs or (10_000 + self.now, 10_001 + self.now)
            self.rank.kernel(name, stream, start, end, launch=(self.now, self.now + 1), thread=self.thread)
            self.now += 10
        return self

    def talk(self, stream: int) -> HostThread:
        return self.launch(stream, name=NCCL)

    def record(self, event: int = -1) -> HostThread:
        self.events["records"][len(self.run.rows["records"])] = event
        self.rank.record(0, self.now, thread=self.thread, stated=False)
        self.now += 10
        return self

    def wait(self, stream: int, event: int = -1) -> HostThread:
        self.events["syncs"][len(self.run.rows["syncs"])] = event
        self.rank.wait(stream, -1, self.now, thread=self.thread, stated=False)
        self.now += 10
        return self

    def synchronize(self, end: int, event: int = -1) -> HostThread:
        self.events["syncs"][len(self.run.rows["syncs"])] = event
        self.rank.synchronize("event", self.now, end, thread=self.thread)
        self.now += 10
        return self

    def on(self, thread: int) -> HostThread:
        self.thread = thread
        return self

    def inside(self, calls: int) -> HostThread:
        """The next calls are made by a communication library inside one of its own."""
        end = self.now + calls * 10 - 5
        self.run.add("comms", process=0, thread=self.thread, start_ns=self.now, end_ns=end)
        return self

    def trace(self) -> Trace:
        trace = self.run.trace()
        events = {name: list(numbers.values()) for name, numbers in self.events.items()}
        return replace(
            trace,
            records=trace.records.having(event=events["records"]),
            syncs=trace.syncs.having(event=events["syncs"]),
        )

    def waited_for(self) -> list[tuple[int, str]]:
        return [(link.record, link.source) for link in links_of(self.trace())]

    def synchronized(self) -> list[tuple[int, str]]:
        return [(link.record, link.source) for link in links_of(self.trace(), "syncs")]


# Which record.


@pytest.mark.parametrize("events", [(5, 6, 6), (5, 6, 5), (-1, 6, 6), (5, 5, 6)])
def test_of_several_waits_behind_one_record_those_wait_for_it_that_wait_for_the_first_one_s_event(
    events: tuple[int, ...],
) -> None:
    host_thread = HostThread().launch(7, 8).record()
    for event in events:
        host_thread.wait(9, event)
    assert host_thread.waited_for() == [(20, "s7") if event == events[0] else (-1, "") for event in events]


def test_a_lone_wait_is_for_the_last_record_of_its_thread_that_no_other_wait_claims() -> None:
    host_thread = (
        HostThread().launch(7, 8).record().launch(7).record().wait(9).on(2).launch(8).record().on(1).launch(6).wait(9)
    )
    assert host_thread.waited_for() == [(40, "s6"), (20, "s8")]


def test_a_lone_wait_is_not_for_a_record_that_another_wait_is_stated_to_wait_for() -> None:
    host_thread = HostThread().record().launch(7).record().launch(8).wait(9).wait(9)
    trace = host_thread.trace()
    stated = replace(trace, syncs=trace.syncs.having(record_correlation=[3, -1], record_stream=[7, -1]))
    assert links_of(trace) == [Link(20, "s7"), Link(20, "s7")]
    assert links_of(stated) == [Link(20, "s7", exact=True), Link(-1, "")]
    first = HostThread().launch(7).record().launch(8).wait(9).wait(9).trace()
    stated = replace(first, syncs=first.syncs.having(record_correlation=[2, -1], record_stream=[7, -1]))
    assert links_of(stated) == [Link(10, "s7", exact=True), Link(-1, "")]


@pytest.mark.parametrize("fresh", [True, False])
def test_events_that_are_made_one_by_one_are_told_by_their_numbers(fresh: bool) -> None:
    """Each turn records before stream 7's work, behind it, and once more; 25 waits for the first of the three, late.

    The wait for the last one comes right behind it, and tells how events are numbered. Where they are not numbered in
    turn, 25 waits for the last record that no other wait claims.
    """
    host_thread = HostThread().launch(7)
    first = []
    for turn in range(4):
        number = 71 + 3 * turn if fresh else 71 + turn
        first.append((host_thread.now, "s7"))
        host_thread.record().launch(7, 7).record().launch(7).wait(25, number).launch(25)
        host_thread.record().wait(7, number + 2).launch(7)
    found = host_thread.waited_for()
    assert found[1::2] == [(at + 70, "s25") for at, _ in first]
    assert found[::2] == (first if fresh else [(at + 30, "s7") for at, _ in first])


@pytest.mark.parametrize(("turns", "late", "expected"), [(4, 0, "s22"), (4, 40_000, "s18"), (2, 0, "s18")])
def test_times_tell_which_stream_home_waits_for(turns: int, late: int, expected: str) -> None:
    """Stream 18 copies, 22 gathers behind it, and 7 waits, right behind it, and begins 3 µs after the gathering.

    It visited 18 last; but that was over each time when the gathering began. Where it began long after both, and in two
    turns, which tell too little: 18.
    """
    host_thread = HostThread().launch(7, runs=(0, 50))
    for turn in range(turns):
        at = 1_000_000 * (turn + 1)
        host_thread.now = at
        host_thread.launch(18, runs=(at + 5_000, at + 9_000)).launch(22, runs=(at + 9_100, at + 90_000), name=NCCL)
        begin = at + 93_000 + late
        host_thread.record().wait(7).launch(7, runs=(begin, begin + 5_000))
    assert [source for _, source in host_thread.waited_for()] == [expected] * turns


@pytest.mark.parametrize(
    ("start", "expected"), [(300, (30, "s8")), (299, (10, "s7")), (200, (10, "s7")), (199, (-1, ""))]
)
def test_a_lone_wait_is_not_for_work_that_ended_after_it_was_over(start: int, expected: tuple[int, str]) -> None:
    host_thread = HostThread().launch(7, runs=(100, 200)).record().launch(8, runs=(100, 300)).record().launch(6).wait(9)
    assert host_thread.launch(9, runs=(start, 400)).waited_for() == [expected]


@pytest.mark.parametrize(("count", "expected"), [(15, (10, "s7")), (16, (-1, ""))])
def test_a_lone_wait_is_searched_for_among_the_last_sixteen_records(count: int, expected: tuple[int, str]) -> None:
    host_thread = HostThread().launch(7, runs=(1_000, 1_100)).record().launch(8, runs=(1_000, 9_000))
    for _ in range(count):
        host_thread.record()  # behind work that was still running when the waiting stream went on
    assert host_thread.launch(6).wait(9).launch(9, runs=(2_000, 2_100)).waited_for() == [expected]


# Which stream.

STREAMS = {
    "home waits for each of those visited, in turn": (
        lambda t: t.launch(7, 8, 9, 8).record().wait(7).record().wait(7).record().wait(7),
        "s8 s9 s8",
    ),
    "visits before home was used last do not count, and the third is for none of them": (
        lambda t: t.launch(7, 8, 7, 9, 10).record().wait(7).record().wait(7).record().wait(7),
        "s9 s10 -",
    ),
    "home that comes back to itself waits for the last stream away": (
        lambda t: t.launch(7, 8, 7).record().wait(7),
        "s8",
    ),
    "home that was never left waits for none": (lambda t: t.launch(7, 7).record().wait(7), "-"),
    "a wait of home counts as being there": (
        lambda t: t.launch(7, 8).record().wait(7).launch(9).record().wait(7).record().wait(7),
        "s8 s9 -",
    ),
    "each time those count that were visited since": (
        lambda t: t.launch(7, 8).record().wait(7).launch(9, 10, 8).record().wait(7).record().wait(7),
        "s8 s9 s10",
    ),
    "home that has just launched communication waits for it": (
        lambda t: t.launch(7, 8, 7).talk(20).record().wait(7),
        "s20",
    ),
    "so it does where that has a lower number": (lambda t: t.launch(7, 8, 7).talk(2).record().wait(7), "s2"),
    "unless it has been made to wait since": (
        lambda t: t.launch(7, 8, 7).talk(20).record().wait(7).record().wait(7),
        "s20 -",
    ),
    "communication waits for the computing stream launched on last": (
        lambda t: t.launch(7, 8).talk(20).record().wait(20),
        "s8",
    ),
    "and not for other communication": (lambda t: t.launch(7, 8).talk(21).talk(20).record().wait(20), "s8"),
    "communication waits for home where its thread computed nothing yet": (
        lambda t: t.record().wait(20).launch(7).on(2).talk(20),
        "s7",
    ),
    "another stream waits for home": (lambda t: t.launch(7, 8, 9).record().wait(8), "s7"),
    "another stream that launched communication waits for that, once": (
        lambda t: t.launch(7, 8).talk(20).record().wait(8).record().wait(8),
        "s20 s7",
    ),
    "a library's stream waits for the computing one inside its call": (
        lambda t: t.launch(7, 8).talk(20).inside(2).record().wait(20),
        "s8",
    ),
    "a library's own waits of other streams say nothing": (
        lambda t: t.launch(7, 8).inside(2).record().wait(9).inside(2).record().wait(7),
        "- -",
    ),
    "a stream waits for no record of its own": (lambda t: t.launch(7).record().wait(7), "-"),
}


@pytest.mark.parametrize("what", STREAMS)
def test_a_record_of_unknown_stream_is_told_by_the_wait_behind_it(what: str) -> None:
    calls, expected = STREAMS[what]
    assert [source or "-" for _, source in calls(HostThread()).waited_for()] == expected.split()


@pytest.mark.parametrize(("start", "expected"), [(300, "s7"), (299, "s9")])
def test_another_stream_that_began_too_early_to_have_waited_for_home_waits_for_the_last(
    start: int, expected: str
) -> None:
    host_thread = HostThread().launch(7, runs=(200, 300)).launch(9, runs=(200, 210)).record().wait(8)
    host_thread.launch(8, runs=(start, 400))
    assert host_thread.waited_for() == [(20, expected)]


def test_where_records_are_made_for_waits_a_refuted_one_is_for_no_earlier_record() -> None:
    host_thread = HostThread().launch(10, 9, runs=(100, 150)).record().launch(7, runs=(200, 90_000)).record().wait(8)
    assert host_thread.launch(8, runs=(80_000, 95_000)).waited_for() == [(-1, "")]


def test_elsewhere_a_refuted_one_leaves_its_record_to_others() -> None:
    host_thread = HostThread().launch(10, 9, runs=(100, 150)).record().record()  # two that no wait follows
    host_thread.launch(7, runs=(200, 90_000)).record().wait(8).launch(8, runs=(80_000, 95_000))
    host_thread.launch(11, runs=(1, 2)).wait(12).launch(12, runs=(95_000, 96_000))
    assert host_thread.waited_for() == [(30, "s9"), (50, "s7")]


# Synchronizations.


def test_an_event_synchronization_is_for_the_last_record_whose_work_had_ended() -> None:
    for end, expected in ((300, (30, "s8")), (299, (10, "s7")), (200, (10, "s7")), (199, (-1, ""))):
        host_thread = HostThread().launch(7, runs=(100, 200)).record().launch(8, runs=(100, 300)).record()
        assert host_thread.synchronize(end).synchronized() == [expected]


def test_an_event_synchronization_is_not_for_a_record_that_a_wait_claims() -> None:
    host_thread = HostThread().launch(7, 8).record().record().wait(9).launch(8).synchronize(20_000)
    assert host_thread.synchronized() == [(20, "s8")]


def test_an_event_synchronization_goes_by_its_event() -> None:
    host_thread = HostThread().launch(7, 8).record(4).record(3).synchronize(20_000, event=4)
    trace = host_thread.trace()
    trace = replace(trace, records=trace.records.having(stream=7, context=1))
    assert links_of(trace, "syncs") == [Link(20, "s7")]
