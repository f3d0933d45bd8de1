"""Merge the call sequences of many ranks into one sequence of collectives, and tell groups of ranks apart."""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.matching.align import align, anywhere
from analyzers.matching.order import Ahead
from analyzers.matching.pairs import JITTER_NS, RESOLUTION_NS, Alignment, Sequence

BELONGS_NS = 8 * JITTER_NS  # ends of ranks that share no communicator do not coincide this well
SAMPLE = 256
APART = 5.0  # ends of two groups differ this many times as much as those within a group


class Merged(msgspec.Struct, frozen=True):
    """What was found, of each call.

    collective : number from 0. confidence : 0 to 1.
    refuted : matches no other member's, as `ahead_ns` rules out what its order asks for.
    joined : how many members its group has: 2 where calls may be between any two.
    """

    collective: Ints
    confidence: Floats
    refuted: Mask
    joined: Ints


def merge_sequences(
    member: Ints,
    symbol: Ints,
    start: Ints,
    end: Ints,
    step: Ints,
    *,
    limit_ns: int | None,
    one_group: bool,
    strict: bool = False,
    ahead_ns: Ahead | None = None,
) -> Merged:
    """Number the collectives that calls of several members, sorted by end, belong to.

    Parameters
    ----------
    member, symbol, start, end : of each call; a member's calls share a clock. step : the number of its step, or -1.
    limit_ns : the clocks are known to be within this of each other, 0 if they are aligned already; None where nothing
        is known, and each member's times then count from its own first call.
    one_group : all members are known to communicate with each other.
    strict : calls may be between any two of the members, unnamed: only such as end closely together are one.
    ahead_ns : what is known of how far members' clocks are ahead of each other; None where nothing is.
    """
    rows = {key[0]: part for key, part in rows_by_key(member).items()}
    zero = int(start.min())
    bases = {one: zero if limit_ns is not None else int(start[mine].min()) for one, mine in rows.items()}
    sequences = {
        one: Sequence(symbol[mine], start[mine] - bases[one], end[mine] - bases[one], step[mine])
        for one, mine in rows.items()
    }

    def from_bases(one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
        """How far the other's sequence is ahead at least, and at most, each counted from its own base."""
        if ahead_ns is None:
            return anywhere(at)
        least, most = ahead_ns(one, other, at + bases[other])
        counted = float(bases[other] - bases[one])
        return least - counted, most - counted

    collective = np.full(member.size, -1, np.int64)
    confidence = np.ones(member.size)
    pending = sorted(rows, key=lambda one: (-rows[one].size, one))
    joined_of = np.ones(member.size, np.int64)
    count, refuted = 0, set[int]()
    while pending:
        group = _Group(sequences[pending[0]])
        joined, pending = _gather(group, pending, sequences, limit_ns, one_group, strict, from_bases)
        parts = [joined] if one_group else _subgroups(group, joined)
        for part in parts:
            if len(parts) > 1:  # what was merged with strangers is merged anew without them
                group = _Group(sequences[part[0]])
                _gather(group, part, sequences, limit_ns, True, strict, from_bases)
            for one in part:
                collective[rows[one]] = count + group.index[one]
                confidence[rows[one]] = group.confidence[one]
                joined_of[rows[one]] = 2 if strict and len(part) > 1 else len(part)
            count += group.number.size
        refuted |= group.refuted
    is_alone = np.bincount(collective)[collective] == 1
    return Merged(collective, confidence, is_alone & np.isin(member, list(refuted)), joined_of)


class _Group:
    """The merged sequence of the members that joined so far, on the first one's clock."""

    def __init__(self, first: Sequence) -> None:
        self.sequence = first
        self.number = np.arange(len(first))  # of the collective in each row of the sequence
        self.index: dict[int, Ints] = {}
        self.confidence: dict[int, Floats] = {}
        self.shifted: dict[int, Sequence] = {}
        self.refuted: set[int] = set()
        self.seen = 1

    def add(self, member: int, found: Alignment) -> None:
        """Take a member's calls in; those that match nothing become collectives of their own.

        Where its place among the others is unsure, so is what matches those: another member's calls that do.
        """
        index, shifted = found.index, found.shifted
        new = np.flatnonzero(index < 0)
        fresh = self.number.size + np.arange(new.size)
        self.index[member] = np.where(index >= 0, self.number[np.maximum(index, 0)], -1)
        self.index[member][new] = fresh
        self.confidence[member] = np.where(index >= 0, found.confidence, found.margin)
        self.shifted[member] = shifted
        merged, at = self.sequence, index[index >= 0]
        start, end = merged.start_ns.copy(), merged.end_ns.copy()
        # A collective ends, for whoever comes next, where the mean of those seen ends; it started when the last did.
        end[at] += (shifted.end_ns[index >= 0] - end[at]) // (self.seen + 1)
        start[at] = np.maximum(start[at], shifted.start_ns[index >= 0])
        self.seen += 1
        symbol, step = np.append(merged.symbol, shifted.symbol[new]), np.append(merged.step, shifted.step[new])
        start, end = np.append(start, shifted.start_ns[new]), np.append(end, shifted.end_ns[new])
        order = np.argsort(end, kind="stable")
        self.sequence = Sequence(symbol[order], start[order], end[order], step[order])
        self.number = np.append(self.number, fresh)[order]


def _gather(
    group: _Group,
    pending: list[int],
    sequences: dict[int, Sequence],
    limit_ns: int | None,
    one_group: bool,
    strict: bool,
    ahead_ns: Ahead,
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
            ahead = partial(ahead_ns, first, one)
            found = align(group.sequence, sequences[one], limit_ns, strict=strict, ahead_ns=ahead)
            if not strict:
                found = filled(group.sequence, found)
            matched = int(np.count_nonzero(found.index >= 0))
            enough = min(len(sequences[one]), len(group.sequence)) // (4 if strict else 2)
            belongs = found.scatter_ns <= BELONGS_NS and matched >= enough
            if matched and (one_group or belongs):
                group.add(one, found)
                joined.append(one)
                progress = True
            else:
                left.append(one)
                if found.refuted:
                    group.refuted |= {first, one}
        pending = left
    return joined, pending


def filled(reference: Sequence, found: Alignment) -> Alignment:
    """Pair calls that ends leave over, where as many of the same kinds lie between, before or behind those paired.

    A communicator's calls run in one order on all its ranks. Of A B C A on one and the other, of which both As were
    paired, B and C are one each, however far apart they end; and so is what comes before the first, as far as it is of
    the same kinds, and behind the last. All must have run at one time, by more than clocks may be off: else one rank
    lost a call, and another the next.
    """
    paired = np.flatnonzero(found.index >= 0)
    if not paired.size or paired.size == found.index.size or (np.diff(found.index[paired]) <= 0).any():
        return found
    index = found.index.copy()
    left = np.flatnonzero(index < 0)
    after = np.searchsorted(paired, left)  # the pair behind each, and the one before
    lag = (found.index - np.arange(index.size))[paired]
    behind, before = (lag[np.clip(at, 0, paired.size - 1)] for at in (after, after - 1))
    inner = (after > 0) & (after < paired.size)
    candidate = left + np.where(after == 0, behind, before)
    exists = (candidate >= 0) & (candidate < len(reference)) & (~inner | (behind == before))
    row = np.clip(candidate, 0, len(reference) - 1)
    ended = np.minimum(reference.end_ns[row], found.shifted.end_ns[left])
    started = np.maximum(reference.start_ns[row], found.shifted.start_ns[left])
    fits = exists & (reference.symbol[row] == found.shifted.symbol[left])
    fits &= ended - started > 5.0 * found.scatter_ns + RESOLUTION_NS
    misfits = np.bincount(after[~fits], minlength=paired.size + 1)
    whole = misfits[after] == 0
    head, tail = after == 0, after == paired.size
    whole[head] = np.minimum.accumulate(fits[head][::-1])[::-1]
    whole[tail] = np.minimum.accumulate(fits[tail])
    index[left[whole]] = candidate[whole]
    confidence = found.confidence.copy()
    confidence[left[whole]] = found.margin
    return replace(found, index=index, confidence=confidence)


def _subgroups(group: _Group, joined: list[int]) -> list[list[int]]:
    """Split ranks whose calls only seem to be one collective: within each true group the ends coincide far better."""
    if len(joined) < 4:
        return [joined]
    size = int(group.number.size)
    chosen = np.unique(np.linspace(0, size - 1, SAMPLE).astype(np.int64))
    ends = np.full((len(joined), size), np.nan)
    for row, member in enumerate(joined):
        ends[row, group.index[member]] = group.shifted[member].end_ns
    ends = ends[:, chosen]
    known = np.isfinite(ends).astype(np.int64)
    if (known @ known.T).min() < 8:
        return [joined]
    scatter = np.empty((len(joined), len(joined)))
    for row, own in enumerate(ends):  # of all pairs at once they would take as much memory as pairs times samples
        difference = ends - own
        scatter[row] = np.nanmedian(np.abs(difference - np.nanmedian(difference, axis=1, keepdims=True)), axis=1)
    typical = float(np.median(scatter[~np.eye(len(joined), dtype=bool)]))
    fastest = min(float(np.median(member.end_ns - member.start_ns)) for member in group.shifted.values())
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
