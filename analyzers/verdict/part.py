"""One part of a run, down to one capture, measured for a pair: figures that add up to the job's answer.

Parts are measured one by one, but three things must be the same in all: which side gets shared ops, how instances are
paired, and whether B is moved. Each part decides these from what it holds; where the run as a whole decides otherwise
(`agree`), the part is measured again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from operator import add

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import alike, distinct, rows_by_key
from analyzers.arrays.intervals import measure, union
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.evidence import EvidenceWriter
from analyzers.causes.explain import Explainer
from analyzers.causes.missed import explain_missed
from analyzers.causes.own_work import HostGaps, host_gaps
from analyzers.common.records import Addable, Record
from analyzers.contention.timings import Timings, timings
from analyzers.counters.plateau import told_by_traffic
from analyzers.counters.states import DeviceStates, device_states
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
from analyzers.select.language import atoms, names_of
from analyzers.select.select import Selection, Threads, select
from analyzers.select.sides import Shared, SharedOps, about_shared, count_shared, share_out
from analyzers.syncs.crossings import Crossing, missing_crossings
from analyzers.syncs.groups import SyncGroup
from analyzers.syncs.of_steps import groups_by_rank
from analyzers.syncs.rests import RestingOrder, resting_orders
from analyzers.trace.advice import may_hold_kernels
from analyzers.trace.counted import CommunicationFacts, communication_facts
from analyzers.trace.devices import DeviceKey
from analyzers.trace.kernels import is_communication, is_peer_copy
from analyzers.trace.narrow import in_whole, only_ranks, whole_with_cuts
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.overhead import ALL_OF_IT
from analyzers.trace.ranks import devices_of, ops_of_devices
from analyzers.trace.step_table import Steps
from analyzers.trace.steps import find_steps, step_of_ops
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import LAUNCHED_BEFORE, lacks_launch, launched_before
from analyzers.verdict.bound import DeviceSteps, device_steps, exposed_of_pair

BY_LAUNCH = ("nvtx", "op")  # what picks ops by what launched them
UNDECIDABLE = (SharedOps.SAME, SharedOps.DISAGREEING)
Masks = tuple[Mask, Mask]
BusyAndOutside = tuple[int, int]


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

    def __add__(self, other: PairingDecision) -> PairingDecision:
        return self  # parts that add up were measured alike


class PartSide(msgspec.Struct, frozen=True):
    """One side: ops it picks, those left to it, graphs among these, page migrations that kernels may have stood for.

    reason : why it is empty, "" where it is not.
    """

    picked: int
    left: int
    graphs: int
    migrations: int
    reason: str
    threads: tuple[Threads, ...]
    arrivals: Arrivals

    def __add__(self, other: PartSide) -> PartSide:
        reasons = [one.reason for one in (self, other) if one.reason]
        return PartSide(
            self.picked + other.picked,
            self.left + other.left,
            self.graphs + other.graphs,
            self.migrations + other.migrations,
            LAUNCHED_BEFORE if LAUNCHED_BEFORE in reasons else next(iter(reasons), ""),
            tuple(map(add, self.threads, other.threads)),
            self.arrivals + other.arrivals,
        )


class Matched(Addable, frozen=True):
    """How communication of both sides is matched with other ranks'.

    compared : whether an op is of a collective whose last rank is known. ops : kernels that communicate (copies wait
        for nobody); unmatched : of them, those that are matched with no other rank's.
    """

    compared: bool = False
    ops: int = 0
    unmatched: int = 0


class Evidence(Addable, frozen=True):
    """What explains a part; empty where causes were not asked for.

    missing : work of either side that a fork or join left unordered; resting : order of it that rests on host syncs.
    times : `device_times`. syncs, gaps : host syncs of each rank in the steps that count, and `host_gaps`.
    device_steps : where the time of each device's steps goes, and exposed : `exposed_of_pair`.
    """

    missing: tuple[Crossing, ...] = ()
    resting: tuple[RestingOrder, ...] = ()
    times: tuple[DeviceTime, ...] = ()
    syncs: tuple[Mapping[int, list[SyncGroup]], ...] = ()
    gaps: tuple[HostGaps, ...] = ()
    device_steps: tuple[DeviceSteps, ...] = ()
    exposed: Mapping[DeviceKey, int] = msgspec.field(default_factory=dict)


class Part(Addable, frozen=True):
    """One part of a run measured for a pair, or all of it.

    possible, moves : what the parts agree by. devices : the (rank, device) that have ops, of either side or not.
    everything : the same ranks not step by step, and over all that was captured, where that was asked for and is more.
    unclaimed_graphs : graphs traced as one row that are ops of no side.
    timings : how long the ops of both sides ran, and counters : what the hardware did, where that was asked for.
    peers_absent : whether some waits are told by traffic, and so other ranks had part in the job.
    waited : how long, ns, the ops of each device's side that waits more waited for each (rank, device) that came last.
    outside : of each device and either side, how long it was busy, and with what was launched in no step, ns; empty
        where there are no steps. steps : their numbers.
    worked : the (rank, step) that have work; the step is -1 where none is marked.
    """

    agreed: PairingDecision
    shared: Shared
    a: PartSide
    b: PartSide
    rank_ids: tuple[int, ...]
    devices: tuple[DeviceKey, ...]
    possible: tuple[Possible, ...] = ()
    moves: tuple[Moves, ...] = ()
    ranks: tuple[RankOverlap, ...] = ()
    everything: tuple[RankOverlap, ...] = ()
    unclaimed_graphs: int = 0
    matched: Matched = msgspec.field(default_factory=Matched)
    timings: tuple[tuple[Timings, Timings], ...] = ()
    counters: tuple[DeviceStates, ...] = ()
    peers_absent: bool = False
    waited: Counter[tuple[DeviceKey, DeviceKey]] = msgspec.field(default_factory=Counter)
    outside: Mapping[DeviceKey, tuple[BusyAndOutside, BusyAndOutside]] = msgspec.field(default_factory=dict)
    steps: frozenset[int] = frozenset()
    worked: frozenset[tuple[int, int]] = frozenset()
    communication: CommunicationFacts = msgspec.field(default_factory=CommunicationFacts)
    evidence: Evidence = msgspec.field(default_factory=Evidence)


def examine(
    trace: Trace,
    a: str,
    b: str,
    *,
    explain: bool = True,
    timed: bool = True,
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
    part_sides = _side(trace, picked[0], *sides), _side(trace, picked[1], *sides[::-1])
    held = tuple(trace.rank_ids), devices_of(trace)
    if sharing in UNDECIDABLE:
        return Part(PairingDecision(sharing), shared, *part_sides, *held)
    possible = possible_pairing(trace, *sides)
    pairing, decided, shift_overlaps = _paired(trace, sides, sharing, possible, agreed)
    masks, selectors = _masks(sides), (sides[0].selector, sides[1].selector)
    ranks = measure_ranks(trace, *masks, pairing, _unaccounted(trace, *sides), by_step=by_step)
    if by_step and trace.whole is not None:  # such work is in no step, but runs beside steps
        ranks = with_unaccounted(trace, ranks, masks, _unaccounted_in_whole(trace, a, b, sharing))
    ranks = with_left_out(trace, ranks)
    worked, evidence = _worked_steps(trace, find_steps(trace)), Evidence()
    if explain:
        explainer = _explainer(trace, *sides, pairing)
        ranks = explain_missed(explainer, ranks, names_of(*map(str, selectors)))
        of_either = np.append(explainer.a | explainer.b, False)

        def concerns(one: Crossing | RestingOrder) -> bool:
            return one.rank in trace.rank_ids and bool(of_either[one.op] or of_either[one.behind])

        evidence = Evidence(
            missing=tuple(filter(concerns, missing_crossings(explainer.trace).missing)),
            resting=tuple(filter(concerns, resting_orders(explainer.trace))),
            times=device_times(trace, *masks, steps_of_ranks(worked)),
            syncs=(groups_by_rank(trace, of_steps),),
            gaps=(host_gaps(trace, of_steps),),
            device_steps=device_steps(trace, of_steps),
            exposed=exposed_of_pair(trace, *masks, ranks),
        )
    waited = _waited_for(trace, sides, ranks)
    ranks = with_lost(trace, ranks, masks, selectors, of_steps)  # devices, too, that have launches alone
    everything = _everything(trace, a, b, sharing) if beyond else ()
    graphs = trace.ops.kind.is_one_of(("graph",)) & ~launched_before(trace)
    return Part(
        decided,
        shared,
        *part_sides,
        *held,
        possible=(possible,),
        moves=(shift_overlaps,),
        ranks=tuple(ranks),
        everything=everything or tuple(replace(one, steps=None) for one in ranks),
        unclaimed_graphs=int(np.count_nonzero(graphs & ~masks[0] & ~masks[1])),
        matched=_matched(trace, masks),
        timings=(timings(trace, *masks),) if timed else (),
        counters=device_states(trace, *masks) if timed else (),
        peers_absent=bool(np.any((masks[0] | masks[1]) & told_by_traffic(trace))),
        waited=waited,
        outside=_outside_steps(trace, masks),
        steps=frozenset(find_steps(trace).present),
        worked=worked,
        communication=communication_facts(trace),
        evidence=evidence,
    )


def _side(trace: Trace, picked: Selection, left: Selection, other: Selection) -> PartSide:
    def count(mask: Mask) -> int:
        return int(np.count_nonzero(mask))

    return PartSide(
        picked=count(picked.picked),
        left=count(left.picked),
        graphs=count(trace.ops.kind.is_one_of(("graph",)) & left.picked),
        migrations=count(may_hold_kernels(trace) & left.picked),
        reason=picked.reason,
        threads=picked.threads,
        arrivals=arrivals(trace, left.picked, other.picked),
    )


def _matched(trace: Trace, masks: Masks) -> Matched:
    of_pair, matched = masks[0] | masks[1], is_matched(trace.ops)
    communication = is_communication(trace) & ~is_peer_copy(trace) & of_pair
    return Matched(
        bool(np.any(of_pair & matched)),
        int(np.count_nonzero(communication)),
        int(np.count_nonzero(communication & ~matched)),
    )


def _waited_for(
    trace: Trace, sides: tuple[Selection, Selection], ranks: Sequence[RankOverlap]
) -> Counter[tuple[DeviceKey, DeviceKey]]:
    ops, by_device = trace.ops, ops_of_devices(trace)
    waits_count = np.zeros(len(ops), dtype=bool)
    for rank in ranks:
        of_device = by_device[rank.rank, rank.device]
        waits_count[of_device] |= sides[rank.b.wait_ns > rank.a.wait_ns].picked[of_device]
    rows = np.flatnonzero(waits_count & is_matched(ops) & (ops.wait_ns > 0))
    waits, *devices = (column[rows] for column in (ops.wait_ns, ops.rank, ops.device, ops.last_rank, ops.last_device))
    return Counter(
        {((key[0], key[1]), (key[2], key[3])): int(waits[those].sum()) for key, those in rows_by_key(*devices).items()}
    )


def _worked_steps(trace: Trace, steps: Steps) -> frozenset[tuple[int, int]]:
    rank = trace.ops.rank
    if not steps.size:
        return frozenset((one, ALL_OF_IT) for one in distinct(rank).tolist())
    position = step_of_ops(trace)
    first, _ = alike(rank, position)  # of ops that stand together one is enough
    first = first[position[first] >= 0]
    return frozenset(zip(rank[first].tolist(), steps.numbers[position[first]].tolist(), strict=True))


def _outside_steps(trace: Trace, masks: Masks) -> dict[DeviceKey, tuple[BusyAndOutside, BusyAndOutside]]:
    if not find_steps(trace).size:
        return {}
    outside, starts, ends = step_of_ops(trace) < 0, trace.ops.start_ns, trace.ops.end_ns

    def busy_and_outside(rows: Ints) -> BusyAndOutside:
        whole, part = (measure(union(starts[some], ends[some])) for some in (rows, those(rows, outside)))
        return whole, part

    return {
        device: (busy_and_outside(those(rows, masks[0])), busy_and_outside(those(rows, masks[1])))
        for device, rows in ops_by_start(trace).items()
    }


def _everything(trace: Trace, a: str, b: str, sharing: SharedOps) -> tuple[RankOverlap, ...]:
    """The ranks of a part measured over all that was captured of them; empty where the part is that."""
    if trace.whole is None:
        return ()
    here = only_ranks(trace.whole, tuple(trace.rank_ids)) if trace.rank_ids else trace.whole
    sides = share_out(here, select(here, a), select(here, b), sharing)
    none = np.full(len(here.ops), -1, np.int64)
    no_pairs = Pairing("capture", none, none, np.empty(0, np.int64), ())
    ranks = measure_ranks(here, *_masks(sides), no_pairs, _unaccounted(here, *sides))
    return tuple(with_lost(here, ranks, _masks(sides), (sides[0].selector, sides[1].selector)))


def explaining(trace: Trace, a: str, b: str, agreed: PairingDecision | None = None) -> EvidenceWriter:
    """What explained the gaps of a part of a run, and puts them into words; `agreed` as `examine` takes it."""
    picked = select(trace, a), select(trace, b)
    sharing = count_shared(trace, *picked).given_to if agreed is None else agreed.sharing
    sides = share_out(trace, *picked, sharing)
    pairing = _paired(trace, sides, sharing, possible_pairing(trace, *sides), agreed)[0]
    return EvidenceWriter(_explainer(trace, *sides, pairing), names_of(*(str(side.selector) for side in sides)))


def sides_of(trace: Trace, a: str, b: str, agreed: PairingDecision) -> tuple[Selection, Selection]:
    """Both sides in a part of a run, the ops that both pick shared out as was agreed."""
    return share_out(trace, select(trace, a), select(trace, b), agreed.sharing)


def _paired(
    trace: Trace,
    sides: tuple[Selection, Selection],
    sharing: SharedOps,
    possible: Possible,
    agreed: PairingDecision | None,
) -> tuple[Pairing, PairingDecision, Moves]:
    method = agreed.pairing if agreed and agreed.pairing is not None else pairing_method([possible])
    pairing = pair_by(trace, *sides, method)
    shift_overlaps = moves(trace, pairing)
    shift = agreed.shift if agreed and agreed.shift is not None else best_shift([shift_overlaps])
    return shifted(pairing, shift), PairingDecision(sharing, method, shift), shift_overlaps


def _masks(sides: tuple[Selection, Selection]) -> Masks:
    return sides[0].picked, sides[1].picked


def _unaccounted(trace: Trace, *sides: Selection) -> Masks:
    """For each side, ops on neither that may be its for all the capture says.

    Those that it would pick, had they not been launched before the capture began; and where ranges pick it, all ops
    whose launch the capture lacks, where it records launches.
    """
    lacking, recorded = lacks_launch(trace), bool((trace.ops.launch >= 0).any())
    on_neither = ~sides[0].picked & ~sides[1].picked
    found = []
    for side in sides:
        by_range = any(atom.kind in BY_LAUNCH for atom in atoms(side.selector))
        found.append(on_neither & (lacking if by_range and recorded else side.before))
    return found[0], found[1]


def _unaccounted_in_whole(trace: Trace, a: str, b: str, sharing: SharedOps) -> Masks:
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


def agree(parts: Sequence[Part], a: str, b: str) -> PairingDecision:
    """Decide what all parts must do alike; a later decision stays open until all follow the earlier ones.

    Raises
    ------
    TracevizError : the sides share ops that belong to neither alone.
    """
    shared = reduce(add, (part.shared for part in parts))
    about_shared(shared, a, b)
    first = PairingDecision(shared.given_to)
    if not all(first.covers(part.agreed) for part in parts):
        return first
    second = replace(first, pairing=pairing_method([one for part in parts for one in part.possible]))
    if not all(second.covers(part.agreed) for part in parts):
        return second
    return replace(second, shift=best_shift([one for part in parts for one in part.moves]))


def reconcile(
    parts: Mapping[int, Part], a: str, b: str, again: Callable[[PairingDecision, list[int]], Mapping[int, Part]]
) -> dict[int, Part]:
    """Have parts, by their numbers, measured again until all do what was agreed; `again` measures those of numbers."""
    found = dict(parts)
    while True:
        agreed = agree([*found.values()], a, b)
        disagreeing = [number for number, part in found.items() if not agreed.covers(part.agreed)]
        if not disagreeing:
            return found
        found |= again(agreed, disagreeing)


def of_run(part: Part, rows: Callable[[Ints], Ints]) -> Part:
    """A part that names ops by their rows in the run, which `rows` tells of its own."""
    named = iter(rows(np.array([one.op for rank in part.ranks for one in rank.missed], np.int64)).tolist())
    ranks = (replace(rank, missed=tuple(replace(one, op=next(named)) for one in rank.missed)) for rank in part.ranks)
    return msgspec.structs.replace(part, ranks=tuple(ranks))
