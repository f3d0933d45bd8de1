"""What each wait waits for where the capture does not say, the slow and obvious way. Plain Python, in the words of
`analyzers.ordering.inference`; shares no code with the package.

A stream is a number, `None` where nobody knows it; a negative one stands for a stream that the capture never names, but
which a thread makes wait. "Before" always means at an earlier instant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

NEVER = 10**18
BACK = 16  # unclaimed records that a lone wait is searched for
IN_A_ROW = 4  # rounds in which waits in a row find streams
TURNS = 3  # from so many on, times say more than the order of calls
ANCHORS = 3  # waits right behind their records that tell how events are numbered


@dataclass(frozen=True)
class Work:
    """A GPU op: who queued it, when, and when it ran."""

    thread: object
    stream: int
    at: int
    start: int
    end: int


@dataclass(frozen=True)
class Call:
    """A record, a wait, or an event synchronization; `inside` is the communication call around it."""

    thread: object
    at: int
    stream: int | None = None
    event: int | None = None
    inside: object = None
    end: int = 0
    claim: tuple[int, int] | None = None  # number of the record and its stream, as the capture says


@dataclass(frozen=True)
class HostProgram:
    """All that one process did, each list in order of time."""

    work: Sequence[Work] = ()
    records: Sequence[Call] = ()
    waits: Sequence[Call] = ()
    syncs: Sequence[Call] = ()
    talking: Collection[int] = field(default_factory=set)  # streams that only communicate
    default: int | None = None

    # What threads launched.

    def launches(self, thread: object, before: int = NEVER) -> list[Work]:
        return [work for work in self.work if work.thread == thread and work.at < before]

    def last_launch(self, thread: object, before: int) -> int:
        return max((work.at for work in self.launches(thread, before)), default=-NEVER)

    def last_stream(self, thread: object, before: int, *, computing: bool = False) -> int | None:
        streams = [work.stream for work in self.launches(thread, before)]
        streams = [stream for stream in streams if not (computing and stream in self.talking)]
        return streams[-1] if streams else None

    def home(self, thread: object) -> int | None:
        found = self.own_home(thread)
        threads = {one.thread for one in (*self.work, *self.records, *self.waits, *self.syncs)} - {None}
        others = [self.own_home(other) for other in sorted(threads, key=str)]
        return found if found is not None else next((home for home in others if home is not None), None)

    def own_home(self, thread: object) -> int | None:
        used = {work.stream for work in self.launches(thread)} - set(self.talking)
        waiting = {wait.stream for wait in self.waits if wait.thread == thread and wait.inside is None}
        unseen = [stream for stream in waiting if stream is not None and stream < 0]
        if unseen:
            return unseen[0]
        if self.default is not None and self.default in used | waiting:
            return self.default
        return min(used, default=None)

    # What ran when.

    def in_time(self, stream: int | None, recorded: int, deadline: int) -> bool:
        """Whether all that a stream had been given before a record had ended by a deadline."""
        given = [work for work in self.work if work.stream == stream and work.at < recorded]
        return not given or given[-1].end <= deadline

    def next_start(self, wait: Call) -> int:
        after = [work.start for work in self.work if work.stream == wait.stream and work.at >= wait.at]
        return after[0] if after else NEVER

    # The answer.

    def pair(self, number: int) -> int | None:
        """The record right before a wait on its thread, if it waits for that."""
        wait = self.waits[number]
        last = max((k for k, one in self.records_of(wait.thread) if one.at < wait.at), default=None)
        if last is None or wait.claim is not None or wait.thread is None:
            return None
        record = self.records[last]
        behind = [one for one in self.waits if one.thread == wait.thread and one.at > record.at]
        if behind[0].event != wait.event:  # several waits may follow one record: all that wait for its event
            return None
        if self.last_launch(wait.thread, wait.at) >= record.at:
            return None
        if record.inside is not None and record.inside != wait.inside:
            return None
        if None not in (record.event, wait.event) and record.event != wait.event:
            return None
        return last

    def records_of(self, thread: object) -> list[tuple[int, Call]]:
        return [(k, record) for k, record in enumerate(self.records) if record.thread == thread]

    def waited_for(self) -> list[tuple[int | None, int | None]]:
        """For each wait the number of the record and its stream."""
        pairs = [self.pair(number) for number in range(len(self.waits))]
        sources = self.by_times(pairs)
        refuted = {number for number, source in sources.items() if source is None}
        claimed = self.claimed(pairs, refuted)
        shared, habit, guesses = self.shared(pairs), self.in_pairs(pairs), self.guesses(pairs)
        told = self.told(pairs, refuted)
        claimed |= {record for record, _ in told.values()}
        found = []
        for number, wait in enumerate(self.waits):
            record = None if number in refuted else pairs[number]
            if wait.claim is not None or number in shared:
                found.append(wait.claim or shared[number])
                continue
            if number in refuted and habit:
                found.append((None, None))
                continue
            if record is None and number in told:
                record, source = told[number]
            elif record is None:
                own = (pairs[number], guesses.get(number)) if number in refuted else (None, None)
                lone = self.lone(wait, claimed, self.next_start(wait), own)
                record, source = (None, None) if wait.stream is None else lone
            elif self.records[record].stream is not None:
                source = self.records[record].stream
            else:
                source = sources.get(number)
            found.append((record, None if source == wait.stream else source))
        return found

    def synchronized(self) -> list[tuple[int | None, int | None]]:
        """For each event synchronization the number of the record and its stream."""
        pairs = [self.pair(number) for number in range(len(self.waits))]
        refuted = {number for number, source in self.by_times(pairs).items() if source is None}
        claimed = self.claimed(pairs, refuted) | {record for record, _ in self.told(pairs, refuted).values()}
        return [self.lone(sync, claimed, sync.end) for sync in self.syncs]

    def told(self, pairs: Sequence[int | None], refuted: Collection[int]) -> dict[int, tuple[int, int | None]]:
        """Records of waits without one of their own, by the numbers of events, where each is recorded once, in turn.

        They are where the waits right behind their records are all for an event as far ahead of its record.
        """
        first = [
            number
            for number, wait in enumerate(self.waits)
            if wait.event is not None and wait.event not in [one.event for one in self.waits[:number]]
        ]
        anchors = [n for n, wait in enumerate(self.waits) if pairs[n] is not None and wait.event is not None]
        ahead = {(self.waits[n].event or 0) - (pairs[n] or 0) for n in anchors}
        found: dict[int, tuple[int, int | None]] = {}
        if len(anchors) < ANCHORS or len(ahead) != 1:
            return found
        shared, habit = self.shared(pairs), self.in_pairs(pairs)
        for number in first:
            wait = self.waits[number]
            at = (wait.event or 0) - min(ahead)
            taken = number in shared or wait.claim is not None or (number in refuted and habit)
            if taken or (pairs[number] is not None and number not in refuted) or wait.stream is None:
                continue
            if 0 <= at < len(self.records) and self.records[at].at < wait.at:
                record = self.records[at]
                where = self.last_stream(record.thread, record.at) if record.stream is None else record.stream
                if where is None or self.in_time(where, record.at, self.next_start(wait)):
                    found[number] = at, where
        return found

    def claimed(self, pairs: Sequence[int | None], refuted: Collection[int]) -> set[int]:
        stated = {wait.claim[0] for wait in self.waits if wait.claim is not None}
        let_go = set() if self.in_pairs(pairs) else {pairs[number] for number in refuted}
        return (stated | {pair for pair in pairs if pair is not None}) - let_go

    def in_pairs(self, pairs: Sequence[int | None]) -> bool:
        """Whether nearly all records and waits are in pairs, but for those of libraries and what is stated."""
        waits = [n for n, one in enumerate(self.waits) if None is one.inside is one.claim and one.stream is not None]
        records = [k for k, one in enumerate(self.records) if one.inside is None]
        alone = [n for n in waits if pairs[n] is None], [k for k in records if k not in pairs]
        return all(len(one) <= max(1, len(every) / 10) for one, every in zip(alone, (waits, self.records), strict=True))

    def guesses(self, pairs: Sequence[int | None]) -> dict[int, int]:
        """Streams of records in pairs that nobody names, from the order of calls alone."""
        found = {}
        for number, pair in enumerate(pairs):
            if pair is not None and self.records[pair].stream is None:
                guess = self.source_of_pair(number, pairs)
                if guess is not None:
                    found[number] = guess
        return found

    def shared(self, pairs: Sequence[int | None]) -> dict[int, tuple[int, int]]:
        """Waits that are for the record of another wait for their event, as their own is none or is refuted.

        That is the last one made elsewhere; at one place the n-th wait for an event is for its n-th use.
        """
        guesses, links = self.guesses(pairs), {}
        for number, wait in enumerate(self.waits):
            pair = pairs[number]
            where = guesses.get(number) if pair is not None and self.records[pair].stream is None else None
            where = self.records[pair].stream if where is None and pair is not None else where
            if pair is not None and where is not None and self.link_fits(wait, pair, where):
                links[number] = pair, where
        uses: dict[object, list[int]] = {}
        seen: dict[object, int] = {}
        for number, wait in enumerate(self.waits):
            if wait.event is not None and wait.inside is None and wait.stream is not None:
                anchor, place = self.next_launch(wait)
                kind = wait.event, wait.thread, wait.stream, ("alone", anchor) if place is None else ("place", place)
                seen[kind] = seen.get(kind, 0) + 1
                uses.setdefault((wait.event, seen[kind]), []).append(number)
        found = {}
        for numbers in uses.values():
            for first, later in pairwise(numbers):
                if (
                    later not in links
                    and self.waits[later].claim is None
                    and first in links
                    and self.link_fits(self.waits[later], *links[first])
                ):
                    found[later] = links[first]
        return found

    def link_fits(self, wait: Call, record: int, stream: int) -> bool:
        return stream != wait.stream and self.in_time(stream, self.records[record].at, self.next_start(wait))

    def by_times(self, pairs: Sequence[int | None]) -> dict[int, int | None]:
        """Streams of records that nobody names, from the order of calls where the times allow it, else from the times.

        Times speak for all waits that the program makes at one place; a stream is out where one of them did not wait
        for its work. Waits made in a row, by no library, are for different streams as far as there are some. None where
        nothing is left, or several streams of which no times speak.
        """
        shared = self.shared(pairs)
        guesses = {number: guess for number, guess in self.guesses(pairs).items() if number not in shared}
        slots = {number: self.slot(number, pairs) for number in guesses}
        same = {number: (slots[number], self.record_number(pairs[number] or 0)) for number in guesses}
        streams = sorted({work.stream for work in self.work})
        habit = self.in_pairs(pairs)

        def verdicts(number: int, stream: int) -> list[str]:
            return [self.verdict(other, pairs, stream) for other in guesses if same[other] == same[number]]

        def silent(number: int) -> bool:
            """Whether its stream never went on at once after the work of its guess."""
            said = verdicts(number, guesses[number])
            alone = {same[n] for n in guesses if slots[n] == slots[number]} == {same[number]}
            return alone and not self.waits[number].inside and "at once" not in said and len(said) >= TURNS

        def first(numbers: list[int], stream: int) -> tuple[object, int]:
            """Of waits that one program makes in a row, the kind that a stream is most likely for."""
            return min((same[n] for n in numbers), key=lambda kind: (
                -max(verdicts(n, stream).count("at once") for n in numbers if same[n] == kind), kind[1]
            ))  # fmt: skip

        found: dict[int, int | None] = {}
        undecided: list[int] = []
        waiting: list[int] = []
        for number, guess in guesses.items():
            own = guess == self.waits[number].stream
            rivals = [n for n in guesses if slots[n] == slots[number] and guesses[n] == guess]
            rivals = [n for n in rivals if self.may_keep(n, guess, verdicts(n, guess)) and not self.waits[n].inside]
            keeps = self.may_keep(number, guess, verdicts(number, guess))
            free = self.waits[number].inside or not habit
            if guess not in streams or (keeps and (free or first(rivals, guess) == same[number])):
                found[number] = guess
                if guess in streams and silent(number):  # it gives way to a stream that mostly says more
                    waiting.append(number)
            else:
                found[number] = guess if own else None  # no times speak of its own work
                undecided.append(number)
        for _ in range(IN_A_ROW):
            wanted: dict[tuple[object, int], list[int]] = {}
            for number in [*undecided, *waiting]:
                taken = {found[n] for n in guesses if slots[n] == slots[number]}
                left = [s for s in streams if s not in {*taken, self.waits[number].stream}]
                left = [s for s in left if "refuted" not in verdicts(number, s)]
                at_once = [s for s in left if "at once" in verdicts(number, s)]
                ran = [s for s in left if set(verdicts(number, s)) != {"idle"}]
                best = max(at_once, key=lambda s: verdicts(number, s).count("at once"), default=None)
                if number in waiting:
                    if best is not None and 2 * verdicts(number, best).count("at once") >= len(verdicts(number, best)):
                        wanted.setdefault((slots[number], best), []).append(number)
                elif best is not None:
                    wanted.setdefault((slots[number], best), []).append(number)
                elif habit and len(ran) == 1 and guesses[number] != self.waits[number].stream:
                    wanted.setdefault((slots[number], ran[0]), []).append(number)
            for (_, stream), numbers in wanted.items():
                for number in numbers:
                    if same[number] == first(numbers, stream):
                        found[number] = stream
                        (waiting if number in waiting else undecided).remove(number)
        for number in undecided:
            if self.may_keep(number, guesses[number], verdicts(number, guesses[number])):
                found[number] = guesses[number]
        return found

    def may_keep(self, number: int, guess: int, verdicts: list[str]) -> bool:
        return guess != self.waits[number].stream and "refuted" not in verdicts

    def verdict(self, number: int, pairs: Sequence[int | None], stream: int) -> str:
        """What one wait's times say of a stream: "refuted", "at once", "ran", or "idle" where it had run nothing."""
        wait, recorded = self.waits[number], self.records[pairs[number] or 0].at
        given = [work for work in self.work if work.stream == stream and work.at < recorded]
        on_stream = [work for work in self.work if work.stream == wait.stream]
        after = [work for work in on_stream if work.at >= wait.at]
        if not given or not after:
            return "ran" if given else "idle"
        ended, before = given[-1].end, [work.end for work in on_stream if work.at < wait.at]
        if ended > after[0].start:
            return "refuted"
        free = max([after[0].at, *before[-1:]])
        return "at once" if ended >= free and after[0].start - ended <= 10_000 else "ran"

    def slot(self, number: int, pairs: Sequence[int | None]) -> tuple[object, ...]:
        """Where a wait is made: its thread, its stream, the place of the next launch, and how many records are there.

        A launch whose turn nothing repeats is a place of its own.
        """
        wait, record = self.waits[number], self.records[pairs[number] or 0]
        anchor, place = self.next_launch(wait)
        where = ("alone", anchor) if place is None else ("place", place)
        launched = self.last_launch(wait.thread, record.at)
        there = [one for _, one in self.records_of(wait.thread) if self.last_launch(wait.thread, one.at) == launched]
        return wait.thread, wait.stream, *where, len(there)

    def record_number(self, record: int) -> int:
        """Which of the records it is that its thread made since it last launched."""
        mine = self.records[record]
        launched = self.last_launch(mine.thread, mine.at)
        same = [k for k, one in self.records_of(mine.thread) if self.last_launch(mine.thread, one.at) == launched]
        return same.index(record)

    def next_launch(self, wait: Call) -> tuple[int | None, object]:
        """The thread's launch after a wait: its number, and its place where launches repeat.

        Those of all threads together, else those of the thread alone.
        """
        mine = self.launches(wait.thread)
        number = next((k for k, work in enumerate(mine) if work.at >= wait.at), None)
        if number is None:
            return None, None
        every = sorted((work for work in self.work if work.thread is not None), key=lambda work: work.at)
        turns = self.turns([(work.thread, work.stream) for work in every])
        if any(every[k].thread == wait.thread and turn is not None for k, turn in enumerate(turns)):
            turn_of = [turns[k] for k, work in enumerate(every) if work.thread == wait.thread]
        else:
            turn_of = self.turns([work.stream for work in mine])
        turn = turn_of[number]
        if turn is None:
            return number, None
        inside = [k for k, one in enumerate(turn_of) if one == turn]
        return number, (tuple(mine[k].stream for k in inside), inside.index(number))

    @staticmethod
    def turns(what: Sequence[object]) -> list[int | None]:
        """The turn of each of some launches that repeat, at least in their last half."""
        for period in range(1, len(what) // 2 + 1):
            differ = [k for k in range(len(what) - period) if what[k] != what[k + period]]
            start = differ[-1] + 1 if differ else 0
            if len(what) - start >= max(2 * period, len(what) // 2):
                start += (len(what) - start) % period
                return [None if k < start else (k - start) // period for k in range(len(what))]
        return [None] * len(what)

    def source_of_pair(self, number: int, pairs: Sequence[int | None]) -> int | None:
        """The stream of a record nobody names, from the wait right behind it."""
        wait, when = self.waits[number], self.records[pairs[number] or 0].at
        home, computing = self.home(wait.thread), self.last_stream(wait.thread, when, computing=True)
        if wait.stream is None:
            return None
        if wait.stream in self.talking:
            return home if computing is None else computing
        if wait.inside is not None:
            return None  # a library's own stream, which runs nothing
        if wait.stream == home:
            visited = self.visited(number, pairs)
            if visited is not None:
                return visited
        last = self.last_stream(wait.thread, when)
        if last in self.talking and wait.stream == computing and self.first_since_launch(wait):
            return last
        if wait.stream != home and not self.in_time(home, when, self.next_start(wait)):
            return computing
        return home

    def first_since_launch(self, wait: Call) -> bool:
        launched = self.last_launch(wait.thread, wait.at)
        same = [one for one in self.waits if (one.thread, one.stream) == (wait.thread, wait.stream)]
        return not any(launched <= one.at < wait.at for one in same)

    def visited(self, number: int, pairs: Sequence[int | None]) -> int | None:
        """For a wait of home: of the streams visited since home was last used, one for each wait in a row."""
        thread, home = self.waits[number].thread, self.waits[number].stream
        runs: list[list[int]] = []  # of waits of the home stream, without a launch between
        launched = None
        for k, wait in enumerate(self.waits):
            pair = pairs[k]
            if pair is None or self.records[pair].stream is not None:
                continue
            if (wait.thread, wait.stream, wait.inside) == (thread, home, None):
                last = self.last_launch(thread, self.records[pair].at)
                if launched != last:
                    runs.append([])
                runs[-1].append(k)
                launched = last
        began = [self.records[pairs[run[0]] or 0].at for run in runs]
        mine = next(k for k, run in enumerate(runs) if number in run)
        instant = began[mine]
        stops = [(work.at, work.stream) for work in self.launches(thread, instant) if work.stream not in self.talking]
        for back in began:  # the thread is back at home, behind what it launched at that instant
            if back < instant:
                stops.insert(sum(at <= back for at, _ in stops), (back, home or 0))
        visits = [stream for k, (_, stream) in enumerate(stops) if not k or stops[k - 1][1] != stream]
        since = visits[len(visits) - visits[::-1].index(home) :] if home in visits else visits
        if since:
            alike = [k for run in runs for k in run if self.slot(k, pairs) == self.slot(number, pairs)]
            numbers = sorted({self.record_number(pairs[k] or 0) for k in alike})
            which = numbers.index(self.record_number(pairs[number] or 0))
            return since[-1] if len(numbers) == 1 else since[which] if which < len(since) else home
        if self.last_stream(thread, instant) in self.talking:
            return None
        return next((stream for stream in reversed(visits) if stream != home), None)

    def lone(
        self, call: Call, claimed: set[int], deadline: int, out: tuple[int | None, int | None] = (None, None)
    ) -> tuple[int | None, int | None]:
        """The last record of its event; else the last unclaimed one that may be it, of its thread if there is."""
        same = [k for k, one in enumerate(self.records) if one.event == call.event and one.at < call.at]
        if call.event is not None and same:
            return same[-1], self.records[same[-1]].stream
        free = [(k, record) for k, record in enumerate(self.records) if k not in claimed and record.at < call.at]
        for pool in ([each for each in free if each[1].thread == call.thread is not None], free):
            for k, record in pool[::-1][:BACK]:
                where = self.last_stream(record.thread, record.at) if record.stream is None else record.stream
                other = None not in (record.event, call.event)  # its own event's was not there
                if where in (None, call.stream) or other or out == (k, where):
                    continue
                if self.in_time(where, record.at, deadline):
                    return k, where
        return None, None
