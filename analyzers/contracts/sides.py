"""The two sides of a rule: which ops, in which step or occurrence."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.contracts.order import Order, PlacedOps
from analyzers.ordering.lanes import MAX_NS
from analyzers.overlap.pairing import pair_by, pairing_method, possible_pairing
from analyzers.select.select import MOST_THREADS, Selection, select
from analyzers.select.sides import without_shared
from analyzers.trace.columns import as_int64
from analyzers.trace.narrow import in_whole
from analyzers.trace.tables import Trace

NO_MARKED_STEPS = (
    "the capture has no step marks (ranges named ProfilerStep#3, step 3 …), so its steps can't be told apart"
)


class RuleSides(Record, frozen=True):
    """A's and B's work in the whole trace, by instance: the k-th range of each, or a step. B is not moved.

    `label`, `rank` are each instance's; `marked` is False where all of the capture had to be one instance; `cut_off`
    counts the instances in which the capture ended, which are left out; `untied` says what other threads launched
    while a side's range was open, which may be the side's too; `reason` why there is nothing to look at. "" for none.
    """

    a: PlacedOps
    b: PlacedOps
    label: tuple[str, ...] = ()
    rank: tuple[int, ...] = ()
    marked: bool = True
    cut_off: int = 0
    untied: str = ""
    reason: str = ""

    @property
    def both(self) -> Ints:
        """Instances that have work of both sides."""
        return np.intersect1d(self.a.instance, self.b.instance)

    @property
    def pairs(self) -> Ints:
        """How many pairs of an op of A and one of B each of `both` has."""
        a, b = (np.bincount(side.instance, minlength=len(self.label)) for side in (self.a, self.b))
        return (a * b)[self.both]


def sides(trace: Trace, order: Order, a: str, b: str, *, by_step: bool = False) -> RuleSides:
    """Find both sides of a rule in a trace or a part of one.

    Parameters
    ----------
    by_step : all of A and B in a step belong together, also where both are ranges that occur equally often.

    Raises
    ------
    TracevizError : the sides share ops that belong to neither alone.
    """
    first, second, _ = without_shared(trace, select(trace, a), select(trace, b))
    nothing = PlacedOps(*(np.empty(0, np.int64) for _ in range(4)))
    reason = _absent(trace, a, first) or _absent(trace, b, second)
    if reason:
        return RuleSides(nothing, nothing, reason=reason)
    possible = possible_pairing(trace, first, second)
    if by_step:
        possible = replace(possible, by_numbers=False, by_ranges=False, by_used=False)
    method = pairing_method([possible])
    pairing = pair_by(trace, first, second, method)
    mine, other = (_work(order, in_whole(trace, instance)) for instance in (pairing.a, pairing.b))
    rank = tuple(trace.processes[process].rank for process in pairing.process.tolist())
    cut_off = 0
    if method != "capture":
        whole = _whole_instances(order, mine, other)
        cut_off = np.setdiff1d(np.append(mine.instance, other.instance), whole).size
        mine, other = (one.take(np.isin(one.instance, whole)) for one in (mine, other))
    found = RuleSides(
        mine, other, pairing.label, rank, method != "capture", cut_off, untied_of(first) or untied_of(second)
    )
    if not found.both.size:
        what = "step" if method == "step" else "instance"
        return RuleSides(nothing, nothing, reason=f"no {what} has work of both sides")
    return found


def _whole_instances(order: Order, a: PlacedOps, b: PlacedOps) -> Ints:
    """Instances all of whose work is there: not those in which a capture ended, so that launches lack their ops.

    An instance reaches from its first launch to that of the next one of its process.
    """
    ended, lanes = order.cut_off_at, order.lanes
    instance = np.concatenate([a.instance, b.instance])
    unit = np.concatenate([lanes.first[work.lane] + work.position for work in (a, b)])
    kept = []
    for (process,), rows in rows_by_key(lanes.process[lanes.lane_of_unit()[unit]]).items():
        numbers, position = np.unique(instance[rows], return_inverse=True)
        begin = np.full(numbers.size, MAX_NS)
        np.minimum.at(begin, position, lanes.enqueue_ns[unit[rows]])
        in_turn = np.argsort(begin, kind="stable")
        until = np.append(begin[in_turn][1:], MAX_NS)
        kept.append(numbers[in_turn][until <= ended[process]])
    return np.concatenate(kept) if kept else np.empty(0, np.int64)


def instances_of(trace: Trace, order: Order, text: str, like: RuleSides) -> PlacedOps | str:
    """Further work in the steps of a pair: each op goes to the instance whose work was launched nearest before it.

    Returns a reason where there is none.
    """
    selection = select(trace, text)
    reason = _absent(trace, text, selection)
    if reason:
        return reason
    ops = np.flatnonzero(in_whole(trace, selection.picked.astype(np.int64), 0) > 0)
    work = PlacedOps.of(order.ordering, ops, np.zeros(ops.size, np.int64))
    lanes = order.lanes
    unit = lanes.first[work.lane] + work.position
    instance = np.full(ops.size, -1, np.int64)
    known = [(side.instance, lanes.first[side.lane] + side.position) for side in (like.a, like.b)]
    number, units = (np.concatenate(columns) for columns in zip(*known, strict=True))
    process = lanes.process[lanes.lane_of_unit()[units]]
    for one in np.unique(process).tolist():
        mine = np.flatnonzero(process == one)
        mine = mine[np.argsort(lanes.enqueue_ns[units[mine]], kind="stable")]
        here = np.flatnonzero(lanes.process[work.lane] == one)
        at = np.searchsorted(lanes.enqueue_ns[units[mine]], lanes.enqueue_ns[unit[here]], side="right") - 1
        instance[here] = number[mine[np.maximum(at, 0)]]
    return PlacedOps.of(order.ordering, work.op[instance >= 0], instance[instance >= 0])


def _work(order: Order, instance: Ints) -> PlacedOps:
    ops = np.flatnonzero(instance >= 0)
    return PlacedOps.of(order.ordering, ops, instance[ops].astype(np.int64, copy=False))


def _absent(trace: Trace, text: str, selection: Selection) -> str:
    if selection.reason:
        return f"'{text}': {selection.reason}"
    unlaunched = int(np.count_nonzero(unlaunched_of(trace, selection.picked)))
    if unlaunched:
        return f"the capture does not say which calls launched {unlaunched} ops of '{text}'"
    return ""


def untied_of(selection: Selection) -> str:
    """What other threads launched while a range of a selection was open, and nothing ties to it."""
    others = [(one, sum(one.others.values())) for one in selection.threads if one.others]
    if not others:
        return ""
    one, ops = others[0]
    threads = f"thread{'s' * (len(one.others) > 1)} {', '.join(map(str, list(one.others)[:MOST_THREADS]))}"
    return f"while '{one.atom}' was open, {threads} launched {ops} op{'s' * (ops != 1)} that nothing ties to it"


def unlaunched_of(trace: Trace, picked: Mask) -> Mask:
    """Picked ops whose launch the capture does not name."""
    return picked & (as_int64(trace.ops.launch) < 0)
