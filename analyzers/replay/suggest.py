"""Changes worth a try: named by the ranges that the program marks, found by what a capture shows to be waited for.

Of each kind of change the few places are tried where most could be gained if all that it waits for were gone. What a
prediction then says is weighed by how likely that is which a change takes for granted: a trace tells what waited for
what, hardly ever whether it had to.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import MAX_NS, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.replay.changes import (
    Change,
    DropSync,
    DropWait,
    Graph,
    Level,
    MoreRoom,
    MoveWait,
    OnTime,
    OwnStream,
    Split,
)
from analyzers.replay.edits import feeding
from analyzers.replay.model import Tasks, Units
from analyzers.replay.room import DISPATCH_NS
from analyzers.select.language import Atom, parse
from analyzers.select.picking import RANGE_ATOMS
from analyzers.syncs.of_steps import groups_by_rank, step_syncs
from analyzers.trace.columns import codes, ints, is_one_of, of_codes
from analyzers.trace.kernels import is_communication, is_compute, operations
from analyzers.trace.nesting import RangeIndex
from analyzers.trace.regions import launched_in
from analyzers.trace.settings import BLOCKING_LAUNCHES, setting_of
from analyzers.trace.steps import STEP, numbers_of_ops
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult

MOST = 3  # places tried of each kind of change
PIECES = 4
FEW_LAUNCHES = 4  # a graph of fewer saves nothing
POINT_TO_POINT = ("send", "recv", "send_recv")

# How much of a predicted gain counts, by whether what a change takes for granted mostly holds.
LIKELY, PERHAPS, SELDOM = 1.0, 0.5, 0.1
WORDS = {LIKELY: "likely", PERHAPS: "perhaps", SELDOM: "seldom"}


class Suggestion(msgspec.Struct, frozen=True):
    """A change to try, and how likely that holds which it takes for granted: `LIKELY`, `PERHAPS` or `SELDOM`."""

    change: Change
    likely: float


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


def suggested(trace: Trace, tasks: Tasks, a: str, b: str, result: OverlapResult | None = None) -> list[Suggestion]:
    """What to try; `a` and `b` are the pair whose overlap is asked about, `result` what is known of it."""
    result = result or check_overlap(trace, a, b, min_overlap=0.0)
    causes = {one.cause for rank in result.ranks for one in rank.missed}
    places = _places(trace.whole or trace, tasks)
    found = [*_leveling(result), *_syncing(trace)]
    if (a, b) != ("comm", "compute"):
        found += _of_pair(a, b, causes)
    found += _moves(trace.whole or trace, tasks, places)
    found += _waits(trace.whole or trace, tasks, places)
    found += _own_streams(trace.whole or trace, tasks, places)
    found += [Suggestion(Split(where, PIECES), LIKELY) for where in _fed(trace.whole or trace, tasks, places)]
    found += [Suggestion(Graph(where), PERHAPS) for where in _launch_bound(tasks, places)]
    if "gpu-full" in causes:
        found += [Suggestion(MoreRoom(side), SELDOM) for side in (a, b)]
    late = _last(trace)
    if late is not None and ("peer-wait" in causes or _any_wait(result)):
        found += [Suggestion(OnTime(late), LIKELY), Suggestion(OnTime(), LIKELY)]
    return list({str(one.change): one for one in reversed(found)}.values())[::-1]


def _of_pair(a: str, b: str, causes: set[str]) -> Iterator[Suggestion]:
    """What the causes of missed overlap suggest of two sides that were named."""
    pairs = [(a, b), (b, a)]
    if causes & {"event-dependency", "late-launch", "host-sync"}:
        yield from (Suggestion(MoveWait(*pair), PERHAPS) for pair in pairs if all(map(_is_range, pair)))
    if "event-dependency" in causes:
        yield from (Suggestion(DropWait(*pair), SELDOM) for pair in pairs)
        yield from (Suggestion(Split(side, PIECES), LIKELY) for side in (a, b) if _is_communication(side))
    if "same-stream" in causes:
        yield from (Suggestion(OwnStream(side), SELDOM) for side in (a, b))
    if "late-launch" in causes:
        yield from (Suggestion(Graph(side), PERHAPS) for side in (a, b) if _is_range(side))


def _places(trace: Trace, tasks: Tasks) -> _Places:
    units, calls = tasks.units, tasks.calls
    marks = np.flatnonzero(_marks(trace))
    code, names = codes(trace.ranges, "name")
    row = launched_in(trace, _marks(trace))[0][units.op]
    process, thread, start = (ints(trace.api, name)[calls.call] for name in ("process", "thread", "start_ns"))
    occurrence = take_or(marks, RangeIndex(trace.ranges, marks).innermost(process, thread, start))
    of_unit, of_call = take_or(code.astype(np.int64), row), take_or(code.astype(np.int64), occurrence)
    for number, side in enumerate((is_communication, is_compute), len(names)):
        of_side = side(trace)[units.op]
        if (of_unit[of_side] < 0).all():  # else the whole side is more than what no range marks
            of_unit = np.where(of_side, number, of_unit)
    return _Places([*(str(Atom("nvtx", name)) for name in names), "comm", "compute"], of_unit, of_call, occurrence)


def _marks(trace: Trace) -> Mask:
    """Ranges that a program marks: no steps, and none of operators, of autograd or of a communication library."""
    code, texts = codes(trace.ranges, "name")
    own = [not (STEP.match(one) or "::" in one or one.lower().startswith("nccl")) for one in texts]
    return is_one_of(trace.ranges, "kind", ("nvtx", "annotation")) & of_codes(code, own)


def _leveling(result: OverlapResult) -> list[Suggestion]:
    """Ranges in which a rank's host works longer than the others'."""
    places = dict.fromkeys(str(Atom("nvtx", one.where)) for one in result.own_work if one.where)
    return [Suggestion(Level(place), LIKELY) for place in [*places][:MOST]]


def _syncing(trace: Trace) -> list[Suggestion]:
    """Host syncs in the steps that count, by how long they leave the GPU idle, then by how long they block the host."""
    used = None if trace.whole is None else np.unique(numbers_of_ops(trace)).tolist()
    found: dict[str, DropSync] = {}
    for one in step_syncs([groups_by_rank(trace, used)], 1):
        where = one.change.partition(" ")[2]
        found.setdefault(where, DropSync(where, _what_blocks_launches(trace) if one.kind == "launch" else ""))
    return [Suggestion(change, PERHAPS) for change in [*found.values()][:MOST]]


def _what_blocks_launches(trace: Trace) -> str:
    """The setting that has launches wait for their kernels, as it is on record; else what it may be."""
    stated = [setting_of(trace, process, BLOCKING_LAUNCHES) for process in range(len(trace.processes))]
    names = [one.partition("=")[0] for one in stated if one]
    return names[0] if names else f"{BLOCKING_LAUNCHES[trace.runtime == 'HIP']}, if it is set"


def _moves(trace: Trace, tasks: Tasks, places: _Places) -> list[Suggestion]:
    """A range's work ahead of the range right before it on its thread, where that blocks the host, or is on other
    streams; by how long the host is in it.

    Seldom right is that of a collective, which sends what was computed before it, and of what waits for a side stream:
    for its result. A wait for the stream that steps begin on stands for all that was launched there until then.
    """
    calls, units = tasks.calls, tasks.units
    new = np.append(True, (np.diff(places.occurrence) != 0) | (np.diff(calls.thread) != 0))[: calls.call.size]
    run, heads = np.cumsum(new) - 1, np.flatnonzero(new)
    if heads.size < 2:
        return []
    of_unit = take_or(run, units.call)
    blocks = np.bincount(run, weights=np.diff(calls.waits.first) > 0, minlength=heads.size) > 0
    host_ns = np.bincount(run, weights=calls.end_ns - calls.start_ns + calls.before_ns, minlength=heads.size)
    launched = np.unique(np.stack([of_unit, units.lane])[:, of_unit >= 0], axis=1)
    lanes = int(units.lane.max(initial=0)) + 1
    shares = np.unique(launched[0][np.isin(launched[0] * lanes + launched[1], (launched[0] + 1) * lanes + launched[1])])
    after = np.arange(1, heads.size)
    first, second = places.of_call[heads[after - 1]], places.of_call[heads[after]]
    fits = (first >= 0) & (second >= 0) & (first != second) & np.isin(after, launched[0])
    fits &= blocks[after - 1] | ~np.isin(after, shares)
    fits &= calls.thread[heads[after - 1]] == calls.thread[heads[after]]
    needed = _results(trace, tasks, places)
    found: list[tuple[float, Suggestion]] = []
    for (y, x), rows in rows_by_key(first[fits], second[fits]).items():
        change = MoveWait(places.selectors[x], places.selectors[y])
        found.append(
            (host_ns[after[fits][rows] - 1].sum(), Suggestion(change, SELDOM if (y, x) in needed else PERHAPS))
        )
    found.sort(key=lambda each: (-each[1].likely, -each[0]))
    return [each for _, each in found[:MOST]]


def _results(trace: Trace, tasks: Tasks, places: _Places) -> set[tuple[int, int]]:
    """Places whose work the second of each pair waits for, and surely for its result."""
    units = tasks.units
    owner, item = units.waits.owner, units.waits.items
    sends = (units.collective[owner] >= 0) & ~np.isin(operations(trace), ("recv",))[units.op[owner]]
    joins = ~np.isin(units.lane[item], _main_streams(trace, units))
    return set(zip(*(places.of_unit[one[sends | joins]].tolist() for one in (item, owner)), strict=True))


def _main_streams(trace: Trace, units: Units) -> Ints:
    """The lane of each rank that most steps begin their computation on."""
    step = numbers_of_ops(trace)[units.op]
    computes = np.flatnonzero((units.collective < 0) & (units.call >= 0))
    ordered = computes[np.argsort(units.call[computes], kind="stable")]
    first = [
        ordered[rows[0]] for rows in rows_by_key(units.rank[ordered], units.device[ordered], step[ordered]).values()
    ]
    lane = units.lane[np.array(first, np.int64)]
    found = [np.bincount(lane[rows]).argmax() for rows in rows_by_key(units.rank[np.array(first, np.int64)]).values()]
    return np.array(found, np.int64)


def _waits(trace: Trace, tasks: Tasks, places: _Places) -> list[Suggestion]:
    """Waits that held streams up longest. That the program waits for the same again later shows where it is needed."""
    units = tasks.units
    owner, item = units.waits.owner, units.waits.items
    ready = np.where(units.call[owner] >= 0, take_or(tasks.calls.start_ns, units.call[owner], 0), 0)
    ready = np.maximum(ready + units.submitted_ns[owner], take_or(units.end_ns, units.previous[owner], 0))
    held = np.maximum(units.end_ns[item] - ready, 0)
    held[units.start_ns[owner] - units.end_ns[item] > DISPATCH_NS] = 0
    again = _waited_for_again(trace, tasks)[owner]
    found: list[tuple[int, Suggestion]] = []
    waiting, awaited = places.of_unit[owner], places.of_unit[item]
    known = (waiting >= 0) & (awaited >= 0) & (held > 0)
    for (a, b), rows in rows_by_key(waiting[known], awaited[known]).items():
        of = np.flatnonzero(known)[rows]
        likely = LIKELY if held[of][again[of]].sum() > held[of].sum() / 2 else SELDOM
        texts = [places.selectors[a], places.selectors[b]]
        if a == b:
            ends = units.op[[owner[of[0]], item[of[0]]]]
            sides = ["comm" if one else "compute" for one in is_communication(trace)[ends]]
            texts = [f"{text}+{side}" for text, side in zip(texts, sides, strict=True)]
        if texts[0] != texts[1]:
            found.append((int(held[of].sum()), Suggestion(DropWait(*texts), likely)))
    found.sort(key=lambda each: (-each[1].likely, -each[0]))
    return [each for _, each in found[:MOST]]


def _waited_for_again(trace: Trace, tasks: Tasks) -> Mask:
    """Units that wait for a collective, which their stream is told to wait for once more later.

    Of three sends, of which two are waited for one by one, and before an op later all three: the first two.
    """
    ordering = trace.once(Ordering)
    linked, lanes = ordering.linked, ordering.lanes
    known = np.flatnonzero((linked.wait_lane >= 0) & (linked.waits.source >= 0) & (linked.waits.record >= 0))
    lane, source, exact = linked.wait_lane[known], linked.waits.source[known], linked.waits.exact[known]
    unit = lanes.unit(lane, lanes.queued_before(lane, linked.calls.waits.start_ns[known]))
    sent = lanes.queued_before(source, linked.calls.records.start_ns[linked.waits.record[known]])
    awaited = lanes.unit(source, sent - 1)
    collective = ints(trace.ops, "collective")[lanes.op]
    of_collectives = (unit >= 0) & (awaited >= 0) & (take_or(collective, awaited) >= 0)
    found = np.zeros(lanes.op.size, dtype=bool)
    for rows in rows_by_key(np.where(of_collectives, lane, -1), source).values():
        if not of_collectives[rows[0]]:
            continue
        rows = rows[np.argsort(unit[rows], kind="stable")]
        heads = np.flatnonzero(np.append(True, np.diff(unit[rows]) != 0))
        upto, earliest = np.maximum.reduceat(sent[rows], heads), np.minimum.reduceat(sent[rows], heads) - 1
        times = np.diff(np.append(heads, rows.size))
        stated = np.logical_and.reduceat(exact[rows], heads)
        since = np.where(stated, earliest, upto - times)  # where nothing names them, each is for one more collective
        later = np.append(np.minimum.accumulate(since[:0:-1])[::-1], MAX_NS)
        found[unit[rows[heads]]] = upto > later
    return found[lanes.unit_of_op[tasks.units.op]]


def _own_streams(trace: Trace, tasks: Tasks, places: _Places) -> list[Suggestion]:
    """Work that other work of its step is queued behind, by how long the shorter of the two takes.

    What only copies to the host writes nothing that a later op reads.
    """
    units = tasks.units
    step = numbers_of_ops(trace)[units.op]
    worth = np.zeros(units.op.size, np.int64)
    for rows in rows_by_key(units.lane, step).values():
        took, place = (units.end_ns - units.start_ns)[rows], places.of_unit[rows]
        new = np.append(True, np.diff(place) != 0)
        heads = np.flatnonzero(new)
        of_run = np.add.reduceat(took, heads)
        worth[rows[heads]] = np.minimum(of_run, of_run[::-1].cumsum()[::-1] - of_run)
    ranked = places.ranked(places.of_unit, worth)
    placed = np.flatnonzero(places.of_unit >= 0)
    to_host = is_one_of(trace.ops, "copy", ("DtoH",))[units.op[placed]]
    others = np.unique(places.of_unit[placed[~to_host]])
    sure = [one for one in ranked if one not in others]
    rest = [one for one in ranked if one in others]
    return [
        Suggestion(OwnStream(places.selectors[one]), likely)
        for some, likely in ((sure, LIKELY), (rest, SELDOM))
        for one in some[:MOST]
    ]


def _fed(trace: Trace, tasks: Tasks, places: _Places) -> list[str]:
    """Collectives that wait for work of their rank, by how long the shorter of the two takes."""
    units = tasks.units
    to_one = np.isin(operations(trace), POINT_TO_POINT)[units.op]  # its other side is fed by nothing
    chosen = np.flatnonzero((units.collective >= 0) & ~to_one)
    feeds = feeding(units, chosen)
    chosen, feeds = chosen[feeds >= 0], feeds[feeds >= 0]
    worth = np.minimum(units.transfer_ns[chosen], units.transfer_ns[feeds]).astype(np.int64)
    return [places.selectors[one] for one in places.ranked(places.of_unit[chosen], worth)[: MOST - 1]]


def _launch_bound(tasks: Tasks, places: _Places) -> list[str]:
    """Ranges whose work starts as soon as it is launched, on a stream that was idle before, and by how much."""
    units, calls = tasks.units, tasks.calls
    has_call = np.flatnonzero((units.call >= 0) & (take_or(places.of_call, units.call) >= 0))
    call = units.call[has_call]
    prompt = units.start_ns[has_call] - calls.start_ns[call] - units.submitted_ns[has_call] <= DISPATCH_NS
    place = places.of_call[call]
    blocking = np.unique(places.of_call[np.flatnonzero(np.diff(calls.waits.first) > 0)])
    occurrences = np.unique(np.stack([place, places.occurrence[call]]), axis=1)[0]
    launches = np.bincount(place, minlength=len(places.selectors)) / np.maximum(
        np.bincount(occurrences, minlength=len(places.selectors)), 1
    )
    worth = np.where(prompt & ~np.isin(place, blocking) & (launches[place] >= FEW_LAUNCHES), units.idle_ns[has_call], 0)
    return [places.selectors[one] for one in places.ranked(place, worth)[: MOST - 1]]


def _last(trace: Trace) -> int | None:
    """The rank that the others wait for longest."""
    wait, last = ints(trace.ops, "wait_ns"), ints(trace.ops, "last_rank")
    rows = np.flatnonzero((wait > 0) & (last >= 0))
    if not rows.size:
        return None
    ranks, number = np.unique(last[rows], return_inverse=True)
    return int(ranks[np.argmax(np.bincount(number, weights=wait[rows]))])


def _any_wait(result: OverlapResult) -> bool:
    return any(side.wait_ns > 0 for rank in result.ranks for side in (rank.a, rank.b))


def _is_range(selector: str) -> bool:
    parsed = parse(selector)
    return isinstance(parsed, Atom) and parsed.kind in RANGE_ATOMS


def _is_communication(selector: str) -> bool:
    parsed = parse(selector)
    return isinstance(parsed, Atom) and parsed.kind in ("comm", "collective")
