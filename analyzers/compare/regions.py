"""Busy time of each region's own work per step: an op counts for the innermost range it was launched in.

So a change inside a nested range is told of that range and not of all that stand around it. Step marks are no regions,
nor are the ranges a library opens around each collective. Ranges that always hold the very same work (an optimizer's
own mark inside the user's) are one region, with the outermost one's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from analyzers.arrays.groups import first_of_each, label
from analyzers.arrays.intervals import overlap_by_group
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.compare.steps import StepGroups, join_values
from analyzers.syncs.context import enclosing
from analyzers.trace.columns import as_int64
from analyzers.trace.ranges import launched_in, range_classes
from analyzers.trace.steps import STEP_NAME
from analyzers.trace.tables import Trace

OUTSIDE = ""  # the region of work that is in no range


class RegionFigures(msgspec.Struct, frozen=True):
    """Real busy time (waits for late ranks left out), ns: regions × lanes × steps. `names` has "" for no range.

    texts : of all ranges, in the order in which regions are named; used : those that launched ops themselves.
    """

    names: tuple[str, ...]
    busy_ns: Ints
    texts: tuple[str, ...]
    used: frozenset[str]


def join_regions(
    groups: StepGroups, parts: Sequence[tuple[StepGroups, RegionFigures]], twins: Mapping[str, str]
) -> RegionFigures:
    """Regions of all parts of a run, whose groups `groups` joins, in the order that they have in the whole of it."""
    texts = tuple(dict.fromkeys(text for _, part in parts for text in part.texts))
    used = frozenset[str]().union(*(part.used for _, part in parts))
    names = tuple(dict.fromkeys([OUTSIDE, *(twins.get(text, text) for text in texts if text in used)]))
    spread = []
    for own, part in parts:
        busy = np.zeros((len(names), *own.there.shape), np.int64)
        busy[[names.index(name) for name in part.names]] = part.busy_ns
        spread.append(busy)
    return RegionFigures(names, join_values(groups, [own for own, _ in parts], spread), texts, used)


def region_figures(trace: Trace, groups: StepGroups, twins: Mapping[str, str]) -> RegionFigures:
    """Measure every region on every device and step; `twins` names the region that stands for another, too."""
    region, names, used = regions_of_ops(trace, twins)
    starts, ends = trace.ops.start_ns + as_int64(trace.ops.wait_ns), trace.ops.end_ns
    inside = groups.group >= 0
    group = region[inside] * groups.size + groups.group[inside]
    nothing = np.empty(0, np.int64)
    busy = overlap_by_group(
        (starts[inside], ends[inside], group), (nothing, nothing, nothing), len(names) * groups.size
    ).a
    texts = tuple(trace.ranges.name.texts)
    return RegionFigures(names, busy.reshape(len(names), len(groups.lanes), groups.numbers.size), texts, used)


def regions_of_ops(trace: Trace, twins: Mapping[str, str]) -> tuple[Ints, tuple[str, ...], frozenset[str]]:
    """Region of every op as a number, the regions' names, and the names of ranges that launched ops themselves."""
    region = np.zeros(len(trace.ops), np.int64)
    row, _ = launched_in(trace, _of_the_user(trace))
    launched = np.flatnonzero(row >= 0)
    code, texts = trace.ranges.name.codes, trace.ranges.name.texts
    ids = {OUTSIDE: 0}
    number = np.zeros(len(texts), np.int64)
    used = np.unique(code[row[launched]]).tolist()
    for name in used:
        number[name] = ids.setdefault(twins.get(texts[name], texts[name]), len(ids))
    region[launched] = number[code[row[launched]]]
    return region, tuple(ids), frozenset(texts[name] for name in used)


class Nested(msgspec.Struct, frozen=True):
    """How many ops the ranges of one name hold that lie in ranges of another, or of the same.

    pairs : (own, around) -> ops, in the order in which names were first around; names : around -> ops in all.
    """

    pairs: Mapping[tuple[str, ...], int]
    names: Mapping[str, int]


def twins_of(parts: Sequence[Nested]) -> dict[str, str]:
    """For each range name the outermost name around it that holds exactly the same ops, in all parts of a run."""
    pairs, names = Counter[tuple[str, ...]](), Counter[str]()
    for part in parts:
        pairs.update(part.pairs)
        names.update(part.names)
    found: dict[str, str] = {}
    for (own, around), ops in pairs.items():  # those of a name come outermost first
        if own != around and ops == names[own] == names[around]:
            found.setdefault(own, around)
    return found


def nested(trace: Trace) -> Nested:
    """Which names' ranges lie in which others, as far as they launched ops."""
    wanted = _of_the_user(trace)
    row, _ = launched_in(trace, wanted)
    used, count = np.unique(row[row >= 0], return_counts=True)
    code, texts = trace.ranges.name.codes, trace.ranges.name.texts
    rows = np.flatnonzero(wanted)
    launching = trace.ranges.take(used)
    where = as_int64(launching.process), as_int64(launching.thread), launching.start_ns
    point, around = enclosing(trace.ranges.take(rows), *where)  # the outermost of a point's first
    name = code[rows[around]]
    once = first_of_each(label(point, name))  # ranges of one name that lie in each other
    point, name = point[once], name[once]
    own, ops = code[used[point]], count[point]
    by_name = {around: total for (around,), total in _ops_of_each(texts, ops, name).items()}
    return Nested(_ops_of_each(texts, ops, own, name), by_name)


def _ops_of_each(texts: Sequence[str], ops: Ints, *names: Ids) -> dict[tuple[str, ...], int]:
    """How many ops each combination of names has, in the order they first occur."""
    number = label(*names)
    ops_of_each = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    np.add.at(ops_of_each, number, ops)
    firsts = zip(*(name[first_of_each(number)].tolist() for name in names), strict=True)
    named = (tuple(texts[code] for code in codes) for codes in firsts)
    return dict(zip(named, ops_of_each.tolist(), strict=True))


def _of_the_user(trace: Trace) -> Mask:
    _, ranged, _ = trace.once(range_classes)
    step = trace.ranges.name.matching(STEP_NAME.match)
    return ranged & ~step
