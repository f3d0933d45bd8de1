"""Whether a change may be made: what orders it takes away, and what of that a capture can tell.

- *Safe*: no order goes: work is submitted earlier with its waits, host syncs go on which no order rests alone, copies
  are pinned, launches are fewer, pieces stay behind the pieces that feed them, a wait goes that is made again later.
- *Conditional*: an order goes whose purpose the capture doesn't tell, so it is asked for as a question. *Likely* is
  one that nothing on the GPU may need: the host waits for a value, or work that reads waits for a copy to the host.
  *Doubtful* is one of which nothing in the capture says that it may go.
- *Unsafe*: data surely flows there, or the program itself forked work and waits for it at a join.
- *Diagnosis*: a rank is late, and nothing that it does itself says why: that is no change of the program.
"""

from __future__ import annotations

import re
from enum import Enum

import numpy as np

from analyzers.arrays.groups import rows_by_key, run_heads
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import MAX_NS, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.replay.change import Change, units_of
from analyzers.replay.host_changes import DropSync, MoveWait, OnTime, Pin
from analyzers.replay.model import Tasks, Units
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream
from analyzers.trace.columns import as_int64
from analyzers.trace.kernels import operations
from analyzers.trace.ranges import RangeIndex
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict import fix

LITTLE_HELD = 0.1  # of the time that waits held their streams: an unsafe part below that does not make a change unsafe
_PHASES = (  # of a training step, each of which needs the one before it
    r"forward|fwd",
    r"loss|criterion",
    r"backward|bwd|autograd",
    r"clip|unscale",
    r"optimi[sz]er|opt[._ ]?step|zero[._ ]?grad",
)
UPDATE_PHASE = 3  # the first of the phases that read reduced gradients


class Safety(Enum):
    """The class of a change, the worst last: what answers call it, and how much of its gain counts in the order to try.

    What is doubtful is asked as a question, too.
    """

    SAFE = 0, fix.SAFE, 1.0
    LIKELY = 1, fix.CONDITIONAL, 1.0
    CONDITIONAL = 2, fix.CONDITIONAL, 0.5
    DOUBTFUL = 3, fix.CONDITIONAL, 0.1
    DIAGNOSIS = 4, fix.DIAGNOSIS, 0.0
    UNSAFE = 5, fix.UNSAFE, 0.0

    def __init__(self, place: int, named: str, weight: float) -> None:
        self.place, self.named, self.weight = place, named, weight

    @property
    def least_gain(self) -> float:
        """The part of a step it has to gain to be named: twice as much where order between GPU work goes."""
        return fix.GAINS if self in (Safety.SAFE, Safety.LIKELY) else 2 * fix.GAINS

    @property
    def last(self) -> int:
        """Behind all that may be made: a diagnosis, then what is unsafe; 0 for the others."""
        return 0 if self.weight else self.place


def safety_of(change: Change, trace: Trace, tasks: Tasks) -> Safety:
    """The class of a change of a capture's tasks."""
    match change:
        case DropSync() if change.unsafe(trace, tasks):
            return Safety.UNSAFE
        case DropSync():  # a question where the host may read what it waits for, or write to it
            return Safety.LIKELY if _waits_for_copies(trace, tasks, change.dropped(trace, tasks)) else Safety.SAFE
        case Pin():
            return _of_pin(change, trace, tasks)
        case DropWait():
            return _of_wait(change, trace, tasks)
        case MoveWait():
            return _of_move(change, trace, tasks)
        case OwnStream():
            return _of_stream(change, trace, tasks)
        case OnTime():
            return Safety.DIAGNOSIS
        case MoreRoom():
            return Safety.DOUBTFUL
    return Safety.SAFE


def _of_pin(change: Pin, trace: Trace, tasks: Tasks) -> Safety:
    """A question where the host may read at once what is copied to it."""
    calls, units = tasks.calls, tasks.units
    blocking = change.dropped(trace, tasks)
    to_host = trace.ops.copy.is_one_of(("DtoH",))[units.op]
    copied = to_host & take_or(blocking, units.call, False)
    read = to_host[calls.waits.items] & blocking[calls.waits.owner]
    return Safety.LIKELY if copied.any() or read.any() else Safety.SAFE


def _waits_for_copies(trace: Trace, tasks: Tasks, dropped: Mask) -> bool:
    """Whether a call that is dropped waits for a copy, or its thread copied to the host since it waited before."""
    calls, units = tasks.calls, tasks.units
    to_host, copies = (trace.ops.copy.is_one_of(kinds)[units.op] for kinds in (("DtoH",), ("DtoH", "HtoD")))
    if copies[calls.waits.items[dropped[calls.waits.owner]]].any():
        return True
    waits = calls.waits.count > 0
    stretch = np.cumsum(np.append(False, waits[:-1]) | run_heads(calls.thread))  # a call that waits ends its stretch
    copying = stretch[units.call[to_host & (units.call >= 0)]]
    return bool(np.isin(stretch[dropped], copying).any())


def _of_wait(change: DropWait, trace: Trace, tasks: Tasks) -> Safety:
    """By what each wait is for: most of the time for which streams were held decides.

    Where the program waits for the same again later, that later wait says where it is needed.
    """
    units, dropped = tasks.units, change.dropped(trace, tasks)
    owner, item = units.waits.owner[dropped], units.waits.items[dropped]
    brings = _brings_data(trace, tasks)[item]
    if waited_for_again(trace, tasks)[owner].all() and not brings.any():
        return Safety.SAFE
    held = np.maximum(held_by_waits(tasks)[dropped], 1)
    of_collective, by_collective = units.collective[item] >= 0, units.collective[owner] >= 0
    copied = trace.ops.kind.is_one_of(("memcpy",))[units.op[item]]
    flows = brings | (by_collective & ~of_collective) | (~of_collective & ~copied)
    if held[flows].sum() > LITTLE_HELD * held.sum() or phase_of(change.a) >= UPDATE_PHASE:  # of reduced gradients
        return Safety.UNSAFE
    to_host = trace.ops.copy.is_one_of(("DtoH",))[units.op[item]]
    if held[to_host].sum() > held.sum() / 2:  # only what writes to their source has to wait for such copies
        return Safety.LIKELY
    asked = of_collective & _waits_at_once(trace, tasks)[item]
    return Safety.CONDITIONAL if held[asked].sum() > held.sum() / 2 else Safety.DOUBTFUL


def _of_move(change: MoveWait, trace: Trace, tasks: Tasks) -> Safety:
    """Unsafe where what moves surely needs what it then comes before; a question where it waited for it, or came behind
    it on a stream.
    """
    if comes_later(change.b, change.a):
        return Safety.UNSAFE
    units = tasks.units
    moved, jumped = (take_or(calls, units.call, False) for calls in change.jumps(trace, tasks))
    owner, item = units.waits.owner, units.waits.items
    lost = moved[owner] & jumped[item]
    needs = is_for_result(trace, tasks) | _brings_data(trace, tasks)[item]
    behind = jumped & np.isin(units.lane, units.lane[moved])
    if (lost & needs).any() or (behind & _brings_data(trace, tasks)).any():
        return Safety.UNSAFE
    return Safety.CONDITIONAL if lost.any() or behind.any() else Safety.SAFE


def _brings_data(trace: Trace, tasks: Tasks) -> Mask:
    """Units that bring what others then read: receives, and copies from the host."""
    found: Mask = np.isin(operations(trace), ("recv",)) | trace.ops.copy.is_one_of(("HtoD",))
    return found[tasks.units.op]


def _of_stream(change: OwnStream, trace: Trace, tasks: Tasks) -> Safety:
    """A question; of computation nothing says that what comes behind it on its stream does not need it.

    Unsafe where a collective comes right behind it on its stream: that sends what it computed; of a phase of the step,
    which the next one needs; and where it takes a join of the program's along.
    """
    if phase_of(change.where) >= 0:
        return Safety.UNSAFE
    units = tasks.units
    moved = units_of(trace, tasks, change.where)
    copies = (units.collective >= 0) | trace.ops.kind.is_one_of(("memcpy",))[units.op]
    behind = (units.previous >= 0) & ~moved & take_or(moved, units.previous, False)
    ends = np.unique(units.previous[behind])
    sends = behind & (units.collective >= 0) & ~np.isin(operations(trace), ("recv",))[units.op]
    if np.count_nonzero(sends) > ends.size / 2:
        return Safety.UNSAFE
    owner, item = units.waits.owner, units.waits.items
    joins = ~np.isin(units.lane[item], main_streams(trace, units)) & (units.collective[item] < 0)
    if (moved[owner] & ~moved[item] & joins).any():  # what stays on its stream is behind those waits, too
        return Safety.UNSAFE
    return Safety.CONDITIONAL if copies[moved].all() else Safety.DOUBTFUL


def comes_later(first: str, then: str) -> bool:
    """Whether names say that `then` needs `first`: phases of a training step.

    >>> comes_later("nvtx:forward", "nvtx:backward"), comes_later("nvtx:lookup", "nvtx:backward")
    (True, False)
    """
    return 0 <= phase_of(first) < phase_of(then)


def phase_of(selector: str) -> int:
    """The phase of a training step that a selector names, from 0; -1 for none."""
    return next((at for at, one in enumerate(_PHASES) if re.search(one, selector, re.IGNORECASE)), -1)


def is_for_result(trace: Trace, tasks: Tasks) -> Mask:
    """Of each wait of a unit for another, whether it is surely for its result.

    A collective sends what was computed before it; who waits for a side stream waits for what was forked there. A wait
    for the stream that steps begin on stands for all that was launched there until then.
    """
    units = tasks.units
    owner, item = units.waits.owner, units.waits.items
    sends = (units.collective[owner] >= 0) & ~np.isin(operations(trace), ("recv",))[units.op[owner]]
    joins = ~np.isin(units.lane[item], main_streams(trace, units))
    found: Mask = sends | joins
    return found


def main_streams(trace: Trace, units: Units) -> Ints:
    """The lane of each rank that most steps begin their computation on."""
    step = numbers_of_ops(trace)[units.op]
    computes = np.flatnonzero((units.collective < 0) & (units.call >= 0))
    ordered = computes[np.argsort(units.call[computes], kind="stable")]
    of_steps = rows_by_key(units.rank[ordered], units.device[ordered], step[ordered]).values()
    first = ordered[np.array([rows[0] for rows in of_steps], np.int64)]
    found = [np.bincount(units.lane[first[rows]]).argmax() for rows in rows_by_key(units.rank[first]).values()]
    return np.array(found, np.int64)


def held_by_waits(tasks: Tasks) -> Ints:
    """How long each wait of a unit for another held its stream up, ns."""
    units = tasks.units
    owner, item = units.waits.owner, units.waits.items
    ready = np.where(units.call[owner] >= 0, take_or(tasks.calls.start_ns, units.call[owner], 0), 0)
    ready = np.maximum(ready + units.submitted_ns[owner], take_or(units.end_ns, units.previous[owner], 0))
    return np.maximum(units.end_ns[item] - ready, 0)


def _waits_at_once(trace: Trace, tasks: Tasks) -> Mask:
    """Of each unit whether its thread made a stream wait for it before it launched anything else, and entered a range.

    So do synchronous collectives; what is waited for later, or elsewhere, is waited for where the program needs it.
    """
    units, calls, linked = tasks.units, tasks.calls, trace.once(Ordering).linked
    found = np.zeros(units.op.size, dtype=bool)
    marked = np.flatnonzero(trace.ranges.kind.is_one_of(("nvtx", "annotation")))
    marks = RangeIndex(trace.ranges, marked)
    launched = np.flatnonzero(units.call >= 0)
    next_ns = np.where(run_heads(calls.thread)[1:], MAX_NS, calls.start_ns[1:])
    next_ns = np.append(next_ns, MAX_NS)[: calls.call.size]
    for (lane,), rows in rows_by_key(units.lane[launched]).items():
        waits = np.append(np.sort(linked.calls.waits.start_ns[linked.waits.source == lane]), MAX_NS)
        call = units.call[launched[rows]]
        waited = waits[np.searchsorted(waits, calls.start_ns[call])]
        process, thread = (as_int64(each)[calls.call[call]] for each in (trace.api.process, trace.api.thread))
        around = marks.innermost(process, thread, np.minimum(waited, calls.end_ns.max()))
        before = (around < 0) | (take_or(trace.ranges.start_ns[marked], around) <= calls.start_ns[call])
        found[launched[rows]] = (waited < next_ns[call]) & before
    return found


def waited_for_again(trace: Trace, tasks: Tasks) -> Mask:
    """Units that wait for another stream's work, which their stream is told to wait for once more later.

    Of three sends, of which two are waited for one by one, and before an op later all three: the first two.
    """
    ordering = trace.once(Ordering)
    linked, lanes = ordering.linked, ordering.lanes
    known = np.flatnonzero((linked.wait_lane >= 0) & (linked.waits.source >= 0) & (linked.waits.record >= 0))
    lane, source, exact = linked.wait_lane[known], linked.waits.source[known], linked.waits.exact[known]
    unit = lanes.unit(lane, lanes.queued_before(lane, linked.calls.waits.start_ns[known]))
    sent = lanes.queued_before(source, linked.calls.records.start_ns[linked.waits.record[known]])
    awaited = lanes.unit(source, sent - 1)
    collective = as_int64(trace.ops.collective)[lanes.op]
    # Of work that is no collective only what the capture states: what is inferred there may be for the next step's.
    found_both = (unit >= 0) & (awaited >= 0) & (exact | (take_or(collective, awaited) >= 0))
    found = np.zeros(lanes.op.size, dtype=bool)
    both = np.flatnonzero(found_both)
    for at in rows_by_key(lane[both], source[both]).values():
        rows = both[at[np.argsort(unit[both[at]], kind="stable")]]
        heads = np.flatnonzero(run_heads(unit[rows]))
        upto, earliest = np.maximum.reduceat(sent[rows], heads), np.minimum.reduceat(sent[rows], heads) - 1
        times = np.diff(np.append(heads, rows.size))
        stated = np.logical_and.reduceat(exact[rows], heads)
        since = np.where(stated, earliest, upto - times)  # where nothing names them, each is for one more collective
        later = np.append(np.minimum.accumulate(since[:0:-1])[::-1], MAX_NS)
        found[unit[rows[heads]]] = upto > later
    return found[lanes.unit_of_op[tasks.units.op]]
