"""Where on a mark a text has room: the longest part of it that is in view and that no mark above it covers."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, subtract, union
from analyzers.arrays.types import Ints
from traceviz.timelines.marks import ROLES, Marks


def above(marks: Marks, order: dict[str, int]) -> Ints:
    """How far in front each mark is drawn: by the place of its role, those of many in front of single ones."""
    place = np.array([order.get(role, -1) for role in ROLES], np.int64)
    return 2 * place[marks.role] + (marks.count > 1)


def room(marks: Marks, front: Ints, low: int, high: int, least: int) -> tuple[Ints, Ints]:
    """The part of each mark on which a text has room, from and to in ns.

    Parameters
    ----------
    front : how far in front each is drawn; of two of the same that which comes later.
    low, high : what is in view; least : what is seen of marks that are to have a text, ns: the others are left alone.

    Of a mark from 0 to 100 on which another lies from 20 to 30, it is 30 to 100.
    """
    start, end = np.maximum(marks.start, low), np.minimum(marks.end, high)
    free_start, free_end = start.copy(), end.copy()
    for rows in rows_by_key(marks.row).values():
        in_view = rows[(end[rows] > start[rows])]
        for k in in_view[(end - start)[in_view] >= least].tolist():
            in_front = (front[in_view] > front[k]) | ((front[in_view] == front[k]) & (in_view > k))
            covers = in_view[in_front & (start[in_view] < end[k]) & (end[in_view] > start[k])]
            if covers.size:
                left = subtract(Union(start[k : k + 1], end[k : k + 1]), union(start[covers], end[covers]))
                longest = int(np.argmax(left.ends - left.starts)) if left.starts.size else -1
                free_start[k] = left.starts[longest] if longest >= 0 else start[k]
                free_end[k] = left.ends[longest] if longest >= 0 else start[k]
    return free_start, free_end
