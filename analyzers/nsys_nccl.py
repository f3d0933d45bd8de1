"""Communication calls in an nsys export: NCCL's NVTX ranges, joined to the GPU work they launched.

A call launches its kernel inside its own range, or, between ncclGroupStart and ncclGroupEnd, inside the outermost
ncclGroupEnd that follows: there, several calls may share one kernel.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.keys import lanes
from analyzers.names import is_communication, operation
from analyzers.nsys_events import ROW
from analyzers.nsys_payload import Payload
from analyzers.trace import Ints, Mask, codes, ints, table

DOMAINS = ("NCCL", "")  # "" where the export does not tell domains apart
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"


def read_comms(ranges: pd.DataFrame, payload: Payload, ops: pd.DataFrame, api: pd.DataFrame) -> pd.DataFrame:
    """One row a call and launched op; `correlation` is -1 where the capture does not tell which op is the call's.

    Parameters
    ----------
    ranges : with column `ROW`, the row of each in the export.
    """
    named = _named(ranges)
    calls = np.flatnonzero(named == "call")
    if calls.size == 0:
        return table("comms")
    starts, ends = ints(ranges, "start_ns"), ints(ranges, "end_ns")
    rows = ints(ranges, ROW)
    communicator = payload.at(rows, "communicator")
    launched = _launches(ops, api)
    found: list[tuple[Ints, Ints]] = []
    for lane, those in lanes(ints(ranges, "process"), ints(ranges, "thread")).items():
        at, correlation = launched.get(lane, (np.empty(0, np.int64), np.empty(0, np.int64)))
        own = those[named[those] == "call"]
        own = own[np.argsort(starts[own], kind="stable")]
        first, count = _inside(at, starts[own], ends[own])
        found.append(_repeat(own[count > 0], first[count > 0], count[count > 0], correlation))
        rest = own[count == 0]
        groups = _Groups(starts, ends, those[named[those] == GROUP_START], those[named[those] == GROUP_END])
        found.append((rest, groups.correlations(rest, communicator[rest], at, correlation)))
    row = np.concatenate([rows_found for rows_found, _ in found])
    correlation = np.concatenate([ids for _, ids in found])
    order = np.lexsort((correlation, starts[row], ints(ranges, "process")[row]))
    row, correlation = row[order], correlation[order]
    said = ranges.iloc[row]
    return table(
        "comms",
        {
            "process": ints(said, "process"),
            "thread": ints(said, "thread"),
            "start_ns": ints(said, "start_ns"),
            "end_ns": ints(said, "end_ns"),
            "operation": said["name"].array.remove_unused_categories(),
            "correlation": correlation,
            "bytes": payload.at(rows[row], "bytes"),
            "communicator": communicator[row],
            "peer": payload.at(rows[row], "peer"),
            "group_size": _group_sizes(payload, communicator[row]),
        },
    )


def _named(ranges: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Per range: "call" for a communication call, the name of a group's start or end, "" for all others."""
    code, names = codes(ranges, "name")
    domain, domains = codes(ranges, "domain")
    meaning = [_meaning(name) for name in names]
    ours = np.array([text in DOMAINS for text in domains] + [False])[domain]
    return np.where(ours, np.array([*meaning, ""], dtype=object)[code], "")


def _meaning(name: str) -> str:
    if name in (GROUP_START, GROUP_END):
        return name
    return "call" if name.startswith("nccl") and operation(name) else ""


def _launches(ops: pd.DataFrame, api: pd.DataFrame) -> dict[tuple[int, ...], tuple[Ints, Ints]]:
    """Per (process, thread): launch times of communication, ascending, and their correlation ids.

    Kernels by name; copies too, since NCCL may move data by copy engine.
    """
    launch = ints(ops, "launch")
    mine = np.flatnonzero((launch >= 0) & (_communicates(ops) | (ops["kind"] == "memcpy").to_numpy()))
    calls = launch[mine]
    at, process, thread = (ints(api, column)[calls] for column in ("start_ns", "process", "thread"))
    correlation = ints(ops, "correlation")[mine]
    result = {}
    for lane, those in lanes(process, thread).items():
        order = those[np.argsort(at[those], kind="stable")]
        result[lane] = (at[order], correlation[order])
    return result


def _communicates(ops: pd.DataFrame) -> Mask:
    code, names = codes(ops, "name")
    return np.array([is_communication(name) for name in names] + [False])[code]


def _inside(at: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    first = np.searchsorted(at, starts, side="left")
    return first, np.searchsorted(at, ends, side="right") - first


def _repeat(rows: Ints, first: Ints, count: Ints, values: Ints) -> tuple[Ints, Ints]:
    step = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(rows, count), values[np.repeat(first, count) + step]


class _Groups:
    """The ncclGroupEnd calls of one thread that really end a group, and what they launch."""

    def __init__(self, starts: Ints, ends: Ints, opened: Ints, closed: Ints) -> None:
        self._starts, self._ends = starts, ends
        closed = closed[np.argsort(starts[closed], kind="stable")]
        at = np.concatenate([starts[opened], starts[closed]])
        order = np.argsort(at, kind="stable")
        change = np.concatenate([np.ones(opened.size, np.int64), -np.ones(closed.size, np.int64)])[order]
        depth = np.cumsum(change)
        # a capture that begins inside a group sees its end alone: depth starts again from there
        depth -= np.minimum.accumulate(np.minimum(depth, 0))
        after = depth[change < 0]
        self._depth_at, self._depth = at[order], depth
        self.closing = closed[after == 0] if closed.size else closed

    def correlations(self, calls: Ints, communicator: Ints, at: Ints, correlation: Ints) -> Ints:
        """Correlation id of the op each call's group launched for it, -1 where that can't be told."""
        result = np.full(calls.size, -1, np.int64)
        if calls.size == 0 or self.closing.size == 0:
            return result
        place = np.searchsorted(self._depth_at, self._starts[calls], side="right") - 1
        within = (place >= 0) & (self._depth[np.maximum(place, 0)] > 0)
        group = np.searchsorted(self._starts[self.closing], self._starts[calls], side="left")
        known = np.flatnonzero(within & (group < self.closing.size))
        group = group[known]
        first, count = _inside(at, self._starts[self.closing], self._ends[self.closing])
        chosen = _share(group, communicator[known], count[group])
        useful = chosen >= 0
        result[known[useful]] = correlation[first[group[useful]] + chosen[useful]]
        return result


def _share(group: Ints, communicator: Ints, launched: Ints) -> Ints:
    """Which of its group's launches serves each call: the only one, or by order, or one a communicator; else -1."""
    if group.size == 0:
        return group
    _, head, size = np.unique(group, return_index=True, return_counts=True)
    place = np.arange(group.size) - np.repeat(head, size)
    pairs = pd.factorize(pd.MultiIndex.from_arrays([group, communicator]))[0].astype(np.int64)
    of_communicator = pairs - np.repeat(pairs[head], size)
    communicators = np.repeat(np.maximum.reduceat(of_communicator, head) + 1, size)
    calls = np.repeat(size, size)
    return np.select(
        [launched == 1, launched == calls, (launched == communicators) & (communicator != -1)],
        [np.zeros_like(group), place, of_communicator],
        -1,
    )


def _group_sizes(payload: Payload, communicator: Ints) -> Ints:
    """Ranks in each call's communicator, -1 where the capture did not see it created."""
    made = payload.ranks > 0
    sizes = dict(zip(payload.communicator[made].tolist(), payload.ranks[made].tolist(), strict=True))
    known, distinct = pd.factorize(communicator)
    return np.array([sizes.get(one, -1) for one in distinct.tolist()] or [-1], np.int64)[known]
