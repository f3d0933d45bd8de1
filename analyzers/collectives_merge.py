"""Merge the call sequences of many ranks into one sequence of collectives, and tell groups of ranks apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analyzers.collectives_pair import JITTER_NS, Sequence
from analyzers.collectives_sequence import align
from analyzers.keys import lanes
from analyzers.trace import Ints

Floats = npt.NDArray[np.float64]

BELONGS_NS = 8 * JITTER_NS  # ends of ranks that share no communicator do not coincide this well
SAMPLE = 256
APART = 5.0  # ends of two groups differ this many times as much as those within a group


def merge_sequences(
    member: Ints,
    symbol: Ints,
    start: Ints,
    end: Ints,
    *,
    limit_ns: int | None,
    one_group: bool,
    strict: bool = False,
) -> tuple[Ints, Floats]:
    """Number the collectives that calls of several members, sorted by end, belong to.

    Parameters
    ----------
    member, symbol, start, end : of each call; a member's calls share a clock.
    limit_ns : the clocks are known to be within this of each other, 0 if they are aligned already; None where nothing
        is known, and each member's times then count from its own first call.
    one_group : all members are known to communicate with each other.
    strict : calls may be between any two of the members, unnamed: only such as end closely together are one.

    Returns
    -------
    collective : number from 0, per call.
    confidence : 0 to 1, per call.
    """
    rows = {key[0]: part for key, part in lanes(member).items()}
    zero = int(start.min())
    sequences = {}
    for one, mine in rows.items():
        base = zero if limit_ns is not None else int(start[mine].min())
        sequences[one] = Sequence(symbol[mine], start[mine] - base, end[mine] - base)
    collective = np.full(member.size, -1, np.int64)
    confidence = np.ones(member.size)
    pending = sorted(rows, key=lambda one: (-rows[one].size, one))
    count = 0
    while pending:
        group = _Group(sequences[pending[0]])
        joined, pending = _gather(group, pending, sequences, limit_ns, one_group, strict)
        parts = [joined] if one_group else _subgroups(group, joined)
        for part in parts:
            if len(parts) > 1:  # what was merged with strangers is merged anew without them
                group = _Group(sequences[part[0]])
                _gather(group, part, sequences, limit_ns, True, strict)
            for one in part:
                collective[rows[one]] = count + group.index[one]
                confidence[rows[one]] = group.confidence[one]
            count += group.number.size
    return collective, confidence


class _Group:
    """The merged sequence of the members that joined so far, on the first one's clock."""

    def __init__(self, first: Sequence) -> None:
        self.sequence = first
        self.number = np.arange(len(first))  # of the collective in each row of the sequence
        self.index: dict[int, Ints] = {}
        self.confidence: dict[int, Floats] = {}
        self.shifted: dict[int, Sequence] = {}
        self.seen = 1

    def add(self, member: int, index: Ints, confidence: Floats, shifted: Sequence) -> None:
        """Take a member's calls in; those that match nothing become collectives of their own."""
        new = np.flatnonzero(index < 0)
        fresh = self.number.size + np.arange(new.size)
        self.index[member] = np.where(index >= 0, self.number[np.maximum(index, 0)], -1)
        self.index[member][new] = fresh
        self.confidence[member] = np.where(index >= 0, confidence, 1.0)
        self.shifted[member] = shifted
        merged, at = self.sequence, index[index >= 0]
        start, end = merged.start.copy(), merged.end.copy()
        # A collective ends, for whoever comes next, where the mean of those seen ends; it started when the last did.
        end[at] += (shifted.end[index >= 0] - end[at]) // (self.seen + 1)
        start[at] = np.maximum(start[at], shifted.start[index >= 0])
        self.seen += 1
        symbol = np.append(merged.symbol, shifted.symbol[new])
        start, end = np.append(start, shifted.start[new]), np.append(end, shifted.end[new])
        order = np.argsort(end, kind="stable")
        self.sequence = Sequence(symbol[order], start[order], end[order])
        self.number = np.append(self.number, fresh)[order]


def _gather(
    group: _Group,
    pending: list[int],
    sequences: dict[int, Sequence],
    limit_ns: int | None,
    one_group: bool,
    strict: bool,
) -> tuple[list[int], list[int]]:
    """Let members join until none of those left belongs; returns who joined and who is left."""
    first = pending[0]
    group.index[first] = np.arange(len(sequences[first]))
    group.confidence[first] = np.ones(len(sequences[first]))
    group.shifted[first] = sequences[first]
    joined, pending = [first], pending[1:]
    progress = True
    while progress and pending:
        progress, left = False, []
        for one in pending:
            found = align(group.sequence, sequences[one], limit_ns, strict=strict)
            matched = int(np.count_nonzero(found.index >= 0))
            enough = min(len(sequences[one]), len(group.sequence)) // (4 if strict else 2)
            belongs = found.scatter_ns <= BELONGS_NS and matched >= enough
            if matched and (one_group or belongs):
                group.add(one, found.index, found.confidence, found.shifted)
                joined.append(one)
                progress = True
            else:
                left.append(one)
        pending = left
    return joined, pending


def _subgroups(group: _Group, joined: list[int]) -> list[list[int]]:
    """Split ranks whose calls only seem to be one collective: within each true group the ends coincide far better."""
    if len(joined) < 4:
        return [joined]
    size = int(group.number.size)
    chosen = np.unique(np.linspace(0, size - 1, SAMPLE).astype(np.int64))
    ends = np.full((len(joined), size), np.nan)
    for row, one in enumerate(joined):
        ends[row, group.index[one]] = group.shifted[one].end
    ends = ends[:, chosen]
    difference = ends[:, None, :] - ends[None, :, :]
    known = np.isfinite(difference)
    if known.sum(axis=2).min() < 8:
        return [joined]
    scatter = np.nanmedian(np.abs(difference - np.nanmedian(difference, axis=2, keepdims=True)), axis=2)
    typical = float(np.median(scatter[~np.eye(len(joined), dtype=bool)]))
    fastest = min(float(np.median(one.end - one.start)) for one in group.shifted.values())
    parts = _components(scatter <= typical / APART)
    if typical < fastest / 10 or sum(len(part) > 1 for part in parts) < 2:
        return [joined]  # hosts apart differ a little too; that is no proof of groups
    return [[joined[row] for row in part] for part in parts]


def _components(near: np.ndarray) -> list[list[int]]:
    left, parts = set(range(near.shape[0])), []
    while left:
        part, edge = set(), {min(left)}
        while edge:
            part |= edge
            edge = {int(other) for one in edge for other in np.flatnonzero(near[one])} - part
        parts.append(sorted(part))
        left -= part
    return parts
