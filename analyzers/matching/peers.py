"""Which ranks a job had, and to which collectives all of them came in the captures that were given.

A call waits for its peers. Where a peer's call is not captured, how long this one waited can't be seen.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.matching.calls import PAIRWISE, listed
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import codes, ints
from analyzers.trace.devices import count_devices
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
    if trace.matches is not None and "group_size" in trace.matches.collectives:
        sizes = ints(trace.matches.collectives, "group_size")
        stated = int(sizes.max(initial=0))
        if stated > 0:
            clocks = count_devices(whole.ops)
            known.append(stated if stated > clocks else min(stated, given))
    return max(known, default=None)


def states_ranks(trace: Trace) -> bool:
    """Whether anything says how many ranks the job, or a group of it, had: their own numbers only say "at least"."""
    sizes = ints(trace.matches.collectives, "group_size") if trace.matches is not None else np.empty(0, np.int64)
    return any(one.world_size or one.ranks_named for one in trace.captures) or bool((sizes > 0).any())


def waits_seen(matches: Matches, known: int | None, given: int) -> Mask:
    """For each collective, whether all who wait for each other in it were captured.

    Parameters
    ----------
    known, given : ranks that the job had, and that were captured.
    """
    count, collectives = matches.calls_of_each, matches.collectives
    size = ints(collectives, "group_size") if "group_size" in collectives else np.full(count.size, -1)
    all_given = known is not None and known <= given
    # Of an unknown group, one that several ranks came to is whole, unless a rank is known to be absent.
    unknown = 1 if known == 1 else 2 if known is None or all_given else given + 1
    needed = np.where(size > 0, size, unknown)
    if "matched_by" in collectives:
        (operation, operations), (how, hows) = codes(collectives, "operation"), codes(collectives, "matched_by")
        is_pairwise = np.array([text in PAIRWISE for text in operations] + [False])[operation]
        is_pair = np.array([text == "pair" for text in hows] + [False])[how]
        needed = np.where(is_pairwise & (is_pair | all_given), np.minimum(needed, 2), needed)
    if "peers" in collectives:
        peers = ints(collectives, "peers")
        needed = np.where(peers > 0, peers, needed)
    return np.asarray(count >= needed, bool)  # of its group's, or two of a pair's


def ranks_given(matches: Matches, known: int | None, given: Collection[int]) -> Mask:
    """For each collective, whether all its ranks were given: a call of theirs that it lacks is unmatched, not absent.

    Parameters
    ----------
    known : how many ranks the job had. given : those that were given.
    """
    collectives = matches.collectives
    everybody = known is not None and known <= len(given)
    found = np.full(len(collectives), everybody)
    if "peers" in collectives:
        peers = ints(collectives, "peers")
        found |= (peers > 0) & (ints(collectives, "given") >= peers)
    if "group_ranks" in collectives:
        code, texts = codes(collectives, "group_ranks")
        members = [set(listed(text)) for text in texts]
        found |= np.array([bool(own) and own <= set(given) for own in members] + [False])[code]
    return found
