"""Changes worth a try: named by the ranges that the program marks, found by what a capture shows to be waited for.

Of each kind of change the few places are tried where most could be gained if all that it waits for were gone. A trace
tells what waited for what, hardly ever whether it had to: what each takes away decides its class (`safety`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key, run_heads
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import values
from analyzers.ordering.lanes import take_or
from analyzers.replay.change import Change, range_around
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.model import Tasks
from analyzers.replay.safety import Safety, comes_later, held_by_waits, is_for_result, safety_of, waited_for_again
from analyzers.replay.sharing import MAX_DISPATCH_NS
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Split, feeding
from analyzers.select.language import Atom, parse
from analyzers.select.picking import RANGE_ATOMS
from analyzers.syncs.of_steps import groups_by_rank, step_syncs
from analyzers.trace.columns import as_int64
from analyzers.trace.kernels import is_communication, is_compute, operations
from analyzers.trace.ranges import launched_in
from analyzers.trace.settings import BLOCKING_LAUNCHES, setting_of
from analyzers.trace.steps import STEP_NAME, numbers_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.lines import costliest_syncs
from analyzers.verdict.result import OverlapResult

MOST_PLACES = 3  # places tried of each kind of change
SUGGESTED_PIECES = 4
MIN_GRAPH_LAUNCHES = 4  # a graph of fewer saves nothing
POINT_TO_POINT = ("send", "recv", "send_recv")


class Suggestion(msgspec.Struct, frozen=True):
    """A change to try, whether it may be made (`safety`), and where in the program that is, in words."""

    change: Change
    safety: Safety
    where: str = ""


class _Places(msgspec.Struct, frozen=True):
    """Where units and calls are: in the innermost range that the program marks; communication or computation of which
    no range marks any is a place, too.

    selectors : of all places. of_unit, of_call : numbers of them, -1 where there is none. occurrence : the range that
    each call is in, a row of `Trace.ranges`, -1 where it is in none.
    """

    selectors: list[str]
    of_unit: Ints
    of_call: Ints
    occurrence: Ints

    def ranked(self, place: Ints, worth: Ints) -> list[int]:
        """Places by what they are worth together, the most first; none that is worth nothing."""
        known = place >= 0
        total = np.bincount(place[known], weights=worth[known], minlength=len(self.selectors))
        return [int(one) for one in np.argsort(-total, kind="stable") if total[one] > 0]


def suggested(trace: Trace, tasks: Tasks, a: str, b: str, result: OverlapResult) -> list[Suggestion]:
    """What to try; `a` and `b` are the pair whose overlap is asked about, `result` what is known of it."""
    causes = {one.cause for rank in result.ranks for one in rank.missed}
    whole = trace.whole or trace
    places = _places(whole, tasks)
    late = [Level(str(Atom("nvtx", one.where))) for one in result.own_work if one.where]
    found: list[Change] = [*late[:MOST_PLACES], *_syncing(trace, result)]
    if (a, b) != ("comm", "compute"):
        found += _of_pair(a, b, causes)
    found += _moves(whole, tasks, places)
    found += _waits(whole, tasks, places)
    found += _own_streams(whole, tasks, places)
    found += _splits(whole, tasks, places)
    found += _graphs(tasks, places)
    if "gpu-full" in causes:
        found += [MoreRoom(side) for side in (a, b)]
    last = _last(trace)
    waits = any(side.wait_ns > 0 for rank in result.ranks for side in (rank.a, rank.b))
    if last is not None and ("peer-wait" in causes or waits):
        found += [OnTime(last), OnTime()]
    where: dict[str, str] = {}  # the syncs that changes take out are, in words
    for one in result.host_syncs:
        what = one.change.partition(" ")[2]
        for verb in ("drop-sync", "pin"):
            where.setdefault(f"{verb} {what}", f"every {one.written}" if what.startswith("op:") else one.written)
    distinct = {str(change): change for change in reversed(found)}
    return [
        Suggestion(change, safety_of(change, whole, tasks), where.get(text, ""))
        for text, change in reversed(distinct.items())
    ]


REMOVING: dict[str, tuple[type[Change], ...]] = {  # what takes a cause out, the likeliest first
    "host-sync": (DropSync, Pin),
    "late-launch": (Level, MoveWait, Graph, DropSync, Pin),
    "same-stream": (OwnStream,),
    "stream-busy": (OwnStream,),
    "event-dependency": (DropWait, MoveWait),
    "gpu-full": (MoreRoom,),
    "peer-wait": (Level, OnTime),
}


def removing(cause: str, finding: str, after_sync: bool, suggestions: Sequence[Suggestion]) -> Change | None:
    """The suggested change that takes a cause out, None where there is none; of launches that a sync made late that.

    Of several the one whose place the finding names: a range, an operator or a call.
    """

    def is_named(change: Change) -> bool:
        selectors = [value for value in values(change).values() if isinstance(value, str) and ":" in value]
        return any(one.partition(":")[2].strip('"') in finding for one in selectors)

    kinds = REMOVING["host-sync" if after_sync else cause] if cause in REMOVING else ()
    found = [one.change for kind in kinds for one in suggestions if isinstance(one.change, kind)]
    return min(found, key=lambda change: not is_named(change), default=None)


def _of_pair(a: str, b: str, causes: set[str]) -> Iterator[Change]:
    """What the causes of missed overlap suggest of two sides that were named."""
    pairs = [(a, b), (b, a)]
    if causes & {"event-dependency", "late-launch", "host-sync"}:
        yield from (MoveWait(*pair) for pair in pairs if all(_is_of(side, RANGE_ATOMS) for side in pair))
    if "event-dependency" in causes:
        yield from (DropWait(*pair) for pair in pairs)
        yield from (Split(side, SUGGESTED_PIECES) for side in (a, b) if _is_of(side, ("comm", "collective")))
    if "same-stream" in causes:
        yield from (OwnStream(side) for side in (a, b))
    if "late-launch" in causes:
        yield from (Graph(side) for side in (a, b) if _is_of(side, RANGE_ATOMS))


def _places(trace: Trace, tasks: Tasks) -> _Places:
    units, calls = tasks.units, tasks.calls
    marks = np.flatnonzero(_marks(trace))
    code, names = trace.ranges.name.codes, trace.ranges.name.texts
    row = launched_in(trace, _marks(trace))[0][units.op]
    occurrence = range_around(trace, marks, calls.call)
    of_unit, of_call = take_or(code.astype(np.int64), row), take_or(code.astype(np.int64), occurrence)
    for number, side in enumerate((is_communication, is_compute), len(names)):
        of_side = side(trace)[units.op]
        if (of_unit[of_side] < 0).all():  # else the whole side is more than what no range marks
            of_unit = np.where(of_side, number, of_unit)
    return _Places([*(str(Atom("nvtx", name)) for name in names), "comm", "compute"], of_unit, of_call, occurrence)


def _marks(trace: Trace) -> Mask:
    """Ranges that a program marks: no steps, and none of operators, of autograd or of a communication library."""

    def is_own(name: str) -> bool:
        return bool(name.strip()) and not (STEP_NAME.match(name) or "::" in name or name.lower().startswith("nccl"))

    return trace.ranges.kind.is_one_of(("nvtx", "annotation")) & trace.ranges.name.matching(is_own)


def _syncing(trace: Trace, result: OverlapResult) -> list[Change]:
    """Host syncs in the steps that count, the costliest first.

    Copies of pageable memory are pinned, where no operator reads a single value. Where launches wait for their kernels,
    the setting that makes them is named, as it is on record; else what it may be.
    """
    used = None if trace.whole is None else np.unique(numbers_of_ops(trace)).tolist()
    stated = [setting_of(trace, process, BLOCKING_LAUNCHES) for process in range(len(trace.processes))]
    names = [one.partition("=")[0] for one in stated if one]
    blocks_launches = names[0] if names else f"{BLOCKING_LAUNCHES[trace.runtime == 'HIP']}, if it is set"
    found: dict[str, Change] = {}
    for one in (*costliest_syncs(result), *step_syncs([groups_by_rank(trace, used)], 1)):
        verb, _, where = one.change.partition(" ")
        unset = blocks_launches if one.kind == "launch" else ""
        found.setdefault(where, Pin(where) if verb == "pin" else DropSync(where, unset))
    return [*found.values()][:MOST_PLACES]


def _moves(trace: Trace, tasks: Tasks, places: _Places) -> list[Change]:
    """A range's work ahead of the range right before it on its thread, where that blocks the host, or is on other
    streams; by how long the host is in it, what surely needs the other last.

    None of a phase of the step before the phase that it needs, and none out of the range that it is in, or around it.
    """
    calls, units = tasks.calls, tasks.units
    new = run_heads(places.occurrence, calls.thread)
    run, heads = np.cumsum(new) - 1, np.flatnonzero(new)
    if heads.size < 2:
        return []
    of_unit = take_or(run, units.call)
    blocks = np.bincount(run, weights=calls.waits.count > 0, minlength=heads.size) > 0
    host_ns = np.bincount(run, weights=calls.end_ns - calls.start_ns + calls.before_ns, minlength=heads.size)
    launched = np.unique(np.stack([of_unit, units.lane])[:, of_unit >= 0], axis=1)
    lanes = int(units.lane.max(initial=0)) + 1
    shares = np.unique(launched[0][np.isin(launched[0] * lanes + launched[1], (launched[0] + 1) * lanes + launched[1])])
    after, (one, other) = np.arange(1, heads.size), (heads[:-1], heads[1:])
    first, second = places.of_call[one], places.of_call[other]
    fits = (first >= 0) & (second >= 0) & (first != second) & np.isin(after, launched[0])
    fits &= blocks[:-1] | ~np.isin(after, shares)
    fits &= calls.thread[one] == calls.thread[other]
    ranges = np.stack([places.occurrence[one], places.occurrence[other]])
    start, end = (take_or(each, ranges, 0) for each in (trace.ranges.start_ns, trace.ranges.end_ns))
    fits &= (np.sign(start[0] - start[1]) * np.sign(end[0] - end[1])) > 0  # neither lies in the other
    is_needed = is_for_result(trace, tasks)
    owner, item = (places.of_unit[each[is_needed]].tolist() for each in (units.waits.owner, units.waits.items))
    needed = set(zip(item, owner, strict=True))
    found: list[tuple[bool, float, Change]] = []
    for (y, x), rows in rows_by_key(first[fits], second[fits]).items():
        change = MoveWait(places.selectors[x], places.selectors[y])
        if not comes_later(change.b, change.a):
            found.append(((y, x) in needed, -float(host_ns[:-1][fits][rows].sum()), change))
    return _first_few(found)


def _first_few(found: list[tuple[bool, float, Change]]) -> list[Change]:
    return [change for *_, change in sorted(found, key=lambda each: each[:2])[:MOST_PLACES]]


def _waits(trace: Trace, tasks: Tasks, places: _Places) -> list[Change]:
    """Waits that held streams up longest, first those that the program waits for once more later."""
    units = tasks.units
    owner, item = units.waits.owner, units.waits.items
    held = held_by_waits(tasks)
    held[units.start_ns[owner] - units.end_ns[item] > MAX_DISPATCH_NS] = 0
    again = waited_for_again(trace, tasks)[owner]
    found: list[tuple[bool, float, Change]] = []
    waiting, awaited = places.of_unit[owner], places.of_unit[item]
    known = (waiting >= 0) & (awaited >= 0) & (held > 0)
    for (a, b), rows in rows_by_key(waiting[known], awaited[known]).items():
        of = np.flatnonzero(known)[rows]
        texts = [places.selectors[a], places.selectors[b]]
        if a == b:
            ends = units.op[[owner[of[0]], item[of[0]]]]
            sides = ["comm" if one else "compute" for one in is_communication(trace)[ends]]
            texts = [f"{text}+{side}" for text, side in zip(texts, sides, strict=True)]
        if texts[0] != texts[1]:
            is_again = bool(held[of][again[of]].sum() > held[of].sum() / 2)
            found.append((not is_again, -int(held[of].sum()), DropWait(*texts)))
    return _first_few(found)


def _own_streams(trace: Trace, tasks: Tasks, places: _Places) -> list[Change]:
    """Work that other work of its step is queued behind, by how long the shorter of the two takes.

    What only copies to the host writes nothing that a later op reads.
    """
    units = tasks.units
    step = numbers_of_ops(trace)[units.op]
    worth = np.zeros(units.op.size, np.int64)
    for rows in rows_by_key(units.lane, step).values():
        heads = np.flatnonzero(run_heads(places.of_unit[rows]))
        of_run = np.add.reduceat((units.end_ns - units.start_ns)[rows], heads)
        worth[rows[heads]] = np.minimum(of_run, of_run[::-1].cumsum()[::-1] - of_run)
    ranked = places.ranked(places.of_unit, worth)
    placed = np.flatnonzero(places.of_unit >= 0)
    to_host = trace.ops.copy.is_one_of(("DtoH",))[units.op[placed]]
    others = set(places.of_unit[placed[~to_host]].tolist())
    sure, rest = ([place for place in ranked if (place in others) == computes] for computes in (False, True))
    return [OwnStream(places.selectors[place]) for some in (sure, rest) for place in some[:MOST_PLACES]]


def _splits(trace: Trace, tasks: Tasks, places: _Places) -> list[Change]:
    """Collectives that wait for work of their rank, by how long the shorter of the two takes."""
    units = tasks.units
    to_one = np.isin(operations(trace), POINT_TO_POINT)[units.op]  # its other side is fed by nothing
    chosen = np.flatnonzero((units.collective >= 0) & ~to_one)
    feeds = feeding(units, chosen)
    chosen, feeds = chosen[feeds >= 0], feeds[feeds >= 0]
    worth = np.minimum(units.transfer_ns[chosen], units.transfer_ns[feeds]).astype(np.int64)
    ranked = places.ranked(places.of_unit[chosen], worth)[: MOST_PLACES - 1]
    return [Split(places.selectors[place], SUGGESTED_PIECES) for place in ranked]


def _graphs(tasks: Tasks, places: _Places) -> list[Change]:
    """Ranges whose work starts as soon as it is launched, on a stream that was idle before, and by how much."""
    units, calls = tasks.units, tasks.calls
    has_call = np.flatnonzero((units.call >= 0) & (take_or(places.of_call, units.call) >= 0))
    call = units.call[has_call]
    prompt = units.start_ns[has_call] - calls.start_ns[call] - units.submitted_ns[has_call] <= MAX_DISPATCH_NS
    place = places.of_call[call]
    blocking = places.of_call[calls.waits.count > 0]
    occurrences = np.unique(np.stack([place, places.occurrence[call]]), axis=1)[0]
    launches, times = (np.bincount(each, minlength=len(places.selectors)) for each in (place, occurrences))
    fits = prompt & ~np.isin(place, blocking) & ((launches / np.maximum(times, 1))[place] >= MIN_GRAPH_LAUNCHES)
    worth = np.where(fits, units.idle_ns[has_call], 0)
    return [Graph(places.selectors[one]) for one in places.ranked(place, worth)[: MOST_PLACES - 1]]


def _last(trace: Trace) -> int | None:
    """The rank that the others wait for longest."""
    wait, last = as_int64(trace.ops.wait_ns), as_int64(trace.ops.last_rank)
    rows = np.flatnonzero((wait > 0) & (last >= 0))
    if not rows.size:
        return None
    return int(np.argmax(np.bincount(last[rows], weights=wait[rows])))


def _is_of(selector: str, kinds: Collection[str]) -> bool:
    parsed = parse(selector)
    return isinstance(parsed, Atom) and parsed.kind in kinds
