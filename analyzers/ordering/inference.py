"""Infer what a stream wait waits for where the capture does not say.

Kineto gives neither the stream of a record nor, mostly, the record of a wait; nsys before 2024 gives event ids,
which are reused, and lacks some records. What is left is the order of calls on a thread, and time: work that began
before other work ended did not wait for it. In order of trust:

1. a wait right after a record on its thread, with no launch between, waits for that record (not where a communication
   library recorded for itself, and the wait came after its call);
2. else for the record that its event's number says, where the capture numbers events as they are made, and each is
   recorded once: the waits of 1 tell (see `Inference._numbered`);
3. else for the last earlier record of its thread that no wait claimed by 1, that is of no other event, and that the
   times allow.

One thread records at 10 and 20 ns, and makes stream 25 wait at 21 and 40 ns, with a launch at 30. The wait at 21
comes right after the record at 20: that is its record, by 1. The wait at 40 has the launch before it, and no event
id: the record at 20 is claimed, so it takes the one at 10, by 3, if what was queued there by 10 had ended when the
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
from analyzers.ordering.calls import HostCalls, OrderingCalls, communication_around
from analyzers.ordering.lanes import MAX_NS, MIN_NS, take_or
from analyzers.ordering.places import Places
from analyzers.trace.tables import Trace

AT_ONCE_NS = 10_000  # from the end of the work that a stream waited for to the begin of its own
MAX_RECORDS_BACK = 16  # unclaimed records that a lone wait is searched for
MAX_LONE_CALLS = 0.1  # share of records and waits not in pairs, which leaves a program its habit; or a single one
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
        self.home, self.calls, self.lanes, self.records = home, calls, calls.lanes, calls.records
        self.wait_lane, self.wait_position = waiting
        self.around, self.stated = around, stated
        self.around_record = communication_around(trace, calls.lanes, calls.records.host, calls.records.start_ns)
        self.record_name = trace.api.name.codes[calls.records.call]
        # The lane that each record's thread launched on last before it; and its own, where the capture says so.
        self.launched_on = self._lane(calls.launches_by_record[0])
        self.recorded_on = np.where(self.records.lane >= 0, self.records.lane, self.launched_on)
        self.pair = self._pairs()
        self.claimed = np.zeros(self.records.size, dtype=bool)
        for record in (self.pair, claimed):
            self.claimed[record[record >= 0]] = True
        # The first unit that a stream queued after each wait, and when it started; far away where there is none.
        self.unit = self.lanes.unit(self.wait_lane, self.wait_position)
        self.began = take_or(self.lanes.start_ns, self.unit, MAX_NS)
        # What a thread makes a stream wait for before one of its launches, and which of those a wait is: by its record,
        # counted from the launch before. A launch without a place has one of its own, below -1.
        anchor = calls.launches_by_wait[1].astype(np.int64, copy=False)
        place = take_or(places.place, anchor)
        self.slot = group_numbers(calls.waits.host, self.wait_lane, np.where(place >= 0, place, -3 - anchor))
        run = group_numbers(self.records.host, calls.launches_by_record[0])
        self.number = take_or(occurrence(run, np.zeros_like(run)), self.pair)

    def waits(self) -> tuple[Ints, Ints]:
        """For each stream wait the record and the lane it was recorded on; -1 unknown."""
        record, source = self.pair.copy(), take_or(self.records.lane, self.pair)
        unnamed = np.flatnonzero((record >= 0) & (source < 0))
        source[unnamed] = self._source_of_pair(unnamed)
        guessed = unnamed[source[unnamed] >= 0]
        guess = source.copy()
        source[guessed] = self._by_times(guessed, guess[guessed])
        refuted, in_pairs = guessed[source[guessed] < 0], self.in_pairs
        self.claimed[record[refuted[~in_pairs[refuted]]]] = False
        record[refuted] = -1
        unlinked = (record < 0) & ~self.stated & (self.wait_lane >= 0)
        unlinked[refuted[in_pairs[refuted]]] = False  # for the record right before them, wherever that was made
        numbered = self._numbered()
        told = np.flatnonzero(unlinked & (numbered >= 0))
        record[told], source[told] = numbered[told], self.recorded_on[numbered[told]]
        self.claimed[numbered[told]] = True
        unlinked[told] = False
        lone = np.flatnonzero(unlinked)
        out = self.pair[lone], guess[lone]
        waits = self.calls.waits
        record[lone], source[lone] = self._lone(waits, lone, self.began[lone], self.wait_lane[lone], out)
        source[source == self.wait_lane] = -1
        return record, source

    def syncs(self, asked: Mask) -> tuple[Ints, Ints]:
        """For each asked event synchronization the record and the lane it was recorded on; -1 unknown."""
        syncs, rows = self.calls.syncs, np.flatnonzero(asked)
        record, source = np.full((2, syncs.size), -1, np.int64)
        none = np.full(rows.size, -1)
        record[rows], source[rows] = self._lone(syncs, rows, syncs.end_ns[rows], none, (none, none))
        return record, source

    def _pairs(self) -> Ints:
        """For each wait the record right before it on its thread, -1 where there is none."""
        waits, records = self.calls.waits, self.records
        pair = np.full(waits.size, -1, np.int64)
        launched = take_or(self.lanes.enqueue_ns, self.calls.launches_by_wait[0], MIN_NS)
        by_host = rows_by_key(records.host)
        for (host,), rows in rows_by_key(waits.host).items():
            thread_records = by_host.get((host,))
            if host < 0 or thread_records is None:
                continue
            at = search(records.start_ns[thread_records], waits.start_ns[rows]) - 1
            record, event = thread_records[np.maximum(at, 0)], waits.event[rows]
            # Several waits may follow one record: those for the first one's event wait for it.
            nearest = np.maximum.accumulate(np.where(run_heads(at), np.arange(at.size), 0))
            allowed = (at >= 0) & (event == event[nearest]) & (launched[rows] < records.start_ns[record])
            allowed &= (self.around_record[record] < 0) | (self.around_record[record] == self.around[rows])
            allowed &= (records.event[record] < 0) | (event < 0) | (records.event[record] == event)
            pair[rows] = np.where(allowed, record, -1)
        return np.where(self.stated, -1, pair)

    def _numbered(self) -> Ints:
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

    def _source_of_pair(self, rows: Ints) -> Ints:
        """Lane of a record without a stream, from the wait right behind it."""
        waits, lanes = self.calls.waits, self.lanes
        lane, record, inside_library = self.wait_lane[rows], self.pair[rows], self.around[rows] >= 0
        home, is_communication = self.home[waits.host[rows]], (lane >= 0) & lanes.communication[lane]
        last = self.launched_on[record]
        computing = take_or(self.calls.launches.computed_on, self.calls.launches_by_record[0][record])
        source = np.where(is_communication & (computing >= 0), computing, home)
        own_communication = ~is_communication & (last >= 0) & lanes.communication[last] & (lane == computing)
        own_communication &= self._first_since_launch(rows)
        source[own_communication] = last[own_communication]
        at_home = np.flatnonzero((lane == home) & ~inside_library)
        visited = self._visited(rows[at_home])
        source[at_home] = np.where(visited >= 0, visited, source[at_home])
        source[(lane < 0) | (inside_library & ~is_communication)] = -1  # a library's own stream, which runs nothing
        return source

    def _by_times(self, rows: Ints, guess: Ints) -> Ints:
        """Lanes of records, from when the work behind their waits began, wherever the program makes the same wait.

        A lane is out whose work by the record had, at one of them, not ended when the waiting stream went on. A guess
        that is not out stays, but where the stream never went on at once after that work, though the program makes the
        wait again and again, and no other beside it: that gives way to a lane after whose work it mostly did. Else it
        is the lane after whose work the waiting stream went on at once most often.
        """
        lanes, lane, slot = self.lanes, self.wait_lane[rows], group_numbers(self.slot[rows])
        unit, began, recorded_ns = self.unit[rows], self.began[rows], self.records.start_ns[self.pair[rows]]
        previous = lanes.unit(lane, self.wait_position[rows] - 1)
        free = np.maximum(take_or(lanes.end_ns, previous, MIN_NS), take_or(lanes.enqueue_ns, unit, MAX_NS))
        same, process = group_numbers(slot, self.number[rows]), take_or(lanes.process, lane)

        def told(which: Ints) -> tuple[Mask, Ints]:
            """Whether a lane is out, and after how many of its ends the wait's stream went on at once."""
            other = (process == take_or(lanes.process, which)) & (lane != which)
            last = lanes.unit(which, lanes.queued_before(which, recorded_ns) - 1)
            ended = take_or(lanes.end_ns, last, MIN_NS)
            went_on = other & (ended >= free) & (began - ended <= AT_ONCE_NS)
            out, at_once = (np.bincount(same, each, 1)[same] for each in (other & (ended > began), went_on))
            return (out > 0) | ~other, at_once

        turns = np.bincount(same, minlength=1)[same]
        is_out, at_once = told(guess)
        alone = (self.around[rows] < 0) & (turns == np.bincount(slot, minlength=1)[slot])
        idle = alone & (at_once == 0) & (turns >= MIN_TURNS)
        undecided = is_out | (guess == lane) | idle
        best, support = np.full(rows.size, -1, np.int64), np.zeros(rows.size)
        for candidate in np.flatnonzero(lanes.worked()).tolist():
            out, at_once = told(np.full(rows.size, candidate))
            better = undecided & ~out & (at_once > support)
            best[better], support[better] = candidate, at_once[better]
        found = undecided & (best >= 0) & (is_out | ~idle | (2 * support >= turns))
        # What is left of waits that share a guess may be for one stream after all.
        return np.where(found, best, np.where(is_out & (guess != lane), -1, guess))

    def _visited(self, rows: Ints) -> Ints:
        """For waits of a home stream: the streams visited since the home stream was last used, one each in turn.

        The home stream itself where there are fewer than that.
        """
        answer = np.full(rows.size, -1, np.int64)
        slot = group_numbers(self.slot[rows])
        number = group_numbers(slot, self.number[rows])
        first = np.full(rows.size, rows.size)
        np.minimum.at(first, slot, number)
        turn = number - first[slot]  # which of the waits made at its place each is
        when, last = self.records.start_ns[self.pair[rows]], self.calls.launches_by_record[0][self.pair[rows]]
        for (host, home), of_host in rows_by_key(self.calls.waits.host[rows], self.wait_lane[rows]).items():
            begins_run = run_heads(last[of_host])  # waits without a launch between are one run
            run, instant = np.cumsum(begins_run) - 1, when[of_host[begins_run]]
            lane, start = self._visits(host, home, instant)
            high = np.searchsorted(start, instant)[run]
            position = np.arange(lane.size + 1)
            after_home = np.maximum.accumulate(np.append(0, np.where(lane == home, position[1:], 0)))[high]
            last_away = np.maximum.accumulate(np.append(-1, np.where(lane != home, position[:-1], -1)))[high]
            last_away[take_or(self.lanes.communication, self._lane(last[of_host]), False)] = -1
            at = after_home + turn[of_host]
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

    def _lone(
        self, calls: OrderingCalls, rows: Ints, deadline: Ints, lane: Ints, out: tuple[Ints, Ints]
    ) -> tuple[Ints, Ints]:
        """Records for calls without one right before them: the last unclaimed one in time.

        `out` is for each call a record and a lane that it can't have been made on.
        """
        records = self.records
        unclaimed = np.flatnonzero(~self.claimed)
        free_ns, free_event = records.start_ns[unclaimed], records.event[unclaimed]
        free_lane = self.recorded_on[unclaimed]
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
                    allowed &= self._ended(free_lane[found], free_ns[found]) <= deadline[of_key]
                    record[of_key[allowed]] = unclaimed[found[allowed]]
                    source[of_key[allowed]] = free_lane[found[allowed]]
                    at = at - 1
        return record, source

    def _lane(self, unit: Ints) -> Ids:
        return take_or(self.lanes.lane_of_unit(), unit)

    def _first_since_launch(self, rows: Ints) -> Mask:
        """Whether its stream took no other wait since the thread last launched anything."""
        waits, first = self.calls.waits, np.ones(rows.size, dtype=bool)
        launched = take_or(self.lanes.enqueue_ns, self.calls.launches_by_wait[0][rows], MIN_NS)
        for (host, lane), of_pair in rows_by_key(waits.host[rows], self.wait_lane[rows]).items():
            wait_starts = waits.start_ns[(waits.host == host) & (self.wait_lane == lane)]
            before = np.append(wait_starts, MIN_NS)[np.searchsorted(wait_starts, waits.start_ns[rows[of_pair]]) - 1]
            first[of_pair] = before < launched[of_pair]
        return first

    def _ended(self, lane: Ints, recorded: Ints) -> Ints:
        """When what a lane had queued when it recorded had ended."""
        unit = self.lanes.unit(lane, self.lanes.queued_before(lane, recorded) - 1)
        return take_or(self.lanes.end_ns, unit, MIN_NS)
