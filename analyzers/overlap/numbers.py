"""Numbered ranges of a pair: what has one number on both sides belongs together."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import distinct
from analyzers.arrays.types import Ints
from analyzers.select.language import atoms
from analyzers.select.picking import RANGE_ATOMS
from analyzers.select.select import Selection
from analyzers.trace.columns import codes, ints, stored
from analyzers.trace.tables import Trace

Numbers = tuple[int, ...]


class NumberedRanges(msgspec.Struct, frozen=True):
    """Ranges of A, then those of B: `row` in `Trace.ranges`, and its `instance`, the same for one number in a process.

    process, label : of each instance; those of a process in the order in which their first range starts.
    """

    row_a: Ints
    row_b: Ints
    instance: Ints
    process: Ints
    label: tuple[str, ...]


def numbered_ranges(trace: Trace, a: Selection, b: Selection) -> NumberedRanges | None:
    """The ranges of two sides by number.

    None where a side is no family (`nvtx:## forward # ##`), where a number recurs in a process, so that nobody can tell
    which belongs to which, or where a process has ranges of both sides and no number on both.
    """
    known: dict[Numbers, int] = {}
    of_a, of_b = _numbers_of(trace, a, known), _numbers_of(trace, b, known)
    if of_a is None or of_b is None or len({len(numbers) for numbers in known}) > 1:
        return None
    owner, count = ints(trace.ranges, "process"), max(len(known), 1)
    working = distinct(stored(trace.ops, "process")[a.picked | b.picked])
    (row_a, number_a), (row_b, number_b) = ([one[np.isin(owner[of[0]], working)] for one in of] for of in (of_a, of_b))
    key_a, key_b = owner[row_a] * count + number_a, owner[row_b] * count + number_b
    if distinct(key_a).size < key_a.size or distinct(key_b).size < key_b.size:
        return None
    of_both = np.intersect1d(owner[row_a], owner[row_b])
    if not np.isin(of_both, np.intersect1d(key_a, key_b) // count).all():
        return None
    row, key = np.append(row_a, row_b), np.append(key_a, key_b)
    by_start = np.argsort(ints(trace.ranges, "start_ns")[row], kind="stable")
    found, first = np.unique(key[by_start], return_index=True)
    found = found[np.lexsort((first, found // count))]
    by_key = np.argsort(found)
    instance = by_key[np.searchsorted(found, key, sorter=by_key)]
    texts = [", ".join(map(str, numbers)) for numbers in known]
    label = tuple(f"number {texts[number]}" for number in (found % count).tolist())
    return NumberedRanges(row_a, row_b, instance, found // count, label)


def _numbers_of(trace: Trace, side: Selection, known: dict[Numbers, int]) -> tuple[Ints, Ints] | None:
    """A side's ranges and, of each, which of the `known` numbers its name has; None where it is no family."""
    named = [atom for atom in atoms(side.selector) if atom.kind in RANGE_ATOMS]
    if len(named) != 1 or not named[0].of_numbers:
        return None
    code, texts = codes(trace.ranges, "name")
    rows = np.flatnonzero(side.ranges)
    of_code = np.full(len(texts), -1, np.int64)
    for each in distinct(code[rows]).tolist():
        numbers = named[0].numbers(texts[each])
        if not numbers:
            return None
        of_code[each] = known.setdefault(numbers, len(known))
    return rows, of_code[code[rows]]
