"""Edits of tasks that changes are made of: another order of calls, waits left out, units cut into pieces."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key, runs
from analyzers.arrays.intervals import Union, coverage
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.replay.hosts import COST_NS
from analyzers.replay.model import HostCalls, Lists, Room, Tasks, Units

PERIODS = range(1, 7)  # kernels of one piece of work, of which several like ones follow each other


class Blocks(msgspec.Struct, frozen=True):
    """Disjoint pieces of a thread's time, sorted, and when each comes instead: earlier."""

    start_ns: Ints
    end_ns: Ints
    to_ns: Ints


def kept(lists: Lists, keep: Mask) -> Lists:
    """Some of the items of each list."""
    return Lists.of(lists.owner[keep], lists.items[keep], lists.first.size - 1)


def returning_at_once(tasks: Tasks, dropped: Mask) -> Tasks:
    """The tasks where some calls wait for nothing; what they launch, such as a copy, still takes its call."""
    calls = tasks.calls
    launches = np.zeros(dropped.size, dtype=bool)
    launches[tasks.units.call[tasks.units.call >= 0]] = True
    at_once = np.where(launches, np.minimum(calls.cost_ns, COST_NS), 0)
    waits = kept(calls.waits, ~dropped[calls.waits.owner])
    return replace(tasks, calls=replace(calls, waits=waits, cost_ns=np.where(dropped, at_once, calls.cost_ns)))


def right_before(units: Units, chosen: Mask) -> Mask:
    """Units right before chosen ones on their lane."""
    found = np.zeros(chosen.size, dtype=bool)
    before = units.previous[chosen]
    found[before[before >= 0]] = True
    return found & ~chosen


def in_order(units: Units, key: Ints | Floats) -> Units:
    """The same with the units of each lane one behind the other in the order of a key."""
    order = np.lexsort((np.arange(units.op.size), key, units.lane))
    previous = np.full(units.op.size, -1, np.int64)
    same = units.lane[order][1:] == units.lane[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return replace(units, previous=previous)


def longer_than_others(rank: Ints, step: Ints, ns: Ints) -> Ints:
    """By how much each time is longer than the median of the other ranks' of its place, the longest of a step first.

    >>> longer_than_others(np.array([0, 0, 1, 2]), np.zeros(4, np.int64), np.array([1, 9, 3, 3])).tolist()
    [1, 6, 0, 0]
    """
    some = np.flatnonzero(ns > 0)
    table = pd.DataFrame({"rank": rank[some], "step": step[some], "ns": ns[some], "row": some})
    table = table.sort_values("ns", ascending=False, kind="stable")
    table["place"] = table.groupby(["rank", "step"]).cumcount()
    found = np.zeros(ns.size, np.int64)
    wide = table.pivot(index=["step", "place"], columns="rank", values="ns").fillna(0)
    wide = wide.reindex(columns=np.unique(rank), fill_value=0)
    for one in np.unique(table["rank"]):
        mine, others = table[table["rank"] == one], wide.drop(columns=one)
        if others.shape[1]:
            median = others.median(axis=1).reindex(pd.MultiIndex.from_frame(mine[["step", "place"]])).to_numpy()
            found[mine["row"].to_numpy()] = np.maximum(mine["ns"].to_numpy() - median, 0)
    return found


def host_gaps(calls: HostCalls) -> Ints:
    """How long each call's thread works, or waits for another thread, before the call."""
    return np.where(calls.handed >= 0, calls.handed_ns, calls.before_ns)


def with_gaps(calls: HostCalls, gap: Ints) -> HostCalls:
    """The same with other such times."""
    handed = calls.handed >= 0
    return replace(
        calls, before_ns=np.where(handed, calls.before_ns, gap), handed_ns=np.where(handed, gap, calls.handed_ns)
    )


def without_host_work(calls: HostCalls, rows: Ints, inside: Union) -> Ints:
    """What is left of the time before each of some calls of a thread without what lies in some intervals."""
    gap, start = host_gaps(calls)[rows], calls.start_ns[rows]
    return gap - coverage(start - gap, start, inside)


def moved_ahead(calls: HostCalls, rows: Ints, blocks: Blocks) -> tuple[Floats, Ints]:
    """When each call of a thread comes, and the time before it, where blocks of host time come earlier.

    Calls and the host work between them, cut at the borders of blocks, are laid out anew: a block of [60, 80) that
    comes at 20 takes what the host did from 60 to 80 with it, and what stood between 80 and the next call stays there.

    Parameters
    ----------
    rows : all calls of a thread, in order.
    """
    start, gap = calls.start_ns[rows], host_gaps(calls)[rows]
    cuts = np.unique(np.concatenate([start - gap, start, blocks.start_ns, blocks.end_ns, blocks.to_ns]))
    piece, length = cuts[:-1], np.diff(cuts)
    of = np.minimum(np.searchsorted(start, piece, side="right"), rows.size - 1)
    length = np.where((piece >= start[of] - gap[of]) & (piece < start[of]), length, 0)
    at = np.concatenate([piece, start])
    block = np.searchsorted(blocks.start_ns, at, side="right") - 1
    inside = (block >= 0) & (at < take_or(blocks.end_ns, block, 0))
    begin = np.where(inside, take_or(blocks.to_ns, block, 0), at)
    is_call = np.arange(at.size) >= piece.size
    order = np.lexsort((~is_call, at, ~inside, begin))
    total = np.cumsum(np.append(length, np.zeros(rows.size, np.int64))[order])
    found = np.flatnonzero(is_call[order])
    fresh, when = np.empty(rows.size, np.int64), np.empty(rows.size)
    which = order[found] - piece.size
    fresh[which] = np.diff(total[found], prepend=0)
    when[which] = np.maximum.accumulate(begin[order[found]]) + np.arange(rows.size) / (rows.size + 1)
    return when, fresh


def reordered(tasks: Tasks, key: Floats) -> Tasks:
    """The same with the calls of each thread, and what they submit, in the order of a key per call."""
    calls, units = tasks.calls, tasks.units
    order = np.lexsort((key, calls.thread))
    number = np.empty(order.size, np.int64)
    number[order] = np.arange(order.size)
    columns = {
        name: getattr(calls, name)[order]
        for name in ("call", "thread", "start_ns", "end_ns", "before_ns", "handed_ns", "cost_ns", "after_ns")
    }
    handed = take_or(number, calls.handed)[order]
    waits = Lists.of(number[calls.waits.owner], calls.waits.items, order.size)
    submitted = np.where(units.call >= 0, take_or(key, units.call, 0.0), -np.inf)
    for rows in rows_by_key(units.lane).values():  # what has no launch stays where it is
        known = units.call[rows] >= 0
        filled = np.where(known, submitted[rows], -np.inf)
        submitted[rows] = np.where(known, filled, np.maximum.accumulate(filled))
    moved = replace(units, call=take_or(number, units.call))
    return replace(tasks, calls=HostCalls(**columns, handed=handed, waits=waits), units=in_order(moved, submitted))


def waiting_for_less(tasks: Tasks, moved: Mask) -> Tasks:
    """Waits of moved units for what is launched behind them now: for what the stream then held, if anything.

    An event that is recorded earlier stands for less work. Of one thread: what others launch comes when it comes.
    """
    calls, units, waits = tasks.calls, tasks.units, tasks.units.waits
    of_owner, of_item = units.call[waits.owner], units.call[waits.items]
    late = moved[waits.owner] & (of_owner >= 0) & (of_item > of_owner)
    late &= take_or(calls.thread, of_owner) == take_or(calls.thread, of_item)
    items, rows = waits.items.copy(), np.flatnonzero(late)
    ahead = units.previous[items[rows]]
    while rows.size:  # back along the stream
        items[rows] = ahead
        later = (ahead >= 0) & (take_or(units.call, ahead) > of_owner[rows])
        rows, ahead = rows[later], take_or(units.previous, ahead[later])
    pairs = np.unique(np.stack([waits.owner, items])[:, items >= 0], axis=1)
    return replace(tasks, units=replace(units, waits=Lists.of(pairs[0], pairs[1], units.op.size)))


def late_hosts(tasks: Tasks, rank: int | None) -> Ints:
    """By how much less host work comes before each call, for every rank to come to its collectives as others do.

    What a thread does from the launch of one collective to that of the next is compared with what others do between the
    same two: with their median, or, for all ranks (None), with the least. What is too much is taken from where more
    comes before a call than before the same one of theirs, if they make as many calls; the rest from the longest.
    """
    calls, units = tasks.calls, tasks.units
    ends = np.flatnonzero((units.collective >= 0) & (units.call >= 0))
    ends = ends[np.argsort(units.call[ends], kind="stable")]
    call, thread = units.call[ends], calls.thread[units.call[ends]]
    first = np.append(True, thread[1:] != thread[:-1])[: ends.size]
    since = np.where(first, np.searchsorted(calls.thread, thread), np.append(-1, call[:-1])[: ends.size] + 1)
    total = np.append(0, np.cumsum(calls.before_ns + calls.cost_ns))
    took = total[call + 1] - total[since]
    between = label(
        np.where(first, -1, np.append(-1, units.collective[ends][:-1])[: ends.size]), units.collective[ends]
    )
    excess = took - _of_others(between, took, least=rank is None)
    excess = np.where((units.rank[ends] == rank) | (rank is None), np.maximum(excess, 0), 0)
    rows, which = runs(since, call + 1 - since)
    before, position = calls.before_ns[rows], rows - since[which]
    same = label(between, call - since)[which]
    more = np.maximum(before - _of_others(label(same, position), before, least=rank is None), 0)
    taken = _taken(excess, which, more)
    taken += _taken(excess - np.bincount(which, taken, excess.size).astype(np.int64), which, before - taken)
    less = np.zeros(calls.call.size, np.int64)
    less[rows] = taken
    return less


def _taken(amount: Ints, which: Ints, given: Ints) -> Ints:
    """How much of each given part makes up amounts, from the largest part on.

    >>> _taken(np.array([5]), np.array([0, 0, 0]), np.array([1, 4, 3]))
    array([0, 4, 1])
    """
    order = np.lexsort((-given, which))
    part = given[order]
    so_far = np.cumsum(part) - part
    so_far -= so_far[np.searchsorted(which[order], which[order])]
    found = np.empty_like(given)
    found[order] = np.clip(amount[which[order]] - so_far, 0, part)
    return found


def _of_others(group: Ints, values: Ints, *, least: bool) -> Ints:
    """Of each row the least or the median (of two the mean) of the others of its group; its own where there are none.

    >>> _of_others(np.array([0, 0, 0, 1]), np.array([5, 1, 2, 9]), least=False)
    array([1, 3, 3, 9])
    """
    order = np.lexsort((values, group))
    ranked, of = values[order], group[order]
    first = np.searchsorted(of, of)
    others = np.searchsorted(of, of, side="right") - first - 1
    place = np.arange(of.size) - first

    def other(number: Ints) -> Ints:
        return ranked[np.where(others > 0, first + number + (number >= place), np.arange(of.size))]

    low, high = (np.zeros(of.size, np.int64),) * 2 if least else ((others - 1) // 2, others // 2)
    found = np.empty_like(values)
    found[order] = (other(np.maximum(low, 0)) + other(high)) // 2
    return found


def feeding(units: Units, chosen: Ints) -> Ints:
    """The unit that ends last of those each chosen one waits for, -1 where it waits for none."""
    owner, item = units.waits.owner, units.waits.items
    fed = np.flatnonzero(np.isin(owner, chosen))
    fed = fed[np.lexsort((units.end_ns[item[fed]], owner[fed]))]
    found = np.full(units.op.size, -1, np.int64)
    found[owner[fed]] = item[fed]
    return found[chosen]


def in_pieces(tasks: Tasks, whole: Ints, pieces: int) -> tuple[Tasks, Ints]:
    """Cut units into pieces, one behind the other; the first takes what the unit waits for, the last its number.

    Returns
    -------
    The tasks, and the numbers of the pieces: units x pieces.
    """
    units, count, more = tasks.units, tasks.units.op.size, pieces - 1
    added = count + np.arange(whole.size * more).reshape(whole.size, more)
    parts = np.concatenate([added, whole[:, None]], axis=1)
    origin = np.repeat(whole, more)
    columns = {name: getattr(units, name) for name in Units.__struct_fields__ if name != "waits"}
    columns = {name: np.concatenate([values, values[origin]]) for name, values in columns.items()}
    columns["transfer_ns"][parts] /= pieces
    numbers = (int(units.collective.max(initial=-1)) + 1) * np.tile(np.arange(1, pieces), whole.size)
    columns["collective"][count:] += np.where(units.collective[origin] >= 0, numbers, 0)
    columns["previous"][parts] = np.concatenate([units.previous[whole][:, None], added], axis=1)
    first = np.arange(count)
    first[whole] = parts[:, 0]
    calls, cost = tasks.calls, tasks.calls.cost_ns.copy()
    launch = units.call[whole]
    np.add.at(cost, launch[launch >= 0], more * calls.cost_ns[launch[launch >= 0]])
    room = {name: getattr(tasks.room, name) for name in Room.__struct_fields__ if name != "limits"}
    waits = Lists.of(first[units.waits.owner], units.waits.items, count + origin.size)
    cut = replace(
        tasks,
        calls=replace(calls, cost_ns=cost),
        units=Units(**columns, waits=waits),
        room=replace(tasks.room, **{name: np.concatenate([each, each[origin]]) for name, each in room.items()}),
    )
    return cut, parts


def fed_by(units: Units, waiting: Ints, feeds: Ints, instead: Ints) -> Units:
    """The same with each piece waiting for one unit, none for what fed the whole.

    Parameters
    ----------
    waiting, instead : pieces, and the unit that each waits for. feeds : what the whole waited for.
    """
    owner, item = units.waits.owner, units.waits.items
    kept = ~(np.isin(owner, waiting) & np.isin(item, feeds))
    owner, item = np.append(owner[kept], waiting), np.append(item[kept], instead)
    return replace(units, waits=Lists.of(owner, item, units.op.size))


def shares_of_alike(lane: Ints, feeds: Ints, kind: Ints, pieces: int, ends: Ints) -> Ints:
    """Of each feed's run of like kernels the last of each share, -1 where there are fewer than pieces.

    A run ends with the feed, and begins behind one of `ends`, or behind what is not like it, on their lane. Like is
    the same kernel, or the same few kernels in turns (`PERIODS`): pieces of work that each take several.

    Parameters
    ----------
    kind : which kernel each unit is, -1 for none, which is passed over.

    >>> lane, kind, feeds = np.zeros(6, np.int64), np.array([1, 1, -1, 1, 2, 2]), np.array([3, 5])
    >>> shares_of_alike(lane, feeds, kind, 2, ends=feeds).tolist()
    [[0, 3], [4, 5]]
    >>> shares_of_alike(lane, feeds, kind, 2, ends=np.array([1, 3, 5])).tolist()
    [[-1, -1], [4, 5]]
    >>> shares_of_alike(lane, np.array([5]), np.array([7, -1, 1, 2, 1, 2]), 2, ends=np.array([5])).tolist()
    [[3, 5]]
    """
    rows = np.flatnonzero(kind >= 0)
    rows = rows[np.argsort(lane[rows], kind="stable")]
    place = np.full(kind.size, -1)
    place[rows] = np.arange(rows.size)
    number = np.arange(rows.size)
    cut = np.append(True, (np.diff(lane[rows]) != 0) | np.isin(rows, ends)[:-1])[: rows.size]
    earliest = np.maximum.accumulate(np.where(cut, number, 0))
    at = place[feeds]
    found = np.full((feeds.size, pieces), -1)
    for period in PERIODS:
        unlike = np.append(np.ones(min(period, rows.size), bool), kind[rows][period:] != kind[rows][:-period])
        first = np.maximum(np.maximum.accumulate(np.where(unlike, number, 0)) - period + 1, earliest)
        times = (at - take_or(first, at, 0) + 1) // period
        share = at[:, None] - (times[:, None] - np.arange(1, pieces + 1) * times[:, None] // pieces) * period
        enough = (at >= 0) & (times >= pieces) & (found[:, 0] < 0)
        found = np.where(enough[:, None], take_or(rows, share), found)
    return found
