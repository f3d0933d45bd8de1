"""One part of a run, down to one capture, measured for a pair: figures that add up to the job's answer.

Parts are measured one by one, but three things must be the same in all: which side gets shared ops, how instances are
paired, and whether B is moved. Each part decides these from what it holds; where the run as a whole decides otherwise
(`agree`), the part is measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from operator import add

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.columns import repeated
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.evidence import EvidenceWriter
from analyzers.causes.explain import Explainer
from analyzers.causes.missed import explain_missed
from analyzers.causes.own_work import host_gaps
from analyzers.common.records import Record
from analyzers.contention.timings import Timings, timings
from analyzers.counters.plateau import told_by_traffic
from analyzers.counters.states import DeviceStates, device_states
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.job import Arrivals, arrivals, is_matched
from analyzers.overlap.lost import with_lost
from analyzers.overlap.measure import RankOverlap, measure_ranks, with_left_out, with_unaccounted
from analyzers.overlap.pairing import (
    Moves,
    Pairing,
    Possible,
    best_shift,
    moves,
    pair_by,
    pairing_method,
    possible_pairing,
    shifted,
)
from analyzers.overlap.peers import DeviceTime, device_times, steps_of_ranks
from analyzers.select.language import Selector, atoms, names_of
from analyzers.select.select import Selection, Threads, select
from analyzers.select.sides import Shared, SharedOps, about_shared, count_shared, share_out
from analyzers.syncs.groups import SyncGroup
from analyzers.syncs.of_steps import groups_by_rank
from analyzers.syncs.rests import RestingOrder
from analyzers.trace.advice import may_hold_kernels
from analyzers.trace.columns import as_int64
from analyzers.trace.counted import CommunicationFacts, communication_facts
from analyzers.trace.devices import DeviceKey
from analyzers.trace.kernels import is_communication, is_peer_copy
from analyzers.trace.narrow import in_whole, only_ranks, whole_with_cuts
from analyzers.trace.ranks import devices_of
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import lacks_launch, launched_before
from analyzers.verdict.bound import DeviceSteps, device_steps, exposed_of_pair
from analyzers.verdict.graphs import claimed, unclaimed
from analyzers.verdict.warnings import (
    MissingWait,
    missing_waits,
    outside_steps,
    resting_on_syncs,
    waited_for,
    worked_steps,
)

BY_LAUNCH = ("nvtx", "op")  # what picks ops by what launched them
UNDECIDABLE = (SharedOps.SAME, SharedOps.DISAGREEING)


class PairingDecision(Record, frozen=True):
    """How all parts of a run share out ops, pair instances and move B; None where that is not decided yet.

    sharing : `Shared.given_to`. pairing : `pairing_method`. shift : `best_shift`.
    """

    sharing: SharedOps = SharedOps.NONE
    pairing: str | None = None
    shift: int | None = None

    def covers(self, other: PairingDecision) -> bool:
        """Whether what a part did is what was agreed, as far as it was."""
        return (
            self.sharing == other.sharing
            and self.pairing in (None, other.pairing)
            and self.shift in (None, other.shift)
        )


class PartSide(msgspec.Struct, frozen=True):
    """One side in a part: ops it picks, those left to it, why it is empty, graphs among its ops, who launched what.

    migrations : page migrations among its ops that kernels may have stood still for.
    """

    picked: int
    left: int
    reason: str
    graphs: int
    threads: tuple[Threads, ...]
    migrations: int = 0


class Part(msgspec.Struct, frozen=True):
    """One part of a run measured for a pair.

    devices : the (rank, device) that have ops, of either side or not.
    compared : whether an op of either side is of a collective whose last rank is known.
    calls : kernels of both sides that are communication (copies wait for nobody), and how many of them are
        matched with no other rank's.
    timings : how long the ops of both sides ran; None where that was not asked for. counters : what the hardware did.
    peers_absent : whether some waits are told by traffic, and so other ranks had part in the job.
    missing : see `missing_waits`; resting : `resting_on_syncs`; waited : `waited_for`; outside : `outside_steps`;
    steps : numbers of its steps;
    worked : `worked_steps`; times : `device_times`, where causes were asked for, too; so, too, syncs :
    host syncs of each rank in the steps that count, and gaps : `host_gaps`.
    everything : the same ranks over all that was captured, where that was asked for and is more; else empty.
    device_steps : where the time of each device's steps goes, and exposed : `exposed_of_pair`, where causes were asked
    for.
    """

    agreed: PairingDecision
    shared: Shared
    sides: tuple[PartSide, PartSide]
    rank_ids: tuple[int, ...]
    devices: tuple[DeviceKey, ...]
    possible: Possible = msgspec.field(default_factory=Possible)
    moves: Moves = msgspec.field(default_factory=Moves)
    ranks: tuple[RankOverlap, ...] = ()
    arrivals: tuple[Arrivals, Arrivals] = msgspec.field(default_factory=lambda: (Arrivals(), Arrivals()))
    unclaimed_graphs: int = 0
    compared: bool = False
    calls: tuple[int, int] = (0, 0)
    timings: tuple[Timings, Timings] | None = None
    counters: tuple[DeviceStates, ...] = ()
    peers_absent: bool = False
    missing: tuple[MissingWait, ...] = ()
    resting: tuple[RestingOrder, ...] = ()
    waited: Mapping[tuple[DeviceKey, DeviceKey], int] = msgspec.field(default_factory=dict)
    outside: Mapping[DeviceKey, tuple[tuple[int, int], tuple[int, int]]] = msgspec.field(default_factory=dict)
    steps: tuple[int, ...] = ()
    worked: frozenset[tuple[int, int]] = frozenset()
    communication: CommunicationFacts = msgspec.field(default_factory=CommunicationFacts)
    times: tuple[DeviceTime, ...] = ()
    everything: tuple[RankOverlap, ...] = ()
    syncs: Mapping[int, list[SyncGroup]] = msgspec.field(default_factory=dict)
    gaps: pd.DataFrame | None = None
    device_steps: tuple[DeviceSteps, ...] = ()
    exposed: Mapping[DeviceKey, int] = msgspec.field(default_factory=dict)


def examine(
    trace: Trace,
    a: str,
    b: str,
    *,
    explain: bool = True,
    timed: bool = True,
    keep: bool = True,
    by_step: bool = False,
    of_steps: Collection[int] | None = None,
    beyond: bool = False,
    agreed: PairingDecision | None = None,
) -> Part:
    """Measure a part of a run for a pair.

    Parameters
    ----------
    a, b : selectors.
    explain : False leaves out the causes of what was missed.
    timed : False leaves out what overlap costs.
    keep : False for a trace that nobody asks again: the order of its work leaves its memory to what follows.
    by_step : whether the median step speaks for each rank. of_steps : numbers of the steps that are looked at; None
        where it is not some steps.
    beyond : whether to measure all that was captured, too, where `trace` is a part of it.
    agreed : what was agreed with the other parts; what is open the part decides for itself.

    Raises
    ------
    TracevizError : a selector can't be read.
    """
    picked = select(trace, a), select(trace, b)
    shared = count_shared(trace, *picked)
    sharing = shared.given_to if agreed is None else agreed.sharing
    sides = share_out(trace, *picked, sharing)
    part_sides = _side(trace, picked[0], sides[0]), _side(trace, picked[1], sides[1])
    if sharing in UNDECIDABLE:
        return Part(PairingDecision(sharing), shared, part_sides, tuple(trace.rank_ids), devices_of(trace))
    pairing, decided, possible, shift_overlaps = _paired(trace, sides, sharing, agreed)
    del picked  # which range an op is of only pairing asks for
    sides = _without_ranges(sides[0]), _without_ranges(sides[1])
    unaccounted = _unaccounted(trace, *sides)
    ranks = measure_ranks(trace, sides[0].picked, sides[1].picked, pairing, unaccounted, by_step=by_step)
    if by_step and trace.whole is not None:  # such work is in no step, but runs beside steps
        ranks = with_unaccounted(
            trace, ranks, (sides[0].picked, sides[1].picked), _unaccounted_in_whole(trace, a, b, sharing)
        )
    ranks = with_left_out(trace, ranks)
    missing: list[MissingWait] = []
    resting: tuple[RestingOrder, ...] = ()
    syncs: dict[int, list[SyncGroup]] = {}
    gaps: pd.DataFrame | None = None
    if explain:
        explainer = _explainer(trace, *sides, pairing)
        ranks = explain_missed(explainer, ranks, _names(sides))
        whole, of_either = explainer.trace, explainer.a | explainer.b
        del explainer  # which leaves its memory to what follows
        missing = missing_waits(whole, of_either, trace.rank_ids)
        resting = resting_on_syncs(whole, of_either, trace.rank_ids)
        syncs, gaps = groups_by_rank(trace, of_steps), host_gaps(trace, of_steps)
        if not keep:
            whole.forget(Ordering)
    steps, of_pair = find_steps(trace), sides[0].picked | sides[1].picked
    worked = worked_steps(trace, steps)
    communication, matched = is_communication(trace) & ~is_peer_copy(trace) & of_pair, is_matched(trace.ops)
    return Part(
        agreed=decided,
        shared=shared,
        sides=part_sides,
        rank_ids=tuple(trace.rank_ids),
        devices=devices_of(trace),
        possible=possible,
        moves=shift_overlaps,
        ranks=tuple(with_lost(trace, ranks, *_both(sides), of_steps)),
        arrivals=(
            arrivals(trace, sides[0].picked, sides[1].picked),
            arrivals(trace, sides[1].picked, sides[0].picked),
        ),
        unclaimed_graphs=unclaimed(trace, *sides),
        compared=bool(np.any(of_pair & matched)),
        calls=(int(np.count_nonzero(communication)), int(np.count_nonzero(communication & ~matched))),
        timings=timings(trace, sides[0].picked, sides[1].picked) if timed else None,
        counters=device_states(trace, sides[0].picked, sides[1].picked) if timed else (),
        peers_absent=bool(np.any(of_pair & told_by_traffic(trace))),
        missing=tuple(missing),
        resting=resting,
        waited=waited_for(trace, sides, ranks),
        outside=outside_steps(trace, sides, steps),
        steps=tuple(steps.present),
        worked=worked,
        communication=communication_facts(trace),
        times=device_times(trace, sides[0].picked, sides[1].picked, steps_of_ranks(worked)) if explain else (),
        everything=_everything(trace, a, b, sharing) if beyond else (),
        syncs=syncs,
        gaps=gaps,
        device_steps=device_steps(trace, of_steps) if explain else (),
        exposed=exposed_of_pair(trace, *_both(sides)[0], ranks) if explain else {},
    )


def _everything(trace: Trace, a: str, b: str, sharing: SharedOps) -> tuple[RankOverlap, ...]:
    """The ranks of a part measured over all that was captured of them; empty where the part is that."""
    if trace.whole is None:
        return ()
    here = only_ranks(trace.whole, tuple(trace.rank_ids)) if trace.rank_ids else trace.whole
    sides = share_out(here, select(here, a), select(here, b), sharing)
    none = np.full(len(here.ops), -1, np.int64)
    no_pairs = Pairing("capture", none, none, np.empty(0, np.int64), ())
    ranks = measure_ranks(here, *_both(sides)[0], no_pairs, _unaccounted(here, *sides))
    return tuple(with_lost(here, ranks, *_both(sides)))


def explaining(trace: Trace, a: str, b: str, agreed: PairingDecision | None = None) -> EvidenceWriter:
    """What explained the gaps of a part of a run, and puts them into words; `agreed` as `examine` takes it."""
    picked = select(trace, a), select(trace, b)
    sharing = count_shared(trace, *picked).given_to if agreed is None else agreed.sharing
    sides = share_out(trace, *picked, sharing)
    pairing = _paired(trace, sides, sharing, agreed)[0]
    return EvidenceWriter(_explainer(trace, *sides, pairing), _names(sides))


def sides_of(trace: Trace, a: str, b: str, agreed: PairingDecision) -> tuple[Selection, Selection]:
    """Both sides in a part of a run, the ops that both pick shared out as was agreed."""
    return share_out(trace, select(trace, a), select(trace, b), agreed.sharing)


def _paired(
    trace: Trace, sides: tuple[Selection, Selection], sharing: SharedOps, agreed: PairingDecision | None
) -> tuple[Pairing, PairingDecision, Possible, Moves]:
    possible = possible_pairing(trace, *sides)
    method = agreed.pairing if agreed and agreed.pairing is not None else pairing_method([possible])
    pairing = pair_by(trace, *sides, method)
    shift_overlaps = moves(trace, pairing)
    shift = agreed.shift if agreed and agreed.shift is not None else best_shift([shift_overlaps])
    return shifted(pairing, shift), PairingDecision(sharing, method, shift), possible, shift_overlaps


def _without_ranges(side: Selection) -> Selection:
    return msgspec.structs.replace(side, occurrence=repeated(-1, np.int32, side.picked.size))


def _both(sides: tuple[Selection, Selection]) -> tuple[tuple[Mask, Mask], tuple[Selector, Selector]]:
    return (sides[0].picked, sides[1].picked), (sides[0].selector, sides[1].selector)


def _names(sides: tuple[Selection, Selection]) -> tuple[str, str]:
    return names_of(str(sides[0].selector), str(sides[1].selector))


def agree(parts: Sequence[Part], a: str, b: str) -> PairingDecision:
    """Decide what all parts must do alike; a later decision stays open until all follow the earlier ones.

    Raises
    ------
    TracevizError : the sides share ops that belong to neither alone.
    """
    shared = reduce(add, (part.shared for part in parts), Shared())
    about_shared(shared, a, b)
    first = PairingDecision(shared.given_to)
    if not all(first.covers(part.agreed) for part in parts):
        return first
    second = replace(first, pairing=pairing_method([part.possible for part in parts]))
    if not all(second.covers(part.agreed) for part in parts):
        return second
    return replace(second, shift=best_shift([part.moves for part in parts]))


def reconcile(
    parts: Sequence[Part], a: str, b: str, again: Callable[[PairingDecision, list[int]], Sequence[Part]]
) -> list[Part]:
    """Have parts measured again until all do what was agreed.

    Parameters
    ----------
    again : measures the parts of these numbers again, as was agreed.
    """
    agreed_parts = list(parts)
    while True:
        agreed = agree(agreed_parts, a, b)
        disagreeing = [i for i, part in enumerate(agreed_parts) if not agreed.covers(part.agreed)]
        if not disagreeing:
            return agreed_parts
        for i, part in zip(disagreeing, again(agreed, disagreeing), strict=True):
            agreed_parts[i] = part


def of_run(part: Part, rows: Callable[[Ints], Ints]) -> Part:
    """A part that names ops by their rows in the run, which `rows` tells of its own."""
    named = iter(rows(np.array([one.op for rank in part.ranks for one in rank.missed], np.int64)).tolist())
    ranks = (replace(rank, missed=tuple(replace(one, op=next(named)) for one in rank.missed)) for rank in part.ranks)
    return msgspec.structs.replace(part, ranks=tuple(ranks))


def _side(trace: Trace, picked: Selection, left: Selection) -> PartSide:
    return PartSide(
        int(np.count_nonzero(picked.picked)),
        int(np.count_nonzero(left.picked)),
        picked.reason,
        claimed(trace, left),
        picked.threads,
        int(np.count_nonzero(may_hold_kernels(trace) & left.picked)),
    )


def _unaccounted(trace: Trace, *sides: Selection) -> tuple[Mask, Mask]:
    """For each side, ops on neither that may be its for all the capture says.

    Those that it would pick, had they not been launched before the capture began; and where ranges pick it, all ops
    whose launch the capture lacks, where it records launches.
    """
    lacking, recorded = lacks_launch(trace), bool((as_int64(trace.ops.launch) >= 0).any())
    on_neither = ~sides[0].picked & ~sides[1].picked
    found = []
    for side in sides:
        by_range = any(atom.kind in BY_LAUNCH for atom in atoms(side.selector))
        found.append(on_neither & (lacking if by_range and recorded else side.before))
    return found[0], found[1]


def _unaccounted_in_whole(trace: Trace, a: str, b: str, sharing: SharedOps) -> tuple[Mask, Mask]:
    whole = trace.whole or trace
    early = launched_before(whole)
    if not early.any():
        return early, early
    first, second = _unaccounted(whole, *share_out(whole, select(whole, a), select(whole, b), sharing))
    return first & early, second & early


def _explainer(trace: Trace, a: Selection, b: Selection, pairing: Pairing) -> Explainer:
    """Explain within the whole trace: what an op of a part waited for may lie outside the part."""
    whole = whole_with_cuts(trace)
    picked = [in_whole(trace, side.picked.astype(np.int64), 0) > 0 for side in (a, b)]
    if trace.whole is not None:  # outside the part, too, work is of the side that would pick it
        outside = in_whole(trace, np.ones(len(trace.ops), np.int64), 0) == 0
        would_pick = [select(whole, str(side.selector)).picked & outside for side in (a, b)]
        picked = [in_part | (would_pick[side] & ~would_pick[1 - side]) for side, in_part in enumerate(picked)]
    spread = msgspec.structs.replace(pairing, a=in_whole(trace, pairing.a), b=in_whole(trace, pairing.b))
    return Explainer(whole, picked[0], picked[1], spread)
