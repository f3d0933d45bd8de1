"""Places of a program: launches that it makes again and again, in every step or in every turn of a loop.

Each host thread's launches are cut into turns: by the ranges that mark its steps, where there are such ranges, else by
the period in which stream and kernel repeat. Turns that launch the same, one by one, are alike, and the n-th launches
of turns that are alike are one place.

    launches   produce(7) side(9) merge(7) | produce(7) side(9) merge(7) | produce(7) side(9) side(9) merge(7)
    place            0       1        2    |      0        1        2    |      3        4       5        6
    turn             0                     |      1                      |      2
"""

from __future__ import annotations

import re
from functools import cached_property

import msgspec
import numpy as np

from analyzers.arrays.groups import group_numbers, ordered, rows_by_key, run_heads
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints
from analyzers.ordering.calls import Launches
from analyzers.ordering.lanes import Lanes
from analyzers.trace.columns import ints_at
from analyzers.trace.ranges import range_classes
from analyzers.trace.tables import Trace

MAX_NESTING = 4  # how deep under the outermost range the steps of a run are searched for
MAX_PERIODS_TRIED = 64  # how many candidates for a period are tried


class Places(msgspec.Struct, frozen=True, dict=True):
    """For each unit its place, and in which turn it is; -1 where its launch, or its turn, is not known."""

    place: Ids
    turn: Ids

    def unit_at(self, place: Ints, turn: Ints) -> Ints:
        """The unit at each place in each turn; -1 where there is none."""
        units, key, low, span = self._units
        if not units.size:
            return np.full(place.size, -1, np.int64)
        wanted = np.multiply(place, span, dtype=np.int64) + turn - low
        at = np.minimum(search(key, wanted), units.size - 1)
        inside = (place >= 0) & (turn >= low) & (turn < low + span)
        return np.where(inside & (key[at] == wanted), units[at], -1)

    @cached_property
    def _units(self) -> tuple[Ints, Ints, int, int]:
        """Units by place and turn, the number of each such pair, the first turn and how many there are."""
        units = np.flatnonzero(self.place >= 0)
        turn = self.turn[units]
        low, high = int(turn.min(initial=0)), int(turn.max(initial=0))
        units = units[ordered(self.place[units], turn)]
        key = np.multiply(self.place[units], high - low + 1, dtype=np.int64) + self.turn[units] - low
        return units, key, low, high - low + 1


def find_places(trace: Trace, lanes: Lanes, launches: Launches) -> Places:
    """Find the places of a trace."""
    ranged = np.flatnonzero(trace.once(range_classes)[1])
    token = group_numbers(lanes.lane_of_unit(), trace.ops.name.codes[lanes.op].astype(np.int64))
    place, turn = np.full(token.size, -1, np.int32), np.full(token.size, -1, np.int32)
    by_process = rows_by_key(trace.ranges.process[ranged])
    marks = {process: step_starts(trace, ranged[rows]) for (process,), rows in by_process.items()}
    count = 0
    for host in np.flatnonzero(lanes.is_host()).tolist():
        (units, _), starts = launches.of(host), marks.get(int(lanes.process[host]))
        if starts is not None and starts.size > 1:
            of_turn = search(starts, lanes.enqueue_ns[units], "right") - 1
        else:
            of_turn = _turns_by_period(token[units])
        kept = of_turn >= 0
        units, of_turn = units[kept], of_turn[kept]
        number = _numbered(token[units], of_turn)
        place[units], turn[units] = number + count, of_turn
        count += int(number.max(initial=-1)) + 1
    return Places(place, turn)


def _numbered(token: Ints, turn: Ints) -> Ints:
    """The place of each launch of a thread, by turn: which of its turn it is, and what that turn launches."""
    first = np.flatnonzero(run_heads(turn))
    length = np.diff(np.append(first, turn.size))
    number = np.arange(turn.size) - np.repeat(first, length)
    if not turn.size:
        return turn
    # Most turns launch what the turn before does: only the others are looked up.
    new = np.append(True, length[1:] != length[:-1])
    new |= np.logical_or.reduceat(token != token[np.arange(turn.size) - np.repeat(length, length)], first)
    kinds: dict[bytes, int] = {}
    token = token.astype(np.min_scalar_type(int(token.max(initial=0))))  # the fewer bytes are hashed
    launched, width = token.tobytes(), token.itemsize
    lows, highs = (first[new] * width).tolist(), ((first + length)[new] * width).tolist()
    parts = (launched[low:high] for low, high in zip(lows, highs, strict=True))
    kind = np.array([kinds.setdefault(part, len(kinds)) for part in parts], np.int64)[np.cumsum(new) - 1]
    return group_numbers(np.repeat(kind, length), number)


def _turns_by_period(token: Ints) -> Ints:
    """The turn of each launch of a thread whose launches repeat, at least in its last half; -1 elsewhere."""
    turn = np.full(token.size, -1, np.int64)
    if token.size < 2:
        return turn
    half = token[token.size - token.size // 2 :]  # it repeats all of these, and so the rarest of them
    tokens, counts = np.unique(half, return_counts=True)
    rarest = np.flatnonzero(token == tokens[np.argmin(counts)])
    for period in (rarest[-1] - rarest[-2::-1][:MAX_PERIODS_TRIED]).tolist():
        differs = np.flatnonzero(token[period:] != token[:-period])
        start = int(differs[-1]) + 1 if differs.size else 0
        if token.size - start >= max(2 * period, token.size // 2):
            start += (token.size - start) % period  # whole turns up to the end
            turn[start:] = np.arange(token.size - start) // period
            return turn
    return turn


def step_starts(trace: Trace, rows: Ints) -> Ints:
    """When the steps of a process began: its outermost ranges, of these rows, that repeat but for a number."""
    code, names = trace.ranges.name.codes, trace.ranges.name.texts
    start, end = trace.ranges.start_ns, trace.ranges.end_ns
    plain: dict[str, int] = {}
    number = np.zeros(len(names), np.int64)  # of each name, but for its numbers
    for index in np.unique(code[rows]).tolist():
        number[index] = plain.setdefault(re.sub(r"\d+", "#", names[index]), len(plain))
    for _ in range(MAX_NESTING):
        deeper, repeated = [np.empty(0, np.int64)], []
        for thread_ranges in rows_by_key(ints_at(trace.ranges, "thread", rows)).values():
            thread_ranges = rows[thread_ranges]
            thread_ranges = thread_ranges[np.lexsort((-end[thread_ranges], start[thread_ranges]))]
            outer = np.append(True, start[thread_ranges][1:] >= np.maximum.accumulate(end[thread_ranges])[:-1])
            deeper.append(thread_ranges[~outer])
            outermost = thread_ranges[outer]
            of_names = sorted(rows_by_key(number[code[outermost]]).values(), key=lambda each: int(each[0]))
            repeated += [outermost[each] for each in of_names if each.size > 1]
        if repeated:
            return start[min(repeated, key=lambda each: int(start[each[0]]))]
        rows = np.concatenate(deeper)
    return np.empty(0, np.int64)
