"""Waits that a program makes in other turns, and leaves out in one.

At each place (see `analyzers.ordering.places`) the launching thread makes the same streams wait in every turn, before
the launch or after it: each for all that another stream has been given by then, where the event is recorded there too
(`wait_stream`), else for the op of some place, of the same turn or of one before. In a turn in which it makes a stream
take fewer waits, those that are not there are left out: where there is work that the wait would be for, and nothing
else orders it.

    turn 0   produce, wait, side      turn 1   produce, wait, side      turn 2   produce, side: the wait is left out

A loop may begin without a wait, where there is nothing to wait for yet (`if step: stream.wait_stream(...)`). So before
the first turn that makes it, a wait is left out only if it can't be for what earlier turns did, or if the record that
it would wait for is there.

    turn 0   side, main      turn 1   side, wait, main      turn 2   side, wait, main: it may be for the turn before
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from analyzers.arrays.groups import grouped, occurrence, ordered, rows_by_key, run_heads, runs
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import MAX_NS, MIN_NS, Columns, take_or
from analyzers.ordering.ordering import Ordering

ANY_STREAM = -2  # stands for whichever stream a wait is for


class LeftOutCall(Columns, frozen=True):
    """Units, and the unit that each does not wait for; `made` of `turns` others make that wait."""

    unit: Ints
    behind: Ints
    made: Ints
    turns: Ints


def left_out(ordering: Ordering) -> LeftOutCall:
    """Find the waits that are left out."""
    waits = _waits(ordering)
    found = LeftOutCall.stack(_left_out(_WaitsAtLaunches(ordering, waits, after)) for after in (False, True))
    lane = ordering.lanes.lane_of_unit()
    order = np.lexsort((-found.behind, lane[found.behind], found.unit))  # of several of one stream, the last
    return found.take(order[run_heads(found.unit[order], lane[found.behind[order]])])


class _Waits(msgspec.Struct, frozen=True):
    """Waits of which the capture says which stream waits.

    `lane` waits for `source`, for its unit `awaited` and all before it: what it had been given when the event was
    recorded (`record`); `for_all` where that was all it had when the wait was made. `taker` is the unit that the lane
    was given next. `anchor` are the units that the wait's thread launched before it and after it (-1 none), `unclear`
    those of waits of which nobody knows which lane took them.
    """

    lane: Ints
    source: Ints
    record: Ints
    awaited: Ints
    for_all: Mask
    taker: Ints
    anchor: tuple[Ints, Ints]
    unclear: tuple[Ints, Ints]


def _waits(ordering: Ordering) -> _Waits:
    lanes, linked = ordering.lanes, ordering.linked
    waits, links = linked.calls.waits, linked.waits
    rows = np.flatnonzero((linked.wait_lane >= 0) & take_or(ordering.waits_recorded, linked.wait_lane, False))
    before, after = (units.astype(np.int64) for units in linked.calls.launches_by_wait)
    lane, source = linked.wait_lane[rows], links.source[rows]
    return _Waits(
        lane=lane,
        source=source,
        record=links.record[rows],
        awaited=lanes.unit(source, linked.awaited[rows] - 1),
        for_all=after[rows] == _launch_after(ordering, links.record[rows], waits.host[rows]),
        taker=lanes.unit(lane, linked.wait_position[rows]),
        anchor=(before[rows], after[rows]),
        unclear=(before[waits.lane < 0], after[waits.lane < 0]),
    )


def _launch_after(ordering: Ordering, record: Ints, host: Ints) -> Ints:
    """The unit that each host lane launched first after a record, -1 where there is none; after all for record -1."""
    calls = ordering.linked.calls
    launch = take_or(calls.launches_by_record[1], record).astype(np.int64)
    others = np.flatnonzero(
        (record < 0) | (take_or(calls.records.host, record) != host)
    )  # a thread mostly records, too
    launch[others] = calls.launches.neighbours(host[others], take_or(calls.records.start_ns, record[others]))[1]
    return launch


class _WaitsAtLaunches(msgspec.Struct, frozen=True, dict=True):
    """Waits, each at the launch that came before it, or after it."""

    ordering: Ordering
    waits: _Waits
    after: bool

    @property
    def anchor(self) -> Ints:
        """The unit that each wait is at, -1 where there is none."""
        return self.waits.anchor[self.after]

    @cached_property
    def records(self) -> Ints:
        """How many records there are at each unit."""
        anchor = self.ordering.linked.calls.launches_by_record[self.after]
        return np.bincount(anchor[anchor >= 0], minlength=self.ordering.linked.places.place.size)

    def taken(self, lane: Ints, anchor: Ints) -> Ints:
        """How many waits a lane took at an anchor."""
        keys, count = self._counted
        wanted = _key(lane, anchor)
        at = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        return np.where(keys[at] == wanted, count[at], 0) if keys.size else np.zeros(lane.size, np.int64)

    @cached_property
    def _counted(self) -> tuple[Ints, Ints]:
        """Keys of (lane, anchor), ascending, and how many waits each counts."""
        known = self.anchor >= 0
        return np.unique(_key(self.waits.lane[known], self.anchor[known]), return_counts=True)

    def of_known_place(self) -> tuple[Ints, tuple[Ints, ...]]:
        """Rows of waits, and for each what tells its habit: the columns of `_Habits` from `at` to `later`."""
        waits, places, lane, anchor = self.waits, self.ordering.linked.places, self.waits.lane, self.anchor
        at, turn = take_or(places.place, anchor), take_or(places.turn, anchor)
        taker, later = take_or(places.place, waits.taker), take_or(places.turn, waits.taker) - turn
        place = np.where(waits.for_all, -1, take_or(places.place, waits.awaited))
        ago = np.where(waits.for_all, 0, turn - take_or(places.turn, waits.awaited))
        placed = (at >= 0) & (taker >= 0)
        stated = placed & (waits.source >= 0) & (waits.source != lane) & (waits.for_all | (place >= 0))
        known, some = np.flatnonzero(stated), np.flatnonzero(placed & ~self.ordering.exact_waits[lane])
        any_source, all_of_it = np.full(some.size, ANY_STREAM), np.full(some.size, -1)
        number = occurrence(anchor + 1, lane)[some]  # which of those that the lane takes there
        rows = np.append(known, some)
        what = (np.append(waits.source[known], any_source), np.append(place[known], all_of_it))
        return rows, (at[rows], lane[rows], *what, np.append(ago[known], number), taker[rows], later[rows])


def _key(lane: Ints, anchor: Ints) -> Ints:
    """One number for a lane and a unit."""
    return (lane.astype(np.int64) << 40) + anchor


class _Habits(msgspec.Struct, frozen=True):
    """What a program waits for: a row for each place at which a lane waits, and what it waits for there.

    `at` is the place of the anchor. `lane` waits for `source`: for the unit of `place` so many turns `ago`, or for all
    it has (-1); for some stream's work (`ANY_STREAM`) where that is only inferred; `ago` is then which of the lane's
    waits there it is. `taker` is the place of the unit that took it, `later` turns later.

    `made` counts the turns that have it. `waits` are rows of its waits, those of the first habit first, `count` how
    many.
    """

    at: Ints
    lane: Ints
    source: Ints
    place: Ints
    ago: Ints
    taker: Ints
    later: Ints
    made: Ints
    count: Ints
    waits: Ints

    def only(self, kept: Mask) -> _Habits:
        """Some of them."""
        columns = [getattr(self, name)[kept] for name in self.__struct_fields__[:-1]]
        return _Habits(*[*columns, self.waits[np.repeat(kept, self.count)]])

    def least(self, values: Ints | Mask) -> Ints:
        """The least of the values of each habit's waits."""
        first = np.cumsum(self.count) - self.count
        return np.minimum.reduceat(values.astype(np.int64), first) if self.count.size else self.count


def _habits(at: _WaitsAtLaunches) -> _Habits:
    """The habits that a place has in some turns, but not in all."""
    row, key = at.of_known_place()
    order, heads = grouped(*key)
    count, anchor = np.diff(np.append(heads, order.size)), at.anchor[row[order]]
    once = run_heads(np.repeat(heads, count), anchor)  # calls of a thread are in order of time
    made = np.bincount(np.repeat(np.arange(heads.size), count)[once], minlength=heads.size)
    habits = _Habits(*[*(column[order[heads]] for column in key), made, count, row[order]])
    place = at.ordering.linked.places.place
    launched = np.bincount(place[place >= 0], minlength=1)
    return habits.only(made < launched[habits.at])


def _may_lead(at: _WaitsAtLaunches, habits: _Habits) -> tuple[Ints, Mask, Mask, Ints]:
    """What tells of each habit whether it may be left out before the first turn that makes it.

    Returns
    -------
    began : that turn.
    fresh : whether each of its records was made for its wait, not for the launch before.
    later : whether none of its waits may be for what earlier turns launched.
    recorded : the fewest records at one of its anchors.
    """
    waits, row, anchor = at.waits, habits.waits, at.anchor[habits.waits]
    for_all, inferred = waits.for_all[row], np.repeat(habits.source == ANY_STREAM, habits.count)
    fresh = for_all & take_or(_later_records(at.ordering), waits.record[row], False)
    earlier = inferred | (
        for_all & _for_earlier_turns(at.ordering, waits.source[row], waits.lane[row], waits.taker[row])
    )
    return (
        habits.least(at.ordering.linked.places.turn[anchor]),
        habits.least(fresh) > 0,
        habits.least(~earlier) > 0,
        habits.least(np.where(for_all, at.records[anchor], MAX_NS)),
    )


def _turn_began(ordering: Ordering, unit: Ints) -> Ints:
    """When the turn of each unit began, in which it was launched; long ago where that is not known."""
    launches, turn_of = ordering.linked.calls.launches, ordering.linked.places.turn
    turn, began = take_or(turn_of, unit), np.full(unit.size, MIN_NS)
    for (host,), rows in rows_by_key(np.where(turn >= 0, take_or(ordering.lanes.launcher, unit), -1)).items():
        if host >= 0:  # a thread's turns follow one another
            units, start = launches.of(host)
            began[rows] = start[np.searchsorted(turn_of[units], turn[rows])]
    return began


def _for_earlier_turns(ordering: Ordering, source: Ints, lane: Ints, taker: Ints) -> Mask:
    """Whether by its last op before a wait a lane did not know complete all that earlier turns gave its source."""
    lanes, complete = ordering.lanes, np.zeros(source.size, np.int64)
    position = taker - take_or(lanes.first, np.where(taker >= 0, lane, -1))
    rows = np.flatnonzero((taker >= 0) & (position > 0) & (source >= 0) & (source != lane))
    complete[rows] = ordering.complete(source[rows], lane[rows], position[rows] - 1)
    return complete < lanes.queued_before(source, _turn_began(ordering, taker))


def _later_records(ordering: Ordering) -> Mask:
    """Which records are not the first that their thread made since it launched."""
    records, launched = ordering.linked.calls.records, ordering.linked.calls.launches_by_record[0]
    order = ordered(records.host)  # of one thread, they are in order of time
    later = np.zeros(records.size, dtype=bool)
    later[order] = ~run_heads(records.host[order], launched[order])
    return later


def _left_out(at: _WaitsAtLaunches) -> LeftOutCall:
    habits = _habits(at)
    _, asked, absent = _in_each_turn(at, habits)
    habits = habits.only(np.bincount(asked[absent], minlength=habits.at.size) > 0)
    if not habits.at.size:
        return LeftOutCall(*np.empty((4, 0), np.int64))
    ordering, lanes, places = at.ordering, at.ordering.lanes, at.ordering.linked.places
    anchor, asked, absent = _in_each_turn(at, habits)
    turn, lane, place = places.turn[anchor], habits.lane[asked], habits.place[asked]
    unit = places.unit_at(habits.taker[asked], turn + habits.later[asked])
    given = _given(ordering, habits.source[asked], lane, unit, lanes.enqueue_ns[anchor] + (not at.after))
    behind = np.where(place < 0, given, places.unit_at(place, turn - habits.ago[asked]))
    there = (unit >= 0) & (take_or(lanes.launcher, behind) >= 0)  # before the capture waits may have been made, too
    # Until the program makes a wait first, there may have been nothing to wait for; a record left over tells otherwise.
    began, fresh, later, recorded = _may_lead(at, habits)
    for_waits = ordering.recorded_for_waits[lane] | fresh[asked]
    there &= (turn >= began[asked]) | (for_waits & (later[asked] | (at.records[anchor] >= recorded[asked])))
    turns = np.bincount(asked[there | ~absent], minlength=habits.at.size)
    fewer = absent & ~np.isin(anchor, at.waits.unclear[at.after])
    rows = np.flatnonzero(there & fewer & (2 * habits.made[asked] >= turns[asked]))
    unit, behind, lane, asked = (column[rows] for column in (unit, behind, lane, asked))
    source = lanes.lane_of_unit()[behind]
    complete = ordering.complete(source, lane, unit - lanes.first[lane])
    rows = np.flatnonzero(complete <= behind - lanes.first[source])
    return LeftOutCall(unit[rows], behind[rows], habits.made[asked[rows]], turns[asked[rows]] - 1)


def _in_each_turn(at: _WaitsAtLaunches, habits: _Habits) -> tuple[Ints, Ints, Mask]:
    """Each unit of each habit's place, whose habit it is, and whether the lane takes fewer waits there than ever else.

    Those are waits that are not there.
    """
    place = at.ordering.linked.places.place
    units = np.flatnonzero(np.isin(place, habits.at))
    units = units[ordered(place[units])]
    low, high = (np.searchsorted(place[units], habits.at, side=side) for side in ("left", "right"))
    row, asked = runs(low, high - low)
    taken = habits.least(at.taken(at.waits.lane[habits.waits], at.anchor[habits.waits]))
    return units[row], asked, at.taken(habits.lane[asked], units[row]) < taken[asked]


def _given(ordering: Ordering, source: Ints, lane: Ints, unit: Ints, instant: Ints) -> Ints:
    """What each source lane had been given last by an instant.

    For `ANY_STREAM`, of what nothing orders before the unit that of the lane which ended last; -1 where there is none.
    """
    lanes = ordering.lanes
    known = np.where(source == ANY_STREAM, -1, source)
    given = lanes.unit(known, lanes.queued_before(known, instant) - 1)
    rows = np.flatnonzero((source == ANY_STREAM) & (unit >= 0))
    for candidate in np.flatnonzero(lanes.worked()).tolist() if rows.size else ():
        asked = rows[(lanes.process[lane[rows]] == lanes.process[candidate]) & (lane[rows] != candidate)]
        which = np.full(asked.size, candidate)
        count = lanes.queued_before(which, instant[asked])
        last = lanes.unit(which, count - 1)
        complete = ordering.complete(which, lane[asked], unit[asked] - lanes.first[lane[asked]])
        later = take_or(lanes.end_ns, last, MIN_NS) > take_or(lanes.end_ns, given[asked], MIN_NS)
        better = (last >= 0) & (complete < count) & later
        given[asked[better]] = last[better]
    return given
