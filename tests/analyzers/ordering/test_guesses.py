"""What waits wait for is inferred as the slow calculation says, on random programs of which the capture lacks much."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from analyzers.ordering.links import LinkedCalls
from tests.support.builder import Builder, Rank
from tests.support.oracle_links import Call, HostProgram, Work
from tests.support.order_of import linked, name_of

NCCL = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
COMPUTING = (3, 5, 9)
UNUSED = 30  # a stream that runs nothing
Guess = tuple[int | None, int | None]


def random_program(
    run: Builder, rank: Rank, seed: int, talking: set[int], *, events: bool, hidden: bool, numbered: bool = False
) -> HostProgram:
    """A random program of one process, in the builder and as calls of its host.

    Numbered, each of its records is of an event of its own, the next one's number the next, which waits name.
    """
    dice = random.Random(seed)
    streams = [*COMPUTING, *sorted(talking)]
    threads, at, free = (1, 2)[: dice.randint(1, 2)], 0, dict.fromkeys(streams, 0)
    spans = {thread: _spans(dice) if dice.random() < 0.5 else [] for thread in threads}
    default = dice.choice([None, 5])
    if default is not None:
        run.stream(rank, default, default=1)
    for thread in threads:
        for low, high in spans[thread]:
            run.add("comms", process=rank.process, thread=thread, start_ns=low, end_ns=high)
    work: list[Work] = []
    records: list[Call] = []
    waits: list[Call] = []
    syncs: list[Call] = []
    numbers: list[int] = []  # correlation of each record

    def call(name: str, thread: int, length: int = 0) -> tuple[int, Call]:
        inside = next((span for span in spans[thread] if span[0] <= at <= span[1]), None)
        return rank.call(name, at, at + length, thread=thread), Call(thread, at, inside=inside, end=at + length)

    def launch(thread: int) -> None:
        nonlocal at
        at += any(one.at == at for one in work)  # which of two at one instant came last, nobody knows
        stream = dice.choice(streams)
        start = max(free[stream], at + dice.randint(1, 60))
        free[stream] = start + dice.randint(1, 40)
        kernel = NCCL if stream in talking else "gemm"
        owner = thread if dice.random() < 0.95 else None
        rank.kernel(kernel, stream, start, free[stream], launch=(at, at + 1) if owner else None, thread=owner)
        work.append(Work(owner, stream, at if owner else start, start, free[stream]))

    def record(thread: int) -> None:
        number, made = call("cudaEventRecord", thread)
        stream = dice.choice(streams) if events and dice.random() < 0.7 else None
        event = dice.randint(0, 2) if events and dice.random() < 0.7 else None
        run.add("records", process=rank.process, correlation=number, **_told(stream=stream, event=event))
        records.append(replace(made, stream=stream, event=event))
        numbers.append(number)

    def wait(thread: int, stream: int | None) -> None:
        number, made = call("cudaStreamWaitEvent", thread)
        event = dice.randint(0, 2) if dice.random() < (0.7 if events else 0.2) else None
        if numbered and records:
            since = max((one.at for one in work if one.thread == thread), default=-1)
            behind = [k for k, one in enumerate(records) if one.thread == thread and since < one.at < at]
            event = 50 + (behind[-1] if behind else dice.randrange(len(records)))
        guesses_of = None
        earlier = [k for k, each in enumerate(records) if each.at < at]
        if stream is not None and earlier and work and dice.random() < 0.15:
            claimed = dice.choice(earlier)
            recorded = records[claimed].stream
            guesses_of = claimed, dice.choice(work).stream if recorded is None else recorded
        claim = (numbers[guesses_of[0]], guesses_of[1]) if guesses_of else (-1, -1)
        if stream is not None:
            known = _told(stream=stream, event=event) | {"record_correlation": claim[0], "record_stream": claim[1]}
            run.add("syncs", process=rank.process, kind="stream_wait", correlation=number, **known)
        elif made.inside is None:
            stream = -thread
        waits.append(
            replace(made, stream=stream, event=event if stream is not None and stream > 0 else None, claim=guesses_of)
        )

    def synchronize(thread: int) -> None:
        number, made = call("cudaEventSynchronize", thread, dice.randint(0, 60))
        event = dice.randint(0, 2) if dice.random() < 0.5 else None
        run.add("syncs", process=rank.process, kind="event", correlation=number, **_told(event=event))
        syncs.append(replace(made, event=event))

    for _ in range(dice.randint(1, 50)):
        at += dice.choice([0, 1, 2, 6])
        thread = dice.choice(threads)
        what = dice.choices([launch, record, "wait", "join", synchronize], [6, 2, 2, 4, 0.6])[0]
        if callable(what):
            what(thread)
            continue
        stream: int | None = dice.choice([*streams, UNUSED]) if dice.random() < 0.9 or not hidden else None
        if what == "join":
            record(thread)
            at += dice.choice([0, 1, 1, 1])
        for _ in range(dice.choice([1, 1, 1, 2])):
            wait(thread, stream)
    if not any(one.stream is not None and one.stream > 0 for one in waits):  # nobody is known to wait
        waits = [replace(one, stream=next_stream(work, one)) for one in waits]
    ran = {one.stream for one in work}
    queued = {stream: [one.at for one in work if one.stream == stream] for stream in ran}
    assert all(sorted(ats) == ats or None in {one.thread for one in work} for ats in queued.values())
    calls = [*records, *waits, *syncs, *(one for one in work if one.thread is not None)]
    began = min((one.at for one in calls), default=0)
    return HostProgram(_as_queued(work, began), records, waits, syncs, talking & ran, default)


def next_stream(work: list[Work], wait: Call) -> int | None:
    """The stream of what a wait's thread launched next."""
    after = [one for one in work if one.thread == wait.thread and one.at >= wait.at]
    return min(after, key=lambda one: one.at).stream if after else wait.stream


def _spans(dice: random.Random) -> list[tuple[int, int]]:
    """Some spans of time that do not touch."""
    cuts = sorted(dice.sample(range(80), 6))
    return [(low, high - 1) for low, high in zip(cuts[::2], cuts[1::2], strict=True) if high - 1 >= low]


def _told(**values: int | None) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None} | {"context": 1}


def _as_queued(work: list[Work], began: int) -> list[Work]:
    """What runs earlier on a stream was queued no later, and before the capture where it began before all launches."""
    for stream in {one.stream for one in work}:
        known = [k for k, one in enumerate(work) if one.stream == stream and one.thread is not None]
        if known:
            ahead = [one.stream == stream and k < known[0] for k, one in enumerate(work)]
            work = [
                replace(one, at=min(one.at, began - 1)) if yes else one for one, yes in zip(work, ahead, strict=True)
            ]
    return sorted(
        [
            replace(one, at=min(later.at for later in work[k:] if later.stream == one.stream))
            for k, one in enumerate(work)
        ],
        key=lambda one: one.at,
    )


def guesses_of(found: LinkedCalls, which: str, process: int) -> list[Guess]:
    """For each wait (or event synchronization) the number of the record within its process, and the stream."""
    calls, links = getattr(found.calls, which), getattr(found, which)
    records = found.calls.records
    first = int((records.process < process).sum()) if process else 0
    order = [int(k) for k in records.call.argsort()]  # processes follow each other in the table of calls
    answer: list[Guess] = []
    for row in calls.call.argsort().tolist():
        if calls.process[row] == process and (which == "waits" or found.calls.is_kind("event")[row]):
            record, source = int(links.record[row]), int(links.source[row])
            number = None if record == -1 else order.index(record) - first
            name = name_of(found.calls.lanes, source).split(":")[-1]
            answer.append((number, int(name.replace("unseen by t", "s-")[1:]) if name else None))
    return answer


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("events", "numbered"), [(False, False), (True, False), (False, True)])
def test_inferred_links_are_those_of_the_slow_calculation(seed: int, events: bool, numbered: bool) -> None:
    run = Builder()
    programs = []
    for number in range(12):
        run.correlation = 0  # the same numbers in each process
        rank, talking = run.rank(number), {20, 22} if seed % 2 else {2, 22}
        more = {"events": events, "hidden": number % 2 == 0, "numbered": numbered}
        programs.append(random_program(run, rank, 12 * seed + number, talking, **more))
    trace = run.trace()
    found = linked(trace)
    for process, each in enumerate(programs):
        assert guesses_of(found, "waits", process) == each.waited_for()
        assert guesses_of(found, "syncs", process) == each.synchronized()
