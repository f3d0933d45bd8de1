"""What a reader must know of the capture before believing its collectives."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np

from analyzers.arrays.groups import alike, distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.clocks.align import Aligned
from analyzers.clocks.solve import ENDING_TOGETHER
from analyzers.collectives.tables import CollectiveTable, RankCalls
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, duration
from analyzers.trace.alignment import MatchedCollectives

MIN_COLLECTIVES = 10  # collectives, to say how far apart ranks usually leave them
TIMES_THE_USUAL = 20  # further apart than so many times the median, and UNUSUAL_NS, is not usual
UNUSUAL_NS = 200_000  # ranks of 60 real captures leave theirs within 130 µs
ENDS_APART_NS = 50_000  # so far apart ranks may leave a collective that takes no time itself
COMMON_GROUPS = 8  # sets of ranks, most frequent first, that a rank is held to belong to


def capture_warnings(aligned: Aligned, table: CollectiveTable, calls: RankCalls) -> list[TraceWarning]:
    """Warn of one rank only, of ranks nobody profiled, of ranks cut off, of unsure matches, and of ends far apart."""
    if not len(calls):
        return []
    seen = distinct(calls.rank).astype(np.int64)
    return [*_ranks(aligned, seen), *_cut_off(aligned, calls), *_unsure(aligned), *_end_apart(aligned, table, calls)]


def _ranks(aligned: Aligned, seen: Ints) -> list[TraceWarning]:
    worlds = [one.world_size or one.ranks_named for one in aligned.trace.captures]
    world = max([*worlds, int(aligned.matches.collectives.group_size.max(initial=0))])
    if seen.size == 1:
        of = f" of {world}" if world > 1 else ""
        text = (
            f"Only rank {seen[0]}{of} was captured: durations include waiting for ranks nobody sees, "
            "so they bound a collective's cost from above; capture all ranks to split wait from transfer."
        )
        return [TraceWarning("one-rank", text)] if world != 1 else []
    if world > seen.size:
        text = (
            f"{seen.size} of {world} ranks were captured ({_named(seen)}): the last to arrive, or the fastest, "
            "may be a rank nobody sees."
        )
        return [TraceWarning("ranks-missing", text)]
    return []


def _unsure(aligned: Aligned) -> list[TraceWarning]:
    """Of collectives that lack a rank which was given, and of others that several orders of calls would fit."""
    matches = aligned.matches
    unsure, several = matches.unsure
    is_partial = matches.calls_of_each < matches.collectives.given
    partial, among = int(np.count_nonzero(is_partial)), len(matches.collectives)
    found = []
    if partial:
        text = (
            f"{partial} of {count_of(among, 'collective')} {'lacks' if partial == 1 else 'lack'} the call of a rank "
            "that was given: whom the others waited for in them is not known."
        )
        found.append(TraceWarning("partly-matched", text))
    unsure -= int(np.count_nonzero(is_partial & (matches.calls_of_each > 1)))
    if unsure:
        text = f"{unsure} of {several} collectives are matched over ranks without certainty (marked unsure)."
        found.append(TraceWarning("unsure-matches", text))
    return found


def _end_apart(aligned: Aligned, table: CollectiveTable, calls: RankCalls) -> list[TraceWarning]:
    """Of collectives that all ranks leave at about one time, those that some leave much later: by the clocks' error, or
    than they leave others, where that error itself may come of these.

    Data goes round in them until all have it, so that no rank leaves before another by more than that takes.
    """
    residual = aligned.clocks.residual_ns
    if residual is None or not len(table):
        return []
    allowed, skew = table.fastest_ns + 2 * residual + ENDS_APART_NS, table.end_skew_ns
    leave_together = table.operation.is_one_of(ENDING_TOGETHER) & table.sure
    found = np.flatnonzero(leave_together & (skew > allowed))
    texts = []
    if found.size:
        texts.append(
            f"Ranks leave {count_of(found.size, 'collective')} further apart than the operation and the clocks "
            f"explain: {_last_to_leave(table, calls, skew, found)} after the first."
        )
    usual = np.median(skew[leave_together]) if np.count_nonzero(leave_together) >= MIN_COLLECTIVES else np.inf
    odd = np.flatnonzero(leave_together & (skew <= allowed) & (skew > UNUSUAL_NS + TIMES_THE_USUAL * usual))
    if odd.size:
        texts.append(
            f"Ranks leave {count_of(odd.size, 'collective')} much further apart than the others, which they leave "
            f"within {duration(round(float(usual)))} in the median: {_last_to_leave(table, calls, skew, odd)} after "
            "the first. Something held that rank up, or a clock is off there."
        )
    return [TraceWarning("ends-apart", text) for text in texts]


def _last_to_leave(table: CollectiveTable, calls: RankCalls, skew: Ints, some: Ints) -> str:
    """Which rank leaves which of some collectives last, and by how much, where that is most."""
    worst = int(some[np.argmax(skew[some])])
    own = calls.take(calls.collective == worst)
    last = int(own.rank[np.argmax(own.start_ns + own.duration_ns)])
    return f"rank {last} ends {table.operation[worst]} {worst} {duration(int(skew[worst]))}"


def _cut_off(aligned: Aligned, calls: RankCalls) -> list[TraceWarning]:
    """Collectives of a rank's own groups that ended before its first call or began after its last."""
    missing: dict[int, tuple[int, int]] = {}
    first, last = _spans(calls)
    for sets, ends, starts in _groups(aligned.matches.collectives, calls):
        counts = Counter(sets)
        number = {members: index for index, members in enumerate(counts)}
        which = np.array([number[members] for members in sets])
        common = counts.most_common(COMMON_GROUPS)
        for own_rank in first:
            own_groups = [members for members, _ in common if own_rank in members and len(members) > 1]
            is_foreign = [own_rank not in members and any(members < mine for mine in own_groups) for members in counts]
            foreign = np.array(is_foreign)[which]
            head, tail = (
                int((foreign & (ends < first[own_rank])).sum()),
                int((foreign & (starts > last[own_rank])).sum()),
            )
            so_far = missing.get(own_rank, (0, 0))
            missing[own_rank] = so_far[0] + head, so_far[1] + tail
    lines = [
        f"rank {own_rank} lacks " + " and ".join([f"the first {head}"] * (head > 0) + [f"the last {tail}"] * (tail > 0))
        for own_rank, (head, tail) in sorted(missing.items())
        if head or tail
    ]
    if not lines:
        return []
    more = f"; {len(lines) - 8} more ranks likewise" if len(lines) > 8 else ""
    text = f"Ranks are cut off at different points: {'; '.join(lines[:8])}{more} of its collectives."
    return [TraceWarning("cut-off", text)]


def _spans(calls: RankCalls) -> tuple[dict[int, int], dict[int, int]]:
    """When each rank's first call starts, and its last one ends."""
    own = {rank: calls.take(rows) for (rank,), rows in rows_by_key(calls.rank).items()}
    first = {rank: int(each.start_ns.min()) for rank, each in own.items()}
    return first, {rank: int((each.start_ns + each.duration_ns).max()) for rank, each in own.items()}


def _groups(found: MatchedCollectives, calls: RankCalls) -> list[tuple[list[frozenset[int]], Ints, Ints]]:
    """Per kind of collective (operation, group): each one's set of ranks, latest end and earliest start."""
    heads, _ = alike(calls.collective)
    starts = np.minimum.reduceat(calls.start_ns, heads)
    ends = np.maximum.reduceat(calls.start_ns + calls.duration_ns, heads)
    # Few of them are distinct: those of many ranks, kept once a collective, would take gigabytes.
    parts = np.split(calls.rank, heads[1:])
    distinct = {part.tobytes(): part for part in parts}
    members = {key: frozenset(part.tolist()) for key, part in distinct.items()}
    sets = [members[part.tobytes()] for part in parts]
    kind = rows_by_key(found.operation.codes, found.group.codes, found.group_ranks.codes)
    return [([sets[row] for row in rows], ends[rows], starts[rows]) for rows in kind.values()]


def _named(ranks: Ints) -> str:
    text = json.dumps(ranks[:8].tolist())[1:-1]
    return text if ranks.size <= 8 else f"{text}, …"
