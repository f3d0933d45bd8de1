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
from dataclasses import dataclass

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.ordering.lanes import Lanes, group_numbers, run_heads
from analyzers.trace.columns import codes, ints
from analyzers.trace.range_classes import range_classes
from analyzers.trace.tables import Trace

LEVELS = 4  # how deep under the outermost range the steps of a run are searched for
PERIODS = 64  # how many candidates for a period are tried


@dataclass(frozen=True)
class Places:
    """For each unit its place, and in which turn it is; -1 where its launch, or its turn, is not known."""

    place: Ints
    turn: Ints

    def unit_at(self, place: Ints, turn: Ints) -> Ints:
        """The unit at each place in each turn; -1 where there is none."""
        rows = np.flatnonzero(self.place >= 0)
        if not rows.size:
            return np.full(place.size, -1, np.int64)
        low, span = int(self.turn[rows].min()), int(np.ptp(self.turn[rows])) + 1
        key = self.place[rows] * span + self.turn[rows] - low
        order = np.argsort(key, kind="stable")
        wanted = place * span + turn - low
        at = np.minimum(np.searchsorted(key[order], wanted), rows.size - 1)
        inside = (place >= 0) & (turn >= low) & (turn < low + span)
        return np.where(inside & (key[order][at] == wanted), rows[order[at]], -1)


def find_places(trace: Trace, lanes: Lanes) -> Places:
    """Find the places of a trace."""
    ranged = np.flatnonzero(trace.once(range_classes)[1])
    (code, _), (kind, kinds) = codes(trace.ops, "name"), codes(trace.ops, "kind")
    what = np.where(kind == kinds.index("kernel"), code, -1 - kind)  # how a copy's memory is called does not matter
    token = group_numbers(lanes.lane_of_unit(), what[lanes.op].astype(np.int64))
    place, turn = np.full(token.size, -1, np.int64), np.full(token.size, -1, np.int64)
    marks = {key[0]: step_starts(trace, ranged[rows]) for key, rows in _by_process(trace, ranged).items()}
    repeating = _turns_of_processes(lanes, token)
    count = 0
    for (host,), units in rows_by_key(lanes.launcher).items():
        if host < 0:
            continue
        units = units[np.argsort(lanes.enqueue_ns[units], kind="stable")]
        starts = marks.get(int(lanes.process[host]), np.empty(0, np.int64))
        if starts.size > 1:
            of_turn = np.searchsorted(starts, lanes.enqueue_ns[units], side="right") - 1
        else:
            of_turn = repeating[units] if (repeating[units] >= 0).any() else _turns_by_period(token[units])
        kept = of_turn >= 0
        units, of_turn = units[kept], of_turn[kept]
        place[units], turn[units] = _numbered(token[units], of_turn) + count, of_turn
        count = int(place.max(initial=-1)) + 1
    return Places(place, turn)


def _by_process(trace: Trace, rows: Ints) -> dict[tuple[int, ...], Ints]:
    return rows_by_key(ints(trace.ranges, "process")[rows])


def _turns_of_processes(lanes: Lanes, token: Ints) -> Ints:
    """The turn of each launch of a process whose threads' launches repeat together, as those of a step do."""
    turn = np.full(token.size, -1, np.int64)
    rows = np.flatnonzero(lanes.launcher >= 0)
    for of_process in rows_by_key(lanes.process[lanes.launcher[rows]]).values():
        units = rows[of_process]
        units = units[np.argsort(lanes.enqueue_ns[units], kind="stable")]
        turn[units] = _turns_by_period(group_numbers(lanes.launcher[units], token[units]))
    return turn


def _numbered(token: Ints, turn: Ints) -> Ints:
    """The place of each launch of a thread, by turn: which of its turn it is, and what that turn launches."""
    first = np.flatnonzero(run_heads(turn))
    length = np.diff(np.append(first, turn.size))
    number = np.arange(turn.size) - np.repeat(first, length)
    kinds: dict[bytes, int] = {}
    ends = np.append(first[1:], turn.size).tolist()
    parts = (token[low:high].tobytes() for low, high in zip(first.tolist(), ends, strict=False))
    kind = [kinds.setdefault(part, len(kinds)) for part in parts]
    return group_numbers(np.repeat(np.array(kind, np.int64), length), number)


def _turns_by_period(token: Ints) -> Ints:
    """The turn of each launch of a thread whose launches repeat, at least in its last half; -1 elsewhere."""
    turn = np.full(token.size, -1, np.int64)
    if token.size < 2:
        return turn
    half = token[token.size - token.size // 2 :]  # it repeats all of these, and so the rarest of them
    tokens, counts = np.unique(half, return_counts=True)
    rarest = np.flatnonzero(token == tokens[np.argmin(counts)])
    for period in (rarest[-1] - rarest[-2::-1][:PERIODS]).tolist():
        differs = np.flatnonzero(token[period:] != token[:-period])
        start = int(differs[-1]) + 1 if differs.size else 0
        if token.size - start >= max(2 * period, token.size // 2):
            start += (token.size - start) % period  # whole turns up to the end
            turn[start:] = np.arange(token.size - start) // period
            return turn
    return turn


def step_starts(trace: Trace, rows: Ints) -> Ints:
    """When the steps of a process began: its outermost ranges, of these rows, that repeat but for a number."""
    code, names = codes(trace.ranges, "name")
    start, end = ints(trace.ranges, "start_ns"), ints(trace.ranges, "end_ns")
    plain = {index: re.sub(r"\d+", "#", names[index]) for index in np.unique(code[rows])}
    for _ in range(LEVELS):
        deeper, repeated = [np.empty(0, np.int64)], []
        for thread_ranges in rows_by_key(ints(trace.ranges, "thread")[rows]).values():
            thread_ranges = rows[thread_ranges]
            thread_ranges = thread_ranges[np.lexsort((-end[thread_ranges], start[thread_ranges]))]
            outer = np.append(True, start[thread_ranges][1:] >= np.maximum.accumulate(end[thread_ranges])[:-1])
            deeper.append(thread_ranges[~outer])
            by_name: dict[str, list[int]] = {}
            for row in thread_ranges[outer].tolist():
                by_name.setdefault(plain[int(code[row])], []).append(row)
            repeated += [each for each in by_name.values() if len(each) > 1]
        if repeated:
            return start[min(repeated, key=lambda each: int(start[each[0]]))]
        rows = np.concatenate(deeper)
    return np.empty(0, np.int64)
