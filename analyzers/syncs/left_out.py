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

What a wait is for may be inferred only. The times show it where the work behind the wait began as the work before it
ended, whenever that ended last: then a wait is left out before the first turn that makes it, too, where that other
work can't have filled the GPU: an op before it ended meanwhile, or in that turn the work began while it ran.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from analyzers.arrays.groups import occurrence, rows_by_key, runs
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.calls import Launches
from analyzers.ordering.inference import AT_ONCE_NS
from analyzers.ordering.lanes import MAX_NS, MIN_NS, Lanes, run_heads, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.ordering.places import Places

ANY = -2  # stands for whichever stream a wait is for


@dataclass(frozen=True)
class LeftOut:
    """Units, and the unit that each does not wait for; `made` of `turns` others make that wait."""

    unit: Ints
    behind: Ints
    made: Ints
    turns: Ints


def left_out(ordering: Ordering) -> LeftOut:
    """Find the waits that are left out."""
    places = ordering.linked.places
    found = [_left_out(ordering, places, after=after) for after in (False, True)]
    unit, behind, made, turns = (
        np.concatenate([getattr(one, column.name) for one in found]) for column in fields(LeftOut)
    )
    lane = ordering.lanes.lane_of_unit()
    order = np.lexsort((-behind, lane[behind], unit))  # of several of one stream, the last
    order = order[run_heads(unit[order], lane[behind[order]])]
    return LeftOut(unit[order], behind[order], made[order], turns[order])


@dataclass(frozen=True)
class _Waits:
    """Waits of known place.

    `anchor` is the unit that their thread launched before or after them. `lane` waits for `source`: for the unit of
    `place` so many turns `ago`, or for all it has (-1); for some stream's work (`ANY`) where that is only inferred;
    `ago` is then which of the lane's waits there it is. `taker` is the place of the unit that took it, `later` turns
    later. `fresh` where its record was made for it, not for the launch before; `earlier` where it may be for what other
    turns launched; `followed` where its work began as the awaited ended (see `_held`), `idled` where it began later for
    no known reason. `taken` counts all waits that the lane took at the anchor, `recorded` the records there.

    Of all waits, whether their place is known or not: `counted` are keys of (lane, anchor), ascending, and how many
    waits each counts; `records` has how many records there are at each unit, `unclear` units with waits of which nobody
    knows which lane took them.
    """

    anchor: Ints
    lane: Ints
    source: Ints
    place: Ints
    ago: Ints
    taker: Ints
    later: Ints
    fresh: Ints
    earlier: Ints
    followed: Ints
    idled: Ints
    taken: Ints
    recorded: Ints
    counted: tuple[Ints, Ints]
    records: Ints
    unclear: Ints

    def taken_at(self, lane: Ints, anchor: Ints) -> Ints:
        """How many waits a lane took at an anchor."""
        keys, count = self.counted
        wanted = _key(lane, anchor)
        at = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        return np.where(keys[at] == wanted, count[at], 0) if keys.size else np.zeros(lane.size, np.int64)


def _key(lane: Ints, anchor: Ints) -> Ints:
    """One number for a lane and a unit."""
    return (lane << 40) + anchor


def _waits(ordering: Ordering, places: Places, *, after: bool) -> _Waits:
    lanes, linked, launches = ordering.lanes, ordering.linked, Launches(ordering.lanes)
    waits, links = linked.calls.waits, linked.waits
    rows = np.flatnonzero((linked.wait_lane >= 0) & take_or(ordering.waits_recorded, linked.wait_lane, False))
    anchor = launches.neighbour(waits.host, waits.start_ns, after=after)
    unclear = np.unique(anchor[waits.lane < 0])
    anchor = anchor[rows]
    rows, anchor = rows[anchor >= 0], anchor[anchor >= 0]
    lane, source, start = linked.wait_lane[rows], links.source[rows], waits.start_ns[rows]
    keys, count = np.unique(_key(lane, anchor), return_counts=True)
    recorded = take_or(linked.calls.records.start_ns, links.record[rows])
    for_all = launches.neighbour(waits.host[rows], start, after=True) == launches.neighbour(
        waits.host[rows], recorded, after=True
    )
    awaited = lanes.unit(source, lanes.queued_before(source, recorded) - 1)
    taker = lanes.unit(lane, lanes.queued_before(lane, start))
    record_anchor = launches.neighbour(linked.calls.records.host, linked.calls.records.start_ns, after=after)
    records = np.bincount(record_anchor[record_anchor >= 0], minlength=lanes.op.size)
    turn, began = places.turn[anchor], _turn_began(lanes, places, taker)
    held, idled = _held(lanes, places, lane, taker, awaited)
    columns = {
        "anchor": anchor,
        "lane": lane,
        "source": source,
        "place": np.where(for_all, -1, take_or(places.place, awaited)),
        "ago": np.where(for_all, 0, turn - take_or(places.turn, awaited)),
        "taker": take_or(places.place, taker),
        "later": take_or(places.turn, taker) - turn,
        "fresh": (for_all & take_or(_later_records(ordering, launches), links.record[rows], False)).astype(np.int64),
        "earlier": (for_all & _for_earlier_turns(ordering, source, lane, taker, began)).astype(np.int64),
        "followed": held,
        "idled": idled.astype(np.int64),
        "taken": count[np.searchsorted(keys, _key(lane, anchor))],
        "recorded": np.where(for_all, records[anchor], MAX_NS),
    }
    known = (places.place[anchor] >= 0) & (source >= 0) & (source != lane) & (columns["taker"] >= 0)
    known &= for_all | (columns["place"] >= 0)
    some = (places.place[anchor] >= 0) & (columns["taker"] >= 0) & ~ordering.exact_waits[lane]
    number = occurrence(anchor, lane)  # which of those that the lane takes there
    ones = np.ones(lane.size, np.int64)
    unknown = columns | {"source": ANY * ones, "place": -ones, "ago": number, "earlier": ones, "followed": 0 * ones}
    every = {name: np.concatenate([column[known], unknown[name][some]]) for name, column in columns.items()}
    return _Waits(**every, counted=(keys, count), records=records, unclear=unclear)


def _held(lanes: Lanes, places: Places, lane: Ints, unit: Ints, awaited: Ints) -> tuple[Ints, Mask]:
    """Where what a unit waited for held it, and where it did not, though all else had let the unit go.

    1 where by its launch and its stream the unit could long have started, and then followed that end at once and no
    other of its process; 2 where the GPU can't have been full for it till then: the op before the awaited one ended
    while the unit could start already. Blocks take room in the order in which they came, and of two ops that one end
    lets go either may come first: so that op has to be of the same turn.
    """
    before, ahead = (lanes.unit(on, one - take_or(lanes.first, on) - 1) for on, one in _with_lane(lanes, unit, awaited))
    free = np.maximum(take_or(lanes.end_ns, before, MIN_NS), take_or(lanes.enqueue_ns, unit, MAX_NS))
    ended, began = take_or(lanes.end_ns, awaited, MIN_NS), take_or(lanes.start_ns, unit, MIN_NS)
    asked = (awaited >= 0) & (unit >= 0) & (ended >= free)
    at_once = (began >= ended) & (began - ended <= AT_ONCE_NS)
    ends, process_of = np.zeros(unit.size, np.int64), lanes.process[lanes.lane_of_unit()]
    for (process,), rows in rows_by_key(np.where(asked, take_or(lanes.process, lane), -1)).items():
        if process >= 0:
            every = np.sort(lanes.end_ns[process_of == process])
            low, high = began[rows] - AT_ONCE_NS, began[rows]
            ends[rows] = np.searchsorted(every, high, side="right") - np.searchsorted(every, low, side="left")
    long = np.where(asked, free, 0) + AT_ONCE_NS
    held = asked & at_once & (ends == 1) & (ended > long)
    same_turn = take_or(places.turn, ahead) == take_or(places.turn, unit)
    return held * (1 + (same_turn & (take_or(lanes.end_ns, ahead, MIN_NS) > long))), asked & ~at_once


def _with_lane(lanes: Lanes, *units: Ints) -> list[tuple[Ints, Ints]]:
    return [(take_or(lanes.lane_of_unit(), one), one) for one in units]


def _turn_began(lanes: Lanes, places: Places, unit: Ints) -> Ints:
    """When the turn of each unit began, in which it was launched; long ago where that is not known."""
    units = np.flatnonzero(places.turn >= 0)
    keys, which = np.unique((lanes.launcher[units] << 32) + places.turn[units], return_inverse=True)
    began = np.full(keys.size, MAX_NS)
    np.minimum.at(began, which, lanes.enqueue_ns[units])
    host, turn = take_or(lanes.launcher, unit), take_or(places.turn, unit)
    return take_or(began, np.where(turn >= 0, np.searchsorted(keys, (host << 32) + turn), -1), MIN_NS)


def _for_earlier_turns(ordering: Ordering, source: Ints, lane: Ints, taker: Ints, began: Ints) -> Mask:
    """Whether by its last op before a wait a lane did not know complete all that earlier turns gave its source."""
    lanes, complete = ordering.lanes, np.zeros(source.size, np.int64)
    position = taker - take_or(lanes.first, np.where(taker >= 0, lane, -1))
    rows = np.flatnonzero((taker >= 0) & (position > 0) & (source >= 0) & (source != lane))
    complete[rows] = ordering.complete(source[rows], lane[rows], position[rows] - 1)
    return complete < lanes.queued_before(source, began)


def _later_records(ordering: Ordering, launches: Launches) -> Mask:
    """Which records are not the first that their thread made since it launched."""
    records = ordering.linked.calls.records
    order = np.lexsort((records.start_ns, records.host))
    launched = launches.neighbour(records.host, records.start_ns, after=False)
    later = np.zeros(records.size, dtype=bool)
    later[order] = ~run_heads(records.host[order], launched[order])
    return later


@dataclass(frozen=True)
class _Habits:
    """What a program waits for: a row for each place at which a lane waits, and what it waits for there.

    `at` is the place of the anchor, `lane` to `later` are as in `_Waits`. `made` counts the turns that have it, `began`
    is the first of them. `fresh` where all of its waits are, `earlier`, `followed` and `idled` where any is; `taken`
    and `recorded` are the fewest that any of them comes with.
    """

    at: Ints
    lane: Ints
    source: Ints
    place: Ints
    ago: Ints
    taker: Ints
    later: Ints
    made: Ints
    began: Ints
    fresh: Ints
    earlier: Ints
    followed: Ints
    idled: Ints
    taken: Ints
    recorded: Ints


def _habits(waits: _Waits, places: Places) -> _Habits:
    columns = (places.place[waits.anchor], waits.lane, waits.source, waits.place, waits.ago, waits.taker, waits.later)
    order = np.lexsort((waits.anchor, *columns[::-1]))
    keys = tuple(column[order] for column in columns)
    first, once = run_heads(*keys), run_heads(*keys, waits.anchor[order])
    made = np.bincount((np.cumsum(first) - 1)[once], minlength=int(first.sum()))
    heads = np.flatnonzero(first)
    began, fresh, taken, recorded = (
        np.minimum.reduceat(column[order], heads) if order.size else made
        for column in (places.turn[waits.anchor], waits.fresh, waits.taken, waits.recorded)
    )
    earlier, followed, idled = (
        np.maximum.reduceat(column[order], heads) if order.size else made
        for column in (waits.earlier, waits.followed, waits.idled)
    )
    at, lane, source, place, ago, taker, later = (key[first] for key in keys)
    return _Habits(
        at, lane, source, place, ago, taker, later, made, began, fresh, earlier, followed, idled, taken, recorded
    )


def _left_out(ordering: Ordering, places: Places, *, after: bool) -> LeftOut:
    lanes, waits = ordering.lanes, _waits(ordering, places, after=after)
    habits = _habits(waits, places)
    # Each habit (a row of `asked`) in every turn of its place.
    at_place = np.flatnonzero(places.place >= 0)
    at_place = at_place[np.argsort(places.place[at_place], kind="stable")]
    low, high = (np.searchsorted(places.place[at_place], habits.at, side=side) for side in ("left", "right"))
    row, asked = runs(low, high - low)
    anchor = at_place[row]
    turn, lane, place = places.turn[anchor], habits.lane[asked], habits.place[asked]
    unit = places.unit_at(habits.taker[asked], turn + habits.later[asked])
    given = _given(ordering, habits.source[asked], lane, unit, lanes.enqueue_ns[anchor] + (not after))
    behind = np.where(place < 0, given, places.unit_at(place, turn - habits.ago[asked]))
    there = (unit >= 0) & (take_or(lanes.launcher, behind) >= 0)  # before the capture waits may have been made, too
    absent = waits.taken_at(lane, anchor) < habits.taken[asked]
    # Until the program makes a wait first, there may have been nothing to wait for; a record left over tells otherwise.
    leading = turn < habits.began[asked]
    left_over = waits.records[anchor] >= habits.recorded[asked]
    shown = (habits.followed[asked] > 0) & (habits.idled[asked] == 0)
    starts = take_or(lanes.start_ns, unit, MIN_NS)
    beside = (take_or(lanes.start_ns, behind, MAX_NS) < starts) & (starts < take_or(lanes.end_ns, behind, MIN_NS))
    shown &= beside | (habits.followed[asked] > 1)
    for_waits = ordering.recorded_for_waits[lane] | (habits.fresh[asked] > 0) | shown
    there &= ~leading | (for_waits & ((habits.earlier[asked] == 0) | left_over))
    turns = np.bincount(asked[there | ~absent], minlength=habits.at.size)
    fewer = absent & ~np.isin(anchor, waits.unclear)
    rows = np.flatnonzero(there & fewer & (2 * habits.made[asked] >= turns[asked]))
    unit, behind, lane, asked = (column[rows] for column in (unit, behind, lane, asked))
    source = lanes.lane_of_unit()[behind]
    complete = ordering.complete(source, lane, unit - lanes.first[lane])
    rows = np.flatnonzero(complete <= behind - lanes.first[source])
    return LeftOut(unit[rows], behind[rows], habits.made[asked[rows]], turns[asked[rows]] - 1)


def _given(ordering: Ordering, source: Ints, lane: Ints, unit: Ints, instant: Ints) -> Ints:
    """What each source lane had been given last by an instant.

    For `ANY`, of what nothing orders before the unit that of the lane which ended last; -1 where there is none.
    """
    lanes = ordering.lanes
    known = np.where(source == ANY, -1, source)
    given = lanes.unit(known, lanes.queued_before(known, instant) - 1)
    rows = np.flatnonzero((source == ANY) & (unit >= 0))
    for candidate in np.flatnonzero((lanes.thread == -1) & (np.diff(lanes.first) > 0)).tolist() if rows.size else ():
        asked = rows[(lanes.process[lane[rows]] == lanes.process[candidate]) & (lane[rows] != candidate)]
        which = np.full(asked.size, candidate)
        count = lanes.queued_before(which, instant[asked])
        last = lanes.unit(which, count - 1)
        complete = ordering.complete(which, lane[asked], unit[asked] - lanes.first[lane[asked]])
        later = take_or(lanes.end_ns, last, MIN_NS) > take_or(lanes.end_ns, given[asked], MIN_NS)
        better = (last >= 0) & (complete < count) & later
        given[asked[better]] = last[better]
    return given
