"""Which ranks a job had, and to which collectives all of them came in the captures that were given.

A call waits for its peers. Where a peer's call is not captured, how long this one waited can't be seen.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.matching.calls import PAIRWISE
from analyzers.trace.alignment import Matches
from analyzers.trace.devices import count_devices
from analyzers.trace.groups import listed
from analyzers.trace.tables import Trace

_NAMED = ("manifest", "label", "distributed", "environment", "file-name")  # rules by which a number is the rank's own


def ranks_known(trace: Trace) -> int | None:
    """How many ranks the job is known to have had at least; None where nothing says.

    From world sizes, from the sizes and ranks of process groups and communicators, from peers that communication names
    by number, and from the ranks' own numbers: where rank 3 was given there were four. A communicator of one process's
    devices says nothing of other ranks.
    """
    given, whole = len(trace.rank_ids), trace.whole or trace
    known = [one.world_size for one in trace.captures if one.world_size]
    known += [one.ranks_named for one in trace.captures if one.ranks_named]
    known += [one.rank + 1 for one in trace.processes if one.rule in _NAMED and one.rank > 0]
    if trace.matches is not None:
        stated = int(trace.matches.collectives.group_size.max(initial=0))
        if stated > 0:
            clocks = count_devices(whole.ops)
            known.append(stated if stated > clocks else min(stated, given))
    return max(known, default=None)


def states_ranks(trace: Trace) -> bool:
    """Whether anything says how many ranks the job, or a group of it, had: their own numbers only say "at least"."""
    states_size = trace.matches is not None and bool((trace.matches.collectives.group_size > 0).any())
    return states_size or any(one.world_size or one.ranks_named for one in trace.captures)


def waits_seen(matches: Matches, known: int | None, given: int) -> Mask:
    """For each collective, whether all who wait for each other in it were captured.

    Parameters
    ----------
    known, given : ranks that the job had, and that were captured.
    """
    collectives, size = matches.collectives, matches.collectives.group_size
    all_given = known is not None and known <= given
    # Of an unknown group, one that several ranks came to is whole, unless a rank is known to be absent.
    unknown = 1 if known == 1 else 2 if known is None or all_given else given + 1
    needed = np.where(size > 0, size, unknown)
    is_pairwise, is_pair = collectives.operation.is_one_of(PAIRWISE), collectives.matched_by.is_one_of(("pair",))
    needed = np.where(is_pairwise & (is_pair | all_given), np.minimum(needed, 2), needed)
    needed = np.where(collectives.peers > 0, collectives.peers, needed)
    return np.asarray(matches.calls_of_each >= needed, bool)  # of its group's, or two of a pair's


def ranks_given(matches: Matches, known: int | None, given: Collection[int]) -> Mask:
    """For each collective, whether all its ranks were given: a call of theirs that it lacks is unmatched, not absent.

    Parameters
    ----------
    known : how many ranks the job had. given : those that were given.
    """
    collectives, everybody = matches.collectives, known is not None and known <= len(given)
    are_given = (collectives.peers > 0) & (collectives.given >= collectives.peers)

    def holds_given_alone(group_ranks: str) -> bool:
        ranks = set(listed(group_ranks))
        return bool(ranks) and ranks <= set(given)

    return everybody | are_given | collectives.group_ranks.matching(holds_given_alone)
