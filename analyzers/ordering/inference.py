"""Infer what a stream wait waits for where the capture does not say.

Kineto gives neither the stream of a record nor, mostly, the record of a wait; nsys before 2024 gives event ids,
which are reused, and lacks some records. What is left is the order of calls on a thread, and time: work that began
before other work ended did not wait for it. In order of trust:

1. a wait right after a record on its thread, with no launch between, waits for that record (not where a communication
   library recorded for itself, and the wait came after its call);
2. else for the record that its event's number says, where the capture numbers events as they are made, and each is
   recorded once: the waits of 1 tell (see `Inference.numbered`);
3. else for the record of another wait for its event, elsewhere in the program, that the times allow;
4. else for the last earlier record of its thread that no wait claimed by 1, that is of no other event, and that the
   times allow.

One thread records at 10 and 20 ns, and makes stream 25 wait at 21 and 40 ns, with a launch at 30. The wait at 21
comes right after the record at 20: that is its record, by 1. The wait at 40 has the launch before it, and no event
id: the record at 20 is claimed, so it takes the one at 10, by 4, if what was queued there by 10 had ended when the
first op that stream 25 was given after 40 started. Had that op started earlier, the wait would stay unknown.

The stream of a record nobody names, when a wait follows at once: of the streams that run computation, where a
communication stream waits, the one its thread launched on last; where the thread's home stream waits, those the
thread visited since, one for each wait in a row; where another stream waits, the home stream. A stream that waits
right after it launched communication waits for that. Without a wait behind it, it is the stream its thread launched
on last. Times have the last word, over all turns of the program (see `Inference._by_times`).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from analyzers.arrays.groups import first_of_each, group_numbers, label, occurrence, rows_by_key, run_heads
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.ordering.calls import Calls, HostCalls, communication_around
from analyzers.ordering.lanes import MAX_NS, MIN_NS, take_or
from analyzers.ordering.places import Places
from analyzers.trace.tables import Trace

AT_ONCE_NS = 10_000  # from the end of the work that a stream waited for to the begin of its own
MAX_RECORDS_BACK = 16  # unclaimed records that a lone wait is searched for
MAX_LONE_CALLS = (
    0.1  # share of records and waits that are not in pairs, which leaves a program its habit; or a single one
)
MIN_TURNS = 3  # of a program, for times to say more than the order of calls
MIN_ANCHORS = 3  # waits right behind their records, for the numbers of events to say anything


class Inference:
    """Guesses for one trace.

    Parameters
    ----------
    waiting : the lane that each of `calls.waits` makes wait, and how many units it had been given by then.
    around : the communication call that each wait lies inside, -1 none.
    home : the home stream of each host lane.
    stated : the waits that need no guess, and `claimed` the records that those wait for.
    """

    def __init__(
        self,
        trace: Trace,
        calls: HostCalls,
        places: Places,
        waiting: tuple[Ints, Ids],
        around: Ints,
        home: Ids,
        stated: Mask,
        claimed: Ints,
    ) -> None:
        self.places, self.home = places, home
        self.lanes, self.records, self.calls = calls.lanes, calls.records, calls
        self.wait_lane, self.wait_position = waiting
        self.around, self.stated = around, stated
        self.around_record = communication_around(trace, calls.lanes, calls.records.host, calls.records.start_ns)
        self.record_name = trace.api.name.codes[calls.records.call]
        self.pair = self._pairs()
        self.place, self.number, self.records_there = self._numbers()
        self.claimed = np.zeros(self.records.size, dtype=bool)
        self.claimed[self.pair[self.pair >= 0]] = True
        self.claimed[claimed[claimed >= 0]] = True

    def waits(self) -> tuple[Ints, Ints]:
        """For each stream wait the record and the lane it was recorded on; -1 unknown."""
        waits = self.calls.waits
        record = self.pair.copy()
        source = take_or(self.records.lane, record)
        unnamed = (record >= 0) & (source < 0)
        source[unnamed] = self._source_of_pair(np.flatnonzero(unnamed))
        guessed = np.flatnonzero(unnamed & (source >= 0))
        shared = self._shared(record, source)
        guessed = guessed[shared[guessed] < 0]
        guess = source.copy()
        source[guessed] = self._by_times(guessed, self.records.start_ns[record[guessed]], source[guessed])
        refuted = guessed[source[guessed] < 0]
        self.claimed[record[refuted[~self.in_pairs[refuted]]]] = False
        record[refuted] = -1
        taken = np.flatnonzero(shared >= 0)
        record[taken], source[taken] = record[shared[taken]], source[shared[taken]]
        unlinked = (record < 0) & ~self.stated & (self.wait_lane >= 0)
        unlinked[refuted[self.in_pairs[refuted]]] = False  # for the record right before them, wherever that was made
        numbered = self.numbered
        told = np.flatnonzero(unlinked & (numbered >= 0))
        told_record, lane = numbered[told], self._recorded_on(numbered[told])
        fits = self._in_time(lane, self.records.start_ns[told_record], self._starts[told])
        record[told[fits]], source[told[fits]] = told_record[fits], lane[fits]
        self.claimed[told_record[fits]] = True
        unlinked[told[fits]] = False
        lone = np.flatnonzero(unlinked)
        out = self.pair[lone], guess[lone]
        record[lone], source[lone] = self._lone(waits, lone, self._starts[lone], self.wait_lane[lone], out)
        source[source == self.wait_lane] = -1
        return record, source

    def syncs(self, asked: Mask) -> tuple[Ints, Ints]:
        """For each asked event synchronization the record and the lane it was recorded on; -1 unknown."""
        syncs, rows = self.calls.syncs, np.flatnonzero(asked)
        record, source = np.full(syncs.size, -1, np.int64), np.full(syncs.size, -1, np.int64)
        none = np.full(rows.size, -1)
        record[rows], source[rows] = self._lone(syncs, rows, syncs.end_ns[rows], none, (none, none))
        return record, source

    def _pairs(self) -> Ints:
        """For each wait the record right before it on its thread, -1 where there is none."""
        waits, records = self.calls.waits, self.records
        pair = np.full(waits.size, -1, np.int64)
        by_host, launched = rows_by_key(records.host), self._last_launch(self.calls.launches_by_wait[0])
        for (host,), rows in rows_by_key(waits.host).items():
            thread_records = by_host.get((host,))
            if host < 0 or thread_records is None:
                continue
            at = search(records.start_ns[thread_records], waits.start_ns[rows]) - 1
            record, start = thread_records[np.maximum(at, 0)], records.start_ns[thread_records[np.maximum(at, 0)]]
            # Several waits may follow one record: those for the first one's event wait for it.
            nearest = np.maximum.accumulate(np.where(run_heads(at), np.arange(at.size), 0))
            same_event = waits.event[rows] == waits.event[rows][nearest]
            allowed = (at >= 0) & same_event & (launched[rows] < start)
            record_inside = self.around_record[record]
            allowed &= (record_inside < 0) | (record_inside == self.around[rows])
            record_event = records.event[record]
            allowed &= (record_event < 0) | (waits.event[rows] < 0) | (record_event == waits.event[rows])
            pair[rows] = np.where(allowed, record, -1)
        return np.where(self.stated, -1, pair)

    @property
    def numbered(self) -> Ints:
        """The record that each wait is for by the number of its event; -1 where that tells nothing.

        CUDA's tools count the events of a process, and PyTorch makes an event when it first records it. In a program
        that records each of its events once, the n-th event after another one is therefore that of the n-th record
        after its record:

            record at 10   record at 20   record at 30
            |-> wait for event 71         |-> wait for event 73       a later wait for event 72 is for the record at 20

        Waits right behind their records tell whether a program is like that: the number of each is as far ahead of its
        record's as that of any other. Frameworks and libraries record in calls of different names, which count apart.
        """
        waits, records, found = self.calls.waits, self.records, np.full(self.calls.waits.size, -1, np.int64)
        with_event = np.flatnonzero(waits.event >= 0)
        first = np.zeros(waits.size, dtype=bool)
        first[with_event[first_of_each(label(waits.process[with_event], waits.event[with_event]))]] = True
        anchors = (self.pair >= 0) & (waits.event >= 0)
        for (process, _), made in rows_by_key(records.process, self.record_name).items():
            number = np.full(records.size + 1, -1, np.int64)
            number[made] = np.arange(made.size)
            telling = np.flatnonzero(anchors & (waits.process == process) & (number[self.pair] >= 0))
            ahead = waits.event[telling] - number[self.pair[telling]]
            if telling.size < MIN_ANCHORS or np.any(ahead != ahead[0]):
                continue
            at = waits.event - ahead[0]
            told = first & (waits.process == process) & (at >= 0) & (at < made.size)
            told[told] = records.start_ns[made[at[told]]] < waits.start_ns[told]
            found[told] = made[at[told]]
        return found

    def _numbers(self) -> tuple[Ints, Ints, Ints]:
        """For each wait its place, and which of how many records its own is of those made since the launch before it.

        The place is that of its thread's next launch; where that has none, each launch has one of its own, below -1.
        Turns with equally many records there make the same waits, by number: one left out leaves the others theirs.
        """
        records = self.records
        anchor = self.calls.launches_by_wait[1].astype(np.int64, copy=False)
        place = take_or(self.places.place, anchor)
        run = group_numbers(records.host, self.calls.launches_by_record[0])
        number, count = occurrence(run, np.zeros_like(run)), np.bincount(run)[run]
        return np.where(place >= 0, place, -3 - anchor), take_or(number, self.pair), take_or(count, self.pair)

    def _shared(self, record: Ints, source: Ints) -> Ints:
        """For each wait that is not for the record right before it the last wait of the same event; -1 where none is.

        That is one elsewhere in the program, whose record the times allow. A wait that comes again at its place comes
        for a record of its own.
        """
        waits, lane = self.calls.waits, self.wait_lane
        shared = np.full(waits.size, -1, np.int64)
        rows = np.flatnonzero((waits.event >= 0) & (self.around < 0) & (lane >= 0))
        kind = group_numbers(waits.process[rows], waits.event[rows], waits.host[rows], lane[rows], self.place[rows])
        use = group_numbers(waits.process[rows], waits.event[rows], occurrence(kind, np.zeros_like(kind)))
        order = np.argsort(use, kind="stable")
        rows, use = rows[order], use[order]
        out = (source < 0) | (source == lane)
        recorded_ns = take_or(self.records.start_ns, record, MIN_NS)
        out |= ~self._in_time(source, recorded_ns, self._starts)
        same = use[1:] == use[:-1]
        first, later = rows[:-1][same], rows[1:][same]
        fits = ~self.stated[later] & out[later] & ~out[first] & (record[first] >= 0) & (source[first] != lane[later])
        fits &= self._in_time(source[first], recorded_ns[first], self._starts[later])
        shared[later[fits]] = first[fits]
        return shared

    def _source_of_pair(self, rows: Ints) -> Ints:
        """Lane of a record without a stream, from the wait right behind it."""
        waits, lanes = self.calls.waits, self.lanes
        host, lane, record = waits.host[rows], self.wait_lane[rows], self.pair[rows]
        recorded_ns, inside_library = self.records.start_ns[record], self.around[rows] >= 0
        home, is_communication = self.home[host], (lane >= 0) & lanes.communication[lane]
        last = self._launched_on_before(record)
        computing = take_or(self.calls.launches.computed_on, self.calls.launches_by_record[0][record])
        source = np.where(is_communication, np.where(computing >= 0, computing, home), home)
        not_in_time = ~is_communication & (lane != home) & ~self._in_time(source, recorded_ns, self._starts[rows])
        source[not_in_time] = computing[not_in_time]
        own_communication = (
            ~is_communication
            & (last >= 0)
            & lanes.communication[last]
            & (lane == computing)
            & self._first_since_launch(rows)
        )
        source[own_communication] = last[own_communication]
        home_waits = np.flatnonzero((lane == home) & ~inside_library)
        visited = self._visited(rows[home_waits], recorded_ns[home_waits])
        source[home_waits] = np.where(visited >= 0, visited, source[home_waits])
        source[(lane < 0) | (inside_library & ~is_communication)] = -1  # a library's own stream, which runs nothing
        return source

    def _by_times(self, rows: Ints, recorded_ns: Ints, guess: Ints) -> Ints:
        """Lanes of records, from when the work behind their waits began, wherever the program makes the same wait.

        A lane is out whose work by the record had, at one of them, not ended when the waiting stream went on. A guess
        that is not out stays, but for two: waits that a program makes in a row are for different streams, so of those
        with one guess that keeps it whose stream went on at once after its work most often; and of a wait that has none
        beside it, one after whose work the stream never went on at once gives way to one after whose it mostly did.
        Else it is the lane after whose work the waiting stream went on at once most often, and that no other wait of
        the stream at the same place is for; or the only one that is not out.
        """
        lanes, lane = self.lanes, self.wait_lane[rows]
        times = _Times(self, rows, recorded_ns, guess)
        idle = np.diff(lanes.first)[guess] == 0  # no times speak of a stream that runs nothing
        kept = times.kept & ~times.idle
        source = np.where(idle | kept | (guess == lane), guess, -1)
        open_rows = ~idle & ~kept
        best, support = np.full(rows.size, -1, np.int64), np.zeros(rows.size, np.int64)
        possible_streams = np.zeros(rows.size, np.int64)
        for candidate in np.flatnonzero(lanes.worked()).tolist():
            out, at_once, worked = times.of(candidate)
            taken = np.where(open_rows & times.idle, guess, source) == candidate
            possible = open_rows & ~out & (np.bincount(times.slot, taken)[times.slot] == 0) & (lane != candidate)
            possible_streams += possible & worked
            better = possible & (at_once > support)
            only_one = possible & worked & (support == 0) & (best < 0)
            best[better | only_one] = candidate
            support[better] = at_once[better]
        only = (possible_streams == 1) & (guess != lane) & self.in_pairs[rows] & ~times.idle
        found = open_rows & (best >= 0) & (np.where(times.idle, 2 * support >= times.turns, support > 0) | only)
        found = times.first_of(found, best, support)
        source[found] = best[found]
        # What is left of waits that share a guess may be for one stream after all.
        return np.where(open_rows & ~found & ~times.out, guess, source)

    def _visited(self, rows: Ints, when: Ints) -> Ints:
        """For waits of a home stream: the streams visited since the home stream was last used, one each in turn.

        The home stream itself where there are fewer than that.
        """
        answer = np.full(rows.size, -1, np.int64)
        hosts, homes = self.calls.waits.host[rows], self.wait_lane[rows]
        turn, length = self._turns(rows)
        last = self.calls.launches_by_record[0][self.pair[rows]]
        for (host, home), of_host in rows_by_key(hosts, homes).items():
            begins_run = run_heads(last[of_host])  # waits without a launch between are one run
            run, instant = np.cumsum(begins_run) - 1, when[of_host[begins_run]]
            lane, start = self._visits(host, home, instant)
            high = np.searchsorted(start, instant)[run]
            position = np.arange(lane.size + 1)
            after_home = np.maximum.accumulate(np.append(0, np.where(lane == home, position[1:], 0)))[high]
            last_away = np.maximum.accumulate(np.append(-1, np.where(lane != home, position[:-1], -1)))[high]
            last_away[take_or(self.lanes.communication, self._lane(last[of_host]), False)] = -1
            at = np.where(length[of_host] == 1, high - 1, after_home + turn[of_host])
            found = take_or(lane, np.where(high > after_home, np.minimum(at, high - 1), last_away))
            answer[of_host] = np.where((high > after_home) & (at >= high), home, found)
        return answer

    def _visits(self, host: int, home: int, at_home: Ints) -> tuple[Ints, Ints]:
        """The computing streams a host lane launched on, one after another: lane and first launch of each visit.

        The thread counts as back at its home stream at the instants `at_home`, too.
        """
        units, start = self.calls.launches.of(host)
        lane = self._lane(units)
        computes = ~self.lanes.communication[lane]
        lane, start, at_home = lane[computes], start[computes], np.sort(at_home)
        at = np.searchsorted(start, at_home, side="right")
        lane, start = np.insert(lane, at, home), np.insert(start, at, at_home)
        new = run_heads(lane)
        return lane[new], start[new]

    def _turns(self, rows: Ints) -> tuple[Ints, Ints]:
        """For waits of a home stream: which of the waits made at their place they are, and of how many."""
        slot = self.slot(rows)
        order = np.lexsort((self.number[rows], slot))
        first, new = run_heads(slot[order]), run_heads(slot[order], self.number[rows][order])
        counted = np.cumsum(new) - 1
        turn = np.empty(rows.size, np.int64)
        turn[order] = counted - np.maximum.accumulate(np.where(first, counted, 0))
        return turn, np.bincount(slot[order][new])[slot] if rows.size else turn

    @cached_property
    def in_pairs(self) -> Mask:
        """Waits of processes that make nearly every record for a wait right behind it, as wait_stream does."""
        waits, records = self.calls.waits, self.records
        processes = int(max(waits.process.max(initial=0), records.process.max(initial=0))) + 2  # and -1, an unknown one
        paired = np.zeros(records.size, dtype=bool)
        paired[self.pair[self.pair >= 0]] = True
        asked = ~self.stated & (self.around < 0) & (self.wait_lane >= 0)
        habit = np.ones(processes, dtype=bool)
        for process, alone in (
            (waits.process[asked], self.pair[asked] < 0),
            (records.process, ~paired & (self.around_record < 0)),
        ):
            every, lone = (np.bincount(each + 1, minlength=processes) for each in (process, process[alone]))
            habit &= lone <= np.maximum(1, MAX_LONE_CALLS * every)
        return habit[waits.process + 1]

    def slot(self, rows: Ints) -> Ints:
        """Numbers what a place makes one stream wait for, in turns with equally many records there."""
        return group_numbers(
            self.calls.waits.host[rows], self.wait_lane[rows], self.place[rows], self.records_there[rows]
        )

    def _lone(self, calls: Calls, rows: Ints, deadline: Ints, lane: Ints, out: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        """Records for calls without one right before them: the last unclaimed one in time.

        `out` is for each call a record and a lane that it can't have been made on.
        """
        records = self.records
        unclaimed = np.flatnonzero(~self.claimed)
        free_lane, free_ns, free_event = (
            self._recorded_on(unclaimed),
            *(column[unclaimed] for column in (records.start_ns, records.event)),
        )
        record, source = np.full((2, rows.size), -1, np.int64)
        for key in ("host", "process"):
            by_key = rows_by_key(getattr(records, key)[unclaimed])
            for (which,), of_key in rows_by_key(getattr(calls, key)[rows]).items():
                candidates = by_key.get((which,))
                if which < 0 or candidates is None:
                    continue
                at = np.searchsorted(free_ns[candidates], calls.start_ns[rows[of_key]]) - 1
                for _ in range(MAX_RECORDS_BACK):
                    open_still = (at >= 0) & (record[of_key] < 0)
                    of_key, at = of_key[open_still], at[open_still]
                    found, event = candidates[at], calls.event[rows[of_key]]
                    allowed = (free_lane[found] >= 0) & (free_lane[found] != lane[of_key])
                    allowed &= (free_event[found] < 0) | (event < 0) | (free_event[found] == event)
                    allowed &= (unclaimed[found] != out[0][of_key]) | (free_lane[found] != out[1][of_key])
                    allowed &= self._in_time(free_lane[found], free_ns[found], deadline[of_key])
                    record[of_key[allowed]] = unclaimed[found[allowed]]
                    source[of_key[allowed]] = free_lane[found[allowed]]
                    at = at - 1
        return record, source

    def _recorded_on(self, record: Ints) -> Ints:
        """The lane of each record; where the capture doesn't say, the one its thread launched on last."""
        lane = self.records.lane[record]
        return np.where(lane >= 0, lane, self._launched_on_before(record))

    def _launched_on_before(self, record: Ints) -> Ints:
        """The lane that each record's thread launched on last before it; -1 where there is none."""
        return self._lane(self.calls.launches_by_record[0][record])

    def _lane(self, unit: Ints) -> Ids:
        return take_or(self.lanes.lane_of_unit(), unit)

    def _last_launch(self, unit: Ints) -> Ints:
        """When units were launched; always for -1."""
        return take_or(self.lanes.enqueue_ns, unit, MIN_NS)

    def _first_since_launch(self, rows: Ints) -> Mask:
        """Whether its stream took no other wait since the thread last launched anything."""
        waits, first = self.calls.waits, np.ones(rows.size, dtype=bool)
        launched = self._last_launch(self.calls.launches_by_wait[0][rows])
        for (host, lane), of_pair in rows_by_key(waits.host[rows], self.wait_lane[rows]).items():
            wait_starts = waits.start_ns[(waits.host == host) & (self.wait_lane == lane)]
            before = np.append(wait_starts, MIN_NS)[np.searchsorted(wait_starts, waits.start_ns[rows[of_pair]]) - 1]
            first[of_pair] = before < launched[of_pair]
        return first

    @cached_property
    def _starts(self) -> Ints:
        """When the first unit that a stream queued after each wait started; far away where there is none."""
        return take_or(self.lanes.start_ns, self.lanes.unit(self.wait_lane, self.wait_position), MAX_NS)

    def _in_time(self, lane: Ints, recorded: Ints, deadline: Ints) -> Mask:
        """Whether what the lane had queued when it recorded had ended by a deadline."""
        unit = self.lanes.unit(lane, self.lanes.queued_before(lane, recorded) - 1)
        return take_or(self.lanes.end_ns, unit, MIN_NS) <= deadline


class _Times:
    """What the times of the work say of pairs: of each, wherever the program makes the same wait.

    out : whether its guess can't be, kept : whether it stays; idle : it does, and says nothing of when the stream went
    on. turns : how often the program makes it. Waits with one `slot` are made in a row.
    """

    def __init__(self, inference: Inference, rows: Ints, recorded_ns: Ints, guess: Ints) -> None:
        lanes, position = inference.lanes, inference.wait_position[rows]
        self.lanes, self.lane, self.recorded_ns = lanes, inference.wait_lane[rows], recorded_ns
        unit, previous = lanes.unit(self.lane, position), lanes.unit(self.lane, position - 1)
        self.began = take_or(lanes.start_ns, unit, MAX_NS)
        self.free = np.maximum(take_or(lanes.end_ns, previous, MIN_NS), take_or(lanes.enqueue_ns, unit, MAX_NS))
        self.slot, self.number = inference.slot(rows), inference.number[rows]
        self.same = group_numbers(self.slot, self.number)
        self.turns = np.bincount(self.same)[self.same] if self.same.size else self.same
        self.out, at_once, _ = self.of(guess)
        stays = ~self.out & (guess != self.lane)
        alone = (inference.around[rows] >= 0) | ~inference.in_pairs[rows]  # a library may wait again and again for one
        self.kept = stays & (alone | self.first_of(stays & ~alone, guess, at_once))
        alone_there = self.turns == (np.bincount(self.slot)[self.slot] if rows.size else self.turns)
        self.idle = self.kept & (inference.around[rows] < 0) & alone_there & (at_once == 0) & (self.turns >= MIN_TURNS)

    def of(self, lane: Ints | int) -> tuple[Mask, Ints, Mask]:
        """Whether a lane is out, after how many of its ends the wait's stream went on at once, whether it ran any."""
        lanes = self.lanes
        which = np.broadcast_to(np.asarray(lane, np.int64), self.lane.shape)
        other = (take_or(lanes.process, self.lane) == take_or(lanes.process, which)) & (self.lane != which)
        last = lanes.unit(which, lanes.queued_before(which, self.recorded_ns) - 1)
        ended = take_or(lanes.end_ns, last, MIN_NS)
        at_once = other & (ended >= self.free) & (self.began - ended <= AT_ONCE_NS)
        out, times, worked = (
            np.bincount(self.same, each)[self.same] if self.same.size else np.zeros(0)
            for each in (other & (ended > self.began), at_once, other & (last >= 0))
        )
        return (out > 0) | ~other, times.astype(np.int64), worked > 0

    def first_of(self, rows: Mask, lane: Ints, at_once: Ints) -> Mask:
        """Of these pairs, those to have a lane: of a slot the ones at once after it most often, then the first."""
        which = np.flatnonzero(rows)
        order = which[np.lexsort((self.number[which], -at_once[which], lane[which], self.slot[which]))]
        head = run_heads(self.slot[order], lane[order])
        mine = np.zeros(rows.size, dtype=bool)
        if order.size:
            mine[order] = self.same[order] == self.same[order[head]][np.cumsum(head) - 1]
        return mine
