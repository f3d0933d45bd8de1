"""What a part of a run, down to one capture, says about a pair: figures that add up to the job's answer.

Parts are looked at one by one, and few of their ways concern them all: who gets shared ops, how instances are paired,
and whether B is moved. Each part guesses these from what it sees; where the run as a whole decides otherwise
(`agree`), it is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.causes import Explainer
from analyzers.causes.missed import explain_missed
from analyzers.overlap.certainty import real_overlap_error, with_calls
from analyzers.overlap.job import Arrivals, arrivals, is_matched
from analyzers.overlap.measure import RankOverlap, measure_ranks
from analyzers.overlap.pairing import (
    Moves,
    Pairing,
    Possible,
    best_shift,
    moves,
    pair_by,
    possible_pairing,
    shifted,
    way_of_pairing,
)
from analyzers.select.select import Selection, Threads, select
from analyzers.select.sides import Shared, about_shared, count_shared, share_out
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceKey
from analyzers.trace.freed_memory import keeping_freed_memory
from analyzers.trace.kernels import is_communication
from analyzers.trace.narrow import in_whole, whole_with_cuts
from analyzers.trace.ranks import devices_of
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Trace
from analyzers.verdict.graphs import claimed, unclaimed
from analyzers.verdict.warnings import missing_waits, outside_steps, waited_for

NOT_TO_TELL = ("same", "odd")  # of `Shared.way`


@dataclass(frozen=True)
class PairingDecision:
    """What all parts of a run do alike: `Shared.way`, `way_of_pairing`, `best_shift`; None where still open."""

    sharing: str
    pairing: str | None = None
    shift: int | None = None

    def covers(self, other: PairingDecision) -> bool:
        """Whether what a part did is what was agreed, as far as it was."""
        return (
            self.sharing == other.sharing
            and self.pairing in (None, other.pairing)
            and self.shift in (None, other.shift)
        )


@dataclass(frozen=True)
class PartSide:
    """One side in a part: ops it picks, those left to it, why it is empty, graphs among its ops, who launched what."""

    picked: int
    left: int
    reason: str
    graphs: int
    threads: tuple[Threads, ...]


@dataclass(frozen=True)
class Part:
    """What a part of a run says.

    devices : the (rank, device) that have ops, of either side or not.
    compared : whether an op of either side is of a collective whose last rank is known.
    calls : ops of both sides that are communication, and how many of them are matched with no other rank's.
    missing : see `missing_waits`; waited : `waited_for`; outside : `outside_steps`; steps : numbers of its steps.
    unsure : how far off the waits of both sides may be in all, ns.
    """

    agreed: PairingDecision
    shared: Shared
    sides: tuple[PartSide, PartSide]
    rank_ids: tuple[int, ...]
    devices: tuple[DeviceKey, ...]
    possible: Possible = field(default_factory=Possible)
    moves: Moves = field(default_factory=Moves)
    ranks: tuple[RankOverlap, ...] = ()
    arrivals: tuple[Arrivals, Arrivals] = field(default_factory=lambda: (Arrivals(), Arrivals()))
    unclaimed_graphs: int = 0
    compared: bool = False
    calls: tuple[int, int] = (0, 0)
    missing: tuple[tuple[int, int, str], ...] = ()
    waited: Mapping[DeviceKey, int] = field(default_factory=dict)
    outside: Mapping[DeviceKey, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    steps: tuple[int, ...] = ()
    unsure: Mapping[DeviceKey, int] = field(default_factory=dict)


@keeping_freed_memory
def examine(trace: Trace, a: str, b: str, *, explain: bool = True, agreed: PairingDecision | None = None) -> Part:
    """Look at a part of a run.

    Parameters
    ----------
    a, b : selectors.
    explain : False leaves out the causes of what was missed.
    agreed : what was agreed with the other parts; what is open the part decides for itself.

    Raises
    ------
    TracevizError : a selector can't be read.
    """
    picked = select(trace, a), select(trace, b)
    shared = count_shared(trace, *picked)
    sharing = shared.way if agreed is None else agreed.sharing
    sides = share_out(trace, *picked, sharing)
    said = _side(trace, picked[0], sides[0]), _side(trace, picked[1], sides[1])
    if sharing in NOT_TO_TELL:
        return Part(PairingDecision(sharing), shared, said, tuple(trace.rank_ids), devices_of(trace))
    possible = possible_pairing(trace, *sides)
    way = agreed.pairing if agreed and agreed.pairing is not None else way_of_pairing([possible])
    pairing = pair_by(trace, *sides, way)
    tried = moves(trace, pairing)
    shift = agreed.shift if agreed and agreed.shift is not None else best_shift([tried])
    pairing = shifted(pairing, shift)
    ranks = measure_ranks(trace, sides[0].picked, sides[1].picked, pairing)
    missing: list[tuple[int, int, str]] = []
    if explain:
        explainer = _explainer(trace, *sides, pairing)
        ranks = explain_missed(explainer, ranks, (str(sides[0].selector), str(sides[1].selector)))
        missing = missing_waits(explainer, trace.rank_ids)
    steps, either = find_steps(trace), sides[0].picked | sides[1].picked
    rows_of = _by_place(trace, either)
    ranks = [
        replace(rank, real_overlap_error_ns=real_overlap_error(trace, rows_of[rank.rank, rank.device]))
        for rank in ranks
    ]
    communication, matched = is_communication(trace) & either, is_matched(trace.ops)
    return Part(
        agreed=PairingDecision(sharing, way, shift),
        shared=shared,
        sides=said,
        rank_ids=tuple(trace.rank_ids),
        devices=devices_of(trace),
        possible=possible,
        moves=tried,
        ranks=tuple(ranks),
        arrivals=(
            _arrivals(trace, sides[0].picked, sides[1].picked),
            _arrivals(trace, sides[1].picked, sides[0].picked),
        ),
        unsure={place: int(ints(trace.ops, "wait_error_ns")[rows].sum()) for place, rows in rows_of.items()},
        unclaimed_graphs=unclaimed(trace, *sides),
        compared=bool(np.any(either & matched)),
        calls=(int(np.count_nonzero(communication)), int(np.count_nonzero(communication & ~matched))),
        missing=tuple(missing),
        waited=waited_for(trace, sides, ranks),
        outside=outside_steps(trace, sides, steps),
        steps=tuple(steps.present),
    )


def agree(parts: Sequence[Part], a: str, b: str) -> PairingDecision:
    """Decide what all parts do alike; what depends on what they must do first stays open.

    Raises
    ------
    TracevizError : the sides share ops that belong to neither alone.
    """
    shared = reduce(add, (part.shared for part in parts), Shared())
    about_shared(shared, a, b)
    first = PairingDecision(shared.way)
    if not all(first.covers(part.agreed) for part in parts):
        return first
    second = replace(first, pairing=way_of_pairing([part.possible for part in parts]))
    if not all(second.covers(part.agreed) for part in parts):
        return second
    return replace(second, shift=best_shift([part.moves for part in parts]))


def reconcile(
    parts: Sequence[Part], a: str, b: str, again: Callable[[PairingDecision, list[int]], Sequence[Part]]
) -> list[Part]:
    """Have parts looked at again until all do what was agreed.

    Parameters
    ----------
    again : looks at the parts of these numbers again, by what was agreed.
    """
    settled = list(parts)
    while True:
        agreed = agree(settled, a, b)
        odd = [place for place, part in enumerate(settled) if not agreed.covers(part.agreed)]
        if not odd:
            return settled
        for place, part in zip(odd, again(agreed, odd), strict=True):
            settled[place] = part


def _side(trace: Trace, picked: Selection, left: Selection) -> PartSide:
    return PartSide(
        int(np.count_nonzero(picked.picked)),
        int(np.count_nonzero(left.picked)),
        picked.reason,
        claimed(trace, left),
        picked.threads,
    )


def _explainer(trace: Trace, a: Selection, b: Selection, pairing: Pairing) -> Explainer:
    """Explain within the whole trace: what an op of a part waited for may lie outside the part."""
    whole = whole_with_cuts(trace)
    picked = [in_whole(trace, side.picked.astype(np.int64), 0) > 0 for side in (a, b)]
    if trace.whole is not None:  # outside the part, too, work is of the side that would pick it
        outside = in_whole(trace, np.ones(len(trace.ops), np.int64), 0) == 0
        every = [select(whole, str(side.selector)).picked & outside for side in (a, b)]
        picked = [mine | (every[side] & ~every[1 - side]) for side, mine in enumerate(picked)]
    spread = replace(pairing, a=in_whole(trace, pairing.a), b=in_whole(trace, pairing.b))
    return Explainer(whole, picked[0], picked[1], spread)


def _arrivals(trace: Trace, side: Mask, other: Mask) -> Arrivals:
    return with_calls(arrivals(trace, side, other), trace, side, other)


def _by_place(trace: Trace, wanted: Mask) -> dict[DeviceKey, Ints]:
    rows = np.flatnonzero(wanted)
    places = rows_by_key(*(ints(trace.ops, column)[rows] for column in ("rank", "device")))
    return {(rank, device): rows[mine] for (rank, device), mine in places.items()}
