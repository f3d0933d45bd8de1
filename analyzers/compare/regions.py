"""Busy time of each region's own work per step: an op counts for the innermost range it was launched in.

So a change inside a nested range is told of that range and not of all that stand around it. Step marks are no regions,
nor are the ranges a library opens around each collective. Ranges that always hold the very same work (an optimizer's
own mark inside the user's) are one region, with the outermost one's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyzers.arrays.intervals import overlap_by_group
from analyzers.arrays.types import Ints, Mask
from analyzers.compare.steps import StepGroups
from analyzers.syncs.context import enclosing
from analyzers.trace.columns import codes, ints
from analyzers.trace.range_classes import range_classes
from analyzers.trace.regions import launched_in
from analyzers.trace.steps import STEP
from analyzers.trace.tables import Trace

OUTSIDE = ""  # the region of work that is in no range


@dataclass(frozen=True)
class RegionFigures:
    """Real busy time (waits for late ranks left out), ns: regions × lanes × steps. `names` has "" for no range."""

    names: tuple[str, ...]
    busy_ns: Ints


def region_figures(trace: Trace, groups: StepGroups, twins: Mapping[str, str]) -> RegionFigures:
    """Measure every region on every device and step; `twins` names the region that stands for another, too."""
    region, names = regions_of_ops(trace, twins)
    starts, ends = ints(trace.ops, "start_ns") + ints(trace.ops, "wait_ns"), ints(trace.ops, "end_ns")
    inside = groups.group >= 0
    group = region[inside] * groups.size + groups.group[inside]
    nothing = np.empty(0, np.int64)
    busy = overlap_by_group(
        (starts[inside], ends[inside], group), (nothing, nothing, nothing), len(names) * groups.size
    ).a
    return RegionFigures(names, busy.reshape(len(names), len(groups.lanes), groups.numbers.size))


def regions_of_ops(trace: Trace, twins: Mapping[str, str]) -> tuple[Ints, tuple[str, ...]]:
    """Region of every op as a number, and the regions' names."""
    region = np.zeros(len(trace.ops), np.int64)
    row, _ = launched_in(trace, _of_the_user(trace))
    launched = np.flatnonzero(row >= 0)
    code, texts = codes(trace.ranges, "name")
    ids = {OUTSIDE: 0}
    number = np.zeros(len(texts), np.int64)
    for name in np.unique(code[row[launched]]).tolist():
        number[name] = ids.setdefault(twins.get(texts[name], texts[name]), len(ids))
    region[launched] = number[code[row[launched]]]
    return region, tuple(ids)


def outermost_twins(trace: Trace) -> dict[str, str]:
    """For each range name the outermost name around it that holds exactly the same ops, where there is one."""
    wanted = _of_the_user(trace)
    row, _ = launched_in(trace, wanted)
    used, count = np.unique(row[row >= 0], return_counts=True)
    code, texts = codes(trace.ranges, "name")
    rows = np.flatnonzero(wanted)
    process, thread, start = (ints(trace.ranges, column)[used] for column in ("process", "thread", "start_ns"))
    point, around = enclosing(trace.ranges.iloc[rows], process, thread, start)
    pairs = pd.DataFrame({"point": point, "name": code[rows[around]].astype(np.int64)})
    pairs = pairs.drop_duplicates().reset_index(names="depth")  # they come outermost first
    pairs["own"], pairs["ops"] = code[used[pairs["point"]]].astype(np.int64), count[pairs["point"]]
    ops_of_name = pairs.groupby("name")["ops"].sum()
    by_pair = pairs.groupby(["own", "name"], as_index=False).agg(ops=("ops", "sum"), depth=("depth", "min"))
    same_ops = by_pair["ops"].eq(by_pair["own"].map(ops_of_name)) & by_pair["ops"].eq(by_pair["name"].map(ops_of_name))
    outermost = by_pair[same_ops & by_pair["own"].ne(by_pair["name"])].sort_values("depth").drop_duplicates("own")
    return {texts[own]: texts[name] for own, name in zip(outermost["own"], outermost["name"], strict=True)}


def _of_the_user(trace: Trace) -> Mask:
    code, texts = codes(trace.ranges, "name")
    _, ranged, _ = trace.once(range_classes)
    step = np.array([STEP.match(text) is not None for text in texts] + [False])[code]
    return ranged & ~step
