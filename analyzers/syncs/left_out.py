"""Waits that a program makes in other turns, and leaves out in one.

At each place (see `analyzers.ordering.places`) the launching thread makes the same streams wait in every turn, behind
the launch: each for all that another stream has been given by then (`wait_stream`). In a turn in which it makes a
stream take fewer waits there, those that are not there are left out: where there is work that the wait would be for,
and nothing else orders it.

    turn 0   produce, wait, side      turn 1   produce, wait, side      turn 2   produce, side: the wait is left out

A loop may begin without a wait, where there is nothing to wait for yet (`if step: stream.wait_stream(...)`). So before
the first turn that makes it, a wait is left out only if the record that it would wait for is there.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import first_of_each, group_numbers, occurrence, ordered, run_heads, runs
from analyzers.arrays.types import Ints
from analyzers.ordering.lanes import MAX_NS, MIN_NS, Columns, take_or
from analyzers.ordering.ordering import Ordering

ANY = -2  # stands for whichever stream a wait is for


class LeftOut(Columns, frozen=True):
    """Units, and the unit that each does not wait for; `made` of `turns` others make that wait."""

    unit: Ints
    behind: Ints
    made: Ints
    turns: Ints


class _Habits(Columns, frozen=True):
    """What a program waits for: at each launch of a place `at`, `lane` waits for all that `source` has been given.

    `source` is `ANY` where what a wait is for is inferred only.

    `taker` is the place of the unit that takes the wait, `later` turns later. `made` counts the turns that have it, the
    first of them `began`; `taken` and `recorded` are the fewest waits of the lane, and records, at one of its launches;
    `for_waits` is 1 where its records are known to be for waits.
    """

    at: Ints
    lane: Ints
    source: Ints
    taker: Ints
    later: Ints
    made: Ints
    began: Ints
    taken: Ints
    recorded: Ints
    for_waits: Ints


def left_out(ordering: Ordering) -> LeftOut:
    """Find the waits that are left out."""
    lanes, linked, places = ordering.lanes, ordering.linked, ordering.linked.places
    lane, anchor = linked.wait_lane, linked.calls.launches_by_wait[0].astype(np.int64)
    known = np.flatnonzero((lane >= 0) & (anchor >= 0) & take_or(ordering.waits_recorded, lane, False))
    recorded_at = linked.calls.launches_by_record[0]
    records = np.bincount(recorded_at[recorded_at >= 0], minlength=places.place.size)
    habits = _habits(ordering, known, anchor, records)
    # Each unit of each habit's place.
    units = np.flatnonzero(np.isin(places.place, habits.at))
    units = units[ordered(places.place[units])]
    low, high = (np.searchsorted(places.place[units], habits.at, side=side) for side in ("left", "right"))
    row, habit = runs(low, high - low)
    unit_at = units[row]
    waits = group_numbers(np.append(lane[known], habits.lane[habit]), np.append(anchor[known], unit_at))
    taken = np.bincount(waits[: known.size], minlength=int(waits.max(initial=0)) + 1)[waits[known.size :]]
    absent = taken < habits.taken[habit]
    asked = np.flatnonzero((np.bincount(habit[absent], minlength=habits.size) > 0)[habit])
    unit_at, habit, absent = unit_at[asked], habit[asked], absent[asked]
    turn, source = places.turn[unit_at], habits.source[habit]
    unit = places.unit_at(habits.taker[habit], turn + habits.later[habit])
    behind = _given(ordering, source, habits.lane[habit], unit, lanes.enqueue_ns[unit_at] + 1)
    there = (unit >= 0) & (take_or(lanes.launcher, behind) >= 0)  # before the capture waits may have been made, too
    # Until the program makes a wait first, there may have been nothing to wait for; a record left over tells otherwise.
    left_over = (habits.for_waits[habit] > 0) & (records[unit_at] >= habits.recorded[habit])
    there &= (turn >= habits.began[habit]) | left_over
    turns = np.bincount(habit[there | ~absent], minlength=habits.size)
    rows = np.flatnonzero(there & absent & (2 * habits.made[habit] >= turns[habit]))
    unit, behind, habit = unit[rows], behind[rows], habit[rows]
    lane, source = habits.lane[habit], lanes.lane_of_unit()[behind].astype(np.int64)
    complete = ordering.complete(source, lane, unit - lanes.first[lane])
    rows = np.flatnonzero(complete <= behind - lanes.first[source])
    found = LeftOut(unit, behind, habits.made[habit], turns[habit] - 1).take(rows)
    source = source[rows]
    order = np.lexsort((-found.behind, source, found.unit))  # of several of one stream, the last
    return found.take(order[run_heads(found.unit[order], source[order])])


def _habits(ordering: Ordering, known: Ints, anchor: Ints, records: Ints) -> _Habits:
    """The habits that the program has of these waits, each made right behind the launch of a unit, its anchor."""
    lanes, linked, places = ordering.lanes, ordering.linked, ordering.linked.places
    lane, source, anchor = linked.wait_lane[known], linked.waits.source[known], anchor[known]
    taker = lanes.unit(lane, linked.wait_position[known])
    # A record that is not the first since its thread launched was made for the wait, not for the launch.
    records_of, launched = linked.calls.records, linked.calls.launches_by_record[0]
    order, later_record = ordered(records_of.host), np.zeros(records_of.size, dtype=bool)
    later_record[order] = ~run_heads(records_of.host[order], launched[order])
    for_all = linked.awaited[known] == lanes.queued_before(source, linked.calls.waits.start_ns[known])
    at, by = take_or(places.place, anchor), take_or(places.place, taker)
    placed = (at >= 0) & (by >= 0)
    stated = np.flatnonzero(placed & (source >= 0) & (source != lane) & for_all)
    some = np.flatnonzero(placed & ~ordering.exact_waits[lane])
    rows = np.append(stated, some)
    later = take_or(places.turn, taker) - take_or(places.turn, anchor)
    key = [column[rows].astype(np.int64) for column in (at, lane, source, by, later)]
    key[2][stated.size :] = ANY
    number = occurrence(anchor, lane)  # which of those that the lane takes there
    key.append(np.append(np.zeros_like(stated), number[some]))
    habit = group_numbers(*key)
    count = int(habit.max(initial=-1)) + 1
    waits = group_numbers(lane, anchor)
    taken = np.bincount(waits)[waits][rows] if rows.size else rows

    def least(values: Ints) -> Ints:
        found = np.full(count, MAX_NS)
        np.minimum.at(found, habit, values)
        return found

    made = np.bincount(habit[first_of_each(group_numbers(habit, anchor[rows]))], minlength=count)
    at, lane, source, by, later, _ = (column[first_of_each(habit)] for column in key)
    began, recorded = least(places.turn[anchor[rows]]), least(np.where(for_all, records[anchor], MAX_NS)[rows])
    fresh = for_all & take_or(later_record, linked.waits.record[known], False)
    for_waits = least((linked.for_waits[known] | fresh)[rows].astype(np.int64))
    return _Habits(at, lane, source, by, later, made, began, least(taken), recorded, for_waits)


def _given(ordering: Ordering, source: Ints, lane: Ints, unit: Ints, instant: Ints) -> Ints:
    """What each source lane had been given last by an instant.

    For `ANY`, of what nothing orders before the unit that of the lane which ended last; -1 where there is none.
    """
    lanes, known = ordering.lanes, np.where(source == ANY, -1, source)
    given = lanes.unit(known, lanes.queued_before(known, instant) - 1)
    rows = np.flatnonzero((source == ANY) & (unit >= 0))
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
